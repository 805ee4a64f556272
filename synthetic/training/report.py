"""What is said of runs: one line a record, records grouped by what differs in their seed only, progress.

Imports no torch.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from synthetic.training.config import TrainConfig


def describe(record: Mapping[str, Any]) -> str:
    """A record in one line."""
    heads = f"{record['heads']} heads" + (f", P = {record['pseudo_heads']}" if record["pseudo_heads"] else "")
    parts = [f"{record['task']} {record['attention']}, {heads}, seed {record['seed']}: {record['outcome']}"]
    if record["reason"]:
        parts.append(record["reason"])
    for name in ("error", "floor", "accuracy", "baseline_accuracy"):
        if record[name] is not None:
            parts.append(f"{name.replace('_', ' ')} {record[name]:.5g}")
        elif name == "floor" and record["error"] is not None:
            parts.append("no floor is known")
    return ", ".join(parts) + f" ({record['steps']} steps, {record['wall_s']:.1f} s)"


def graphs(configs: Sequence[TrainConfig]) -> dict[str, Any]:
    """Says on standard error what was read of the graphs that runs are about; the same as JSON fields.

    Raises:
        ValueError, OSError: as `synthetic.graphs.load`.
    """
    from synthetic.graphs import fields, sentence

    read = {graph.name: graph for problem in dict.fromkeys(c.problem for c in configs) if (graph := problem.given())}
    for graph in read.values():
        print(sentence(graph), file=sys.stderr)
    return {"graphs": [{"graph": graph.name} | fields(graph) for graph in read.values()]} if read else {}


def points(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int, int | None], list[Any]]:
    """Records that differ in their seed only, by label, layer, H and P; labels tell settings apart."""
    found: dict[tuple[Any, ...], list[tuple[dict[str, Any], Any]]] = defaultdict(list)
    for record in records:
        config = TrainConfig.from_json(record["config"])
        point = config.problem.label, record["attention"], record["heads"], record["pseudo_heads"]
        found[point].append((config.to_json(), record))
    told: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for (label, *rest), group in found.items():
        first = group[0][0]
        varied = [name for name in first if name != "seed" and any(config[name] != first[name] for config, _ in group)]
        for config, record in group:
            told[" ".join((label, *(f"{name}={config[name]}" for name in varied))), *rest].append(record)
    return told  # type: ignore[return-value]


def progress(bar: Callable[..., None], label: str) -> Callable[[Any], None]:
    """What `loop.train` reports to, on a bar of `iha_theory.cli.output`: the loss against the floor."""

    def report(progress: Any) -> None:
        if not progress.losses:
            return
        loss = sum(progress.losses.values()) / len(progress.losses)
        against = "" if progress.floor is None else f", floor {progress.floor:.5f}"
        text = f"{label}: batch loss {loss:.5f}{against}"
        bar(text, progress.step, f"step {progress.step}/{progress.steps} {text}")

    return report


def counted(bar: Callable[..., None], total: int) -> Callable[[Sequence[Any]], None]:
    """What `sweep.sweep` reports to, on a bar: the runs that are done, and the last one."""
    done = 0

    def report(results: Sequence[Any]) -> None:
        nonlocal done
        done += len(results)
        last = describe(vars(results[-1].record))
        bar(last, done, f"{done}/{total} runs, the last: {last}")

    return report
