"""The dimension of the span of a bank of matrices, exactly: a certificate from below, a relation from above.

**From below.** Elimination modulo a prime p picks r entries (i, j) and r matrices whose minor is not 0 modulo p, hence
not 0 (`iha_theory.bounds.certificates`). The entries of the powers of A are made a few rows at a time, e_i A^t, in
float64: with p = 2^19 - 1 a sum of N products of residues stays below 2^53 for N <= 2^15, so nothing is rounded.

**From above.** Where r is less than it could be, r of the matrices are shown to span the others: the coefficients of
each follow, over the rationals, from the r entries of the minor, and the combination is then compared in every entry.
For powers one such relation is enough: let A^r = sum_{t<r} c_t A^t. Then A^{r+1} = sum c_t A^{t+1} is in
span{I, ..., A^r} = span{I, ..., A^{r-1}}, and so on. The first r powers are independent, so
x^r - sum_t c_t x^t is the minimal polynomial of A. If the comparison fails, the prime has hidden a dimension: another
one is taken (finitely many divide all minors of full size). Cayley-Hamilton: min(k, N) powers are enough.

Both bounds meet, so the rank is exact; nothing is decided by a tolerance. Source: docs/results.md T2.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from sympy import QQ, prevprime
from sympy.polys.matrices import DomainMatrix

from iha_theory import blueprint, exact
from iha_theory.bounds.certificates import Certificate
from iha_theory.rounding import require_count

PRIME = 2**19 - 1
"""The first prime that is tried."""
MAX_SIZE = 2**15
"""N (p - 1)^2 < 2^53 up to this size."""
CHUNK = 2**13
LARGEST_CHUNK = 2**16
"""Entries of the matrices that are eliminated at once: few at first, since they are often enough."""


@dataclass(frozen=True)
class ExactRank:
    """The dimension of the span of a bank of matrices.

    Attributes:
        rank: r, exact.
        members: number of matrices in the bank (for powers k).
        certificate: proves that it is at least r; None for r = 0.
        relations: proves that it is at most r. For each matrix t that is not one of the certificate's columns the
            coefficients of T_t in those; for powers, of A^r only, if r < k.
    """

    rank: int
    members: int
    certificate: Certificate | None
    relations: dict[int, tuple[Fraction, ...]]


@blueprint.theorem(
    "exact-rank",
    "the filter bank has rank r = min(k, degree of the minimal polynomial): from below by a minor "
    "that is not 0 modulo a prime, from above by a relation over the rationals",
    uses=("filter-bank", "schmidt-rank"),
    check="exact",
    proof="docs/bounds.md, Certificates; docs/bounds.md, Theorem 2, Powers",
)
def power_rank(a: Any, terms: int) -> ExactRank:
    """dim span{I, A, ..., A^{k-1}} = min(k, degree of the minimal polynomial of A).

    Proof: the module docstring. For A = diag(1, ..., 12) and k = 12 it is 12, where floating point says 10.

    Args:
        a: A, (N, N): integers, rationals, or floats, which are taken as the dyadic rationals that they are.
        terms: k.

    Raises:
        ValueError: A that is not a square matrix of finite numbers, N > 2^15, or terms below 1.
    """
    whole = isinstance(a, np.ndarray) and a.ndim == 2 and a.dtype.kind in "iu"
    m = None if whole else _rational(a)
    size, columns = a.shape if m is None else m.shape
    if size != columns or size > MAX_SIZE:
        raise ValueError(f"expected a square matrix of at most {MAX_SIZE} rows, got {size} x {columns}")
    require_count("terms", terms)
    most = min(terms, size)
    for prime in _primes() if m is None else _primes(m):
        residues = a % prime if m is None else exact.residue_array(m, prime)
        found = _independent(_power_entries(residues.astype(np.int64), most, prime), most, prime)
        rank = len(found.columns)
        certificate = found.certificate(size)
        if rank == terms:
            return ExactRank(rank, terms, certificate, {})
        m = _rational(a) if m is None else m
        powers = [exact.identity(size, QQ)]
        for _ in range(rank):
            powers.append(powers[-1] * m)
        relations = _relations(powers[:-1], powers[-1:], certificate.rows)
        if relations is not None:
            return ExactRank(rank, terms, certificate, {rank: relations[0]})
    raise AssertionError("there are infinitely many primes")


def bank_rank(maps: Sequence[Any]) -> ExactRank:
    """dim span of any matrices of one shape, such as the shifts of a convolution.

    Args:
        maps: T_0, T_1, ...; numbers as in `power_rank`.

    Raises:
        ValueError: no matrix, shapes that differ, or an entry that is not a finite number.
    """
    bank, (_, width) = _bank(maps)
    for prime in _primes(*bank):
        entries = np.stack([exact.residue_array(m, prime).astype(np.int64).ravel() for m in bank], axis=1)
        found = _independent(iter(np.split(entries, range(CHUNK, len(entries), CHUNK))), len(bank), prime)
        pivots = found.columns
        others = [t for t in range(len(bank)) if t not in pivots]
        if not pivots:
            if all(m.is_zero_matrix for m in bank):
                return ExactRank(0, len(bank), None, dict.fromkeys(others, ()))
            continue
        certificate = found.certificate(width)
        relations = _relations([bank[t] for t in pivots], [bank[t] for t in others], certificate.rows)
        if relations is not None:
            return ExactRank(len(pivots), len(bank), certificate, dict(zip(others, relations, strict=True)))
    raise AssertionError("there are infinitely many primes")


@dataclass(frozen=True)
class _Independent:
    """Entries (as positions in the flattened matrix) and members of a bank whose minor is not 0 modulo the prime."""

    entries: tuple[int, ...]
    columns: tuple[int, ...]
    values: list[np.ndarray]
    prime: int

    def certificate(self, width: int) -> Certificate:
        rows = tuple(divmod(entry, width) for entry in self.entries)
        square = [int(row[t]) for row in self.values for t in self.columns]
        minor = int(flint.nmod_mat(len(rows), len(rows), square, self.prime).det())
        return Certificate(len(rows), rows, self.columns, self.prime, minor)


@blueprint.theorem(
    "output-width",
    "a layer that ends in an output projection, whatever it is, has H d_v >= d max_i dim span_t{e_i^T"
    " T_t} for the bank of the T_t",
    check="numerical",
    proof="docs/bounds.md, Theorem 2, Heads are saved, output width is not",
)
def output_width(maps: Sequence[Any], width: int = 1) -> int:
    """d max_i dim span_t{e_i^T T_t}: the least total width H d_v of the heads' outputs for X -> [T_t X]_t.

    It holds for any layer whatever whose last step is an affine output projection, content anywhere: at token i the
    projection makes [e_i^T T_t X]_t, which for X in R^{N x d} fills d dim span_t{e_i^T T_t} dimensions, out of the
    heads' H d_v numbers. So IHA saves heads, not output width.

    Args:
        maps: T_0, T_1, ...: at least one, each (N, N), as `bank_rank` takes them.
        width: of the content, d.

    Raises:
        ValueError: as `bank_rank`, or a width below 1.
    """
    bank, (tokens, keys) = _bank(maps)
    rows = (DomainMatrix.vstack(*(m.extract([i], range(keys)) for m in bank)) for i in range(tokens))
    return require_count("width", width) * max(m.rank() for m in rows)


def _independent(chunks: Iterator[np.ndarray], most: int, prime: int) -> _Independent:
    """The first independent rows of a matrix modulo a prime, and its first independent columns.

    The chunks are its rows, (m, members), residues in int64. A reduced echelon form of the rows so far is kept, which
    has its pivots in the first independent columns.
    """
    basis = np.zeros((0, 0), dtype=np.int64)
    pivots: list[int] = []
    entries: list[int] = []
    values: list[np.ndarray] = []
    start = 0
    for chunk in chunks:
        rest = (chunk - chunk[:, pivots] @ basis) % prime if pivots else chunk.copy()
        while len(pivots) < most and len(live := np.flatnonzero(rest.any(axis=1))):
            at = live[0]
            pivot = int(np.flatnonzero(rest[at])[0])
            row = rest[at] * pow(int(rest[at, pivot]), -1, prime) % prime
            basis = np.vstack([(basis - basis[:, [pivot]] * row) % prime, row]) if pivots else row[None]
            rest[live] = (rest[live] - rest[live][:, [pivot]] * row) % prime
            pivots.append(pivot)
            entries.append(start + int(at))
            values.append(chunk[at])
        start += len(chunk)
        if len(pivots) == most:
            break
    return _Independent(tuple(entries), tuple(sorted(pivots)), values, prime)


def _power_entries(a: np.ndarray, terms: int, prime: int) -> Iterator[np.ndarray]:
    """The entries (i, j) of I, A, ..., A^{k-1} modulo the prime, a few i at a time: (m, k)."""
    size = len(a)
    start, chunk = 0, CHUNK
    a = a.astype(np.float64)
    while start < size:
        step = min(max(1, chunk // size), size - start)
        powers = [np.eye(step, size, start, dtype=np.int64)]
        for _ in range(terms - 1):
            powers.append((powers[-1].astype(np.float64) @ a).astype(np.int64) % prime)
        yield np.stack(powers, axis=-1).reshape(-1, terms)
        start, chunk = start + step, min(2 * chunk, LARGEST_CHUNK)


def _relations(
    basis: list[DomainMatrix], others: list[DomainMatrix], entries: Sequence[tuple[int, int]]
) -> list[tuple[Fraction, ...]] | None:
    """For each other matrix its coefficients in the basis; None if one is not in its span.

    On the given entries the basis has a minor that is not 0.
    """
    if not others:
        return []
    size = len(basis)

    def at_entries(matrices: list[DomainMatrix]) -> DomainMatrix:
        picked = [[m.rep.getitem(i, j) for m in matrices] for i, j in entries]
        return DomainMatrix(picked, (size, len(matrices)), QQ).to_dense()

    solution = at_entries(basis).lu_solve(at_entries(others)).transpose()
    if exact.difference(exact.combinations(solution, basis), others) != 0:
        return None
    return [tuple(Fraction(int(c.numerator), int(c.denominator)) for c in row) for row in solution.to_list()]


def _bank(maps: Sequence[Any]) -> tuple[list[DomainMatrix], tuple[int, int]]:
    bank = [_rational(m) for m in maps]
    shapes = {m.shape for m in bank}
    if len(shapes) != 1:
        raise ValueError(f"a bank needs matrices of one shape, got {sorted(shapes) or 'none'}")
    return bank, shapes.pop()


def _rational(m: Any) -> DomainMatrix:
    return m.convert_to(QQ).to_dense() if isinstance(m, DomainMatrix) else exact.matrix(m, QQ)


def _primes(*matrices: DomainMatrix) -> Iterator[int]:
    """Primes from PRIME down that divide no denominator."""
    denominators = {int(x.denominator) for m in matrices for x in m.to_list_flat()}
    prime = PRIME
    while prime > 2:
        if all(d % prime for d in denominators):
            yield prime
        prime = int(prevprime(prime))
