"""`iha-theory train`: one training run."""

import argparse
import dataclasses
import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from iha_theory.cli import output

EPILOG = """\
tasks:
  polynomial    [X, AX, ..., A^(k-1) X] of a graph, linear attention
  workspace     x_n, x_(n+1), ..., the N cyclic shifts, softmax attention
  unstructured  k random matrices instead of powers, linear attention
  cpm3          counting pairs modulo M from labels, softmax attention and an MLP (docs/learning.md)

The error is the relative squared error of the trained layer's exact operator, and the floor the least that theory
allows to so many heads. With --out the record is added to DIR/runs.jsonl, with curves and weights beside it. A run is
the same, to the bit on one machine, whether it goes through or is stopped with --stop-at and continued with --resume.

examples:
  iha-theory train polynomial --attention mha --heads 5
  iha-theory train workspace --heads 4 --seed 1 --out runs/one
  iha-theory train cpm3 --heads 3
  iha-theory train cpm3 --attention mha --heads 1 --embedding one-hot
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "train",
        help="train one model, against the floor that theory predicts",
        description="Trains a model around one attention layer on sampled data.",
        epilog=EPILOG,
    )
    parser.add_argument("task", metavar="TASK", help="polynomial, workspace, unstructured or cpm3")
    parser.add_argument("--config", metavar="FILE", help="options as a JSON object; options given here come on top")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the record, curves and weights")
    parser.add_argument(
        "--stop-at", metavar="STEP", type=int, help="leave off after this step, with a checkpoint in DIR"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in DIR")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    add_options(parser)
    parser.set_defaults(run=run)


def add_options(parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = ()) -> None:
    """Adds an option for every field of TrainConfig, absent from the result if not given."""
    parser.set_defaults(train_options={})
    group = parser.add_argument_group("options of a run")
    for name, kind, default, text in _fields():
        if name in leave_out:
            continue
        flag = f"--{name.replace('_', '-')}"
        shown = text if default is None else f"{text} (default: {default})"
        options: dict[str, Any] = {"action": _Collect, "help": shown, "dest": name, "default": argparse.SUPPRESS}
        if kind is bool:
            group.add_argument(flag, nargs=0, const=True, **options)
            options["help"] = argparse.SUPPRESS
            group.add_argument(f"--no-{flag[2:]}", nargs=0, const=False, **options)
        elif isinstance(kind, tuple):
            group.add_argument(flag, choices=kind, **options)
        else:
            group.add_argument(flag, type=kind, metavar=name.split("_")[-1].upper(), **options)


class _Collect(argparse.Action):
    """Puts an option of a run into the dictionary `train_options`."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        value = self.const if self.nargs == 0 else values
        namespace.train_options = namespace.train_options | {self.dest: value}


def _fields() -> list[tuple[str, Any, Any, str]]:
    """Name, type, default and help text of the options; the types without torch, which takes seconds to import."""
    from synthetic.training.config import TYPES, TrainConfig

    return [
        (f.name, TYPES[f.name][0], f.default, f.metadata["help"])
        for f in dataclasses.fields(TrainConfig)
        if f.name != "task"
    ]


def read_config(file: str | None) -> dict[str, Any]:
    """The options in a JSON file; none without a file.

    Raises:
        ValueError: a file that holds no JSON object.
    """
    if file is None:
        return {}
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object of options")
    return content


def run(arguments: argparse.Namespace) -> int:
    """Trains and prints what came out."""
    from synthetic.training import records
    from synthetic.training.config import TrainConfig
    from synthetic.training.loop import train

    config = TrainConfig.for_task(arguments.task, read_config(arguments.config) | arguments.train_options)
    if (arguments.stop_at is not None or arguments.resume) and arguments.out is None:
        raise ValueError("--stop-at and --resume need --out DIR, where the checkpoint is")
    if arguments.stop_at is not None and arguments.stop_at < 1:
        raise ValueError(f"--stop-at takes a step of at least 1, got {arguments.stop_at}")
    output.prepare_json(arguments.json)
    checkpoint = None
    if arguments.out is not None:
        if any(record["id"] == config.identity for record in records.read(arguments.out)):
            raise ValueError(f"{arguments.out} holds this run already: choose another folder or seed")
        checkpoint = arguments.out / "checkpoints" / f"{config.identity}-1.safetensors"
        if arguments.resume and not checkpoint.exists():
            raise ValueError(f"no checkpoint of this run in {arguments.out}: it is made by the same options")
        if not arguments.resume:
            checkpoint.unlink(missing_ok=True)
    with live(config.label) as report:
        (trained,) = train([config], checkpoint_file=checkpoint, stop_at=arguments.stop_at, report=report)
    out = output.console(arguments.json)
    if trained.outcome is None:
        out.print(f"stopped at step {len(trained.losses)} of {config.steps}; --resume continues", soft_wrap=True)
        return 0
    result = records.result(trained, 1)
    if arguments.out is not None:
        records.write(arguments.out, [result])
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    record = dataclasses.asdict(result.record)
    output.write_json(arguments.json, "train", {"runs": [record]})
    out.print(describe(record), soft_wrap=True)
    return 0 if record["outcome"] in ("finished", "stopped") else 1


def describe(record: Mapping[str, Any]) -> str:
    """A record in one line."""
    heads = f"{record['heads']} heads" + (f", P = {record['pseudo_heads']}" if record["pseudo_heads"] else "")
    parts = [f"{record['task']} {record['attention']}, {heads}, seed {record['seed']}: {record['outcome']}"]
    if record["reason"]:
        parts.append(record["reason"])
    for name in ("error", "floor", "accuracy", "baseline_accuracy"):
        if record[name] is not None:
            parts.append(f"{name.replace('_', ' ')} {record[name]:.5g}")
    return ", ".join(parts) + f" ({record['steps']} steps, {record['wall_s']:.1f} s)"


def points(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int, int | None], list[Any]]:
    """Records that differ in their seed only, by label, layer, H and P; labels tell settings apart where they differ."""
    from synthetic.training.config import TrainConfig

    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for record in records:
        label = TrainConfig(**record["config"]).label
        found[label, record["attention"], record["heads"], record["pseudo_heads"]].append(record)
    for (label, *rest), group in list(found.items()):
        configs = [record["config"] for record in group]
        varied = [n for n in configs[0] if n != "seed" and any(c[n] != configs[0][n] for c in configs)]
        if varied:
            del found[label, *rest]
        for record in group if varied else ():
            words = [label, *(f"{name}={record['config'][name]}" for name in varied)]
            found[" ".join(words), *rest].append(record)
    return found  # type: ignore[return-value]


class live:
    """Progress on standard error: a bar that says the loss and the floor, or a line now and then without a terminal."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        self._label, self._last = label, -math.inf
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True) if self._console.is_terminal else None
        self._task: Any = None

    def __enter__(self) -> Callable[[Any], None]:
        if self._bar is not None:
            self._bar.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _report(self, progress: Any) -> None:
        if not progress.losses:
            return
        loss = sum(progress.losses.values()) / len(progress.losses)
        against = "" if progress.floor is None else f", floor {progress.floor:.5f}"
        text = f"{self._label}: batch loss {loss:.5f}{against}"
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(text, total=progress.steps)
            self._bar.update(self._task, description=text, completed=progress.step)
        elif time.monotonic() > self._last + 5 or progress.step == progress.steps:
            self._last = time.monotonic()
            self._console.print(f"step {progress.step}/{progress.steps} {text}", soft_wrap=True)
