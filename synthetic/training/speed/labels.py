"""What `bench data` measures: CPM-3's labels, batched, against the triple loop of the definition."""

import statistics
import time
from typing import Any

import numpy as np
from rich.console import Console

from iha_theory.cli import output
from iha_theory.speed import measure
from synthetic.tasks.count_pairs import CountPairs

SIZES = ((16, 3, 20_000), (64, 16, 10_000), (256, 16, 2_000), (256, 509, 20))
"""N, M and the sequences of a batch: one that a histogram of M residues suits, and one with many residues."""


def by_definition(x: list[int], modulus: int, coefficient: int) -> list[int]:
    """CPM_i = #{(j1, j2) : x_i + G x_j1 + x_j2 = 0 mod M}, pair by pair."""
    counts = []
    for own in x:
        count = 0
        for first in x:
            for second in x:
                count += (own + coefficient * first + second) % modulus == 0
        counts.append(count)
    return counts


def times(tokens: int, modulus: int, batch: int, rounds: int) -> dict[str, Any]:
    """Labels a second by one core, how many times the definition's, and whether both are equal.

    Of processor time, as both are one thread's. The definition counts one sequence in each round; G = 2 M + 1.
    """
    task = CountPairs(modulus, 2 * modulus + 1)
    x = task.sample(np.random.default_rng(0), batch, tokens, modulus)
    one, found = x[0].tolist(), {}

    def batched() -> None:
        found["batch"] = task.target(x)

    def plain() -> None:
        found["one"] = by_definition(one, task.modulus, task.coefficient)

    seconds = measure.alternated({"batched": batched, "definition": plain}, rounds, clock=time.thread_time)
    pairs = zip(seconds["definition"], seconds["batched"], strict=True)
    return {
        "tokens": tokens,
        "modulus": modulus,
        "coefficient": task.coefficient,
        "batch": batch,
        "tokens_per_s": batch * tokens / statistics.median(seconds["batched"]),
        "times_definition": statistics.median(slow / fast for slow, fast in pairs) * batch,
        "equal": found["batch"][0].tolist() == found["one"],
        "n": rounds,
    }


def run(rounds: int, console: Console, found: dict[str, Any]) -> int:
    """CPM-3's labels at all sizes; 1 if some differ from the definition's."""
    found["data"] = []
    for size in output.progress([(f"N = {n}, M = {m}", (n, m, b)) for n, m, b in SIZES], "data"):
        found["data"].append(times(*size, rounds))
    rows = [
        (
            *(f"N={b['tokens']} M={b['modulus']}", str(b["batch"]), f"{b['tokens_per_s'] / 1e6:.2f}"),
            *(f"{b['times_definition']:.0f}", "equal" if b["equal"] else "DIFFER", str(b["n"])),
        )
        for b in found["data"]
    ]
    columns = ("labels", "batch", "million tokens/s", "times the definition", "", "n")
    console.print(output.table([(name, i in (1, 2, 3, 5)) for i, name in enumerate(columns)], rows))
    found.setdefault("environment", measure.environment("cpu"))
    return 0 if all(b["equal"] for b in found["data"]) else 1
