"""Run records: one strict JSON line a run in `runs.jsonl`, with curves and weights in files beside it.

A folder of runs holds `runs.jsonl`, `curves/ID.csv` (step, loss, validation loss), `weights/ID.safetensors`, and
checkpoints of unfinished runs in `checkpoints/`. ID is `TrainConfig.identity`. A folder has one writer (`writing`), who
may be killed at any moment: files are whole, and the records of runs that trained together are all there or none, as
those in `pending.jsonl` are added by the next writer. To read records imports no torch.
"""

import contextlib
import copy
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iha_theory import __version__
from iha_theory.attention import KINDS
from iha_theory.places import PARTIAL_NAME, only_writer, replace, try_file, try_folder
from synthetic.tasks import TASKS
from synthetic.training.config import TrainConfig, identity

if TYPE_CHECKING:
    from synthetic.training.program import Run

FILE = "runs.jsonl"
PENDING = "pending.jsonl"
PLACES = ("certified", "checkpoints", "curves", "weights")
LEFT = re.compile(rf"([0-9a-f]{{16}}(-1)?\.\w+|(runs|pending)\.jsonl){PARTIAL_NAME}")  # of killed writers
SCHEMA = "iha-theory/run/1"
OUTCOMES = ("finished", "diverged", "stopped", "failed")
SHARED = ("task", "attention", "heads", "seed", "device")
"""The fields that a record and its config both have."""


@dataclass(frozen=True)
class RunRecord:
    """What is kept of a run.

    Attributes:
        schema: version of this format.
        id: stands for `config`.
        task, attention, heads, pseudo_heads, seed, device: from the config; pseudo_heads is None for all but IHA.
        config: every option that the run has (`TrainConfig.from_json`).
        outcome: "finished", "diverged", "stopped" (early, on the validation loss) or "failed": `OUTCOMES`.
        reason: why it diverged, stopped or failed; None if finished.
        error: relative squared error on the test distribution: of the exact operator where there is one; of a Boolean
            function the share of wrong inputs; None if none.
        floor: the least error that theory allows; None if none is known.
        accuracy: share of right labels over the tokens of the test set; None if the task has no labels.
        baseline_accuracy: the same for the commonest label.
        baselines, parts: the same for guesses from simple features, and on parts of the test set, by name.
        parameters: trained numbers of the model; flops: of its forward pass of one sample; None if not counted.
        steps: steps trained.
        wall_s: seconds that the program took in which it was trained, together with `together` - 1 others.
        together: runs in that program.
        versions: of this package, torch, numpy and Python.
        data_hash: of the inputs it was trained and judged on; None if it failed before.
        content: for each option that names a file, such as a graph, a hash of what that held (`Task.content`).
    """

    schema: str
    id: str
    task: str
    attention: str
    heads: int
    pseudo_heads: int | None
    seed: int
    config: dict[str, Any]
    outcome: str
    reason: str | None
    error: float | None
    floor: float | None
    accuracy: float | None
    baseline_accuracy: float | None
    steps: int
    wall_s: float
    together: int
    device: str
    versions: dict[str, str]
    data_hash: str | None
    content: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)
    parameters: int | None = None
    flops: int | None = None


LATER: dict[str, Any] = {"content": {}, "baselines": {}, "parts": {}, "parameters": None, "flops": None}
"""The fields that older records lack, and what these get."""


@dataclass(frozen=True)
class Result:
    """A record with what goes into the files beside it: the run's curves, and its weights as safetensors."""

    record: RunRecord
    losses: list[float]
    validations: list[tuple[int, float]]
    weights: bytes | None


def result(run: "Run", together: int) -> Result:
    """The result of a run that has ended."""
    from safetensors.torch import save

    assert run.outcome is not None
    measured = {name: value for name, value in asdict(run.measured).items() if name != "slack"}
    told = {"outcome": run.outcome, "reason": run.reason, "floor": run.floor}
    record = RunRecord(
        **_from_config(run.config),
        **(measured | told),
        parameters=None if run.weights is None else sum(p.numel() for p in run.weights.values()),
        steps=len(run.losses),
        wall_s=round(run.wall_s, 3),
        together=together,
        data_hash=run.digest,
    )
    weights = None if run.weights is None else save(run.weights, {"config": json.dumps(run.config.to_json())})
    return Result(record, run.losses, run.validations, weights)


def failure(config: TrainConfig, reason: str) -> Result:
    """The result of a run that could not be made or broke down."""
    nothing: dict[str, Any] = dict.fromkeys(("error", "floor", "accuracy", "baseline_accuracy", "data_hash"))
    nothing |= {"outcome": "failed", "reason": reason, "steps": 0, "wall_s": 0.0, "together": 1}
    record = RunRecord(**_from_config(config), **nothing)
    return Result(record, [], [], None)


def _from_config(config: TrainConfig) -> dict[str, Any]:
    import numpy as np
    import torch

    own = {name: getattr(config, name) for name in SHARED}
    versions = {"iha_theory": __version__, "torch": torch.__version__, "numpy": np.__version__}
    versions["python"] = platform.python_version()
    where = {"schema": SCHEMA, "id": config.identity, "pseudo_heads": config.pseudo, "versions": versions}
    return own | where | {"config": config.to_json(), "content": dict(config.problem.content())}


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A folder whose records nobody else writes in the block. It is tried before; what a killed writer left is done.

    Raises:
        OSError: another process writes it, or it cannot be written.
        ValueError: as `read`.
    """
    with only_writer(folder):
        for place in PLACES:
            try_folder(folder / place)
        try_file(folder / FILE)
        for file in [file for place in (".", *PLACES) for file in (folder / place).glob("*")]:
            if LEFT.fullmatch(file.name):
                file.unlink()
        read(folder)
        _add_pending(folder)
        yield


def write(folder: Path, results: Iterable[Result]) -> None:
    """Adds results to a folder: first the files beside the records, then each record as one whole line."""
    lines = []
    for found in results:
        name = found.record.id
        if found.losses:
            validations = dict(found.validations)
            rows = [f"{s},{loss:.7g},{validations.get(s, '')}\n" for s, loss in enumerate(found.losses, start=1)]
            replace(folder / "curves" / f"{name}.csv", "".join(("step,loss,validation\n", *rows)).encode())
        if found.weights is not None:
            replace(folder / "weights" / f"{name}.safetensors", found.weights)
        lines.append(json.dumps(asdict(found.record), allow_nan=False) + "\n")
    replace(folder / PENDING, "".join(lines).encode())
    _append(folder / FILE, "".join(lines))
    (folder / PENDING).unlink()


def _add_pending(folder: Path) -> None:
    """Adds what a writer that was killed had still to add."""
    pending = folder / PENDING
    if pending.exists():
        known = {json.loads(line)["id"] for line in _lines(folder / FILE)}
        both = zip(_lines(pending), read_file(pending), strict=True)
        _append(folder / FILE, "".join(f"{line}\n" for line, (_, record) in both if record["id"] not in known))
        pending.unlink()


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder, in order; none if there is no file. A last line that was cut off is left out.

    Raises:
        ValueError: a line that is no record of this schema.
    """
    return [record for _, record in read_file(folder / FILE)]


def read_file(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records with their line numbers, from 1. A last line that was cut off is left out: its run is trained again.

    Raises:
        ValueError: a line that is no strict JSON object of this schema with all fields, or no UTF-8 text.
        OSError: a file that cannot be read.
    """
    for number, line in enumerate(_lines(file), start=1):
        try:
            record = json.loads(line, parse_constant=_no_constant)
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            _check(record)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}, line {number}: not a record of a run: {error}") from error
        yield number, record


def _check(record: dict[str, Any]) -> None:
    """Refuses a record that lacks a field, has a value that training never writes, or contradicts its own config.

    An older one gets the fields of `LATER`.
    """
    older = "content" not in record
    for name, value in LATER.items():
        record.setdefault(name, copy.copy(value))
    if record.get("schema") != SCHEMA:
        raise ValueError(f"schema {record.get('schema')!r}, accepted is {SCHEMA}")
    if missing := [name for name in RunRecord.__dataclass_fields__ if name not in record]:
        raise ValueError(f"{missing[0]!r} is missing")
    for name, accepted in (("task", TASKS), ("attention", KINDS), ("outcome", OUTCOMES)):
        value = record[name]
        if not isinstance(value, str) or (value not in accepted and not (name != "outcome" and ":" in value)):
            raise ValueError(f"{name} {value!r}, accepted are {', '.join(accepted)}")
    objects = ("config", "content", "baselines", "parts")
    for name, kind, noun in (("id", str, "a text"), *((name, dict, "an object") for name in objects)):
        if not isinstance(record[name], kind):
            raise ValueError(f"{name} {record[name]!r}, accepted is {noun}")
    for name in ("baselines", "parts"):
        if not all(type(share) in (int, float) and 0 <= share <= 1 for share in record[name].values()):
            raise ValueError(f"{name} {record[name]!r}, accepted are numbers from 0 to 1")
    for name, least in (("heads", 1), ("pseudo_heads", 1), ("seed", 0), ("steps", 0), ("parameters", 1), ("flops", 0)):
        value, optional = record[name], name in ("pseudo_heads", "parameters", "flops")
        if (value is not None or not optional) and (type(value) is not int or value < least):
            raise ValueError(f"{name} {value!r}, accepted are integers from {least} on")
    most = {"error": math.inf, "floor": 1, "accuracy": 1, "baseline_accuracy": 1, "wall_s": math.inf}
    for name, largest in most.items():
        value = record[name]
        number = type(value) in (int, float) and 0 <= value <= largest and math.isfinite(value)
        if not number and (value is not None or name == "wall_s"):
            raise ValueError(f"{name} {value!r}, accepted are null and numbers from 0 to {largest:g}")
    for name in SHARED:  # before anything is loaded for the config
        if record["config"].get(name) != record[name]:
            raise ValueError(f"{name} {record[name]!r}, and in its config {record['config'].get(name)!r}")
    named = identity(record["config"], record["content"])
    if not re.fullmatch("[0-9a-f]{16}", record["id"]) or (record["id"] != named and not older):
        raise ValueError(f"id {record['id']!r}, and its config's is {named}")
    if record["task"] in TASKS:  # to know the options of the user's own, one has to run their code
        if missing := [name for name in TASKS[record["task"]].learned if name not in record["config"]]:
            raise ValueError(f"config has no {missing[0]}")
        config = TrainConfig.from_json(record["config"])
        if config.pseudo != record["pseudo_heads"]:
            raise ValueError(f"pseudo_heads {record['pseudo_heads']!r}, and in its config {config.pseudo!r}")
        for name, held in record["content"].items():
            if name not in config.problem.names() or not isinstance(held, str):
                raise ValueError(f"content {name!r} {held!r}, accepted are hashes of options that name files")
        if record["outcome"] in ("finished", "stopped") and record["error"] is record["accuracy"] is None:
            raise ValueError(f"outcome {record['outcome']!r} without error and accuracy")


def forget(folder: Path, identities: Iterable[str]) -> None:
    """Takes the records of these runs out of a folder."""
    gone = set(identities)
    kept = [line for line in _lines(folder / FILE) if json.loads(line)["id"] not in gone]
    replace(folder / FILE, "".join(f"{line}\n" for line in kept).encode())


def _lines(file: Path) -> list[str]:
    """The whole lines of a file; none if there is no such file."""
    try:
        text = file.read_text(encoding="utf-8") if file.exists() else ""
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text") from error
    return text[: text.rfind("\n") + 1].splitlines()


def _append(file: Path, lines: str) -> None:
    """Adds whole lines; if the last one was cut off, it goes."""
    with file.open("a+b") as out:
        if out.tell():
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                whole = file.read_bytes()
                out.truncate(whole.rfind(b"\n") + 1)
        out.write(lines.encode())


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
