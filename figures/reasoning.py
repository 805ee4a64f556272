"""Accuracy of attentions on the reasoning tasks: every seed, the median, and the guesses that need no attention."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from figures import style
from figures.groups import Panel, Summary, panels, spread_out, unfinished
from figures.records import Curve, Run
from figures.style import Picture

NAMES = {
    "relations": "composing Boolean relations",
    "quotient": "composing relations through colours",
    "match3": "Match3",
    "composition": "is f(f(0)) = 0",
    "retrieval": "retrieval of several keys",
    "hops": "induction in k hops",
}
"""The pictures, each of the task of its name, and what the task is."""
FAMILIES = {"MHA": style.MHA, "IHA": style.IHA}
OTHERS = style.TILED
MOST = 40
"""Most rows of a panel."""
MANY_PARTS = 3
"""From so many parts of the test set on accuracy is drawn against them."""


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seed only: what they are called, those that ended well, and how many diverged."""

    label: str
    runs: tuple[Run, ...]
    diverged: int

    @property
    def look(self) -> style.Look:
        """By family."""
        return FAMILIES.get(self.label.split(",")[0], OTHERS)


def draw(name: str, runs: Sequence[Run], folder: Path, curves: Mapping[str, Curve] | None = None) -> Picture:
    """Writes NAME.svg, .png, .csv (every run) and -summary.csv (medians and spreads, by part of the test set too).

    Args:
        name: of `NAMES`.
        runs: of any tasks.
        folder: where the files go.
        curves: validation losses of runs (`figures.records.curves`), drawn if there are some.

    Raises:
        ValueError: no run of the task that ended well among them.
    """
    own = [run for run in runs if run.task == name]
    found = [(panel, rows) for panel in panels(own, MOST) if (rows := _rows(panel))]
    if not found:
        raise ValueError(f"{name}: no run of it that ended well: run iha-theory sweep {name} --out DIR")
    parts = _names(own)
    learned = {run.id: curve for run in own if (curve := (curves or {}).get(run.id))}
    below = (len(parts) >= MANY_PARTS) + bool(learned)
    with style.applied():
        heights = (0.24 * max(len(rows) for _, rows in found) + 0.9, *[2.4] * below)
        figure = style.Figure(figsize=(style.WIDTH, 0.6 + sum(heights) * len(found)))
        for axes, (panel, rows) in zip(style.grid(figure, [1] * len(found), heights), found, strict=True):
            _accuracies(axes[0], panel, rows)
            if len(parts) >= MANY_PARTS:
                _parts(axes[1], rows)
            if learned:
                _learned(axes[-1], rows, learned)
        style.note(figure, _note(own, found))
        written = [_row(panel, row, run) for panel, rows in found for row in rows for run in row.runs]
        told = [_told(panel, row, part) for panel, rows in found for row in rows for part in (None, *parts)]
        return style.save(figure, folder, name, written, told)


def _rows(panel: Panel) -> list[Row]:
    """The panel's series, a row for each number of heads."""
    out = []
    for series in panel.series:
        kind = series.label.split(", ")[0]
        several = {run.heads for other in panel.series if other.label.split(", ")[0] == kind for run in other.runs}
        for heads in series.heads:
            label = series.label + (f", H = {heads}" if len(several) > 1 else "")
            out.append(Row(label, tuple(series.at(heads)), sum(run.heads == heads for run in series.diverged)))
    return out


def title(panel: Panel) -> str:
    """What is learned, with its options."""
    options = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in panel.problem.items())
    return f"{NAMES[panel.task]}\n{style.verbatim(options)}"


def _accuracies(axes: style.Axes, panel: Panel, rows: Sequence[Row]) -> None:
    runs = [run for row in rows for run in row.runs]
    for at, row in enumerate(rows):
        accuracies = [run.number("accuracy") for run in row.runs]
        y = [at + offset for offset in spread_out(len(accuracies), 0.15)]
        axes.plot(accuracies, y, **row.look.points, markersize=3.5, alpha=0.75, markeredgewidth=0)
        axes.plot([statistics.median(accuracies)], [at], "|", color=style.BLACK, markersize=11)
        if row.diverged:
            axes.annotate(f"{row.diverged} diverged", (max(accuracies), at), xytext=(8, -3), textcoords="offset points")
    for place, (guess, share) in enumerate(_guesses(runs).items()):
        axes.axvline(
            share, color=style.GREY, linewidth=0.8, linestyle=style.LINES[place % len(style.LINES)], label=guess
        )
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_title(f"{title(panel)}, n = {min(len(row.runs) for row in rows)}", fontsize=7.5)
    axes.set_xlabel("accuracy on held-out samples")
    axes.legend(loc="best", fontsize=6.5)


def _guesses(runs: Sequence[Run]) -> dict[str, float]:
    """Accuracy of each simple guess: the median over the runs."""
    names = {name: None for run in runs for name in run.baselines}
    told = {"commonest label": [run.number("baseline_accuracy") for run in runs]}
    told |= {name: [run.baselines[name] for run in runs if name in run.baselines] for name in names}
    return {name: statistics.median(values) for name, values in told.items()}


def _look(at: int) -> style.Look:
    """Of a row among many: once the colours are used up they come again with other lines."""
    look, count = style.LOOKS[at % len(style.LOOKS)], len(style.LINES)
    return replace(look, line=style.LINES[(at + at // len(style.LOOKS)) % count])


def _names(runs: Sequence[Run]) -> list[str]:
    """The parts of the test set that some of these runs have."""
    return list({part: None for run in runs for part in run.parts})


def _parts(axes: style.Axes, rows: Sequence[Row]) -> None:
    """Accuracy on each part of the test set, such as each length, of the rows that have some."""
    parts = _names([run for row in rows for run in row.runs])
    for at, row in enumerate(rows):
        look, known = _look(at), _names(row.runs)
        there = [place for place, part in enumerate(parts) if part in known]
        for run in row.runs:
            axes.plot([parts.index(part) for part in run.parts], list(run.parts.values()), **look.points, markersize=2)
        medians = [statistics.median(r.parts[parts[p]] for r in row.runs if parts[p] in r.parts) for p in there]
        axes.plot(there, medians, **look.path, label=row.label if there else None)
    axes.set_xticks(range(len(parts)), parts)
    axes.set_ylabel("accuracy")
    if parts:
        axes.legend(loc="best", fontsize=6.5, ncols=2)


def _learned(axes: style.Axes, rows: Sequence[Row], curves: Mapping[str, Curve]) -> None:
    """Validation loss against steps."""
    for at, row in enumerate(rows):
        look = _look(at)
        for i, curve in enumerate(curves[run.id] for run in row.runs if run.id in curves):
            axes.plot(*zip(*curve, strict=True), **look.path, alpha=0.8, label=None if i else row.label)
    axes.set(xlabel="steps", ylabel="validation loss", yscale="log")
    axes.legend(loc="best", fontsize=6, ncols=2)


def _row(panel: Panel, row: Row, run: Run) -> dict[str, Any]:
    point = {"heads": run.heads, "pseudo_heads": run.pseudo_heads, "seed": run.seed, "steps": run.steps}
    measured = {"accuracy": run.accuracy, "commonest_label": run.baseline_accuracy, **run.baselines}
    costs = {"parameters": run.parameters, "flops": run.flops, "seconds": round(run.wall_s / run.together, 3)}
    return {
        **panel.problem,
        "series": row.label,
        **point,
        **measured,
        **costs,
        "outcome": run.outcome,
        "record": run.id,
    }


def _told(panel: Panel, row: Row, part: str | None) -> dict[str, Any]:
    """Accuracy of a row's runs on all samples or on a part: how many, median, mean, spread."""
    values = [run.parts.get(part) if part else run.number("accuracy") for run in row.runs]
    known = [value for value in values if value is not None]
    spread = asdict(Summary.of(known)) if known else {"n": 0, "median": None, "mean": None, "sample_sd": None}
    return {**panel.problem, "series": row.label, "part": part or "all", **spread, "diverged": row.diverged}


def _note(own: Sequence[Run], found: Sequence[tuple[Panel, Sequence[Row]]]) -> str:
    left_out = sum(panel.left_out for panel, _ in found)
    text = (
        "Every dot is a seed, the bar is the median. Weights are those of the best validation loss. Vertical lines: "
        "guesses that need no attention, from the commonest label of a simple feature."
    )
    return " ".join(filter(None, (text, unfinished(own), f"Settings not drawn: {left_out}." if left_out else "")))
