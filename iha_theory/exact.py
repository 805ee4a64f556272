"""Exact matrices: over the rationals, modulo primes, or over a polynomial ring (sympy's DomainMatrix, flint below).

A float64 is a dyadic rational, so weights pass from torch to the rationals, and modulo an odd prime, without rounding.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from numbers import Rational
from typing import Any

import numpy as np
import torch
from sympy import GF, QQ, prevprime
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

Domain = Any
"""A sympy domain: QQ, GF(p), or a polynomial ring over one of them."""

LARGEST_INTEGER = 2**53
"""Every integer up to this size is a float64."""


def gf(prime: int) -> Domain:
    """The integers modulo a prime, with representatives 0 .. prime - 1."""
    return GF(prime, symmetric=False)


def element(domain: Domain, x: Any) -> Any:
    """A number of Python, numpy or torch as an element of the domain, without rounding.

    Raises:
        ValueError: NaN or an infinity.
    """
    if isinstance(x, int | np.integer):
        return domain(int(x))
    if isinstance(x, float | np.floating):
        if not math.isfinite(x):
            raise ValueError(f"{x} is not a number that can be checked exactly")
        numerator, denominator = float(x).as_integer_ratio()
        return domain(numerator) / domain(denominator) if denominator != 1 else domain(numerator)
    if isinstance(x, Rational):
        return domain(x.numerator) / domain(x.denominator)
    return domain.convert(x)


def matrix(rows: Any, domain: Domain) -> DomainMatrix:
    """A matrix over the domain from a 2-D array, tensor or nested list of numbers, without rounding.

    Raises:
        ValueError: an entry that is NaN or infinite, or an array that is not 2-D with at least one entry.
    """
    if isinstance(rows, Tensor):
        rows = rows.detach().cpu().double().numpy()
    array = np.asarray(rows) if not isinstance(rows, np.ndarray) else rows
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"expected a non-empty matrix, got shape {array.shape}")
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        entries = [[int(x) for x in row] for row in array.tolist()]
    elif array.dtype.kind in "iu" or all(type(x) is int for x in array.flat):
        entries = array.tolist()  # flint takes Python's integers as they are
    else:
        entries = [[element(domain, x) for x in row] for row in array.tolist()]
    return DomainMatrix(entries, array.shape, domain).to_dense()


def identity(size: int, domain: Domain) -> DomainMatrix:
    """The identity matrix."""
    return DomainMatrix.eye(size, domain).to_dense()


def zeros(shape: tuple[int, int], domain: Domain) -> DomainMatrix:
    """The zero matrix."""
    return DomainMatrix.zeros(shape, domain).to_dense()


def minimal_polynomial(a: DomainMatrix) -> list[Any]:
    """(1, c_1, ..., c_m): x^m + c_1 x^{m-1} + ... + c_m is the monic polynomial of least degree that is 0 at A.

    Args:
        a: A, (N, N), over the rationals or a prime field.
    """
    dense: Any = a.to_dense().rep
    return [element(a.domain, c) for c in reversed(dense.rep.minpoly().coeffs())]  # by flint


def combination(coefficients: Iterable[Any], matrices: Iterable[DomainMatrix]) -> DomainMatrix | None:
    """sum_i c_i M_i without the terms whose coefficient is 0; None if that leaves nothing."""
    total = None
    for c, m in zip(coefficients, matrices, strict=True):
        if c:
            term = m if c == m.domain.one else m * c
            total = term if total is None else total + term
    return total


def numerators(matrices: Sequence[DomainMatrix]) -> tuple[np.ndarray, int]:
    """Rational matrices of one shape times their least common denominator, [matrix, row, column], and that number."""
    dense: list[Any] = [m.to_dense().rep for m in matrices]
    parts = [m.rep.numer_denom() for m in dense]  # by flint
    common = math.lcm(*(int(d) for _, d in parts))
    whole = np.empty((len(matrices), math.prod(matrices[0].shape)), dtype=object)
    for row, (n, d) in zip(whole, parts, strict=True):
        row[:] = [*map(int, n.entries())]
        if d != common:
            row *= common // int(d)
    return whole.reshape(len(matrices), *matrices[0].shape), common


def combinations(coefficients: DomainMatrix, matrices: Sequence[DomainMatrix | None]) -> list[DomainMatrix | None]:
    """For each row c of the coefficients sum_i c_i M_i, None standing for 0: one product of matrices, by flint."""
    known = [i for i, m in enumerate(matrices) if m is not None]
    first = next((m for m in matrices if m is not None), None)
    if first is None:
        return [None] * coefficients.shape[0]
    flat = [m.to_list_flat() for m in matrices if m is not None]
    chosen = coefficients.extract(range(coefficients.shape[0]), known)
    rows = (chosen * DomainMatrix(flat, (len(flat), len(flat[0])), first.domain).to_dense()).to_list()
    return [
        DomainMatrix.from_list_flat(row, first.shape, first.domain).to_dense() if any(row) else None for row in rows
    ]


def to_float64(m: DomainMatrix) -> Tensor:
    """The matrix as a float64 tensor, every entry exactly.

    Residues modulo a prime below 2^53 become the integers that represent them.

    Raises:
        OverflowError: an entry that float64 cannot hold.
    """
    denominators = None
    if m.domain == QQ:
        whole, common = numerators([m])
        tops = whole.ravel().tolist()
        if common != 1:
            tops = [int(x.numerator) for x in m.to_list_flat()]
            denominators = [int(x.denominator) for x in m.to_list_flat()]
    else:
        tops = [*map(int, m.to_list_flat())]
    largest = max(map(abs, tops))
    if largest > 2**1000:
        raise OverflowError("an entry is too large for float64")
    if denominators is not None:
        floats = [n / d for n, d in zip(tops, denominators, strict=True)]
        kept = all(f.as_integer_ratio() == (n, d) for f, n, d in zip(floats, tops, denominators, strict=True))
    else:
        floats = [*map(float, tops)]
        kept = largest <= LARGEST_INTEGER or (m.domain == QQ and [*map(int, floats)] == tops)
    if not kept:
        raise OverflowError("an entry is not a float64")
    return torch.tensor(floats, dtype=torch.float64).reshape(m.shape)


def nearest_float64(m: DomainMatrix) -> Tensor:
    """The nearest float64 of every entry of a rational matrix.

    Raises:
        OverflowError: an entry beyond float64's range.
    """
    whole, common = numerators([m])
    floats = [x / common for x in whole.ravel().tolist()]  # Python rounds the quotient of integers once
    return torch.tensor(floats, dtype=torch.float64).reshape(m.shape)


def residue_array(m: DomainMatrix, prime: int) -> np.ndarray:
    """A rational matrix modulo a prime that divides none of its denominators, as integers in 0 .. prime - 1."""
    whole, common = numerators([m])
    return whole[0] * pow(common, -1, prime) % prime


def residues(m: DomainMatrix, prime: int) -> DomainMatrix:
    """A rational matrix modulo a prime that divides none of its denominators."""
    return matrix(residue_array(m, prime), gf(prime))


def denominator(*matrices: DomainMatrix) -> int:
    """The least common denominator of the entries of rational matrices."""
    return math.lcm(*(int(x.denominator) for m in matrices for x in m.to_list_flat()))


def primes_beyond(bound: int, avoided: int = 1) -> Iterator[int]:
    """The largest primes below 2^53 whose product exceeds the bound, none of which divides `avoided`.

    Two integers that are equal modulo all of them, and differ by less than their product, are equal (Chinese
    remainders). Every residue is a float64.
    """
    prime, product = LARGEST_INTEGER, 1
    while product <= bound:
        prime = int(prevprime(prime))
        if avoided % prime:
            product *= prime
            yield prime


def difference(a: Sequence[DomainMatrix | None], b: Sequence[DomainMatrix | None]) -> float:
    """Largest difference of entries between two lists of matrices (None = 0): 0.0 if and only if they are equal.

    Over the rationals max |a - b|, rounded up to the smallest positive float64 if it is not 0; elsewhere, where size
    means nothing, the number of entries that differ.
    """
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        if x == y:  # by flint, much faster than to look at a difference
            continue
        gap = _gap(x, y)
        if gap is None or gap.is_zero_matrix:
            continue
        entries = [e for e in gap.to_list_flat() if e]
        if gap.domain == QQ:
            largest = max(abs(e) for e in entries)
            try:
                size = int(largest.numerator) / int(largest.denominator)
            except OverflowError:
                size = float(np.finfo(np.float64).max)
            worst = max(worst, size, float(np.finfo(np.float64).tiny))
        else:
            worst += len(entries)
    return worst


def _gap(x: DomainMatrix | None, y: DomainMatrix | None) -> DomainMatrix | None:
    if x is not None and y is not None:
        if x.shape != y.shape:
            raise ValueError(f"shapes {x.shape} and {y.shape} differ")
        return x - y
    return x if y is None else y
