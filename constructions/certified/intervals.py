"""The numbers of a claim as they are read: fractions, and decimals around what is between them."""

import re
from fractions import Fraction
from typing import Any

from flint import fmpz

TIGHT = Fraction(1, 10**20)
"""The most that the ends of a floor may differ: a claim has to say something."""
EXPONENT = 10**4
"""The largest exponent of a decimal in a claim."""
DIGITS = 10**5
"""The most digits of a numerator or denominator in a claim: reducing such a fraction takes a second."""
_QUOTIENT = re.compile(r"-?\d+/\d+", re.ASCII)


class Refused(ValueError):
    """What is wrong with a claim."""


def interval(ends: Any) -> tuple[Fraction, Fraction]:
    """Two ends."""
    low, high = (number(end) for end in ends)
    return low, high


def number(text: Any) -> Fraction:
    """A decimal, a fraction of any length up to `DIGITS` or a JSON number; not an exponent that would fill the memory.

    Raises:
        Refused: it is too long.
        ValueError: it is no number.
    """
    if not isinstance(text, str):
        return Fraction(text)
    top, _, bottom = text.partition("/")
    if max(len(top), len(bottom)) > DIGITS:
        raise Refused(f"the number {text[:20]}... has more than {DIGITS} digits")
    if _QUOTIENT.fullmatch(text):  # by flint, as Python's integers have no more than 4300 digits as text
        return Fraction(int(fmpz(top)), int(fmpz(bottom)))
    if abs(int(text.lower().partition("e")[2] or 0)) > EXPONENT:
        raise Refused(f"the exponent of {text[:40]!r} is beyond {EXPONENT}")
    return Fraction(text)


def require(name: str, ends: Any, low: Fraction, high: Fraction, *, follows: bool = False) -> None:
    """Refuses an interval that does not enclose another, or says little.

    follows: it is made of others, and may be as wide as they leave it.
    """
    own = interval(ends)
    tight = TIGHT * max(1, abs(high)) + (2 * (high - low) if follows else 0)
    if not own[0] <= low <= high <= own[1]:
        said = f"between {float(own[0]):.17g} and {float(own[1]):.17g}"
        much = f"{float(max(own[0] - low, high - own[1])):.3g}"
        raise Refused(f"the {name} is between {float(low):.17g} and {float(high):.17g}, not {said}: off by {much}")
    if own[1] - own[0] > tight:
        raise Refused(f"the ends of the {name} differ by {float(own[1] - own[0]):.3g}: at most {float(tight):.3g}")
