"""Verifies a file of weights against a graph: `iha-theory heads GRAPH --check-weights FILE`."""

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from constructions.construction import Construction
from constructions.filter_bank.layers import LAYERS
from constructions.heads.approximate import ApproximateTask, unit_powers
from constructions.heads.count import Task
from constructions.heads.exact import ExactTask
from constructions.heads.files import WeightFile, read
from iha_theory.cli import output
from synthetic.graphs import Graph, fields, normalise, sentence


def check(path: str, graph: Graph, terms: int, normalisation: str | None, json: str | None) -> int:
    """Verifies a file of weights against the graph, and prints; the exit code.

    Args:
        path: of the file.
        graph: as it was loaded.
        terms: k, which has to be the file's.
        normalisation: what has to be the file's, or None.
        json: as `iha_theory.cli.output.write_json` takes it.
    """
    content = read(path)
    task = _task_of(content, path, graph, terms, normalisation)
    output.prepare_json(json)
    print(sentence(graph), file=sys.stderr)
    rows, started = [], time.monotonic()
    steps: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        (layer, partial(_judge, task, layer, construction)) for layer, construction in content.constructions.items()
    ]
    for step in output.progress(steps, "check"):
        rows.append(step())
    about = {"graph": graph.name, **fields(graph), "terms": content.terms, "tolerance": content.tolerance}
    output.write_json(json, "heads", {**about, "intact": content.intact, "weights": rows})
    out = output.console(json)
    names = ("layer", "heads", "pseudo_heads", "error", "bound", "tier", "verdict")
    lines = [[f"{x:.2g}" if isinstance(x := row[name], float) else str(x or "") for name in names] for row in rows]
    out.print(output.table([(name, 0 < i < 5) for i, name in enumerate(names)], lines))
    failed = [row for row in rows if row["verdict"] != "holds"]
    for row in failed:
        out.print(f"FAILS {row['layer']}: {row['reason']}", soft_wrap=True)
    if not content.intact:
        out.print("FAILS the file: its weights or metadata are not as they were written (SHA-256)", soft_wrap=True)
    seconds = time.monotonic() - started
    if failed or not content.intact:
        out.print(f"{path} does NOT hold for {graph.name} ({seconds:.0f} s)", soft_wrap=True)
        return 1
    exactly = "exactly" if all(row["tier"] == "exact" for row in rows) else "up to rounding"
    what = exactly if content.tolerance == 0 else f"within {content.tolerance:g}"
    out.print(f"All {len(rows)} layers represent {graph.name}, k = {content.terms}, {what} ({seconds:.0f} s).")
    return 0


def _task_of(content: WeightFile, path: str, graph: Graph, terms: int, normalisation: str | None) -> Task:
    """The task that a file says it is for, with this graph.

    Raises:
        ValueError: other terms or another normalisation than the command's, or ones that do not exist.
    """
    if content.terms != terms:
        raise ValueError(f"{path} is for --terms {content.terms}, not {terms}")
    if normalisation not in (None, content.normalisation):
        raise ValueError(f"{path} is for --normalise {content.normalisation}")
    unknown = [layer for layer in content.constructions if layer not in LAYERS]
    if unknown or not 0 <= content.tolerance < 1:
        raise ValueError(f"{path} has " + (f"layer {unknown[0]!r}" if unknown else "no tolerance"))
    normalised = normalise(graph, content.normalisation)  # type: ignore[arg-type]  # refuses others
    width = next(iter(content.constructions.values())).width
    if content.tolerance == 0:
        return ExactTask(normalised, content.terms, width)
    return ApproximateTask(unit_powers(normalised, content.terms, width), content.tolerance)


def _judge(task: Task, layer: str, construction: Construction) -> dict[str, Any]:
    """A layer's error, or why it has none."""
    found = {"layer": layer, "heads": construction.heads, "pseudo_heads": construction.pseudo_heads}
    try:
        verdict = task.judge(layer, construction)
    except ValueError as error:
        return found | {"error": None, "bound": None, "tier": None, "verdict": "fails", "reason": str(error)}
    finite = verdict.error if math.isfinite(verdict.error) else None
    reason = None if verdict.holds else f"error {verdict.error:.3g}, bound {verdict.bound:.3g}"
    return found | {
        "error": finite,
        "bound": verdict.bound,
        "tier": verdict.tier,
        "verdict": "holds" if verdict.holds else "fails",
        "reason": reason,
    }
