"""Heads of CPM-3 against bits per number: packed constructions that were checked, on the bound of docs/cpm3.md."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from constructions.checks.result import heads_by_claim
from constructions.suite import packing
from figures import style
from figures.style import Picture

MODULUS = 4
FEW = (2, 3, 4, 5, 6, 8, 11, 16, 24, 53)
SIZES: dict[int, Sequence[int]] = {16: FEW, 64: FEW, 256: (8, 11, 16, 24, 53)}
"""N, and the p at which the constructions are checked; fewer bits at N = 256 take more than 4 GiB."""
BITS = range(2, 54)
"""p of the bounds."""
MARKS = {2: "token", 8: "bfloat16", 24: "float32", 53: "float64"}
LAYERS = {"mha": style.MHA, "iha": style.IHA}
LABELS = {"mha": "MHA", "iha": "IHA"}
SIZE = {"mha": 6.5, "iha": 4.0}
"""Of the markers: both show where they agree."""
NOTE = (
    f"CPM-3 with M = {MODULUS}, queries and keys of positions only, the own token beside the layer; "
    "numbers of at most $2^p$ values.\n"
    "Every dot is a torch layer with packed tokens whose counts were checked (verify cpm3). Lines: no layer has fewer "
    "(docs/cpm3.md, Theorem 2)."
)


@dataclass(frozen=True)
class Point:
    """A head count.

    Attributes:
        layer: "mha" or "iha".
        tokens: N.
        bits: p.
        heads: H.
        kind: "construction" (packed, checked) or "bound" (any weights need so many).
        verdict: "holds" or "fails": the check of the construction; the bound is proved.
    """

    layer: str
    tokens: int
    bits: int
    heads: int
    kind: str
    verdict: str


def steps() -> list[tuple[str, Callable[[], list[Point]]]]:
    """What has to be computed: (label, the points of one step)."""
    checked = [(f"N = {n}, p = {p}", partial(_checked, n, p)) for n, chosen in SIZES.items() for p in chosen]
    return [*checked, ("bounds", _bounds)]


def _checked(tokens: int, bits: int) -> list[Point]:
    results = packing.checks(tokens, MODULUS, bits)
    return [Point(r.layer, tokens, bits, r.heads, "construction", r.verdict) for r in results]


def _bounds() -> list[Point]:
    """The least r with 2^(p r) >= M^(N - 1), and its root."""
    out = []
    for tokens in SIZES:
        needed = (MODULUS ** (tokens - 1) - 1).bit_length()
        for layer in LAYERS:
            out += [Point(layer, tokens, p, heads_by_claim(layer, -(-needed // p)), "bound", "holds") for p in BITS]
    return out


def draw(points: Sequence[Point], folder: Path) -> Picture:
    """Writes bits.svg, .png and .csv: a panel for each N; dots on lines, crosses are what does not hold."""
    sizes = sorted({p.tokens for p in points})
    with style.applied():
        figure = style.Figure(figsize=(style.WIDTH, 3.3))
        panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
        for axes, tokens in zip(panels, sizes, strict=True):
            _panel(axes, [p for p in points if p.tokens == tokens])
            axes.set(xlabel="bits per number p")
            axes.set_title(f"N = {tokens}", pad=16)
        panels[0].set_ylabel("heads H")
        style.common_legend(figure, panels)
        style.note(figure, NOTE)
        return style.save(figure, folder, "bits", [asdict(p) for p in points])


def _panel(axes: style.Axes, points: Sequence[Point]) -> None:
    for layer, look in LAYERS.items():

        def at(kind: str, verdict: str, layer: str = layer) -> list[tuple[int, int]]:
            return [(p.bits, p.heads) for p in points if (p.layer, p.kind, p.verdict) == (layer, kind, verdict)]

        if bound := at("bound", "holds"):
            axes.plot(*zip(*bound, strict=True), **look.path, drawstyle="steps-mid", label=f"least for {LABELS[layer]}")
        if good := at("construction", "holds"):
            axes.plot(*zip(*good, strict=True), **look.points, markersize=SIZE[layer], label=f"{LABELS[layer]}, packed")
        if wrong := at("construction", "fails"):
            axes.plot(
                *zip(*wrong, strict=True), "x", color=look.colour, markersize=8, label=f"{LABELS[layer]}: CHECK FAILS"
            )
    style.plain_log(axes, "x", [2, 4, 8, 16, 24, 53])
    style.plain_log(axes, "y", [2**e for e in range(9)])
    for bits, name in MARKS.items():
        axes.axvline(bits, color=style.GREY, linewidth=0.8, linestyle=(0, (1, 2)), zorder=0.5)
        axes.annotate(
            name,
            (bits, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=6.2,
            color="#404040",
        )
