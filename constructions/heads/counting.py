"""Counts the heads of a graph's filter bank, prints the table, and writes weights: `iha-theory heads GRAPH`."""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from constructions.filter_bank.layers import LAYERS
from constructions.heads.approximate import ApproximateTask, unit_powers
from constructions.heads.count import HeadCount, Task
from constructions.heads.exact import ExactTask
from constructions.heads.files import WeightFile, write
from iha_theory.cli import output
from iha_theory.places import try_file
from iha_theory.rounding import require_one_of
from synthetic.graphs import Graph, fields, normalise, sentence

FIXED = ("positions only in queries and keys, any pattern and mask",)
"""The attention for which the lower bounds above tolerance 0 hold: content can save a head there (docs/content.md)."""
ANYWHERE = (
    *FIXED,
    "one layer, content anywhere: softmax, hard or other rows of bounded norm, any mask",
    "one layer, content anywhere: linear without a mask or rotary positions",
)
"""For which the exact ones hold (docs/exact_heads.md, Theorems 1 and 2)."""


@dataclass(frozen=True)
class Wanted:
    """What to count.

    Attributes:
        graph: as it was loaded.
        terms: k.
        width: of the content, d.
        tolerances: 0 for exact; each once.
        normalise: "none", "row", "symmetric", or None for what fits the graph and the tolerance.
        layers: of `constructions.filter_bank.layers.LAYERS`.
    """

    graph: Graph
    terms: int
    width: int
    tolerances: tuple[float, ...]
    normalise: Any
    layers: tuple[str, ...]


def layers(names: Iterable[str] | None) -> tuple[str, ...]:
    """The layers of these names, each once; all for None."""
    for name in names or ():
        require_one_of("layer", name, LAYERS)
    return tuple(dict.fromkeys(names or LAYERS))


def count(wanted: Wanted, weights: str | None, json: str | None) -> int:
    """Counts, prints and writes; the exit code.

    Args:
        wanted: what.
        weights: a file for the weights of the smallest tolerance, or None.
        json: as `iha_theory.cli.output.write_json` takes it.
    """
    graph, (tasks, settings) = wanted.graph, tasks_of(wanted)
    if weights is not None:
        try_file(weights)
    steps = [
        (f"{layer} at {task.tolerance:g}", partial(task.count, layer))
        for task in tasks
        for layer in wanted.layers
        if layer in task.layers
    ]
    if not steps:
        raise ValueError("nothing to count: iha-wide is for tolerances above 0")
    results: list[HeadCount] = []
    print(sentence(graph), file=sys.stderr)
    about = {"graph": graph.name, **fields(graph), "terms": wanted.terms, "settings": settings}
    started = time.monotonic()
    with output.kept(json, "heads", lambda: {**about, "heads": [row.to_json() for row in results]}):
        for step in output.progress(steps, "heads"):
            results.append(step())
    out = output.console(json)
    out.print(_table(results))
    for setting in settings:
        out.print(f"{setting['rows']}: {setting['target']}", soft_wrap=True)
        out.print(f"  the lower bounds hold for {'; '.join(setting['bounds_hold_for'])}", soft_wrap=True)
    failed = [row for row in results if row.failure is not None]
    for row in failed:
        out.print(f"FAILS {row.layer} at {row.tolerance:g}: {row.failure}", soft_wrap=True)
    if weights is not None and not failed:
        out.print(_write(weights, graph, tasks, results, settings), soft_wrap=True)
    out.print(_summary(graph, wanted.terms, results, failed, time.monotonic() - started), soft_wrap=True)
    return 1 if failed else 0


def tasks_of(wanted: Wanted) -> tuple[list[Task], list[dict[str, Any]]]:
    """A task for each tolerance, and what the exact and the approximate ones are about."""
    graph, settings, powers = wanted.graph, [], None
    symmetric = not graph.directed and (graph.adjacency >= 0).all()
    kinds: list[Any] = [wanted.normalise or "none", wanted.normalise or ("symmetric" if symmetric else "none")]
    if 0 in wanted.tolerances:
        settings.append(_setting("tolerance 0", "A^t", kinds[0], ANYWHERE))
    if any(wanted.tolerances):
        settings.append(_setting("tolerances above 0 (numerical)", "A^t scaled to norm 1", kinds[1], FIXED))
        powers = unit_powers(normalise(graph, kinds[1]), wanted.terms, wanted.width)
    tasks: list[Task] = []
    measured: list[HeadCount] = []
    for e in wanted.tolerances:
        if e == 0 or powers is None:
            tasks.append(ExactTask(normalise(graph, kinds[0]), wanted.terms, wanted.width))
        else:
            tasks.append(ApproximateTask(powers, e, measured))
    return tasks, settings


def _setting(rows: str, blocks: str, kind: str, holds: tuple[str, ...]) -> dict[str, Any]:
    words = {"none": "the matrix as given", "row": "the row-normalised matrix", "symmetric": "D^-1/2 A D^-1/2"}
    target = f"{blocks}, A {words[kind]}"
    return {"rows": rows, "target": target, "normalisation": kind, "bounds_hold_for": list(holds)}


def _write(path: str, graph: Graph, tasks: list[Task], results: list[HeadCount], settings: list[dict[str, Any]]) -> str:
    """Writes the rows of the smallest tolerance; weights that were not measured as they are, are now."""
    task = min(tasks, key=lambda task: task.tolerance)
    setting = settings[0] if task.tolerance == 0 else settings[-1]
    constructions = {}
    for row in results:
        if row.tolerance == task.tolerance:
            constructions[row.layer] = task.writable(row.layer)
            verdict = task.judge(row.layer, constructions[row.layer])
            if not verdict.holds:
                raise ValueError(f"{row.layer} cannot be written in float64: its error would be {verdict.error:.3g}")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write(path, WeightFile(graph.name, task.terms, setting["normalisation"], task.tolerance, constructions))
    return f"Weights of {', '.join(constructions)} at tolerance {task.tolerance:g} are in {path}."


def _table(results: list[HeadCount]) -> Any:
    def cell(row: HeadCount) -> tuple[str, ...]:
        achieved = "-" if row.achieved is None else str(row.achieved)
        numbers = (row.built.pseudo_heads, row.built.attention_maps, row.built.parameters)
        error = f"{row.verdict.error:.2g}"
        return (f"{row.tolerance:g}", row.layer, str(row.lower), achieved, *map(str, numbers), error, row.verdict.tier)

    names = ("tolerance", "layer", "lower", "achieved", "P", "maps", "parameters", "error", "")
    return output.table([(name, i not in (1, 8)) for i, name in enumerate(names)], map(cell, results))


def _summary(graph: Graph, terms: int, results: list[HeadCount], failed: list[HeadCount], seconds: float) -> str:
    if failed:
        return f"{len(failed)} of {len(results)} rows do NOT hold ({seconds:.0f} s)"
    tight = sum(row.achieved == row.lower for row in results)
    parts = [f"{graph.name}, k = {terms}:"]
    certificate = next((row.certificate for row in results if row.certificate is not None), None)
    if certificate is not None:
        bounds = ", ".join(f"{row.lower} of {row.layer}" for row in results if row.tolerance == 0)
        parts.append(f"rank {certificate.rank} (certificate verified), which takes at least {bounds} heads;")
    parts.append(f"{tight} of {len(results)} bounds are achieved ({seconds:.0f} s).")
    return " ".join(parts)
