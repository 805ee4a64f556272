"""What the filter bank's constructions cost against k: parameters, FLOPs, attention maps (`iha_theory.costs`)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from figures import style
from figures.style import Picture
from iha_theory.costs.formulas import LAYERS, cost

TOKENS, WIDTH = 256, 16
"""N and d. Constructions for k <= N terms."""
QUANTITIES = {"parameters": "parameters", "flops": "FLOPs of one sequence", "maps": "attention maps of N by N"}
LABELS = {
    "mha": "MHA, k heads",
    "iha": "IHA as in the paper",
    "iha-tiled": "IHA, tiled (T6)",
    "mha-two-layer": "two layers of MHA (T7)",
}
LOOKS = {"mha": style.MHA, "iha": style.IHA, "iha-tiled": style.TILED, "mha-two-layer": style.TWO_LAYER}


@dataclass(frozen=True)
class Curve:
    """One quantity of one layer's construction.

    Attributes:
        quantity: of `QUANTITIES`.
        layer: of `iha_theory.costs.formulas.LAYERS`.
        values: for k = 1, 2, ...
        cheaper_from: the least k from which on all values are below MHA's; None if there is none.
    """

    quantity: str
    layer: str
    values: tuple[int, ...]
    cheaper_from: int | None


def compute(tokens: int = TOKENS, width: int = WIDTH) -> list[Curve]:
    """All curves for k = 1 .. N, from the closed forms.

    Args:
        tokens: N.
        width: d.
    """
    terms = range(1, tokens + 1)
    curves = []
    for quantity in QUANTITIES:
        mha = [cost(quantity, "mha", tokens, width, k) for k in terms]
        for layer in LAYERS:
            values = [cost(quantity, layer, tokens, width, k) for k in terms]
            last = max((k for k, own, other in zip(terms, values, mha, strict=True) if own >= other), default=0)
            curves.append(Curve(quantity, layer, tuple(values), last + 1 if last < tokens else None))
    return curves


def draw(curves: Sequence[Curve], folder: Path, tokens: int = TOKENS, width: int = WIDTH) -> Picture:
    """Writes costs.svg, .png and .csv: a panel a quantity; a dot where a line stays below MHA's from there on."""
    with style.applied():
        figure = style.Figure(figsize=(style.WIDTH, 3.2))
        panels = figure.subplots(1, len(QUANTITIES))
        for axes, (quantity, title) in zip(panels, QUANTITIES.items(), strict=True):
            for curve in curves:
                if curve.quantity == quantity:
                    _line(axes, curve)
            axes.set(yscale="log", xlabel="terms k", title=title)
            style.plain_log(axes, "x", [4**e for e in range(5)])
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(LAYERS))
        style.note(
            figure,
            f"Filter bank of a graph of N = {tokens} nodes, content of width d = {width}, by closed forms.\n"
            "Ringed: from this k to k = N it needs less than MHA. No single layer has fewer maps than MHA's k (T2).",
        )
        rows = [
            {**asdict(curve), "values": None, "tokens": tokens, "width": width, "terms": k, "value": value}
            for curve in curves
            for k, value in enumerate(curve.values, 1)
        ]
        return style.save(figure, folder, "costs", [{k: v for k, v in row.items() if k != "values"} for row in rows])


def _line(axes: style.Axes, curve: Curve) -> None:
    look, terms = LOOKS[curve.layer], range(1, len(curve.values) + 1)
    squares = [4**e - 1 for e in range(len(terms)) if 4**e <= len(terms)]
    axes.plot(terms, curve.values, **look.path, marker=look.marker, markevery=squares, label=LABELS[curve.layer])
    if curve.cheaper_from is not None:
        at = (curve.cheaper_from, curve.values[curve.cheaper_from - 1])
        axes.plot(*at, marker="o", markersize=9, markerfacecolor="none", color=style.BLACK, linestyle="none")
        style.text_beside(
            axes,
            f"k = {curve.cheaper_from}",
            at,
            above=(curve.layer, curve.quantity) == ("mha-two-layer", "parameters"),
        )
