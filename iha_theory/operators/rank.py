"""The operator Schmidt rank in float64: the number and the gap that decides it.

`rank` counts the singular values of the realignment (`iha_theory.operators.numerical`) that rounding cannot explain.
Source: docs/results.md, "The one idea".
"""

import math
from dataclasses import dataclass

from torch import Tensor

from iha_theory.operators.numerical import EPS, Operator, realignment, singular_values

ROUNDING = 64
"""A singular value is zero up to ROUNDING * EPS * sqrt(rows * columns) times the largest."""

CLEAR_GAP = 1e3
"""A rank is clear if the last singular value kept is at least this many times the first one dropped."""

LARGEST = 2**28
"""Most numbers of a realignment: 2 GiB."""


@dataclass(frozen=True)
class Rank:
    """A numerical rank.

    Attributes:
        rank: number of singular values above ROUNDING * EPS * sqrt(rows * columns) * scale, with scale the largest
            singular value or the subtracted constant, whichever is larger.
        gap: the last singular value kept over the first one dropped; a dropped one counts as at least EPS * scale, and
            if none is left to drop, as the threshold. Always finite. With nothing kept, scale over the first dropped.
        limit: the largest rank that the sizes allow.

    The rank of the true operator is at least `rank` if the rounding error has a norm below the threshold (Weyl). That
    it is not more no computation in floating point can show: the gap says how far from more it is, and where it is not
    `clear`, the number depends on the threshold and should not be trusted.
    """

    rank: int
    gap: float
    limit: int

    @property
    def clear(self) -> bool:
        """Whether the gap is at least CLEAR_GAP."""
        return self.gap >= CLEAR_GAP


def rank(operator: Operator) -> Rank:
    """The operator Schmidt rank.

    Raises:
        ValueError: a realignment of more than `LARGEST` numbers.
    """
    rows, columns = operator.queries * operator.keys, operator.width * operator.out_width
    if rows * columns > LARGEST:
        raise ValueError(f"a realignment of {rows} x {columns} is larger than {LARGEST} numbers: take fewer heads")
    return Rank(*_decide(realignment(operator), operator.constant), min(rows, columns))


def _decide(matrix: Tensor, constant: float) -> tuple[int, float]:
    """Rank and gap by the rule of `Rank`."""
    values = singular_values(matrix).tolist()
    scale = max(values[0], constant)
    if scale == 0:
        return 0, 1 / EPS
    threshold = ROUNDING * EPS * math.sqrt(matrix.numel()) * scale
    found = sum(value > threshold for value in values)
    kept = values[found - 1] if found else scale
    dropped = max(values[found], EPS * scale) if found < len(values) else threshold
    return found, kept / dropped
