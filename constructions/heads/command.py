"""`iha-theory heads`: how many heads a graph's filter bank needs, with certificates, and weights that do it."""

import argparse
import math
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from iha_theory.cli import output

DEFAULT_TOLERANCES = (0.0, 1e-1, 1e-2, 1e-4, 1e-8)
LEAST_TOLERANCE = 1e-12

EPILOG = f"""\
layers:
  mha            multi-head attention: one attention map a head
  iha            interleaved head attention as in the paper: P = H pseudo-heads
  iha-tiled      with about sqrt H pseudo-heads: the same heads, far fewer attention maps (docs/results.md T6)
  iha-wide       the same with queries and keys of width H N; at tolerances above 0 only, where it reaches the bound
  mha-two-layer  two layers of MHA with so many heads each (docs/results.md T7)

columns:
  lower       heads that any weights need, for position-only attention (docs/bounds.md). At tolerance 0 exact, with a
              certificate that was verified; above, numerical: from singular values in float64
  achieved    heads of weights that were loaded into a layer of this package, whose operator was then measured
  maps        attention maps of N x N: the attention cost in units of N^2
  parameters  counted, for content of width D
  error       at tolerance 0 the largest of an entry, in exact arithmetic; for large graphs, and weights that float64
              cannot hold, in float64 and relative to the sizes of an entry's addends. Above, |difference| / |target|

settings:
  Tolerance 0 is about [X, AX, ..., A^(k-1) X] of the matrix as given, or as --normalise says. Weights that are no
  integers count as the numbers that float64 holds.
  Tolerances above 0 are about the powers scaled to Frobenius norm 1: of the symmetric-normalised matrix if the graph is
  undirected and no weight is negative, else of the matrix as given; or as --normalise says. The error is the root mean
  square one for content with independent entries of mean 0 and variance 1. The least is {LEAST_TOLERANCE:g}.
  Files of weights: see constructions.heads.files.

examples:
  iha-theory heads karate --terms 9
  iha-theory heads my.graphml --terms 16 --tolerance 0.1 0.01 --json heads.json
  iha-theory heads petersen --terms 9 --layer iha-tiled --tolerance 0 --weights petersen.safetensors
  iha-theory heads petersen --terms 9 --check-weights petersen.safetensors

exit codes: 0 the certificate is right and all weights do what they should, 1 not, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "heads",
        description="Lower bounds on the heads for [X, AX, ..., A^(k-1) X], exactly (certified) and at tolerances, "
        "beside the heads\nof weights that are loaded into layers and measured.",
        epilog=EPILOG,
    )
    defaults = " ".join(f"{e:g}" for e in DEFAULT_TOLERANCES)
    parser.add_argument("graph", metavar="GRAPH", help="built-in name or family, or a file")
    parser.add_argument("--terms", type=int, required=True, metavar="K", help="number of blocks k")
    parser.add_argument(
        "--tolerance", nargs="+", type=float, metavar="E", help=f"relative errors, 0 for exact; default {defaults}"
    )
    parser.add_argument("--layer", nargs="+", metavar="LAYER", help="only these layers; default all")
    parser.add_argument("--width", type=int, metavar="D", help="content width of the weights; default 1")
    parser.add_argument("--directed", action="store_true", help="each line of an edge list is one arc u -> v")
    parser.add_argument("--normalise", choices=("none", "row", "symmetric"), help="default: see settings below")
    parser.add_argument("--weights", metavar="FILE", help="write the weights of the smallest tolerance (safetensors)")
    parser.add_argument("--check-weights", metavar="FILE", help="verify the weights in such a file, nothing else")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Counts heads, or checks a file of weights."""
    from synthetic.graphs import load

    if arguments.terms < 1:
        raise ValueError(f"--terms takes an integer of at least 1, got {arguments.terms}")
    graph = load(arguments.graph, directed=arguments.directed)
    if arguments.check_weights is not None:
        return _check(arguments, graph)
    return _count(arguments, graph)


def _count(arguments: argparse.Namespace, graph: Any) -> int:
    tasks, settings = _tasks(arguments, graph)
    layers = _layers(arguments.layer)
    if arguments.weights is not None:
        _require_writable(Path(arguments.weights))
    steps = [
        (f"{layer} at {task.tolerance:g}", partial(task.count, layer))
        for task in tasks
        for layer in layers
        if layer in task.layers
    ]
    if not steps:
        raise ValueError("nothing to count: iha-wide is for tolerances above 0")
    results: list[Any] = []
    about = {"graph": graph.name, "nodes": len(graph.nodes), "terms": arguments.terms, "settings": settings}
    started = time.monotonic()
    with output.kept(arguments.json, "heads", lambda: {**about, "heads": [row.to_json() for row in results]}):
        for step in output.progress(steps, "heads"):
            results.append(step())
    out = output.console(arguments.json)
    out.print(_table(results))
    for setting in settings:
        out.print(f"{setting['rows']}: {setting['target']}", soft_wrap=True)
    failed = [row for row in results if row.failure is not None]
    for row in failed:
        out.print(f"FAILS {row.layer} at {row.tolerance:g}: {row.failure}", soft_wrap=True)
    if arguments.weights is not None and not failed:
        out.print(_write(arguments.weights, graph, tasks, results, settings), soft_wrap=True)
    out.print(_summary(graph, arguments.terms, results, failed, time.monotonic() - started), soft_wrap=True)
    return 1 if failed else 0


def _tasks(arguments: argparse.Namespace, graph: Any) -> tuple[list[Any], list[dict[str, str]]]:
    """A task for each tolerance, and what the exact and the approximate ones are about."""
    from constructions.heads.approximate import ApproximateTask, UnitPowers
    from constructions.heads.exact import ExactTask
    from synthetic.graphs import normalise

    tolerances = list(dict.fromkeys(arguments.tolerance or DEFAULT_TOLERANCES))
    for e in tolerances:
        if not (e == 0 or LEAST_TOLERANCE <= e < 1):
            raise ValueError(f"--tolerance takes 0 (exact) or numbers from {LEAST_TOLERANCE:g} to below 1, got {e:g}")
    width = 1 if arguments.width is None else arguments.width
    if width < 1:
        raise ValueError(f"--width takes an integer of at least 1, got {width}")
    settings = []
    exact = powers = None
    if 0 in tolerances:
        kind = arguments.normalise or "none"
        exact = ExactTask(normalise(graph, kind), arguments.terms, width)
        settings.append(_setting("tolerance 0", "A^t", kind))
    if any(tolerances):
        symmetric = not graph.directed and (graph.adjacency >= 0).all()
        kind = arguments.normalise or ("symmetric" if symmetric else "none")
        powers = UnitPowers(normalise(graph, kind), arguments.terms, width)
        settings.append(_setting("tolerances above 0 (numerical)", "A^t scaled to norm 1", kind))
    return [exact if e == 0 else ApproximateTask(powers, e) for e in tolerances], settings  # type: ignore[arg-type]


def _setting(rows: str, blocks: str, kind: str) -> dict[str, str]:
    words = {"none": "the matrix as given", "row": "the row-normalised matrix", "symmetric": "D^-1/2 A D^-1/2"}
    return {"rows": rows, "target": f"{blocks}, A {words[kind]}", "normalisation": kind}


def _layers(names: list[str] | None) -> list[str]:
    from constructions.heads.count import LAYERS

    for name in names or ():
        if name not in LAYERS:
            raise ValueError(f"unknown layer {name!r}: accepted are {', '.join(LAYERS)}")
    return list(dict.fromkeys(names or LAYERS))


def _require_writable(path: Path) -> None:
    """Makes the file's folder, so that weights can be written after the work is done."""
    if path.is_dir():
        raise IsADirectoryError(f"--weights needs a file, {path} is a folder")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"--weights cannot write {path}")


def _write(path: str, graph: Any, tasks: list[Any], results: list[Any], settings: list[dict[str, str]]) -> str:
    """Writes the rows of the smallest tolerance; weights that were not measured as they are, are now."""
    from constructions.heads.files import WeightFile, write

    task = min(tasks, key=lambda task: task.tolerance)
    setting = settings[0] if task.tolerance == 0 else settings[-1]
    constructions = {}
    for row in results:
        if row.tolerance == task.tolerance:
            constructions[row.layer] = task.writable(row.layer)
            verdict = task.judge(row.layer, constructions[row.layer])
            if not verdict.holds:
                raise ValueError(f"{row.layer} cannot be written in float64: its error would be {verdict.error:.3g}")
    write(path, WeightFile(graph.name, task.terms, setting["normalisation"], task.tolerance, constructions))
    return f"Weights of {', '.join(constructions)} at tolerance {task.tolerance:g} are in {path}."


def _table(results: list[Any]) -> Any:
    def cell(row: Any) -> tuple[str, ...]:
        achieved = "-" if row.achieved is None else str(row.achieved)
        built = row.construction
        numbers = (built.pseudo_heads, built.layer.attention_maps, built.parameters)
        error = f"{row.verdict.error:.2g}"
        return (f"{row.tolerance:g}", row.layer, str(row.lower), achieved, *map(str, numbers), error, row.verdict.tier)

    names = ("tolerance", "layer", "lower", "achieved", "P", "maps", "parameters", "error", "")
    return output.table([(name, i not in (1, 8)) for i, name in enumerate(names)], map(cell, results))


def _summary(graph: Any, terms: int, results: list[Any], failed: list[Any], seconds: float) -> str:
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


def _check(arguments: argparse.Namespace, graph: Any) -> int:
    """Verifies a file of weights against the graph."""
    from constructions.heads.files import read

    others = ("tolerance", "layer", "width", "weights")
    if any(getattr(arguments, name) is not None for name in others):
        raise ValueError(f"--check-weights takes these from the file: leave out --{', --'.join(others)}")
    content = read(arguments.check_weights)
    task = _task_of(content, arguments, graph)
    output.prepare_json(arguments.json)
    rows, started = [], time.monotonic()
    steps: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        (layer, partial(_judge, task, layer, construction)) for layer, construction in content.constructions.items()
    ]
    for step in output.progress(steps, "check"):
        rows.append(step())
    fields = {"graph": graph.name, "terms": content.terms, "tolerance": content.tolerance, "intact": content.intact}
    output.write_json(arguments.json, "heads", {**fields, "weights": rows})
    out = output.console(arguments.json)
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
        out.print(f"{arguments.check_weights} does NOT hold for {graph.name} ({seconds:.0f} s)", soft_wrap=True)
        return 1
    exactly = "exactly" if all(row["tier"] == "exact" for row in rows) else "up to rounding"
    what = exactly if content.tolerance == 0 else f"within {content.tolerance:g}"
    out.print(f"All {len(rows)} layers represent {graph.name}, k = {content.terms}, {what} ({seconds:.0f} s).")
    return 0


def _task_of(content: Any, arguments: argparse.Namespace, graph: Any) -> Any:
    """The task that a file says it is for, with this graph.

    Raises:
        ValueError: other terms or another normalisation than the command's, or ones that do not exist.
    """
    from constructions.heads.approximate import ApproximateTask, UnitPowers
    from constructions.heads.count import LAYERS
    from constructions.heads.exact import ExactTask
    from synthetic.graphs import normalise

    if content.terms != arguments.terms:
        raise ValueError(f"{arguments.check_weights} is for --terms {content.terms}, not {arguments.terms}")
    if arguments.normalise not in (None, content.normalisation):
        raise ValueError(f"{arguments.check_weights} is for --normalise {content.normalisation}")
    unknown = [layer for layer in content.constructions if layer not in LAYERS]
    if unknown or not 0 <= content.tolerance < 1:
        raise ValueError(f"{arguments.check_weights} has " + (f"layer {unknown[0]!r}" if unknown else "no tolerance"))
    normalised = normalise(graph, content.normalisation)
    width = next(iter(content.constructions.values())).width
    if content.tolerance == 0:
        return ExactTask(normalised, content.terms, width)
    return ApproximateTask(UnitPowers(normalised, content.terms, width), content.tolerance)


def _judge(task: Any, layer: str, construction: Any) -> dict[str, Any]:
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
