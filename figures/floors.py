"""Trained error against heads, every seed, with the floor that theory sets (docs/results.md T3)."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from figures import style
from figures.groups import Panel, Series, Summary, looks, panels, spread_out, unfinished
from figures.records import Run
from figures.style import Look, Picture
from synthetic.tasks import TASKS as ALL

TASKS = ("polynomial", "workspace", "unstructured", "parity", "esp")
COLUMNS = 3
WRONG = {"parity": "parity of k bits", "esp": "endpoint of k pointers"}
"""The tasks whose error is a share of wrong inputs."""
GRAPHS = {"orthogonal": "random orthogonal", "karate": "karate club", "cycle": "directed cycle"}


def draw(runs: Sequence[Run], folder: Path) -> Picture:
    """Writes floors.svg, .png, .csv (every run) and -summary.csv (medians and floors).

    Args:
        runs: of any tasks.
        folder: where the files go.

    Raises:
        ValueError: no run that ended well with an error and a floor among them.
    """
    own = [run for run in runs if run.task in TASKS]
    found = panels(run for run in own if run.error is not None and run.floor is not None)
    if not found:
        raise ValueError(
            "floors: no run of a filter bank or workspace that ended well: run iha-theory sweep polynomial --out DIR"
        )
    drawn = looks(found)
    with style.applied():
        rows = [min(COLUMNS, len(found) - i) for i in range(0, len(found), COLUMNS)]
        figure = style.Figure(figsize=(style.WIDTH, 0.7 + 2.4 * len(rows)))
        grid = style.grid(figure, rows)
        for (axes,), panel in zip(grid, found, strict=True):
            _panel(axes, panel, drawn)
        style.common_legend(figure, [axes for (axes,) in grid])
        style.note(figure, _note(found, own))
        summary = [row for panel in found for series in panel.series for row in _summary(panel, series)]
        return style.save(
            figure, folder, "floors", [_row(p, s, r) for p in found for s in p.series for r in s.runs], summary
        )


def title(panel: Panel) -> str:
    """What is learned, in words."""
    options = panel.problem
    if panel.task in WRONG:
        return f"{WRONG[panel.task]}\nk = {options.get('bits') or options['pointers']}"
    name, sizes = panel.task, [f"N = {options.get('tokens')}"]
    if panel.task == "polynomial":
        family, _, size = str(options["graph"]).partition(":")
        name, sizes = GRAPHS.get(family, style.verbatim(family)), [f"N = {size}"] if size else []
        if options["normalise"] not in (None, "none"):
            name += f" ({options['normalise']})"
    if "terms" in options:
        sizes.append(f"k = {options['terms']}")
    if options["width"] != 1:
        sizes.append(f"d = {options['width']}")
    if options.get("unit_norm"):
        name += ", unit norm"
    if options.get("mode") == "content":
        name += ", content"
    return f"{name}\n{', '.join(sizes)}"


def _panel(axes: style.Axes, panel: Panel, drawn: dict[str, Look]) -> None:
    runs = [run for series in panel.series for run in series.runs]
    rows = style.ZeroRow(axes, [run.number(name) for run in runs for name in ("error", "floor")])
    for shift, series in zip(spread_out(len(panel.series), 0.2), panel.series, strict=True):
        look, summaries = drawn[series.label], _summary(panel, series)
        floors = rows.place(row["floor"] for row in summaries)
        edges = [x for heads in series.heads for x in (heads - 0.5, heads + 0.5)]
        axes.plot(edges, [y for y in floors for _ in range(2)], **look.path, label=f"{series.label}: floor")
        for heads in series.heads:
            at = series.at(heads)
            x = [heads + shift + offset for offset in spread_out(len(at), 0.1)]
            y = rows.place(run.number("error") for run in at)
            label = f"{series.label}, each seed" if heads == series.heads[0] else None
            axes.plot(x, y, **look.points, markersize=3.5, alpha=0.75, markeredgewidth=0, label=label)
        medians = rows.place(row["median"] for row in summaries)
        axes.plot([h + shift for h in series.heads], medians, "_", color=style.BLACK, markersize=8, label="median")
    axes.set(
        xlabel="heads H",
        ylabel="wrong inputs" if panel.task in WRONG else "relative squared error",
        title=f"{title(panel)}, {panel.seeds}",
    )
    style.whole_numbers(axes, max(run.heads for run in runs))


def _row(panel: Panel, series: Series, run: Run) -> dict[str, Any]:
    names = dict.fromkeys(name for names in (ALL[task].learned for task in TASKS) for name in names)
    point = {"heads": run.heads, "pseudo_heads": run.pseudo_heads, "seed": run.seed, "steps": run.steps}
    about = {"task": panel.task, **names, **panel.problem, "series": series.label, **point}
    return {**about, "error": run.error, "floor": run.floor, "outcome": run.outcome, "record": run.id}


def _summary(panel: Panel, series: Series) -> list[dict[str, Any]]:
    """For each number of heads the median error, and the floor: the least, if the seeds have different ones."""
    out = []
    for heads in series.heads:
        runs = series.at(heads)
        about = {"panel": title(panel).replace("\n", ", "), "series": series.label, "heads": heads}
        summary = Summary.of([run.number("error") for run in runs])
        floor = min(run.number("floor") for run in runs)
        out.append({**about, "floor": floor, **asdict(summary)})
    return out


def _note(found: Sequence[Panel], own: Sequence[Run]) -> str:
    left_out = sum(panel.left_out for panel in found)
    text = "Every dot is a seed. Lines: the least error of any layer with so many heads. 0 is exact."
    return " ".join(filter(None, (text, unfinished(own), f"Settings not drawn: {left_out}." if left_out else "")))
