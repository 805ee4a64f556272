"""Records of training runs (`synthetic.training.records`), read strictly and without torch."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synthetic.tasks import TASKS
from synthetic.training import records, report

POINT = {"task", "attention", "heads", "pseudo_heads", "seed"}
"""What differs within a series."""


@dataclass(frozen=True)
class Run:
    """One record: those fields of `synthetic.training.records.RunRecord` that pictures use.

    Attributes:
        id: stands for all options.
        task, attention, heads, pseudo_heads, seed: as trained.
        config: all options that change what is trained, whatever else the record lists (`report.settings`).
        outcome: of `records.OUTCOMES`.
        error: relative squared error; None where the task has none, or the run did not finish.
        floor: the least error by theory, or None.
        accuracy, baseline_accuracy: shares of right labels, or None.
        steps: that were made.
        baselines, parts: accuracy of simple guesses, and on parts of the test set, by name.
        parameters, flops: of the model, and of its forward pass of a sample; None if not counted.
        wall_s, together: seconds of the program it trained in, and how many runs that had.
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
    baselines: Mapping[str, float] = field(repr=False)
    parts: Mapping[str, float] = field(repr=False)
    parameters: int | None
    flops: int | None
    wall_s: float
    together: int

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


Curve = list[tuple[int, float]]
"""Steps, and the validation loss after each."""


def curves(folder: Path) -> dict[str, Curve]:
    """The validation losses of all runs under a folder, by their ids, from the files beside the records."""
    found = {}
    for file in sorted(folder.rglob("curves/*.csv")):
        with file.open(encoding="utf-8", newline="") as lines:
            rows = csv.DictReader(lines)
            found[file.stem] = [(int(row["step"]), float(row["validation"])) for row in rows if row["validation"]]
    return found


def read(folder: Path) -> list[Run]:
    """As `read_counted`, without the counts."""
    return read_counted(folder)[0]


def read_counted(folder: Path) -> tuple[list[Run], dict[str, int], str]:
    """All runs under a folder on tasks of ours, each once: of records of the same run the last one counts.

    Returns:
        The runs, how many "files" and "records" were read and how many different "runs" they are, and what else is to
        be said (`report.cut_off`).

    Raises:
        ValueError: no runs.jsonl in the folder or below, or a line in one that is not a record, by file and line.
        OSError: a file that cannot be read.
    """
    files = sorted(folder.rglob(records.FILE))
    if not files:
        raise ValueError(f"no {records.FILE} in {folder} or below: run iha-theory sweep polynomial --out {folder}")
    found = [record for file in files for _, record in records.read_file(file)]
    ours = [record for record in found if record["task"] in TASKS]
    runs: dict[Any, Run] = {}
    for record, config in zip(ours, report.settings(ours), strict=True):
        fields: dict[str, Any] = {name: record[name] for name in Run.__dataclass_fields__} | {"config": config}
        fields |= {
            n: float(v) for n in ("error", "floor", "accuracy", "baseline_accuracy") if (v := fields[n]) is not None
        }
        runs[tuple(config.items())] = Run(**fields)
    counts = {"files": len(files), "records": len(found), "runs": len(runs)}
    return list(runs.values()), counts, report.cut_off(files)
