"""Any bank by about half as many IHA heads as it has matrices (docs/bounds.md, Theorem 5).

Let T_0 .. T_{k-1} in R^{N x N} have a span of dimension r, queries and keys the width m N, and H >= m heads with

    m (2 H - m) >= r,      so H = ceil((r / m + m) / 2): (r + 1) / 2 for m = 1, ceil(sqrt r) at m = ceil(sqrt r).

Put a basis S_ab of the span (and zeros) in the cells (a, b) of an H x H grid with a < m or b < m: m (2 H - m) cells. In
blocks of N columns,

    Q_a = [0 .. I .. 0] with I in block a < m,      K_b^T = [S_0b; ..; S_{m-1,b}]  for every b < H,
    Q_a = [S_a0, .., S_{a,m-1}] M^{-1}  for a >= m,      M = [K_0^T, .., K_{m-1}^T] = [S_ab]_{a,b < m},

so that Q_a K_b^T = S_ab in all these cells. The output projection makes the T_t of them and leaves out the other
products. It takes an invertible M unless H = m: for m = 1 an invertible matrix in the span. If any basis has one then
almost every basis has (the determinant is a polynomial in the change of basis), so it is found at random.

**Least.** For almost every bank and large N: (4) of docs/bounds.md with d_k = m N says m (2 H - m) >= k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix

from constructions.construction import Construction, blocks
from constructions.filter_bank.layers import LAYERS, to_module
from iha_theory import blueprint, exact
from iha_theory.rounding import require_count, require_one_of

SIZES = (0, 1, 10, 1000, 10**6)
"""Of the random integers in a change of basis, tried one after another; 0: none. A determinant of degree 2 m N that is
not 0 everywhere is 0 at the last with probability below m N / 10^6."""


@dataclass(frozen=True)
class Grid:
    """Matrices Q_a, (N, m N), and K_b^T, (m N, N), H each; coefficients[a][b][t] with T_t = sum_{a,b} c Q_a K_b^T."""

    queries: list[DomainMatrix]
    keys: list[DomainMatrix]
    coefficients: list[list[list[Any]]]


def heads(rank: int, factor: int = 1) -> int:
    """H, the least number with H >= m and m (2 H - m) >= r.

    Args:
        rank: r, at least 1.
        factor: m, at least 1.
    """
    return max(factor, -(-(-(-require_count("rank", rank) // require_count("factor", factor)) + factor) // 2))


def grid(maps: Sequence[DomainMatrix], factor: int = 1) -> Grid:
    """Queries and keys of width m N whose products span the maps; see the module docstring.

    Args:
        maps: T_t, at least one, each (N, N), over one field.
        factor: m.

    Raises:
        ValueError: no invertible M was found.
    """
    field, tokens = maps[0].domain, maps[0].shape[0]
    basis, combination = _basis(maps)
    count = heads(len(basis), factor)
    cells = sorted(((a, b) for a in range(count) for b in range(count) if min(a, b) < factor), key=max)
    for size in SIZES if count > factor else SIZES[:1]:
        changed, coefficients = _changed(basis, combination, size)
        at = dict(zip(cells, changed, strict=False))
        none = exact.zeros((tokens, tokens), field)
        keys = [DomainMatrix.vstack(*(at.get((a, b), none) for a in range(factor))) for b in range(count)]
        block = DomainMatrix.hstack(*keys[:factor])
        if count > factor and block.rank() < block.shape[0]:
            continue
        one = exact.identity(factor * tokens, field)
        queries = [one.extract(range(a * tokens, (a + 1) * tokens), range(factor * tokens)) for a in range(factor)]
        for a in range(factor, count):
            row = DomainMatrix.hstack(*(at.get((a, b), none) for b in range(factor)))
            queries.append(row * block.inv())
        rows = dict(zip(cells, coefficients.to_list(), strict=False))
        zero = [field.zero] * len(maps)
        return Grid(queries, keys, [[rows.get((a, b), zero) for b in range(count)] for a in range(count)])
    raise ValueError(f"no invertible matrix of size {factor * tokens} was found in the span of the {len(maps)} maps")


@blueprint.construction(
    "half-heads",
    "ceil((k/m + m)/2) heads of IHA with queries and keys of width m N make any k matrices whose span"
    " has an invertible one",
    uses=("products",),
    check="exact",
    proof="docs/bounds.md, Theorem 5, Enough",
)
def bank(layer: str, maps: Sequence[DomainMatrix], width: int = 1, factor: int = 1) -> Construction:
    """[T_0 X, ..., T_{k-1} X] by "iha" with P = H, or "iha-tiled" with P = ceil(sqrt H) at most.

    Args:
        layer: as said.
        maps: as in `grid`; over the rationals or a prime field.
        width: of the content, d.
        factor: m.

    Raises:
        OverflowError: a weight that float64 cannot hold.
        ValueError: as `grid`; another layer.
    """
    require_one_of("layer", layer, ("iha", "iha-tiled"))
    require_count("width", width)
    made = grid(maps, factor)
    queries = torch.stack([exact.to_float64(q) for q in made.queries])
    keys = torch.stack([exact.to_float64(k.transpose()) for k in made.keys])
    rows = [row for line in made.coefficients for row in line]
    flat = exact.to_float64(DomainMatrix(rows, (len(rows), len(maps)), maps[0].domain))
    contents = torch.einsum("ht,cd->hctd", flat, torch.eye(width, dtype=torch.float64)).flatten(2)
    module = to_module(LAYERS[layer].products(queries, keys, contents.unflatten(0, (len(keys), len(keys)))))
    return Construction(f"unstructured/{layer}", "docs/bounds.md", module, blocks("T_{} X", len(maps), width), width)


def _basis(maps: Sequence[DomainMatrix]) -> tuple[list[DomainMatrix], DomainMatrix]:
    """Independent ones of the maps, at least one, and f, (r, k), with T_t = sum_s f[s, t] S_s."""
    flat = DomainMatrix([m.to_list_flat() for m in maps], (len(maps), maps[0].shape[0] ** 2), maps[0].domain)
    reduced, pivots = flat.to_dense().transpose().rref()
    if not pivots:
        return [maps[0]], exact.zeros((1, len(maps)), maps[0].domain)
    return [maps[t] for t in pivots], reduced.extract(range(len(pivots)), range(len(maps)))


def _changed(
    basis: list[DomainMatrix], combination: DomainMatrix, size: int
) -> tuple[list[DomainMatrix], DomainMatrix]:
    """The basis times a random upper times a lower triangular matrix, both with ones on the diagonal; coefficients."""
    field, rank = combination.domain, len(basis)
    random = np.random.default_rng(rank).integers(-size, size + 1, (2, rank, rank))
    one = np.eye(rank, dtype=np.int64)
    change = exact.matrix(np.triu(random[0], 1) + one, field) * exact.matrix(np.tril(random[1], -1) + one, field)
    changed = exact.combinations(change, basis)
    none = exact.zeros(basis[0].shape, field)
    return [none if m is None else m for m in changed], change.transpose().inv() * combination
