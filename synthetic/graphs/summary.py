"""What was read, in one line and as JSON fields: every command that takes a graph shows it."""

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np

from synthetic.graphs.adjacency import Graph

KINDS = {"i": "integers", "f": "floats"}
LONGEST = 24
"""Digits of a weight that are shown."""


def fields(graph: Graph) -> dict[str, Any]:
    """Nodes, edges, direction, weights, components and self-loops, for strict JSON.

    Edges are the entries of A that are not 0, of an undirected graph those on and above the diagonal. Components are
    those of the graph without directions. Weights have a kind ("integers", "fractions", "floats"; None without edges),
    the least and the greatest: integers up to 2^53 and floats as numbers, others as text.
    """
    i, j = np.nonzero(graph.adjacency if graph.directed else np.triu(graph.adjacency))
    weights = graph.adjacency[i, j].tolist()
    nodes = len(graph.nodes)
    whole = all(isinstance(x, int) for x in weights)
    kind = KINDS.get(graph.adjacency.dtype.kind, "integers" if whole else "fractions")
    return {
        "nodes": nodes,
        "edges": len(weights),
        "directed": graph.directed,
        "weights": {
            "kind": kind if weights else None,
            "least": _plain(min(weights, default=None)),
            "greatest": _plain(max(weights, default=None)),
        },
        "components": _components(nodes, i, j),
        "self_loops": int((i == j).sum()),
        "notes": list(graph.notes),
    }


def sentence(graph: Graph) -> str:
    """The same in a line, such as `karate: 34 nodes, 78 edges, undirected, weights 1, 1 component, no self-loops`."""
    found = fields(graph)
    least, greatest = (_short(found["weights"][end]) for end in ("least", "greatest"))
    weights = f"{found['weights']['kind']} {least} to {greatest}" if least != greatest else str(least)
    loops = found["self_loops"]
    parts = [
        _count(found["nodes"], "node"),
        _count(found["edges"], "edge"),
        "directed" if graph.directed else "undirected",
        *([f"weights {weights}"] if found["edges"] else []),
        _count(found["components"], "component"),
        _count(loops, "self-loop") if loops else "no self-loops",
        *graph.notes,
    ]
    return f"{graph.name}: {', '.join(parts)}"


def digest(graph: Graph) -> str:
    """SHA-256 of the matrix A by its exact values, whatever the graph, its nodes and its file are called."""
    i, j = np.nonzero(graph.adjacency)
    entries = zip(i.tolist(), j.tolist(), graph.adjacency[i, j].tolist(), strict=True)
    lines = (f"{a} {b} {x.as_integer_ratio()}" for a, b, x in entries)
    return hashlib.sha256("\n".join((str(len(graph.nodes)), *lines)).encode()).hexdigest()


def _components(nodes: int, i: np.ndarray, j: np.ndarray) -> int:
    """Connected components: each node takes the least label around it, and then its label's label, until none changes.

    By hand, since scipy takes longer to import than a small training run to start.
    """
    label = np.arange(nodes)
    while True:
        before = label.copy()
        for a, b in ((i, j), (j, i)):
            np.minimum.at(label, a, label[b])
            np.minimum.at(label, before[a], label[b])  # and so does the node that it was labelled by
        label = label[label]
        if (label == before).all():
            return len(np.unique(label))


def _plain(x: Any) -> int | float | str | None:
    return str(x) if isinstance(x, Fraction) or (isinstance(x, int) and abs(x) > 2**53) else x


def _short(x: Any) -> str:
    text = f"{x:g}" if isinstance(x, float) else str(x)
    return text if len(text) <= LONGEST else f"{text[:6]}...{text[-6:]} ({len(text)} characters)"


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
