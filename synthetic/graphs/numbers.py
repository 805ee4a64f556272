"""Numbers that keep their kind: Python integers and fractions, exactly; float64 for what came as a float."""

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from numbers import Integral, Rational, Real
from typing import Any

import numpy as np

Number = int | Fraction | float

MAX_DIGITS = 1000
"""Digits of a number in a file, written out: 1e999 has 1000."""
_WRITTEN = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE]([+-]?\d+))?|\d+/\d+)", re.ASCII)


def parse(text: str) -> int | Fraction:
    """The number that a text says: 3, -2, 0.5 (one half), 1e-3 (one thousandth), 1/3.

    Raises:
        ValueError: another text, a denominator 0, or more than MAX_DIGITS digits.
    """
    match = _WRITTEN.fullmatch(text)
    if not match:
        if text.lower().lstrip("+-") in ("nan", "inf", "infinity"):
            raise ValueError(f"{text!r} is not a finite number")
        comma = ": a decimal point is needed" if _WRITTEN.fullmatch(text.replace(",", ".")) else ""
        raise ValueError(f"{text[:60]!r} is not a number (accepted are such as 3, -0.5, 1e-3 and 1/3){comma}")
    exponent = match[1] or "0"
    if len(text) > MAX_DIGITS or len(exponent) > 6 or len(text) + abs(int(exponent)) > MAX_DIGITS + 4:
        raise ValueError(f"{text[:60]!r} has more than {MAX_DIGITS} digits")
    try:
        return whole(Fraction(text))
    except ZeroDivisionError:
        raise ValueError(f"{text[:60]!r} is not a finite number") from None


def whole(x: Fraction) -> int | Fraction:
    """The fraction, as an integer if it is one."""
    return x.numerator if x.denominator == 1 else x


def number(x: Any) -> Number:
    """A finite real number as a Python integer or fraction if it is one, else as a float.

    A float is an integer up to 2^53 if it has no fraction.
    """
    if type(x) is int or (type(x) is Fraction and x.denominator != 1):
        return x
    if isinstance(x, Integral | np.bool_):
        return int(x)
    if isinstance(x, Rational):
        return whole(Fraction(int(x.numerator), int(x.denominator)))
    if not isinstance(x, Real) or not math.isfinite(x):
        raise ValueError(f"{x!r} is not a finite real number")
    value = float(x)
    if value != x:
        raise ValueError(f"{x!r} is not a float64")
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def one_kind(entries: Iterable[Number]) -> list[Number]:
    """The numbers, floats among them as fractions if float64 cannot hold the others: nothing is rounded."""
    entries = list(entries)
    floats = any(isinstance(x, float) for x in entries)
    if floats and not all(isinstance(x, float) or _is_float64(x) for x in entries):
        return [whole(Fraction(x)) for x in entries]
    return entries


def array_of(array: np.ndarray) -> np.ndarray:
    """A copy in int64, object (Python's integers and fractions) or float64, the first that holds all entries.

    float64 if there are floats that are no integers; object even then if it takes fractions to round nothing.
    """
    if array.dtype.kind == "O" or array.dtype == np.uint64:
        flat = array.ravel()
        places = np.flatnonzero(flat)  # few, as a rule
        entries = one_kind(number(x) for x in flat[places].tolist())
        if any(isinstance(x, float) for x in entries):
            dtype = np.float64
        else:
            dtype = np.int64 if all(isinstance(x, int) and -(2**63) <= x < 2**63 for x in entries) else object
        kept = np.zeros(len(flat), dtype=dtype)
        kept[places] = np.fromiter(entries, dtype=dtype, count=len(entries))
        return kept.reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"numbers of dtype {array.dtype}: accepted are integers and real floats")
    if array.dtype.kind == "f":
        if not np.isfinite(array).all():
            raise ValueError("NaN or infinity where finite numbers are expected")
        with np.errstate(over="ignore"):
            floats = array.astype(np.float64)
        if (floats != array).any():
            raise ValueError(f"numbers of dtype {array.dtype} that float64 cannot hold")
        if (floats != np.rint(floats)).any() or (np.abs(floats) > 2**53).any():
            return floats
        array = floats
    return array.astype(np.int64)


def nearest_float64(array: np.ndarray) -> np.ndarray:
    """The nearest float64 of every entry.

    Raises:
        ValueError: an entry beyond float64's range.
    """
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError("a number is too large for float64") from None


def _is_float64(x: Number) -> bool:
    try:
        return float(x) == x
    except OverflowError:
        return False
