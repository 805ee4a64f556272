"""What a graph is here: labels and an adjacency matrix. The rules are in `synthetic.graphs`."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Shaped

from synthetic.graphs.numbers import Number, array_of, nearest_float64, number, one_kind, whole

MAX_NODES = 10_000
"""Adjacency matrices are dense: 800 MB at this size."""

Normalisation = Literal["none", "row", "symmetric"]
NORMALISATIONS = get_args(Normalisation)
ZERO_SUM = "row normalisation: the weights of a row sum to 0"


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph on N nodes, by the rules in `synthetic.graphs`.

        Graph.from_edges([(2, 0), (0, 1)], directed=True).adjacency == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]

    Args:
        name: what to call it in tables.
        nodes: the N labels, in row order.
        adjacency: A, (N, N); kept as a read-only copy in the dtype that the rules say.
        directed: False says that A is symmetric.
        notes: what a reader has to say about the file, such as lines that are no edges.

    Raises:
        ValueError: A is empty, not square, larger than MAX_NODES, not symmetric although undirected, or holds
            something else than finite real numbers; labels that repeat, or not one for each row.
    """

    name: str
    nodes: tuple[Hashable, ...]
    adjacency: Shaped[np.ndarray, "..."]
    directed: bool
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_square(self.adjacency.shape)
        rows = len(self.adjacency)
        if len(self.nodes) != rows or len(set(self.nodes)) != rows:
            raise ValueError(f"{len(self.nodes)} labels for {rows} rows: expected a different label for each row")
        adjacency = array_of(self.adjacency)
        if not self.directed and not _symmetric(adjacency):
            raise ValueError("the adjacency of an undirected graph must be symmetric")
        adjacency.setflags(write=False)
        object.__setattr__(self, "adjacency", adjacency)

    @classmethod
    def from_edges(
        cls,
        edges: Iterable[tuple[Any, ...]],
        *,
        nodes: Iterable[Hashable] = (),
        directed: bool = False,
        name: str = "edges",
        notes: Iterable[str] = (),
    ) -> "Graph":
        """The graph of edges (u, v) or (u, v, weight); an edge without a weight has weight 1.

        Args:
            edges: the edges, from u to v.
            nodes: labels that come first, isolated ones among them; the edges may bring more.
            directed: False fills both triangles.
            name: of the graph.
            notes: see the class.

        Raises:
            ValueError: an edge of another length, a weight that is not a finite real number, or no node at all.
        """
        edges = list(edges)
        for edge in edges:
            if len(edge) not in (2, 3):
                raise ValueError(f"edge {edge}: expected (u, v) or (u, v, weight)")
        labels = tuple(dict.fromkeys(chain(nodes, *(edge[:2] for edge in edges))))
        integers = [int(label) for label in labels if isinstance(label, int | np.integer)]
        if len(integers) == len(labels):
            labels = tuple(sorted(integers))
        _require_size(len(labels))
        row = {label: i for i, label in enumerate(labels)}
        total: defaultdict[tuple[int, int], Number] = defaultdict(int)
        weights = one_kind(number(edge[2]) if len(edge) == 3 else 1 for edge in edges)
        for (u, v, *_), w in zip(edges, weights, strict=True):
            i, j = row[u], row[v]
            total[i, j] += w
            if i != j and not directed:
                total[j, i] += w
        entries = np.empty(len(total), dtype=object)
        entries[:] = list(total.values())
        entries = array_of(entries)
        adjacency = np.zeros((len(labels), len(labels)), dtype=entries.dtype)
        at = np.array(list(total), dtype=np.int64).reshape(-1, 2)
        adjacency[at[:, 0], at[:, 1]] = entries
        return cls(name, labels, adjacency, directed, tuple(notes))

    @classmethod
    def from_text(
        cls,
        nodes: Iterable[str],
        edges: Iterable[tuple[str, str, Number]],
        *,
        directed: bool,
        name: str,
        notes: Iterable[str] = (),
    ) -> "Graph":
        """The graph of edges between text labels, which become integers if all of them are written as integers."""
        nodes, edges = list(nodes), list(edges)
        labels = dict.fromkeys(chain(nodes, *(edge[:2] for edge in edges)))
        integers = all(re.fullmatch(r"0|-?[1-9][0-9]{,99}", label) for label in labels)
        label: dict[str, Hashable] = {text: int(text) if integers else text for text in labels}
        labelled = ((label[u], label[v], weight) for u, v, weight in edges)
        return cls.from_edges(labelled, nodes=map(label.get, nodes), directed=directed, name=name, notes=notes)

    @classmethod
    def from_matrix(cls, matrix: Any, *, name: str = "matrix") -> "Graph":
        """The graph of a dense array or a scipy sparse matrix, undirected if it is symmetric; nodes 0, 1, ...

        Repeated entries of a sparse matrix add up.

        Raises:
            ValueError: see the class.
        """
        from scipy.sparse import issparse

        sparse = issparse(matrix)
        matrix = matrix.tocoo() if sparse else np.asarray(matrix)
        require_square(matrix.shape)
        nodes = tuple(range(matrix.shape[0]))
        if sparse:
            entries = zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True)
            return cls.of_entries(entries, len(nodes), name=name)
        graph = cls(name, nodes, matrix, directed=True)
        return replace(graph, directed=not _symmetric(graph.adjacency))

    @classmethod
    def of_entries(cls, entries: Iterable[tuple[int, int, Any]], size: int, *, name: str) -> "Graph":
        """The graph of the entries (i, j, x) of a matrix of N rows, which add up; undirected if it is symmetric."""
        graph = cls.from_edges(entries, nodes=range(size), directed=True, name=name)
        require_square((*graph.adjacency.shape[:1], size))
        return replace(graph, directed=not _symmetric(graph.adjacency))

    def features(self, mapping: Mapping[Hashable, Any]) -> Shaped[np.ndarray, "N *width"]:
        """Features in row order, (N, ...), from a mapping of every label to a number or to an array of one shape.

        The dtype follows the rule for weights.

        Raises:
            ValueError: a label that is missing or unknown, shapes that differ, or an entry that is not a finite
                real number.
        """
        if set(mapping) != set(self.nodes):
            odd = next(iter(set(mapping) ^ set(self.nodes)))
            raise ValueError(f"features: label {odd!r} is {'missing' if odd in self.nodes else 'not a node'}")
        if len({np.shape(mapping[node]) for node in self.nodes}) != 1:
            raise ValueError("features: the shapes differ between nodes")
        return array_of(np.array([mapping[node] for node in self.nodes], dtype=object))


def normalise(graph: Graph, kind: Normalisation) -> Graph:
    """The graph with normalised weights; degrees are row sums, D = diag(A 1).

    Args:
        graph: the graph.
        kind: "none" (the graph itself), "row" (D^-1 A, in exact fractions if the weights are no floats) or "symmetric"
            (D^-1/2 A D^-1/2, in float64). Zero rows stay zero.

    Raises:
        ValueError: another kind; "row" where the weights of a non-zero row sum to 0; "symmetric" for a directed
            graph or negative weights; weights too large for float64.
    """
    if kind not in NORMALISATIONS:
        raise ValueError(f"unknown normalisation {kind!r}: accepted are {', '.join(NORMALISATIONS)}")
    if kind == "none":
        return graph
    if kind == "symmetric" and (graph.directed or (graph.adjacency < 0).any()):
        raise ValueError("symmetric normalisation is for undirected graphs with weights of at least 0: use row")
    name, A = f"{graph.name} ({kind})", graph.adjacency
    if kind == "row" and A.dtype.kind != "f":
        A = _over_row_sums(A)
        return Graph(name, graph.nodes, A, graph.directed or not _symmetric(A))
    A = nearest_float64(A)
    with np.errstate(over="ignore"):
        degrees = A.sum(1, keepdims=True)
        if ((degrees == 0) & A.any(1, keepdims=True)).any():
            raise ValueError(ZERO_SUM)
        degrees[degrees == 0] = 1
    if not np.isfinite(degrees).all():
        raise ValueError("the sums of the weights are too large for float64")
    divisors = degrees
    if kind == "symmetric":
        scale = 2.0 ** np.floor(np.log2(degrees.max()))  # products of large or of small degrees stay in range
        divisors = scale * np.sqrt((degrees / scale) * (degrees / scale).T)
    A = A / divisors
    return Graph(name, graph.nodes, A, graph.directed or not _symmetric(A))


def _over_row_sums(A: np.ndarray) -> np.ndarray:
    """D^-1 A over the rationals, in Python's integers and fractions."""
    normalised = np.zeros(A.shape, dtype=object)
    for i, row in enumerate(A):
        places = np.flatnonzero(row)
        weights = row[places].tolist()
        degree = sum(weights)
        if weights and degree == 0:
            raise ValueError(ZERO_SUM)
        for j, weight in zip(places, weights, strict=True):
            normalised[i, j] = whole(Fraction(weight) / degree)
    return normalised


def _symmetric(adjacency: np.ndarray) -> bool:
    return bool((adjacency == adjacency.T).all())


def require_square(shape: tuple[int, ...]) -> None:
    """Refuses another shape than N x N, with N from 1 to MAX_NODES."""
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"adjacency of shape {shape}: expected a square matrix")
    _require_size(shape[0])


def _require_size(nodes: int) -> None:
    if nodes == 0:
        raise ValueError("the graph is empty: at least one node is needed")
    if nodes > MAX_NODES:
        raise ValueError(f"{nodes} nodes: a dense adjacency matrix is limited to {MAX_NODES}")
