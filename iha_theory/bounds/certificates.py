"""Certificates of lower bounds, and the code that checks them.

A **bank** is a list of matrices T_0, T_1, ... of one shape, such as the powers I, A, ..., A^{k-1}. A layer that
computes X -> [T_0 X, T_1 X, ...] has an operator Schmidt rank of at least dim span{T_t} (`iha_theory.bounds.heads`),
the rank of the matrix E[(i,j),t] = T_t[i,j]. So an r x r minor of E that is not 0 proves that the rank is at least r.

**Modulo a prime.** Let no denominator of the bank's entries be a multiple of p. Taking residues modulo p is then a ring
homomorphism on these numbers, so it commutes with the determinant: a minor that is not 0 modulo p is not 0. (The
converse is false, so a prime can fail to show a rank, but never show too much.)

This module knows nothing of how a certificate was found (`iha_theory.bounds.exact_rank`): it computes the entries with
Python's integers, row vector times matrix, and the minor by its own elimination. Source: docs/results.md T2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from sympy import isprime
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

Matrix = Any
"""A 2-D array, tensor, nested list or DomainMatrix of integers, rationals or floats; a float64 is a dyadic rational."""

PRIME_BOUND = 2**64
"""Below it, sympy's primality test is a proof."""


@dataclass(frozen=True)
class Certificate:
    """The claim that the rank of a bank's realignment is at least `rank`, with a minor that proves it.

    Attributes:
        rank: r.
        rows: r different entries (i, j) of the matrices.
        columns: r different members t of the bank; for the powers of a matrix, their exponents.
        prime: p, below 2^64.
        minor: det [T_t[i,j]] modulo p, rows and columns in the order above; 1 .. p - 1.
    """

    rank: int
    rows: tuple[tuple[int, int], ...]
    columns: tuple[int, ...]
    prime: int
    minor: int

    @property
    def claim(self) -> str:
        """The claim in words."""
        return f"the realignment of the bank has rank at least {self.rank}"

    def to_json(self) -> dict[str, Any]:
        """As strict JSON: claim, rank, rows, columns, prime, minor."""
        return (
            {"claim": self.claim}
            | asdict(self)
            | {"rows": [list(row) for row in self.rows], "columns": list(self.columns)}
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Certificate":
        """The certificate that `to_json` wrote. Whether it is right is another question: see `verify`.

        Raises:
            ValueError: missing or unknown fields, or a value of another kind.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(data, Mapping) or set(data) != names | {"claim"}:
            raise ValueError(f"a certificate has the fields claim, {', '.join(sorted(names))}")
        rows, columns = data["rows"], data["columns"]
        if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 2 for row in rows):
            raise ValueError("the rows of a certificate are pairs [i, j]")
        if not isinstance(columns, list):
            raise ValueError("the columns of a certificate are a list of integers")
        numbers = [x for row in rows for x in row] + columns + [data[name] for name in ("rank", "prime", "minor")]
        if not all(_is_int(x) for x in numbers):
            raise ValueError("the numbers of a certificate are integers")
        made = cls(data["rank"], tuple((i, j) for i, j in rows), tuple(columns), data["prime"], data["minor"])
        if data["claim"] != made.claim:
            raise ValueError(f"the claim of a certificate of rank {made.rank} is {made.claim!r}")
        return made


def verify(certificate: Certificate, a: Matrix, terms: int) -> bool:
    """Whether the certificate proves dim span{I, A, ..., A^{k-1}} >= its rank. See `refusal`."""
    return refusal(certificate, a, terms) is None


def refusal(certificate: Certificate, a: Matrix, terms: int) -> str | None:
    """Why the certificate proves nothing about I, A, ..., A^{k-1}; None if it proves its claim.

    Args:
        certificate: the certificate.
        a: A, (N, N).
        terms: k.

    Raises:
        ValueError: A that is not a square matrix of finite numbers, or terms below 1.
    """
    rows, width = _rationals(a)
    if len(rows) != width or terms < 1:
        raise ValueError(f"expected a square matrix and terms of at least 1, got {len(rows)} x {width}, {terms}")
    if reason := _malformed(certificate, (len(rows), len(rows)), terms):
        return reason
    residues = _residues(rows, certificate.prime)
    if residues is None:
        return f"{certificate.prime} divides a denominator of A"
    top = max(certificate.columns)
    known = {i: _row_powers(residues, i, top, certificate.prime) for i in {i for i, _ in certificate.rows}}
    return _wrong_minor(certificate, [[known[i][t][j] for t in certificate.columns] for i, j in certificate.rows])


def bank_refusal(certificate: Certificate, maps: Sequence[Matrix]) -> str | None:
    """Why the certificate proves nothing about the rank of these matrices; None if it proves its claim.

    Args:
        certificate: the certificate.
        maps: T_0, T_1, ..., of one shape.

    Raises:
        ValueError: no matrix, shapes that differ, or an entry that is not a finite number.
    """
    bank = [_rationals(m) for m in maps]
    shapes = {(len(rows), width) for rows, width in bank}
    if len(shapes) != 1:
        raise ValueError(f"a bank needs matrices of one shape, got {sorted(shapes) or 'none'}")
    if reason := _malformed(certificate, shapes.pop(), len(bank)):
        return reason
    used = {t: _residues(bank[t][0], certificate.prime) for t in certificate.columns}
    entries: list[list[int]] = []
    for i, j in certificate.rows:
        entries.append([])
        for t in certificate.columns:
            residues = used[t]
            if residues is None:
                return f"{certificate.prime} divides a denominator of matrix {t}"
            entries[-1].append(residues[i].get(j, 0))
    return _wrong_minor(certificate, entries)


def _malformed(certificate: Certificate, shape: tuple[int, int], members: int) -> str | None:
    """Why no bank of this many matrices of this shape could make the certificate right."""
    rank, rows, columns, prime = certificate.rank, certificate.rows, certificate.columns, certificate.prime
    if rank < 1 or len(rows) != rank or len(columns) != rank:
        return f"rank {rank} needs as many rows and columns, got {len(rows)} and {len(columns)}"
    if len(set(rows)) != rank or len(set(columns)) != rank:
        return "a row or a column is there twice"
    if not all(0 <= i < shape[0] and 0 <= j < shape[1] for i, j in rows):
        return f"a row is no entry of a {shape[0]} x {shape[1]} matrix"
    if not all(0 <= t < members for t in columns):
        return f"a column is none of the {members} matrices"
    if not (prime < PRIME_BOUND and isprime(prime)):
        return f"{prime} is not a prime below 2^64"
    if not 0 < certificate.minor < prime:
        return f"the minor must be in 1 .. {prime - 1}, got {certificate.minor}"
    return None


def _wrong_minor(certificate: Certificate, entries: list[list[int]]) -> str | None:
    minor = _determinant(entries, certificate.prime)
    return None if minor == certificate.minor else f"the minor is {minor}, not {certificate.minor}"


def _row_powers(rows: list[dict[int, int]], i: int, most: int, prime: int) -> list[list[int]]:
    """Row i of I, A, ..., A^most modulo the prime: e_i, e_i A, (e_i A) A, ..."""
    size = len(rows)
    powers = [[int(j == i) for j in range(size)]]
    for _ in range(most):
        total = [0] * size
        for weight, row in zip(powers[-1], rows, strict=True):
            if weight:
                for j, x in row.items():
                    total[j] += weight * x
        powers.append([x % prime for x in total])
    return powers


def _determinant(entries: list[list[int]], prime: int) -> int:
    """The determinant modulo a prime, by Gaussian elimination with row swaps."""
    rows, det = [[x % prime for x in row] for row in entries], 1
    for c in range(len(rows)):
        pivot = next((r for r in range(c, len(rows)) if rows[r][c]), None)
        if pivot is None:
            return 0
        if pivot != c:
            rows[c], rows[pivot], det = rows[pivot], rows[c], -det
        det = det * rows[c][c] % prime
        inverse = pow(rows[c][c], -1, prime)
        for r in range(c + 1, len(rows)):
            if factor := rows[r][c] * inverse % prime:
                rows[r] = [(x - factor * y) % prime for x, y in zip(rows[r], rows[c], strict=True)]
    return det % prime


def _residues(rows: list[dict[int, Fraction]], prime: int) -> list[dict[int, int]] | None:
    """The matrix modulo a prime, or None if it divides a denominator."""
    if any(x.denominator % prime == 0 for row in rows for x in row.values()):
        return None
    return [{j: x.numerator * pow(x.denominator, -1, prime) % prime for j, x in row.items()} for row in rows]


def _rationals(m: Matrix) -> tuple[list[dict[int, Fraction]], int]:
    """The entries that are not 0 of a matrix of numbers, row by row, as fractions without rounding; and its width."""
    if isinstance(m, DomainMatrix):
        m = np.array([[Fraction(int(x.numerator), int(x.denominator)) for x in row] for row in m.to_list()])
    array = np.asarray(m.detach().cpu() if isinstance(m, Tensor) else m)
    if array.ndim != 2 or array.size == 0 or array.dtype.kind not in "biufO":
        raise ValueError(f"expected a non-empty matrix of numbers, got shape {array.shape} of {array.dtype}")
    rows: list[dict[int, Fraction]] = [{} for _ in array]
    places = np.ndindex(*array.shape) if array.dtype == object else np.argwhere(array).tolist()
    try:
        for i, j in places:
            if x := Fraction(array[i, j] if array.dtype == object else array[i, j].item()):
                rows[i][j] = x
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"expected a matrix of finite numbers: {error}") from error
    return rows, array.shape[1]


def _is_int(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)
