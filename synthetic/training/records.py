"""Run records: one strict JSON line a run in `runs.jsonl`, with curves and weights in files beside it.

A folder of runs holds `runs.jsonl`, `curves/ID.csv` (step, loss, validation loss), `weights/ID.safetensors`, and
checkpoints of unfinished runs in `checkpoints/`. ID is `TrainConfig.identity`. To read records imports no torch.
"""

import csv
import io
import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iha_theory import __version__
from synthetic.training.config import TrainConfig

if TYPE_CHECKING:
    from torch import nn

    from synthetic.training.program import Run

FILE = "runs.jsonl"
SCHEMA = "iha-theory/run/1"


@dataclass(frozen=True)
class RunRecord:
    """What is kept of a run.

    Attributes:
        schema: version of this format.
        id: stands for `config`.
        task, attention, heads, pseudo_heads, seed, device: from the config; pseudo_heads is None for all but IHA.
        config: every option that the run has (`TrainConfig.from_json`).
        outcome: "finished", "diverged", "stopped" (early, on the validation loss) or "failed".
        reason: why it diverged, stopped or failed; None if finished.
        error: relative squared error on the test distribution: of the exact operator where there is one; None if none.
        floor: the least error that theory allows; None if none is known.
        accuracy: share of right labels over the tokens of the test set; None if the task has no labels.
        baseline_accuracy: the same for the commonest label.
        steps: steps trained.
        wall_s: seconds that the program took in which it was trained, together with `together` - 1 others.
        together: runs in that program.
        versions: of this package, torch, numpy and Python.
        data_hash: of the inputs it was trained and judged on; None if it failed before.
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
    measured = run.measured
    record = RunRecord(
        **_from_config(run.config),
        outcome=run.outcome,
        reason=run.reason,
        error=measured.error,
        floor=run.floor,
        accuracy=measured.accuracy,
        baseline_accuracy=measured.baseline_accuracy,
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
    own = _from_config(config)
    record = RunRecord(**own, **nothing, outcome="failed", reason=reason, steps=0, wall_s=0.0, together=1)
    return Result(record, [], [], None)


def _from_config(config: TrainConfig) -> dict[str, Any]:
    import numpy as np
    import torch

    own = {name: getattr(config, name) for name in ("task", "attention", "heads", "seed", "device")}
    versions = {
        "iha_theory": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    where = {"schema": SCHEMA, "id": config.identity, "pseudo_heads": config.pseudo}
    return own | where | {"config": config.to_json(), "versions": versions}


def write(folder: Path, results: Iterable[Result]) -> None:
    """Adds results to a folder: first the files beside the records, then each record as one whole line."""
    for found in results:
        name = found.record.id
        if found.losses:
            validations = dict(found.validations)
            rows = [(s, f"{loss:.7g}", validations.get(s, "")) for s, loss in enumerate(found.losses, start=1)]
            _replace(folder / "curves" / f"{name}.csv", _table(("step", "loss", "validation"), rows).encode())
        if found.weights is not None:
            _replace(folder / "weights" / f"{name}.safetensors", found.weights)
        _append(folder / FILE, json.dumps(asdict(found.record), allow_nan=False))


def read(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder, in order; none if there is no file. A last line that was cut off is left out.

    Raises:
        ValueError: a line that is no record of this schema.
    """
    file = folder / FILE
    return [record for _, record in read_file(file)] if file.exists() else []


def read_file(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records with their line numbers, from 1. A last line that was cut off is left out: its run is trained again.

    Raises:
        ValueError: a line that is no strict JSON object of this schema, or no UTF-8 text.
        OSError: a file that cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text") from error
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            record = json.loads(line, parse_constant=_no_constant)
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            if record.get("schema") != SCHEMA:
                raise ValueError(f"schema {record.get('schema')!r}, accepted is {SCHEMA}")
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not a record of a run: {error}") from error
        yield number, record


def forget(folder: Path, identities: Iterable[str]) -> None:
    """Takes the records of these runs out of a folder."""
    gone = set(identities)
    kept = [record for record in read(folder) if record["id"] not in gone]
    _replace(folder / FILE, "".join(json.dumps(r, allow_nan=False) + "\n" for r in kept).encode())


def load_model(folder: Path, identity: str) -> "nn.Module":
    """The trained model of a record, on the CPU.

    Raises:
        ValueError: no such weights, or weights that do not belong to this kind of model.
    """
    file = folder / "weights" / f"{identity}.safetensors"
    if not file.exists():
        raise ValueError(f"no weights {file}")
    record = next((r for r in read(folder) if r["id"] == identity), None)
    if record is None:
        raise ValueError(f"no record {identity} in {folder}")
    from synthetic.training.model import build

    config = TrainConfig.from_json(record["config"], device="cpu")
    model = build(config, config.build())
    restore(model, file)
    return model


def restore(model: "nn.Module", file: Path) -> None:
    """Loads weights into a model: every one of them, or none.

    Raises:
        ValueError: names or shapes that differ from the model's, such as MHA's weights for IHA.
    """
    from safetensors.torch import load_file

    weights = load_file(file)
    own = {name: p.shape for name, p in model.named_parameters()}
    if own != {name: p.shape for name, p in weights.items()}:
        odd = [
            name for name in own.keys() | weights.keys() if own.get(name) != getattr(weights.get(name), "shape", None)
        ]
        raise ValueError(f"{file} holds weights of another model: {', '.join(sorted(odd))} differ")
    model.load_state_dict(weights, strict=False)  # buffers stay


def _table(heading: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return out.getvalue()


def _replace(file: Path, content: bytes) -> None:
    """Writes a file that is whole at every moment."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, file)


def _append(file: Path, line: str) -> None:
    """One write of the whole line; if the last one was cut off, that ends first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b") as out:
        if out.tell():
            out.seek(-1, os.SEEK_END)
            if out.read(1) != b"\n":
                whole = file.read_bytes()
                out.truncate(whole.rfind(b"\n") + 1)
        out.write(line.encode() + b"\n")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
