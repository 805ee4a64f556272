"""Sizes that no memory holds are refused before any is taken."""

import os
from collections.abc import Callable
from pathlib import Path

LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says what a container may use."""


def machine_memory() -> int:
    """Bytes that this process could have, were it alone."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    texts = [Path(file).read_text(encoding="utf-8").strip() for file in LIMITS if Path(file).is_file()]
    return min(limits + [int(text) for text in texts if text.isdigit()])


def largest_that_fits(value: int, need: Callable[[int], int]) -> int:
    """The largest size from 0 to the value for which `need`, growing with the size, is at most the machine's memory."""
    memory, fits, too_much = machine_memory(), 0, value + 1
    while too_much - fits > 1:
        middle = (fits + too_much) // 2
        fits, too_much = (middle, too_much) if need(middle) <= memory else (fits, middle)
    return fits


def require_room(name: str, value: int, need: Callable[[int], int]) -> None:
    """Refuses a size that needs more memory than the machine has.

    Args:
        name: of the size.
        value: the size.
        need: bytes at least, for any size up to this one; 0 for 0.

    Raises:
        ValueError: it does; with the largest size that fits.
    """
    if need(value) > machine_memory():
        raise ValueError(too_large(name, value, need(value), largest_that_fits(value, need)))


def too_large(name: str, value: int, need: int, most: int) -> str:
    """What is said of a size that does not fit."""
    fits = f"at most {most} fits" if most else "not even 1 fits beside the other sizes"
    memory = f"{need / 1e9:.3g} GB or more, and this machine has {machine_memory() / 1e9:.3g} GB"
    return f"{name} {value} needs {memory}: {fits}"
