"""Records of training runs (`synthetic.training.records`), read strictly and without torch."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iha_theory.attention import KINDS
from synthetic.tasks import TASKS
from synthetic.training import records
from synthetic.training.config import TrainConfig

OUTCOMES = ("finished", "diverged", "stopped", "failed")
POINT = {"task", "attention", "heads", "pseudo_heads", "seed", "device", "checkpoint_every"}
"""What differs within a series, or changes nothing."""


@dataclass(frozen=True)
class Run:
    """One record: those fields of `synthetic.training.records.RunRecord` that pictures use.

    Attributes:
        id: stands for all options.
        task, attention, heads, pseudo_heads, seed: as trained.
        config: all options that the run has, whatever else an older record lists.
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
        return tuple((name, self.config[name]) for name in TASKS[self.task].learned)

    @property
    def setting(self) -> tuple[tuple[str, Any], ...]:
        """All other options but the point's: runs that differ in them are never pooled."""
        own = POINT | set(TASKS[self.task].learned)
        return tuple(sorted((name, value) for name, value in self.config.items() if name not in own))

    @property
    def kind(self) -> str:
        """The layer: "MHA", "IHA" if P = H, else "IHA, P = ..."; others by their names."""
        if self.attention not in ("mha", "iha"):
            return self.attention
        name = self.attention.upper()
        return name if self.pseudo_heads in (None, self.heads) else f"{name}, P = {self.pseudo_heads}"


def read(folder: Path) -> list[Run]:
    """All runs under a folder on tasks of ours. Of records of the same run (one id) the last one counts.

    Raises:
        ValueError: no runs.jsonl in the folder or below, or a line in one that is not a record, by file and line.
        OSError: a file that cannot be read.
    """
    files = sorted(folder.rglob(records.FILE))
    if not files:
        raise ValueError(f"no {records.FILE} in {folder} or below: run iha-theory sweep polynomial --out {folder}")
    runs: dict[str, Run] = {}
    for file in files:
        for number, record in records.read_file(file):
            if ":" in str(record.get("task")):  # the user's own
                continue
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
    for name, accepted in (("task", tuple(TASKS)), ("attention", tuple(KINDS)), ("outcome", OUTCOMES)):
        if fields[name] not in accepted and not (name == "attention" and ":" in str(fields[name])):
            raise ValueError(f"{name} {fields[name]!r}, accepted are {', '.join(accepted)}")
    if not isinstance(fields["config"], dict):
        raise ValueError("config is not a JSON object")
    if missing := [name for name in TASKS[fields["task"]].learned if name not in fields["config"]]:
        raise ValueError(f"config has no {missing[0]}")
    fields["config"] = TrainConfig.from_json(fields["config"]).to_json()
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
