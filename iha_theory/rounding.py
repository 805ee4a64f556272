"""Sizes and rounding: what everything may use."""

import math
from collections.abc import Iterable
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor


def require_count(name: str, value: Any) -> int:
    """The value as an int, if it is an integer (numpy's too) of at least 1; a ValueError that names it otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
    return int(value)


def require_one_of(what: str, value: str, accepted: Iterable[str]) -> None:
    """A ValueError that lists the accepted values, if the value is none of them."""
    if value not in (names := tuple(accepted)):
        raise ValueError(f"unknown {what} {value!r}: accepted are {', '.join(names)}")


def ceil_sqrt(n: Any) -> Any:
    """The least H with H^2 >= n, for an n >= 1 or an array of them below 2^52."""
    if not isinstance(n, np.ndarray):
        return isqrt(n - 1) + 1
    return (np.floor(np.sqrt(n - 1)) + 1).astype(n.dtype)  # exact: below 2^52 no square root rounds up to an integer


UNIT = 2.0**-53
"""The unit roundoff of float64."""


def gamma(operations: int) -> float:
    """n u / (1 - n u): the relative error of n chained float64 operations (Higham 2002, Sec. 3.1)."""
    return operations * UNIT / (1 - operations * UNIT)


def largest_ratio(gap: Tensor, scale: Tensor) -> float:
    """The largest |gap| / scale, where 0 / 0 counts as 0 and anything else over 0 is infinite; NaN if anything is NaN.

    Raises:
        ValueError: shapes that differ, or nothing to compare.
    """
    if gap.shape != scale.shape or gap.numel() == 0:
        raise ValueError(f"cannot compare shapes {tuple(gap.shape)} and {tuple(scale.shape)}")
    if bool(gap.isnan().any()) or bool(scale.isnan().any()):
        return math.nan
    if bool((scale < 0).any()):
        raise ValueError("errors are relative to sizes, which are not negative")
    ratio = gap.abs() / scale
    return float(torch.where(gap == 0, 0.0, ratio).max())


def worse(a: float, b: float) -> float:
    """The larger error; NaN if one is."""
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
