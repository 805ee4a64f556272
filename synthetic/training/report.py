"""What is said of runs: one line a record, records grouped by what differs in their seed only, progress.

Imports no torch.
"""

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from synthetic.training.config import INERT, TrainConfig


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
    parts += [f"{name}: {share:.5g}" for name, share in record["parts"].items()]
    parts += [f"by {name} alone {share:.5g}" for name, share in record["baselines"].items()]
    return ", ".join(parts) + f" ({record['steps']} steps, {record['wall_s']:.1f} s)"


def cut_off(files: Sequence[Path]) -> str:
    """What is to be said of files of records whose last line has no end, and is left out; empty if there are none."""
    found = [str(file) for file in files if file.exists() and file.read_bytes()[-1:] not in (b"", b"\n")]
    return f"; left out, being cut off: the last line of {', '.join(found)}" if found else ""


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


def settings(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The options of each record that change what is trained, the seed among them; the same for the same runs.

    A file counts by what it held: where several names stand for one content they all become the first of them, and
    where one name stands for several contents each has a part of the hash behind it.
    """
    options = [TrainConfig.from_json(record["config"]).whole() for record in records]
    held: dict[Any, set[str]] = defaultdict(set)
    for own, record in zip(options, records, strict=True):
        for name, content in record["content"].items():
            held[name, content].add(own[name])
    contents: dict[Any, set[str | None]] = defaultdict(set)
    for own, record in zip(options, records, strict=True):
        for name in INERT:
            del own[name]
        own |= {name: tuple(value) for name, value in own.items() if isinstance(value, list)}
        if "pseudo_heads" in own:
            own["pseudo_heads"] = record["pseudo_heads"]  # as many as heads if none were given
        own |= {name: min(held[name, content]) for name, content in record["content"].items()}
        for name, value in own.items():
            contents[name, value].add(record["content"].get(name))
    for own, record in zip(options, records, strict=True):
        for name, value in own.items():
            if len(contents[name, value]) > 1:
                own[name] = f"{value} ({(record['content'].get(name) or 'not known which')[:15]})"
    return options


def unique(records: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The records without those of runs that come again: the last one counts."""
    found = {tuple(own.items()): record for own, record in zip(settings(records), records, strict=True)}
    return list(found.values())


def stale(record: Mapping[str, Any]) -> str | None:
    """Why a run's data are no longer there, as where a file was edited since; None if they are."""
    config = TrainConfig.from_json(record["config"])
    try:
        for name, held in config.problem.content().items():
            file = record["config"][name]
            older = hashlib.sha256(json.dumps(config.to_json(), sort_keys=True).encode() + Path(file).read_bytes())
            if record["content"].get(name) != held and (record["content"] or older.hexdigest()[:16] != record["id"]):
                return f"{file} does not hold what it did when run {record['id']} was trained"
    except (ValueError, OSError) as error:
        return str(error)
    return None


def points(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int, int | None], list[Any]]:
    """Records that differ in their seed only, by label, layer, H and P; labels tell settings apart.

    Of a seed the last record counts.
    """
    found: dict[tuple[Any, ...], list[tuple[dict[str, Any], Any]]] = defaultdict(list)
    for own, record in zip(settings(records), records, strict=True):
        label = TrainConfig.from_json(own).problem.label
        found[label, record["attention"], record["heads"], record["pseudo_heads"]].append((own, record))
    told: dict[tuple[Any, ...], dict[int, Any]] = defaultdict(dict)
    for (label, *rest), group in found.items():
        names = dict.fromkeys(name for own, _ in group for name in own if name != "seed")
        varied = [name for name in names if len({own.get(name) for own, _ in group}) > 1]
        for own, record in group:
            told[" ".join((label, *(f"{name}={own[name]}" for name in varied if name in own))), *rest][own["seed"]] = (
                record
            )
    return {point: list(by_seed.values()) for point, by_seed in told.items()}  # type: ignore[misc]


def progress(bar: Callable[..., None], label: str) -> Callable[[Any], None]:
    """What `loop.train` reports to, on a bar of `iha_theory.cli.output`: the loss against the floor."""

    def report(progress: Any) -> None:
        if not progress.losses:
            return
        loss = sum(progress.losses.values()) / len(progress.losses)
        against = "" if progress.floor is None else f", floor of the error {progress.floor:.5f}"
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
