"""Head counts against task size: the theory as lines, every check that holds as a dot."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

CHOICES = (("bank/", "terms", "filter bank: terms k"), ("cpm3", "n_max", "CPM-3: tokens N_max"))
COLOURS = {"mha": "tab:red", "iha": "tab:blue"}


def draw(checks: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """Writes heads.svg and heads.png into the folder, which is made if need be; returns their paths.

    Args:
        checks: the list `checks` of `iha-theory verify --json`. A dot is a size at which every check of that layer
            holds; a cross, one at which some check fails.
        folder: where the files go.

    Raises:
        ValueError: no check of the filter bank or of CPM-3 among them.
    """
    panels = [(key, label, _counts(checks, prefix, key)) for prefix, key, label in CHOICES]
    panels = [panel for panel in panels if panel[2]]
    if not panels:
        raise ValueError("no checks of the filter bank or of CPM-3 to draw: run iha-theory verify bank cpm3 --json F")
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    for axes, (_, label, counts) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        largest = max(size for _, size in counts)
        sizes = range(1, largest + 1)
        axes.plot(sizes, sizes, color=COLOURS["mha"], linewidth=1, label="n heads (MHA)")
        roots = [next(h for h in sizes if h * h >= n) for n in sizes]
        text = "$\\lceil\\sqrt{n}\\rceil$ heads (IHA)"
        axes.step(sizes, roots, where="post", color=COLOURS["iha"], linewidth=1, label=text)
        for layer, colour in COLOURS.items():
            for holds, marker in ((True, "o"), (False, "x")):
                points = [(n, h) for (who, n), (h, ok) in counts.items() if who == layer and ok == holds]
                if points:
                    text = f"{layer.upper()}: checks {'hold' if holds else 'FAIL'}"
                    axes.plot(*zip(*points, strict=True), marker, color=colour, markersize=4, label=text)
        axes.set(xlabel=label, ylabel="heads")
        axes.legend(frameon=False, fontsize=8)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"heads.{kind}" for kind in ("svg", "png")]
    for file in files:
        figure.savefig(file, dpi=150)
    return files


def _counts(checks: Sequence[Mapping[str, Any]], prefix: str, key: str) -> dict[tuple[str, int], tuple[int, bool]]:
    """(layer, size) -> (heads, whether every check holds)."""
    counts: dict[tuple[str, int], tuple[int, bool]] = {}
    for check in checks:
        if check["id"].startswith(prefix) and key in check["setting"] and check["layer"] in COLOURS:
            at = (check["layer"], check["setting"][key])
            holds = check["verdict"] == "holds" and counts.get(at, (0, True))[1]
            counts[at] = (check["heads"], holds)
    return counts
