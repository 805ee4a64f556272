"""Learning CPM-3 from its labels: accuracy of every seed and success rate against heads, for each number of steps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from figures import style
from figures.groups import Panel, Series, Summary, looks, panels, spread_out, unfinished
from figures.records import Run
from figures.style import Look, Picture
from synthetic.tasks import TASKS

SUCCESS = 0.99
"""A run succeeds if its accuracy on held-out sequences is at least this."""


def draw(runs: Sequence[Run], folder: Path) -> Picture:
    """Writes frontier.svg, .png, .csv (every run) and -summary.csv (success rates, medians, spreads).

    Args:
        runs: of any tasks.
        folder: where the files go.

    Raises:
        ValueError: no run of cpm3 that ended well among them.
    """
    own = [run for run in runs if run.task == "cpm3"]
    found = panels(run for run in own if run.accuracy is not None or run.outcome == "diverged")
    if not any(series.runs for panel in found for series in panel.series):
        raise ValueError("frontier: no run of cpm3 that ended well: run iha-theory sweep cpm3 --out DIR")
    found.sort(key=lambda panel: panel.problem["embedding"] != "scalar")  # where heads matter comes first
    drawn = looks(found)
    least = min(run.number("accuracy") for panel in found for series in panel.series for run in series.runs)
    with style.applied():
        rows = list(Counter(title(panel) for panel in found).values())  # a row a problem, a column a number of steps
        figure = style.Figure(figsize=(style.WIDTH, 0.9 + 2.7 * len(rows)))
        pairs = style.grid(figure, rows, heights=(2, 1))
        for (above, below), panel in zip(pairs, found, strict=True):
            _panel(above, below, panel, drawn)
            above.set_ylim(max(0.0, least - 0.05), 1.02)
        style.common_legend(figure, [above for above, _ in pairs])
        style.note(figure, _note(found, own))
        summary = [row for panel in found for series in panel.series for row in _summary(panel, series)]
        return style.save(
            figure, folder, "frontier", [_row(s, r) for p in found for s in p.series for r in s.runs], summary
        )


def title(panel: Panel) -> str:
    """What is learned, in words."""
    options = panel.problem
    content = ", content" if options["mode"] == "content" else ""
    sizes = f"N = {options['tokens']}, M = {options['modulus']}, G = {options['coefficient']}"
    return f"{options['embedding']}{content}, {sizes}"


def _panel(above: style.Axes, below: style.Axes, panel: Panel, drawn: dict[str, Look]) -> None:
    for shift, series in zip(spread_out(len(panel.series), 0.25), panel.series, strict=True):
        look, summaries = drawn[series.label], _summary(panel, series)[: len(series.heads)]
        for heads, summary in zip(series.heads, summaries, strict=True):
            accuracies = [run.number("accuracy") for run in series.at(heads)]
            x = [heads + shift + offset for offset in spread_out(len(accuracies), 0.1)]
            label = series.label if heads == series.heads[0] else None
            above.plot(x, accuracies, **look.points, markersize=3.5, alpha=0.75, markeredgewidth=0, label=label)
            if (sd := summary["sample_sd"]) is not None:
                ends = (max(0.0, summary["mean"] - sd), min(1.0, summary["mean"] + sd))
                above.plot([heads + shift] * 2, ends, color=look.colour, linewidth=0.8)
        medians = [summary["median"] for summary in summaries]
        above.plot([h + shift for h in series.heads], medians, "_", color=style.BLACK, markersize=8, label="median")
        rates = dict(zip(series.heads, (summary["success_rate"] for summary in summaries), strict=False))
        heads = sorted([*series.heads, *series.lost])
        below.plot(heads, [rates.get(h, 0.0) for h in heads], **look.path, marker=look.marker, clip_on=False)
        if series.lost:
            crosses = {"marker": "X", "color": style.BLACK, "markersize": 7, "linestyle": "none", "clip_on": False}
            below.plot(series.lost, [0.0] * len(series.lost), **crosses, zorder=5)
    above.axhline(SUCCESS, color=style.GREY, linewidth=0.8, linestyle="--")
    above.set_ylabel("accuracy")
    above.set_title(f"{title(panel)}\n{panel.problem['steps']} steps, {panel.seeds}", fontsize=7.5)
    above.tick_params(labelbottom=False)
    below.set(xlabel="heads H", ylabel="success rate", ylim=(0, 1.05), yticks=[0, 0.5, 1])
    for axes in (above, below):
        style.whole_numbers(axes, max(h for series in panel.series for h in (*series.heads, *series.lost)))


def _row(series: Series, run: Run) -> dict[str, Any]:
    about = {"task": run.task, **{name: run.config[name] for name in TASKS["cpm3"].learned}, "series": series.label}
    point = {"heads": run.heads, "pseudo_heads": run.pseudo_heads, "seed": run.seed}
    measured = {"accuracy": run.accuracy, "baseline_accuracy": run.baseline_accuracy}
    return {
        **about,
        **point,
        **measured,
        "success": run.number("accuracy") >= SUCCESS,
        "outcome": run.outcome,
        "record": run.id,
    }


def _summary(panel: Panel, series: Series) -> list[dict[str, Any]]:
    """For each number of heads the accuracies' median, mean and spread, and the share of successes in all trials.

    Where every run diverged there are no accuracies, and no success; these come last.
    """
    out = []
    for heads in (*series.heads, *series.lost):
        accuracies = [run.number("accuracy") for run in series.at(heads)]
        about = {**panel.problem, "series": series.label, "heads": heads}
        diverged = sum(run.heads == heads for run in series.diverged)
        rate = sum(a >= SUCCESS for a in accuracies) / (len(accuracies) + diverged)
        spread = (
            asdict(Summary.of(accuracies)) if accuracies else {"n": 0, "median": None, "mean": None, "sample_sd": None}
        )
        out.append({**about, **spread, "diverged": diverged, "success_rate": rate})
    return out


def _note(found: Sequence[Panel], own: Sequence[Run]) -> str:
    left_out = sum(panel.left_out for panel in found)
    text = (
        f"Every dot is a seed's accuracy on held-out sequences. Success: at least {SUCCESS} (dashed), not diverged.\n"
        "Bars: mean ± sample standard deviation (ddof = 1), cut at 1; none for one seed. "
    )
    if any(series.lost for panel in found for series in panel.series):
        text += "Crosses: every seed diverged. "
    baselines = sorted({f"{run.baseline_accuracy:.2f}" for run in own if run.baseline_accuracy is not None})
    if baselines:
        text += f"The commonest label alone: {' to '.join(dict.fromkeys((baselines[0], baselines[-1])))}. "
    return text + " ".join(filter(None, (unfinished(own), f"Settings not drawn: {left_out}." if left_out else "")))
