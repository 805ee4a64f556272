"""The graph of the theory as shapes: columns from left to right, each node right of what it uses.

Shape = kind, border = verdict, fill = how it is checked (by the page's style). Of the edges only those are drawn that
others do not imply (the transitive reduction); the page lists all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import networkx as nx

from constructions.ledger import graph
from iha_theory.blueprint import Check, Kind

LETTER, HEIGHT, ROW, GAP, MARGIN = 6.6, 24.0, 30.0, 46.0, 12.0
"""In pixels: a letter of a label, a node, the distance of rows, between columns, and around all."""


@dataclass(frozen=True)
class Shape:
    """A node: its outline as an SVG path, the middle of its label, and what the style and a screen reader need."""

    name: str
    kind: Kind
    check: Check
    verdict: str
    path: str
    x: float
    y: float

    @property
    def classes(self) -> str:
        """For the style."""
        return f"{self.kind} {self.check.replace(' ', '-')} {self.verdict or 'no-verdict'}"


@dataclass(frozen=True)
class Arc:
    """An edge from `used`, on the left, to what uses it."""

    used: str
    user: str
    path: str


@dataclass(frozen=True)
class Drawing:
    """All of it, with its size."""

    shapes: tuple[Shape, ...]
    arcs: tuple[Arc, ...]
    width: float
    height: float


def outline(kind: Kind, x: float, y: float, width: float, height: float = HEIGHT) -> str:
    """The path of a kind's shape around (x, y): parallelogram, hexagon, rectangle, pill."""
    left, right, top, bottom, half = x - width / 2, x + width / 2, y - height / 2, y + height / 2, height / 2
    corners = {
        "definition": [(left + 7, top), (right, top), (right - 7, bottom), (left, bottom)],
        "theorem": [(left + 9, top), (right - 9, top), (right, y), (right - 9, bottom), (left + 9, bottom), (left, y)],
        "construction": [(left, top), (right, top), (right, bottom), (left, bottom)],
    }
    if kind == "statement":
        arc = f"A{half:g} {half:g} 0 0 1"
        start, end = f"{left + half:g}", f"{right - half:g}"
        return f"M{start} {top:g}H{end}{arc} {end} {bottom:g}H{start}{arc} {start} {top:g}Z"
    return "M" + "L".join(f"{a:g} {b:g}" for a, b in corners[kind]) + "Z"


def draw(nodes: graph.Theory, verdicts: Mapping[str, str]) -> Drawing:
    """The graph.

    Args:
        nodes: of `constructions.ledger.graph.theory`.
        verdicts: of the statements that were checked.
    """
    columns = graph.layers(nodes)
    height = max(map(len, columns)) * ROW + 2 * MARGIN
    place: dict[str, tuple[float, float, float]] = {}
    left = MARGIN
    for column in columns:
        width = LETTER * max(map(len, column)) + 26
        first = height / 2 - ROW * (len(column) - 1) / 2
        place |= {name: (left + width / 2, first + i * ROW, width) for i, name in enumerate(column)}
        left += width + GAP
    shapes = []
    for name, (x, y, width) in place.items():
        node = nodes[name]
        path = outline(node.kind, x, y, width)
        shapes.append(Shape(name, node.kind, node.check, verdicts.get(name, ""), path, x, y))
    arcs = []
    for user, used in nx.transitive_reduction(graph.digraph(nodes)).edges:
        (x, y, width), (u, v, wide) = place[user], place[used]
        start, end = u + wide / 2, x - width / 2
        bend = max(24.0, (end - start) / 2)
        curve = f"M{start:.0f} {v:.0f}C{start + bend:.0f} {v:.0f} {end - bend:.0f} {y:.0f} {end:.0f} {y:.0f}"
        arcs.append(Arc(used, user, curve))
    return Drawing(tuple(shapes), tuple(arcs), left - GAP + MARGIN, height)
