"""`iha-theory bench verify` and `bench rank`: how time and memory of checks and counts grow.

A growth exponent is the slope of the least-squares line through (log size, log processor seconds), and likewise for the
peak of memory above that of the smallest size. Rows of less than `SHORT` seconds do not count for time.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from constructions.scaling.rows import measured
from iha_theory.cli import output

VERIFY = {
    "workspace/iha": (256, 1024, 4096),
    "workspace/iha-tiled": (256, 1024, 4096),
    "workspace/mha": (256, 1024, 4096),
    "workspace-operator/iha": (16, 36, 64),
    "bank/iha": (64, 256, 1024),
    "bank/mha": (64, 256, 1024),
}
"""Sizes of each row: N_max; k for the bank."""
RANK = {"rank": (300, 1000, 3000), "heads-exact": (300, 1000, 3000), "heads": (300, 1000, 3000)}
"""Nodes."""
SHORT = 0.05


def verify(found: dict[str, Any], console: Console) -> bool:
    """`measure` of the checks."""
    return measure("verify", VERIFY, found, console)


def rank(found: dict[str, Any], console: Console) -> bool:
    """`measure` of ranks and heads of graphs."""
    return measure("rank", RANK, found, console)


def measure(title: str, sizes: Mapping[str, Sequence[int]], found: dict[str, Any], console: Console) -> bool:
    """Measures all rows, puts them into `found`, and prints the table; whether all hold.

    Args:
        title: of the table, and its key in `found`.
        sizes: of each row of `constructions.scaling.rows`.
        found: the command's JSON so far; filled row by row, so that nothing is lost when it is stopped.
        console: where to print.
    """
    rows: list[dict[str, Any]] = []
    growth: dict[str, Any] = {}
    found[title] = {"rows": rows, "growth": growth}
    steps = [(f"{name} {size}", (name, size)) for name, own in sizes.items() for size in own]
    for name, size in output.progress(steps, title):
        rows.append(measured(name, size))
        growth[name] = exponents([row for row in rows if row["name"] == name])
    columns = ("row", "size", "seconds", "cpu seconds", "peak MiB", "outcome", "grows as")
    lines = [
        (
            *(row["name"], str(row["size"]), f"{row['seconds']:.2f}", f"{row['cpu_seconds']:.2f}"),
            f"{row['peak_bytes'] / 2**20:.0f}",
            row["outcome"] if row["holds"] else f"FAILS: {row['outcome']}",
            _said(growth[row["name"]]) if row["size"] == sizes[row["name"]][-1] else "",
        )
        for row in rows
    ]
    console.print(output.table([(name, 0 < i < 5) for i, name in enumerate(columns)], lines))
    total, peak = sum(row["seconds"] for row in rows), max(row["peak_bytes"] for row in rows)
    console.print(f"{title}: {total:.0f} s, at most {peak / 2**30:.2f} GiB", soft_wrap=True)
    return all(row["holds"] for row in rows)


def exponents(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The growth exponents of one row's time and memory; None where fewer than two sizes tell."""
    least = min(row["peak_bytes"] for row in rows)
    times = [(row["size"], row["cpu_seconds"]) for row in rows if row["cpu_seconds"] >= SHORT]
    peaks = [(row["size"], row["peak_bytes"] - least) for row in rows if row["peak_bytes"] > least]
    return {"time": slope(times), "memory": slope(peaks)}


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of the least-squares line through the logarithms."""
    if len(points) < 2:
        return None
    x, y = np.array([[math.log(a), math.log(b)] for a, b in points]).T
    return float(np.polyfit(x, y, 1)[0])


def _said(growth: dict[str, float | None]) -> str:
    parts = [f"{what} n^{value:.1f}" for what, value in growth.items() if value is not None]
    return ", ".join(parts)
