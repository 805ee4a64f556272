"""What a graph is here: labels and an adjacency matrix. The rules are in `synthetic.graphs`."""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from numbers import Integral, Real
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Shaped

MAX_NODES = 10_000
"""Adjacency matrices are dense: 800 MB at this size."""

Normalisation = Literal["none", "row", "symmetric"]
NORMALISATIONS = get_args(Normalisation)


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph on N nodes, by the rules in `synthetic.graphs`.

        Graph.from_edges([(2, 0), (0, 1)], directed=True).adjacency == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]

    Args:
        name: what to call it in tables.
        nodes: the N labels, in row order.
        adjacency: A, (N, N); kept as a read-only copy in the dtype that the rules say.
        directed: False says that A is symmetric.

    Raises:
        ValueError: A is empty, not square, larger than MAX_NODES, not symmetric although undirected, or holds
            something else than finite real numbers; labels that repeat, or not one for each row.
    """

    name: str
    nodes: tuple[Hashable, ...]
    adjacency: Shaped[np.ndarray, "..."]
    directed: bool

    def __post_init__(self) -> None:
        _require_square(self.adjacency.shape)
        rows = len(self.adjacency)
        if len(self.nodes) != rows or len(set(self.nodes)) != rows:
            raise ValueError(f"{len(self.nodes)} labels for {rows} rows: expected a different label for each row")
        adjacency = _numbers(self.adjacency)
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
    ) -> "Graph":
        """The graph of edges (u, v) or (u, v, weight); an edge without a weight has weight 1.

        Args:
            edges: the edges, from u to v.
            nodes: labels that come first, isolated ones among them; the edges may bring more.
            directed: False fills both triangles.
            name: of the graph.

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
        total: defaultdict[tuple[int, int], int | float] = defaultdict(int)
        for u, v, *weight in edges:
            i, j = row[u], row[v]
            w = _number(weight[0]) if weight else 1
            total[i, j] += w
            if i != j and not directed:
                total[j, i] += w
        weights = _numbers(np.array(list(total.values()), dtype=object))
        adjacency = np.zeros((len(labels), len(labels)), dtype=weights.dtype)
        at = np.array(list(total), dtype=np.int64).reshape(-1, 2)
        adjacency[at[:, 0], at[:, 1]] = weights
        return cls(name, labels, adjacency, directed)

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
        _require_square(matrix.shape)
        nodes = tuple(range(matrix.shape[0]))
        if sparse:
            edges = zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True)
            graph = cls.from_edges(edges, nodes=nodes, directed=True, name=name)
        else:
            graph = cls(name, nodes, matrix, directed=True)
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
        return _numbers(np.array([mapping[node] for node in self.nodes], dtype=object))


def normalise(graph: Graph, kind: Normalisation) -> Graph:
    """The graph with normalised weights; degrees are row sums, D = diag(A 1).

    Args:
        graph: the graph.
        kind: "none" (the graph itself), "row" (D^-1 A) or "symmetric" (D^-1/2 A D^-1/2). Zero rows stay zero.

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
    A = _float64(graph.adjacency)
    with np.errstate(over="ignore"):
        degrees = A.sum(1, keepdims=True)
        if ((degrees == 0) & A.any(1, keepdims=True)).any():
            raise ValueError("row normalisation: the weights of a row sum to 0")
        degrees[degrees == 0] = 1
    if not np.isfinite(degrees).all():
        raise ValueError("the sums of the weights are too large for float64")
    divisors = degrees
    if kind == "symmetric":
        scale = 2.0 ** np.floor(np.log2(degrees.max()))  # products of large or of small degrees stay in range
        divisors = scale * np.sqrt((degrees / scale) * (degrees / scale).T)
    A = A / divisors
    return Graph(f"{graph.name} ({kind})", graph.nodes, A, graph.directed or not _symmetric(A))


def _symmetric(adjacency: np.ndarray) -> bool:
    return bool((adjacency == adjacency.T).all())


def _require_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"adjacency of shape {shape}: expected a square matrix")
    _require_size(shape[0])


def _require_size(nodes: int) -> None:
    if nodes == 0:
        raise ValueError("the graph is empty: at least one node is needed")
    if nodes > MAX_NODES:
        raise ValueError(f"{nodes} nodes: a dense adjacency matrix is limited to {MAX_NODES}")


def _number(x: Any) -> int | float:
    """A finite real number as a Python integer if it is one, else as a float."""
    if isinstance(x, Integral | np.bool_):
        return int(x)
    if not isinstance(x, Real) or not math.isfinite(x):
        raise ValueError(f"{x!r} is not a finite real number")
    value = float(x)
    return int(value) if value.is_integer() and abs(value) <= 2**53 else value


def _numbers(array: np.ndarray) -> np.ndarray:
    """A copy in int64, object (Python integers) or float64, the first that holds all entries."""
    if array.dtype.kind == "O" or array.dtype == np.uint64:
        entries = [_number(x) for x in array.ravel().tolist()]
        whole = all(isinstance(x, int) for x in entries)
        exact = np.array(entries, dtype=object).reshape(array.shape)
        if not whole:
            return _float64(exact)
        return exact.astype(np.int64) if all(-(2**63) <= x < 2**63 for x in entries) else exact
    if array.dtype.kind not in "biuf":
        raise ValueError(f"numbers of dtype {array.dtype}: accepted are integers and real floats")
    if array.dtype.kind == "f":
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise ValueError("NaN or infinity where finite numbers are expected")
        if (array != np.rint(array)).any() or (np.abs(array) > 2**53).any():
            return array
    return array.astype(np.int64)


def _float64(array: np.ndarray) -> np.ndarray:
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError("an integer is too large for float64") from None
