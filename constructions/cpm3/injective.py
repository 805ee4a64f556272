"""Whether a position-only layer can count pairs: it must carry the whole sequence (docs/cpm3.md, Theorem 1).

At a token, a position-only layer on scalar tokens hands on W x, with x the other n = N - 1 tokens and W a matrix. An
MLP that sees W x and the token itself can count if and only if W is injective on {0, .., M-1}^n, for every G and
M >= 3. If it is not, W d = 0 for some d != 0 with entries of size below M, and some z and z - d have different counts.

W is read from the layer over the rationals, and the answer is exact. A short vector of the lattice {d : W d = 0} is
looked for by LLL. If it finds none that is short enough, all d are gone through, those whose first entries can still be
made up for by the rest: few, where the entries of W fall off as in packing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd, lcm, prod
from typing import Any

import flint
import numpy as np
from sympy import QQ
from torch import nn

from constructions.construction import Construction
from iha_theory import blueprint, exact
from iha_theory.operators.exact import layer_columns
from iha_theory.rounding import require_count
from synthetic.tasks.count_pairs import CountPairs

MOST_TOKENS = 64
"""Most other tokens for which a short vector is looked for."""
MOST_DIFFERENCES = 2**20
"""Most differences kept at a time when all are gone through."""
TRIES = 300


@dataclass(frozen=True)
class Confusion:
    """Two sequences that a layer gives the same numbers at a token, which is the same in both, and its two counts."""

    token: int
    first: tuple[int, ...]
    second: tuple[int, ...]
    counts: tuple[int, int]


@blueprint.theorem(
    "injective",
    "a position-only layer with the own token beside it counts, M >= 3, only if it carries all other tokens",
    uses=("cpm3", "position-only"),
    check="exact",
    proof="docs/cpm3.md, Theorem 1",
)
def confusion(layer: Construction | nn.Module | Any, modulus: int, coefficient: int) -> Confusion | None:
    """Two sequences of residues whose counts differ and that the layer cannot tell apart; None if it can count.

    Args:
        layer: a `Construction` or torch layer, position-only, on scalar tokens [x, I]; or W as nested lists, array or
            tensor (r, n), by which token 0 sees tokens 1, .., n.
        modulus: M >= 3. (For M = 2 the sum of the tokens is enough.)
        coefficient: G, any integer.

    Raises:
        ValueError: M below 3; a layer that is not position-only, or on wider tokens; more than `MOST_TOKENS` other
            tokens, or `MOST_DIFFERENCES` differences, unless W has rank n.
    """
    if require_count("modulus", modulus) < 3:
        raise ValueError(f"accepted are M >= 3, got {modulus}: for M = 2 the sum of the tokens is enough")
    for token, matrix in _maps(layer):
        difference = kernel_difference(matrix, modulus)
        if difference is not None:
            return _told(token, difference, modulus, coefficient)
    return None


def _maps(layer: Any) -> Iterator[tuple[int, list[list[int]]]]:
    """For each token the rows of W, whole numbers."""
    if not isinstance(layer, Construction | nn.Module):
        yield 0, [_whole(row) for row in exact.matrix(layer, QQ).to_list()]
        return
    module: Any = layer
    width, causality = 1, None
    if isinstance(layer, Construction):
        module, width, causality = layer.layer, layer.width, layer.causality
    if width != 1:
        raise ValueError(f"accepted are layers on scalar tokens, got width {width}")
    columns = layer_columns(module, 1, causality=causality)
    maps = [column[0].to_list() for column in columns if column[0] is not None]
    tokens = module.embed_dim - 1
    for token in range(tokens):
        rows = [_whole([x for j, x in enumerate(m[token]) if j != token]) for m in maps]
        yield token, rows or [[0] * (tokens - 1)]


def _whole(row: list[Any]) -> list[int]:
    common = lcm(*(int(x.denominator) for x in row))
    return [int(x * common) for x in row]


def kernel_difference(matrix: list[list[int]], modulus: int) -> np.ndarray | None:
    """Some d != 0 with W d = 0, entries in -(M-1) .. M-1 and no common divisor; None if there is none.

    Args:
        matrix: W, whole numbers, at least one column.
        modulus: M >= 2.

    Raises:
        ValueError: as `confusion`.
    """
    w = flint.fmpz_mat(matrix)
    n, reduced = w.ncols(), w.rref()[0]
    rank = w.rank()
    if rank == n:
        return None
    if n > MOST_TOKENS:
        raise ValueError(f"{n} other tokens and a map of rank {rank}: accepted are up to {MOST_TOKENS}, or rank {n}")
    rows = [[int(reduced[i, j]) for j in range(n)] for i in range(rank)]
    rows = [[x // gcd(*row) for x in row] for row in rows]
    for short in _short_vectors(rows, n):
        if max(map(abs, short)) < modulus:
            return np.array(short) // gcd(*short)
    return _every_difference(matrix, n, modulus)


def _short_vectors(rows: list[list[int]], n: int) -> list[list[int]]:
    """A reduced basis of the lattice of all whole d with W d = 0, for independent rows of W.

    LLL on the rows (e_j, c w_j), w_j the columns of W. The lattice has n - r independent vectors whose entries are
    minors (Cramer), so no longer than n prod |row|. A vector outside it is longer than c, and c is 2^n times that and
    more: so the first n - r vectors of the reduced basis are all in it.
    """
    c = 2**n * n * prod(sum(x * x for x in row) for row in rows)
    basis = flint.fmpz_mat([[int(i == j) for i in range(n)] + [c * row[j] for row in rows] for j in range(n)]).lll()
    return [[int(basis[i, j]) for j in range(n)] for i in range(n - len(rows))]


def _every_difference(matrix: list[list[int]], n: int, modulus: int) -> np.ndarray | None:
    """All d, one entry after the other; those are kept that the remaining entries can bring back to W d = 0."""
    w = np.array(matrix, dtype=object)
    order = np.argsort([-max(abs(x) for x in w[:, j]) for j in range(n)], kind="stable")
    w = w[:, order]
    size = (modulus - 1) * np.abs(w)
    w = w.astype(np.int64) if int(size.sum(1).max()) < 2**62 else w
    entries = np.arange(1 - modulus, modulus)
    found, sums = np.zeros((1, 0), dtype=np.int64), np.zeros((1, len(matrix)), dtype=w.dtype)
    for j in range(n):
        room = size[:, j + 1 :].sum(1)
        new = (sums[:, None] + entries[:, None] * w[:, j]).reshape(-1, len(matrix))
        kept = (np.abs(new) <= room).all(1)
        found = np.column_stack((np.repeat(found, len(entries), 0), np.tile(entries, len(found))))[kept]
        sums = new[kept]
        if len(found) * len(entries) > MOST_DIFFERENCES:
            raise ValueError(
                f"too many differences to go through for {n} other tokens and M = {modulus}: accepted is "
                f"(2 M - 1)^n <= {MOST_DIFFERENCES}, and more where the map has rank n or its entries fall off"
            )
    other = found[found.any(1)]
    if not len(other):
        return None
    difference = np.empty(n, dtype=np.int64)
    difference[order] = other[0]
    return difference // np.gcd.reduce(difference)


def _told(token: int, difference: np.ndarray, modulus: int, coefficient: int) -> Confusion:
    """z and z - d with an own token for which the task's counts differ."""
    task, own = CountPairs(modulus, coefficient), np.arange(min(modulus, 16))
    for z in _pairs(difference, modulus):
        first, second = (np.insert(np.tile(x, (len(own), 1)), token, own, axis=1) for x in (z, z - difference))
        counts = task.target(first)[:, token], task.target(second)[:, token]
        for t in np.flatnonzero(counts[0] != counts[1])[:1]:
            a, b = (tuple(int(x) for x in sequence[t]) for sequence in (first, second))
            return Confusion(token, a, b, (int(counts[0][t]), int(counts[1][t])))
    raise AssertionError(f"no counts differ for {difference.tolist()}, M = {modulus}, G = {coefficient}")


def _pairs(difference: np.ndarray, modulus: int) -> Iterator[np.ndarray]:
    """z such that z and z - d are residues: the least one, those next to it, then random ones."""
    low, high = np.maximum(difference, 0), modulus - 1 + np.minimum(difference, 0)
    yield low
    for i in np.flatnonzero(high > low):
        yield low + (np.arange(len(low)) == i)
    generator = np.random.default_rng(0)
    for _ in range(TRIES):
        yield generator.integers(low, high + 1)


blueprint.unowned(
    "open",
    "own-token-mixed",
    "which (M, G) need all N tokens if the own token is not beside the layer",
    uses=("injective",),
    proof="docs/cpm3.md, Not settled here",
)
