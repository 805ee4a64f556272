"""Rigorous enclosures of the eigenvalues that make up a floor, and decimals that are rounded outward."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

import flint
import numpy as np
from sympy.polys.matrices import DomainMatrix

from iha_theory.exact import numerators

DIGITS = 30
"""Significant digits of the ends of an interval."""
PRECISION = 256
"""Bits of ball arithmetic, far more than `DIGITS` take."""
LONGEST = 10**5
"""Digits of a fraction's parts."""


def outward(low: Fraction, high: Fraction) -> tuple[str, str]:
    """Decimals of `DIGITS` digits around an interval: `Fraction(text)` is exactly what each one says."""
    ends = []
    for x, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING)):
        context = Context(prec=DIGITS, rounding=rounding, Emin=-(10**9), Emax=10**9)
        ends.append(str(context.divide(Decimal(x.numerator), Decimal(x.denominator))))
    return ends[0], ends[1]


def shares(bank: Sequence[DomainMatrix]) -> list[tuple[Fraction, Fraction]]:
    """Enclosures of s_1^2 >= s_2^2 >= ... over their sum, s_i the singular values of [vec T_0, ..., vec T_{k-1}].

    These are the eigenvalues of the Gram matrix G[s,t] = <T_s, T_t> over its trace. With r independent rows of it, in
    C = G[r,:], and S = G[r,r], it is C^T S^-1 C, so that those that are not 0 are the eigenvalues of S^-1 C C^T: the
    roots of its characteristic polynomial, which is exact (flint), in balls (Arb). Multiple roots are found as such.
    Powers of one N x N matrix have r <= N, however many they are.

    Args:
        bank: T, over QQ.

    Raises:
        ValueError: a bank of zeros.
    """
    whole, _ = numerators(list(bank))
    rows = flint.fmpz_mat([list(map(int, row)) for row in whole.reshape(len(bank), -1)])
    gram = rows * rows.transpose()
    trace = sum(int(gram[i, i]) for i in range(len(bank)))
    if trace == 0:
        raise ValueError("a bank of zeros has no relative error")
    own, independent = _independent(gram)
    small = flint.fmpq_mat(own).solve(flint.fmpq_mat(independent * independent.transpose()))
    found = [(Fraction(0), Fraction(0))] * (len(bank) - own.nrows())
    with flint.ctx.workprec(PRECISION):
        roots: Any = small.charpoly().numer().complex_roots()
        for root, times in roots:
            low, high = (end / trace for end in ends(root.real))
            found += [(max(low, Fraction(0)), high)] * times
    return sorted(found, reverse=True)


def _independent(gram: flint.fmpz_mat) -> tuple[flint.fmpz_mat, flint.fmpz_mat]:
    """S and C of `shares`: rows and columns of pivots of G, and its rows there."""
    echelon, _, rank = gram.rref()
    entries, wide = echelon.tolist(), gram.tolist()
    pivots = [next(j for j, x in enumerate(row) if x) for row in entries[:rank]]
    return flint.fmpz_mat([[wide[i][j] for j in pivots] for i in pivots]), flint.fmpz_mat([wide[i] for i in pivots])


def ends(ball: flint.arb) -> tuple[Fraction, Fraction]:
    """The ends of a ball, which are dyadic.

    Raises:
        ValueError: a ball that is not finite.
    """
    if not ball.is_finite():
        raise ValueError("the weights are so large that ball arithmetic has no answer")
    return _fraction(ball.lower()), _fraction(ball.upper())


def _fraction(x: flint.arb) -> Fraction:
    mantissa, exponent = x.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def square(matrices: Sequence[DomainMatrix]) -> Fraction:
    """sum |M|_F^2, exactly."""
    whole, common = numerators(list(matrices))
    return Fraction(int((whole.astype(object) ** 2).sum()), common**2)


def quotient(x: Fraction) -> str:
    """The text p/q, by flint: Python writes no integer of more than 4300 digits.

    Raises:
        ValueError: more digits than what checks it reads.
    """
    parts = [flint.fmpz(part).str() for part in (x.numerator, x.denominator)]
    if (digits := max(map(len, parts))) > LONGEST:
        raise ValueError(f"a fraction of {digits} digits: claims have numbers of at most {LONGEST}")
    return "/".join(parts)


def written(m: np.ndarray) -> list[list[int | float | str]]:
    """A matrix as JSON without rounding: integers up to 2^63 and floats as they are, others as texts p/q."""

    def short(x: Any) -> bool:
        return isinstance(x, float) or (isinstance(x, int) and abs(x) <= 2**63)

    return [[x if short(x) else quotient(Fraction(x)) for x in row] for row in m.tolist()]
