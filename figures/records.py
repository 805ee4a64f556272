"""Records of training runs (`synthetic.training.records`), read strictly and without torch."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthetic.training import run_file

OUTCOMES = ("finished", "diverged", "stopped", "failed")
PROBLEMS = {
    "polynomial": ("graph", "normalise", "unit_norm", "terms", "width", "mode"),
    "unstructured": ("tokens", "unit_norm", "terms", "width", "mode"),
    "workspace": ("tokens", "width"),
    "cpm3": ("embedding", "tokens", "modulus", "coefficient", "mode", "steps"),
}
"""The options that say what is learned, in how many steps for cpm3: runs that differ in them go to different panels."""
UNUSED = {key for keys in PROBLEMS.values() for key in keys} - {"steps"}
POINT = {"task", "attention", "heads", "pseudo_heads", "seed", "device", "checkpoint_every"}
"""What differs within a series, or changes nothing."""


@dataclass(frozen=True)
class Run:
    """One record: those fields of `synthetic.training.records.RunRecord` that pictures use.

    Attributes:
        id: stands for all options.
        task, attention, heads, pseudo_heads, seed: as trained.
        config: all options.
        outcome: of `OUTCOMES`.
        error: relative squared error; None where the task has none, or the run did not finish.
        floor: the least error by theory, or None.
        accuracy, baseline_accuracy: shares of right labels, or None.
        steps: that were made.
    """

    id: str
    task: str
    attention: str
    heads: int
    pseudo_heads: int | None
    seed: int
    config: Mapping[str, Any] = field(repr=False)
    outcome: str
    error: float | None
    floor: float | None
    accuracy: float | None
    baseline_accuracy: float | None
    steps: int

    def number(self, name: str) -> float:
        """A field that this run has."""
        value = getattr(self, name)
        assert value is not None
        return float(value)

    @property
    def problem(self) -> tuple[tuple[str, Any], ...]:
        """The options that say what is learned."""
        return tuple((name, self.config[name]) for name in PROBLEMS[self.task])

    @property
    def setting(self) -> tuple[tuple[str, Any], ...]:
        """All other options but the point's: runs that differ in them are never pooled."""
        own = UNUSED | POINT | set(PROBLEMS[self.task])
        return tuple(sorted((name, value) for name, value in self.config.items() if name not in own))

    @property
    def kind(self) -> str:
        """The layer: "MHA", "IHA" if P = H, else "IHA, P = ..."."""
        if self.attention == "mha":
            return "MHA"
        return "IHA" if self.pseudo_heads in (None, self.heads) else f"IHA, P = {self.pseudo_heads}"


def read(folder: Path) -> list[Run]:
    """All runs under a folder. Of records of the same run (one id) the last one counts.

    Raises:
        ValueError: no runs.jsonl in the folder or below, or a line in one that is not a record, by file and line.
        OSError: a file that cannot be read.
    """
    files = sorted(folder.rglob(run_file.FILE))
    if not files:
        raise ValueError(f"no {run_file.FILE} in {folder} or below: run iha-theory sweep polynomial --out {folder}")
    runs: dict[str, Run] = {}
    for file in files:
        for number, record in run_file.read(file):
            try:
                run = _run(record)
            except (ValueError, KeyError, TypeError) as error:
                reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
                raise ValueError(f"{file}, line {number}: not a record of a run: {reason}") from error
            runs[run.id] = run
    return list(runs.values())


def _run(record: Mapping[str, Any]) -> Run:
    fields = {name: record[name] for name in Run.__dataclass_fields__}
    if not isinstance(fields["id"], str):
        raise ValueError(f"id {fields['id']!r}, accepted is a text")
    for name, accepted in (("task", tuple(PROBLEMS)), ("attention", ("mha", "iha")), ("outcome", OUTCOMES)):
        if fields[name] not in accepted:
            raise ValueError(f"{name} {fields[name]!r}, accepted are {', '.join(accepted)}")
    if not isinstance(fields["config"], dict):
        raise ValueError("config is not a JSON object")
    if missing := [name for name in PROBLEMS[fields["task"]] if name not in fields["config"]]:
        raise ValueError(f"config has no {missing[0]}")
    for name, least in (("heads", 1), ("pseudo_heads", 1), ("seed", 0), ("steps", 0)):
        value = fields[name]
        if (value is not None or name != "pseudo_heads") and (type(value) is not int or value < least):
            raise ValueError(f"{name} {value!r}, accepted are integers from {least} on")
    for name, most in (("error", sys.float_info.max), ("floor", 1), ("accuracy", 1), ("baseline_accuracy", 1)):
        value = fields[name]
        if value is not None and (type(value) not in (int, float) or not 0 <= value <= most):
            raise ValueError(f"{name} {value!r}, accepted are null and numbers from 0 to {most:g}")
        fields[name] = None if value is None else float(value)
    return Run(**fields)
