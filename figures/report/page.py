"""The page: what was found, the graph of the theory, pictures and proofs, put together by the templates."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import networkx as nx

from constructions.ledger import graph
from constructions.ledger.page import VERDICTS
from figures.report import drawing, proofs
from figures.report.pictures import Shown
from figures.report.work import Found

KINDS = ("definition", "theorem", "construction", "statement")
CHECKS = {
    "exact": "exactly: rationals, integers or primes",
    "numerical": "numerically: floating point has a part in it",
    "proof only": "by proof only, no code checks it",
    "open": "open: nobody has a proof",
}
PACKAGES = ("torch", "numpy", "scipy", "networkx", "sympy", "python-flint", "matplotlib", "jinja2")
POINTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "IHA does with the square root of k heads what takes k heads of MHA: the filter bank of a graph, parity, "
        "convolutions, state-space models.",
        ("P-bank-iha", "T16", "T12", "T13"),
    ),
    (
        "No fewer heads do it. The counts are lower bounds for the filter bank of every matrix, with content anywhere "
        "under softmax, and in linear attention without a mask.",
        ("T2", "T17a", "T17b"),
    ),
    (
        "What is saved is heads and query and key weights, and neither attention maps, nor FLOPs, nor output width.",
        ("T6", "T-compute", "T19b", "E12"),
    ),
    (
        "On CPM-3 the paper's square root is a theorem where heads see positions only and numbers are no richer than "
        "a token; one head that sees content is enough.",
        ("T15", "T15b", "T18", "P-cpm3-separation"),
    ),
    (
        "With fewer heads an error must remain, and its least value is known. Trained layers land on it (picture "
        "below).",
        ("T3", "T16a"),
    ),
)
"""What the project shows in a minute, each with the statements that say so."""


@dataclass(frozen=True)
class Line:
    """A row of a capacity table: the layer in words, and a cell for each number of heads, "" where it has none."""

    layer: str
    cells: tuple[str, ...]


def render(
    found: Found,
    nodes: graph.Theory,
    pictures: Sequence[Shown],
    runs: Sequence[Mapping[str, Any]],
    root: Path | None,
    read: str = "",
) -> str:
    """The page as HTML.

    Args:
        found: what was checked now.
        nodes: the graph of the theory.
        pictures: in their order.
        runs: their summary, `figures.report.pictures.summary`.
        root: the folder with docs/, or None: then proofs in docs/ are named and not shown.
        read: what was read of the runs, in words.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("figures.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    verdicts = {claim["id"]: claim["verdict"] for claim in found.claims}
    numbers = sorted({row["heads"] for row in found.capacities})
    return environment.get_template("report.html").render(
        found=found,
        failures=found.failures,
        claims={claim["id"]: claim for claim in found.claims},
        verdicts=VERDICTS,
        counts=counted(found.claims),
        points=POINTS,
        nodes=nodes,
        kinds=KINDS,
        checks=CHECKS,
        users=users(nodes),
        attentions=attentions(nodes),
        drawing=drawing.draw(nodes, verdicts),
        outlines={kind: drawing.outline(kind, 29, 14, 54) for kind in KINDS},
        proofs=proofs.gather((p for n in nodes.values() for p in graph.passages(n)), root),
        passages=graph.passages,
        heads=numbers,
        ranks=capacity_lines(found.capacities, numbers, lambda row: f"{row['rank']}"),
        bits=capacity_lines(found.capacities, numbers, _bits),
        pictures=pictures,
        runs=runs,
        read=read,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        versions={name: version(name) for name in ("iha-theory", *PACKAGES)},
    )


def counted(claims: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """How many statements have each verdict, of the paper's and of ours."""
    return {
        whose: {
            verdict: sum(c["verdict"] == verdict and c["id"].startswith("T") == (whose == "ours") for c in claims)
            for verdict in VERDICTS
        }
        for whose in ("the paper", "ours")
    }


def users(nodes: graph.Theory) -> dict[str, list[str]]:
    """What uses each node."""
    return {name: [n.name for n in nodes.values() if name in n.uses] for name in nodes}


def attentions(nodes: graph.Theory) -> dict[str, list[str]]:
    """The kinds of attention that each statement is about: layers that it rests on otherwise than by definition."""
    layers = [n for n in nodes.values() if n.kind == "definition" and n.owner.startswith("iha_theory.attention")]
    names = [n.name for n in layers if n.name != "pattern"]
    whole = graph.digraph(nodes)
    whole.remove_edges_from([(u, v) for u, v in whole.edges if nodes[u].kind == nodes[v].kind == "definition"])
    found = {s: nx.descendants(whole, s) for s, node in nodes.items() if node.kind == "statement"}
    return {s: [name for name in names if name in below] for s, below in found.items()}


def capacity_lines(rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], cell: Any) -> list[Line]:
    """A table of the capacities: a line for each layer, P, collapse and pattern."""
    lines: dict[str, dict[int, str]] = {}
    for row in sorted(rows, key=lambda row: row["pseudo_heads"] or 0):
        parts = [row["layer"], f"P = {row['pseudo_heads']}" if row["pseudo_heads"] else "", row["collapse"] or ""]
        label = ", ".join([*filter(None, parts), row["pattern"] or ""])
        lines.setdefault(label.replace("_", "-"), {})[row["heads"]] = cell(row)
    return [Line(label, tuple(cells.get(h, "") for h in numbers)) for label, cells in lines.items()]


def _bits(row: Mapping[str, Any]) -> str:
    """Proved, or that nobody has a proof; in brackets what was reached where that is not the same."""
    bits, reached, unbounded = (row["parity"][name] for name in ("bits", "reached", "unbounded"))
    if bits is None and not unbounded:
        return "" if reached is None else f"open ({reached})"
    return f"{bits or 'any'}" + (f" ({reached})" if reached not in (bits, None) else "")
