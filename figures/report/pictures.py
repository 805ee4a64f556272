"""Pictures of the report: drawn now from what was checked and from records, else as they are committed in docs/."""

import base64
import csv
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from figures import floors, frontier, heads, reasoning
from figures.records import Run

ROWS = 60
"""At most so many rows of a table below a picture."""


@dataclass(frozen=True)
class About:
    """What is said of a picture: its title, what it shows in words for who does not see it, and where it is from."""

    title: str
    words: str


ABOUT = {
    "heads": About(
        "Heads that suffice, and heads that are needed",
        "Heads H against the size of the task, both logarithmic, for the filter bank of the karate club, the workspace "
        "of CPM-3 and parity. Dots are constructions, lines are lower bounds: MHA's grow as the size, those of IHA as "
        "its square root, and the dots lie on the lines.",
    ),
    "floors": About(
        "Training lands on the floor",
        "Relative squared error against heads for filter banks and workspaces. The dots of all seeds lie on the line "
        "of the least error that any layer with so many heads can have; IHA's line falls faster than MHA's.",
    ),
    "parity/floors": About(
        "Parity and endpoint selection: trained errors on their floors",
        "The share of wrong inputs against heads for parity of k bits and endpoints of k pointers. No seed is below "
        "the line of the least share of wrong inputs; for few bits the dots reach it.",
    ),
    "bits": About(
        "CPM-3: heads against bits a number",
        "Heads that count, positions only, against the bits of the numbers that a layer hands on, for 16, 64 and 256 "
        "tokens. More bits take fewer heads; IHA takes the square root of MHA's, and with enough bits both take one.",
    ),
    "frontier": About(
        "Learning CPM-3 from its labels",
        "Accuracy of every seed and the share of seeds that succeed against heads, a panel for each number of steps.",
    ),
    "spectra": About(
        "Spectra of real graphs",
        "Singular values of the filter banks of four graphs, and the heads that an error takes, for MHA and IHA.",
    ),
    "costs": About(
        "What the constructions cost",
        "Parameters, FLOPs and attention maps of MHA and of IHA against k, with the sizes from which IHA has less.",
    ),
}


@dataclass(frozen=True)
class Shown:
    """A picture in the page: name, title and words; where it is from; its data URI; its numbers, cut after `ROWS`."""

    name: str
    about: About
    origin: str
    uri: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


def show(folder: Path, name: str, origin: str) -> Shown:
    """The picture NAME.svg of a folder with the numbers of NAME-summary.csv, or NAME.csv, beside it."""
    base = folder / name
    content = base64.b64encode(base.with_name(f"{base.name}.svg").read_bytes()).decode()
    table: list[list[str]] = []
    for file in (base.with_name(f"{base.name}{end}.csv") for end in ("-summary", "")):
        if file.is_file():
            with file.open(encoding="utf-8", newline="") as lines:
                table = [[_short(cell) for cell in row] for row in csv.reader(lines)]
            break
    columns, rows = (table[0], table[1:]) if table else ([], [])
    about = ABOUT.get(name) or About(_title(name), f"{_title(name)}; its numbers are below.")
    cut = tuple(map(tuple, rows[:ROWS]))
    return Shown(name, about, origin, f"data:image/svg+xml;base64,{content}", tuple(columns), cut, len(rows) - len(cut))


def _title(name: str) -> str:
    return f"Trained layers, {reasoning.NAMES.get(Path(name).name, name)}"


def _short(cell: str) -> str:
    """A number to five digits."""
    try:
        return f"{float(cell):.5g}" if "." in cell or "e-" in cell else cell
    except ValueError:
        return cell


def gather(docs: Path | None, points: Sequence[heads.Point], runs: Sequence[Run], folder: Path) -> list[Shown]:
    """All pictures, in the order of `ABOUT`, other committed ones last.

    Args:
        docs: the folder of committed pictures, or None.
        points: of the picture of heads, to draw it now; none to show the committed one.
        runs: to draw floors and frontier from; pictures for which there are none stay as committed.
        folder: where to draw.
    """
    drawn: dict[str, Shown] = {}
    if points:
        heads.draw(points, folder)
        drawn["heads"] = show(folder, "heads", "checked and drawn now")
    kinds = [("floors", floors.draw, floors.TASKS), ("frontier", frontier.draw, ("cpm3",))]
    kinds += [(name, partial(reasoning.draw, name), (name,)) for name in reasoning.NAMES]
    for name, draw, tasks in kinds:
        if any(run.task in tasks for run in runs):
            try:
                draw(runs, folder)
            except ValueError:  # none that ended well
                continue
            drawn[name] = show(folder, name, "drawn now from the runs given")
    files = sorted(docs.rglob("*.svg")) if docs is not None else []
    for file in (file for file in files if not any(part.startswith(("_", ".")) for part in file.parts)):
        name = file.relative_to(docs or file.parent).with_suffix("").as_posix()
        drawn.setdefault(name, show(docs or file.parent, name, f"as committed, docs/{name}.svg"))
    order = list(ABOUT)
    return sorted(drawn.values(), key=lambda shown: order.index(shown.name) if shown.name in order else len(order))


def summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Runs as a table, whatever their task: a row for each task, layer and number of heads, with the medians."""
    groups: dict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.task, run.kind, run.heads].append(run)
    out = []
    for (task, layer, number), group in sorted(groups.items()):
        row: dict[str, Any] = {"task": task, "layer": layer, "heads": number, "runs": len(group)}
        row["settings"] = len({(run.problem, run.setting) for run in group})
        row["ended well"] = sum(run.outcome not in ("failed", "diverged") for run in group)
        for name in ("error", "floor", "accuracy"):
            values = [value for run in group if (value := getattr(run, name)) is not None]
            row[f"median {name}" if name != "floor" else "least floor"] = (
                "" if not values else f"{(min if name == 'floor' else statistics.median)(values):.4g}"
            )
        out.append(row)
    return out
