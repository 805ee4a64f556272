"""Schmidt spectra of the filter banks of real graphs, and heads at a tolerance (docs/results.md T3, T4).

Powers are scaled to Frobenius norm 1, of the symmetric-normalised adjacency matrix, or of the matrix itself if the
graph is directed. With symmetric normalisation the powers of D^{-1/2} A D^{-1/2} span as many dimensions as those of
the rational D^{-1} A, which is similar to it; so the rank is exact, and singular values beyond it are exact zeros,
whatever rounding makes of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.heads.approximate import ApproximateTask, unit_powers
from constructions.heads.count import HeadCount
from figures import style
from figures.style import Picture
from iha_theory import exact
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.bounds.heads import least_heads
from synthetic.graphs import Graph, builtin, normalise

GRAPHS = ("karate", "les_miserables", "florentine", "davis", "petersen", "cycle:16")
NAMES = {
    "karate": "karate club",
    "les_miserables": "Les Misérables",
    "florentine": "Florentine families",
    "davis": "Southern women",
    "petersen": "Petersen graph",
    "cycle:16": "directed 16-cycle",
}
NOTE = (
    "Powers of Frobenius norm 1 of the symmetric-normalised adjacency matrix, or of the matrix itself if directed.\n"
    "One number: weights that were measured have as many heads as the lower bound; error 0: the exact rank."
)
TERMS = 16
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)


@dataclass(frozen=True)
class Spectrum:
    """The bank of one graph.

    Attributes:
        graph: its name.
        nodes: N.
        rank: r, exact.
        values: s_i / s_1 for i = 1 .. k, 0 beyond r.
        heads: by tolerance the layer's lower bound, and the heads of weights that were measured, None if they missed
            the tolerance. For tolerance 0 the bound only, which is tight (T2).
    """

    graph: str
    nodes: int
    rank: int
    values: tuple[float, ...]
    heads: dict[float, dict[str, tuple[int, int | None]]]


def steps() -> list[tuple[str, Callable[[], Spectrum]]]:
    """What has to be computed: (label, one graph)."""
    return [(name, partial(spectrum_of, builtin(name))) for name in GRAPHS]


def spectrum_of(graph: Graph, terms: int = TERMS) -> Spectrum:
    """The spectrum of a graph's bank and its heads at each tolerance.

    Args:
        graph: undirected with weights of at least 0, or directed.
        terms: k.

    Raises:
        ValueError: as `synthetic.graphs.normalise`.
    """
    powers = unit_powers(graph if graph.directed else normalise(graph, "symmetric"), terms)
    rank = power_rank(_rational(graph), terms).rank
    values = (powers.values / powers.values[0]).tolist()
    heads = {
        tolerance: {layer: _row(ApproximateTask(powers, tolerance).count(layer)) for layer in ("mha", "iha")}
        for tolerance in TOLERANCES
    }
    heads[0.0] = {layer: (least_heads(layer, rank), None) for layer in ("mha", "iha")}
    return Spectrum(graph.name, len(graph.nodes), rank, (*values[:rank], *[0.0] * (terms - rank)), heads)


def _rational(graph: Graph) -> DomainMatrix:
    """A matrix whose powers span as many dimensions as those of the normalised one, over the rationals."""
    a = exact.matrix(graph.adjacency, QQ)
    if graph.directed:
        return a
    rows = [[x / (sum(row) or 1) for x in row] for row in a.to_list()]
    return DomainMatrix(rows, a.shape, QQ).to_dense()


def _row(count: HeadCount) -> tuple[int, int | None]:
    return count.lower, count.achieved


def draw(spectra: Sequence[Spectrum], folder: Path) -> Picture:
    """Writes spectra.svg, .png and .csv: singular values on the left, heads for each tolerance on the right."""
    with style.applied():
        figure = style.Figure(figsize=(style.WIDTH, 3.4))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
        rows = style.ZeroRow(left, [value for spectrum in spectra for value in spectrum.values])
        for look, spectrum in zip(style.LOOKS, spectra, strict=False):
            index, values = range(1, len(spectrum.values) + 1), spectrum.values
            label = f"{_name(spectrum)}, N = {spectrum.nodes}"
            for part in (slice(spectrum.rank), slice(spectrum.rank, None)):  # no line across the break
                drawn = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "markersize": 4}
                left.plot(index[part], rows.place(values[part]), **drawn, label=label if part.start is None else None)
        left.set(xlabel="index i", ylabel="singular value, relative: $s_i / s_1$", xticks=[1, 4, 8, 12, 16])
        left.set_title(f"Schmidt spectra of {len(spectra[0].values)} powers")
        left.legend(loc="lower left", bbox_to_anchor=(0.0, 0.12))
        _table(right, spectra)
        style.note(figure, NOTE)
        return style.save(figure, folder, "spectra", _csv(spectra))


def _name(spectrum: Spectrum) -> str:
    return NAMES.get(spectrum.graph, spectrum.graph)


def _table(axes: style.Axes, spectra: Sequence[Spectrum]) -> None:
    """A row a graph, a column a tolerance; a darker cell has more MHA heads."""
    tolerances = list(spectra[0].heads)
    cells = [[spectrum.heads[tolerance]["mha"][0] for tolerance in tolerances] for spectrum in spectra]
    axes.imshow(cells, cmap="Greys", vmin=0, vmax=2.6 * max(map(max, cells)), aspect="auto")
    for y, spectrum in enumerate(spectra):
        for x, tolerance in enumerate(tolerances):
            text = " / ".join(_cell(tolerance, *spectrum.heads[tolerance][layer]) for layer in ("mha", "iha"))
            axes.text(x, y, text, ha="center", va="center")
    labels = [style.short_number(t) if t else "0\n(exact)" for t in tolerances]
    axes.set_xticks(range(len(tolerances)), labels)
    axes.set_yticks(range(len(spectra)), [_name(spectrum) for spectrum in spectra])
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="relative error allowed")
    axes.set_title("Heads for an error: MHA / IHA")


def _cell(tolerance: float, lower: int, achieved: int | None) -> str:
    """One number where the weights have as few heads as the bound; "?" where none met the tolerance."""
    return f"{lower}" if tolerance == 0 or achieved == lower else f"{lower} to {achieved or '?'}"


def _csv(spectra: Sequence[Spectrum]) -> list[dict[str, Any]]:
    """Singular values, then heads: one table, in which a row is one drawn number or cell."""
    empty = dict.fromkeys(("index", "singular_value", "tolerance", "layer", "lower_bound_heads", "achieved_heads"))
    rows = []
    for spectrum in spectra:
        about = {"graph": spectrum.graph, "nodes": spectrum.nodes, "terms": len(spectrum.values), "rank": spectrum.rank}
        for i, value in enumerate(spectrum.values, 1):
            rows.append(about | empty | {"index": i, "singular_value": value})
        for tolerance, layers in spectrum.heads.items():
            for layer, (lower, achieved) in layers.items():
                counted = {"lower_bound_heads": lower, "achieved_heads": achieved}
                rows.append(about | empty | {"tolerance": tolerance, "layer": layer, **counted})
    return rows
