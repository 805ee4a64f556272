"""Runs put into what a picture may pool: a panel for each problem, a series for each layer and setting."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from figures import style
from figures.records import Run
from figures.style import Look
from synthetic.tasks import TASKS

MOST_SERIES = len(style.LOOKS)
ENDED_WELL = ("finished", "stopped")
"""Runs that were measured at their end; "stopped" is early, on the validation loss."""


@dataclass(frozen=True)
class Series:
    """Runs that differ in heads and seed only, by heads and seed.

    Attributes:
        label: the layer, and what is unlike the commonest setting of that layer in the panel.
        runs: that ended well.
        diverged: that did not, and count as no success.
    """

    label: str
    runs: tuple[Run, ...]
    diverged: tuple[Run, ...] = ()

    def at(self, heads: int) -> list[Run]:
        """The runs with so many heads."""
        return [run for run in self.runs if run.heads == heads]

    @property
    def heads(self) -> list[int]:
        """The numbers of heads, ascending."""
        return sorted({run.heads for run in self.runs})

    @property
    def lost(self) -> list[int]:
        """The numbers of heads at which every run diverged."""
        return sorted({run.heads for run in self.diverged} - {run.heads for run in self.runs})


@dataclass(frozen=True)
class Panel:
    """Runs on one problem.

    Attributes:
        task: of `synthetic.tasks.TASKS`.
        problem: the options that say what is learned.
        series: at most so many (`panels`), those with the most runs.
        left_out: series beyond that.
    """

    task: str
    problem: dict[str, Any]
    series: tuple[Series, ...]
    left_out: int

    @property
    def seeds(self) -> str:
        """How many runs stand behind a point: "n = 8", or "n = 6 to 8"."""
        counts = [len(series.at(heads)) for series in self.series for heads in series.heads]
        return f"n = {min(counts, default=0)}" + (f" to {max(counts)}" if len(set(counts)) > 1 else "")


def panels(runs: Iterable[Run], most: int = MOST_SERIES) -> list[Panel]:
    """The panels of runs that ended well or diverged, in an order that depends on nothing but their options.

    Args:
        runs: of any tasks.
        most: series of a panel.
    """
    by_problem: defaultdict[tuple[str, tuple[tuple[str, Any], ...]], list[Run]] = defaultdict(list)
    for run in runs:
        if run.outcome in (*ENDED_WELL, "diverged"):
            by_problem[run.task, run.problem].append(run)
    tasks = list(TASKS)
    keys = sorted(by_problem, key=lambda key: (tasks.index(key[0]), [_sortable(value) for _, value in key[1]]))
    return [panel for key in keys if (panel := _panel(*key, by_problem[key], most)).series]


def _panel(task: str, problem: tuple[tuple[str, Any], ...], runs: list[Run], most: int) -> Panel:
    groups: defaultdict[tuple[str, tuple[tuple[str, Any], ...]], list[Run]] = defaultdict(list)
    diverged: defaultdict[tuple[str, tuple[tuple[str, Any], ...]], list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (run.heads, run.seed, run.id)):
        (groups if run.outcome in ENDED_WELL else diverged)[run.kind, run.setting].append(run)
    order = sorted({**groups, **diverged}, key=lambda key: (-len(groups[key]), repr(key)))
    commonest = {kind: next(setting for k, setting in order if k == kind) for kind, _ in order}
    series = []
    for kind, setting in order[:most]:
        unlike = [f"{name} = {value}" for name, value in setting if (name, value) not in commonest[kind]]
        label, own = ", ".join([kind, *unlike]), (kind, setting)
        series.append(Series(label, tuple(groups[own]), tuple(diverged[own])))
    return Panel(task, dict(problem), tuple(sorted(series, key=lambda s: s.label)), len(order) - len(series))


def _sortable(value: Any) -> tuple[bool, Any]:
    number = isinstance(value, int | float)
    return not number, value if number else str(value)


def looks(found: Sequence[Panel]) -> dict[str, Look]:
    """How each series is drawn, the same in every panel."""
    own = {"IHA": style.IHA, "MHA": style.MHA}
    others = sorted({series.label for panel in found for series in panel.series} - own.keys())
    free = [look for look in style.LOOKS if look not in own.values()]
    return own | {label: free[i % len(free)] for i, label in enumerate(others)}


@dataclass(frozen=True)
class Summary:
    """Of some numbers: how many, median, mean, and the sample standard deviation (ddof = 1), None for one number.

    All but n are None for no number.
    """

    n: int
    median: float | None
    mean: float | None
    sample_sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Summary":
        """The summary of at least one number."""
        sd = statistics.stdev(values) if len(values) > 1 else None
        return cls(len(values), statistics.median(values), statistics.fmean(values), sd)


def spread_out(count: int, width: float) -> list[float]:
    """Offsets of so many things side by side, from -width to width."""
    return [0.0] if count == 1 else [width * (2 * i / (count - 1) - 1) for i in range(count)]


def unfinished(runs: Iterable[Run]) -> str:
    """What is not drawn, as a sentence; empty if everything is. Training marks a run below its floor as failed."""
    counts = Counter(_fate(run) for run in runs if run.outcome not in ENDED_WELL)
    if not counts:
        return ""
    return f"Not drawn: {', '.join(f'{n} {fate}' for fate, n in sorted(counts.items()))}."


def _fate(run: Run) -> str:
    below = run.error is not None and run.floor is not None and run.error < run.floor
    return "BELOW THE FLOOR, against theory" if run.outcome == "failed" and below else run.outcome
