"""One style for all pictures: colours, markers, lines, a row for exact zeros on log axes, and how files are written.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart; what differs by colour differs by marker
and line style too, for print in black and white. Nothing here depends on a display, on the user's settings or on the
date: the same data gives the same bytes.
"""

import csv
import math
import re
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

BLACK, GREY = "#000000", "#8c8c8c"
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Blue, vermilion, bluish green, reddish purple, orange, sky blue."""
MARKERS = ("s", "o", "^", "D", "v", "P")
LINES = ("--", "-", "-.", ":", (0, (6, 2)), (0, (3, 1, 1, 1, 1, 1)))

WIDTH = 7.2
"""Inches: a page of text."""

RULES: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.hashsalt": "iha-theory",
}


Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Picture:
    """A picture's name, its files (SVG and PNG), the CSV beside them with what it shows, and glyphs its font lacks."""

    name: str
    files: tuple[Path, ...]
    data_files: tuple[Path, ...]
    missing: str = ""


@dataclass(frozen=True)
class Look:
    """How a series is drawn."""

    colour: str
    marker: str
    line: Any

    @property
    def points(self) -> dict[str, Any]:
        """Keywords of `Axes.plot` for markers without a line."""
        return {"color": self.colour, "marker": self.marker, "linestyle": "none"}

    @property
    def path(self) -> dict[str, Any]:
        """Keywords of `Axes.plot` for a line without markers."""
        return {"color": self.colour, "linestyle": self.line}


LOOKS = tuple(Look(*look) for look in zip(PALETTE, MARKERS, LINES, strict=True))
IHA, MHA, TILED, TWO_LAYER = LOOKS[:4]


def applied() -> AbstractContextManager[None]:
    """Draw within this: matplotlib's own defaults, then this style, whatever the user has set."""
    return matplotlib.style.context(RULES, after_reset=True)


class ZeroRow:
    """A logarithmic y axis with a row of its own, below a break, for exact zeros.

        rows = ZeroRow(axes, values)
        axes.plot(x, rows.place(values), "o")

    Args:
        axes: whose y axis it is.
        values: all that will be drawn, at least 0. The row is there if one of them is 0.

    Raises:
        ValueError: a value that is negative or not finite.
    """

    def __init__(self, axes: Axes, values: Iterable[float]) -> None:
        values = list(values)
        if any(not (0 <= v < math.inf) for v in values):
            raise ValueError("a logarithmic axis shows finite numbers of at least 0")
        positive = [v for v in values if v > 0] or [1.0]
        low, high = math.log10(min(positive) / 1.5), math.log10(max(positive) * 1.5)
        step = 0.11 * (high - low)
        self.zero = 10 ** (low - step)
        decades = range(math.floor(low), math.ceil(high) + 1)
        ticks = [10.0**e for e in decades if low <= e <= high]
        ticks = ticks[:: -1 - len(ticks) // 7]  # from the top
        if len(ticks) < 3:
            ticks = [v for e in decades for v in (10.0**e, 2 * 10.0**e, 5 * 10.0**e) if low <= math.log10(v) <= high]
        axes.set_yscale("log")
        if 0 in values:
            axes.set_ylim(10 ** (low - 1.6 * step), 10**high)
            ticks.append(self.zero)
            axes.axhline(10 ** (low - 0.5 * step), color=GREY, linewidth=0.8, linestyle=(0, (1, 2)))
            break_marks = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 6, "color": BLACK, "clip_on": False}
            for at in (0.42, 0.58):
                y = 10 ** (low - at * step)
                axes.plot([0], [y], transform=axes.get_yaxis_transform(), zorder=9, linestyle="none", **break_marks)
        else:
            axes.set_ylim(10**low, 10**high)
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: "0" if y == self.zero else short_number(y)))

    def place(self, values: Iterable[float]) -> list[float]:
        """Where the values go: 0 in its own row, the others as they are."""
        return [self.zero if v == 0 else v for v in values]


def short_number(y: float) -> str:
    """A tick label: in full from 0.001 to 1000, else with a power of ten."""
    if 1e-3 <= y <= 1e3:
        return f"{y:g}"
    digits, exponent = f"{y:.0e}".split("e")
    return ("" if digits == "1" else f"{digits}$\\cdot$") + f"$10^{{{int(exponent)}}}$"


def plain_log(axes: Axes, which: str, ticks: Sequence[int]) -> None:
    """A logarithmic axis, "x" or "y", with these ticks and no others, written in full."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))


def grid(figure: Figure, rows: Sequence[int], heights: tuple[float, ...] = (1,)) -> list[list[Axes]]:
    """Stacks of axes, so many in each row, and no empty ones; a stack's axes have these heights."""
    spec = figure.add_gridspec(len(rows), max(rows))
    stacks = [
        spec[y, x].subgridspec(len(heights), 1, height_ratios=heights) for y, n in enumerate(rows) for x in range(n)
    ]
    return [[figure.add_subplot(stack[i]) for i in range(len(heights))] for stack in stacks]


def common_legend(figure: Figure, panels: Iterable[Axes]) -> None:
    """One legend above all panels, an entry for each label, in alphabetical order."""
    entries = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = sorted(entries)
    figure.legend([entries[label] for label in labels], labels, loc="outside upper center", ncols=min(5, len(labels)))


def whole_numbers(axes: Axes, largest: int) -> None:
    """An x axis of 1, 2, ..., with a tick at each up to 10, else at 1 and at every fourth part."""
    axes.set_xlim(0.4, largest + 0.6)
    step = -(-largest // 4)
    axes.xaxis.set_major_locator(FixedLocator(range(1, 11) if largest <= 10 else [1, *range(step, largest + 1, step)]))


def text_beside(axes: Axes, text: str, at: tuple[int, int], above: bool = False) -> None:
    """Small print beside a point, legible across lines: above it to the left, or below it to the right."""
    place = {"xytext": (-4, 6), "ha": "right"} if above else {"xytext": (5, -12), "ha": "left"}
    outline = [withStroke(linewidth=2, foreground="white")]
    axes.annotate(text, at, textcoords="offset points", fontsize=7, path_effects=outline, **place)


def verbatim(text: str) -> str:
    """A name in a title as it is, dollar signs too, on lines of at most 60 characters."""
    return "\n".join(textwrap.wrap(text.replace("$", r"\$"), 60, break_on_hyphens=False))


def note(figure: Figure, text: str) -> None:
    """Small print below the panels, wrapped."""
    lines = [line for part in text.split("\n") for line in textwrap.wrap(part, 120)]
    figure.supxlabel("\n".join(lines), fontsize=7, color="#404040", x=0.01, ha="left")


def save(figure: Figure, folder: Path, name: str, rows: Rows, summary: Rows = ()) -> Picture:
    """Writes NAME.svg, NAME.png and NAME.csv into the folder, which is made if need be.

    Args:
        figure: drawn in the style (`applied`).
        folder: where the files go.
        name: of the files.
        rows: what the picture shows, all with the same keys; None is an empty cell, floats are written in full.
        summary: what it shows of groups of rows, for NAME-summary.csv.

    Raises:
        OSError: the folder cannot be made or written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = (folder / f"{name}.{kind}" for kind in ("svg", "png"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        figure.savefig(png, metadata={"Software": None})
    glyphs: dict[str, None] = {}
    for warning in caught:
        if found := re.match(r"Glyph (\d+) ", str(warning.message)):
            glyphs[chr(int(found[1]))] = None
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    tables = {folder / f"{name}.csv": rows, folder / f"{name}-summary.csv": summary}
    written = {path: table for path, table in tables.items() if table}
    for path, table in written.items():
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    return Picture(name, (svg, png), tuple(written), "".join(glyphs))
