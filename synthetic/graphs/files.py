"""Graphs from files: edge lists, GraphML, Matrix Market, .npz. The rules are in `synthetic.graphs`."""

import csv
import re
import zipfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from synthetic.graphs.adjacency import Graph


def read(path: str | Path, directed: bool = False) -> Graph:
    """A graph from a file, in the format that its suffix says.

    - `.graphml`: GraphML, directed or not as the file says; weights from the edge attribute `weight`.
    - `.mtx`: Matrix Market; `.npz`: a matrix saved by scipy.sparse.save_npz, or one 2-D array saved by numpy.
      Undirected if the matrix is symmetric.
    - anything else: an edge list, `u v [weight]` a line, separated by whitespace or commas. A line with one label
      is an isolated node; `#` or `%` at the start of a line or after a space begins a comment; a first line
      `source target ...` is a header.

    Args:
        path: the file.
        directed: how to read an edge list; the other formats say it themselves.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file cannot be read in its format, or does not hold a graph; in one line.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    readers = {".graphml": _graphml, ".mtx": _matrix_market, ".npz": _npz}
    reader = readers.get(path.suffix.lower(), _edge_list)
    try:
        return reader(path, directed)
    except Exception as error:  # parsers raise what they like
        reason = " ".join(str(error).split()) or type(error).__name__
        form = "an edge list" if reader is _edge_list else path.suffix.lower()
        raise ValueError(f"cannot read {path} as {form}: {reason}") from error


def _edge_list(path: Path, directed: bool) -> Graph:
    nodes: list[str] = []
    edges: list[tuple[str, str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        line = re.split(r"(?:^|\s)[#%]", line)[0].strip()
        if not line:
            continue
        fields = next(csv.reader([line], skipinitialspace=True)) if "," in line else line.split()
        fields = [field.strip() for field in fields]
        if len(fields) > 3 or not all(fields):
            raise ValueError(f"line {number}: expected 'u v [weight]' or one label, got {line[:60]!r}")
        if not nodes and [field.casefold() for field in fields[:2]] == ["source", "target"]:
            continue
        nodes += fields[:2]
        if len(fields) == 3:
            edges.append((fields[0], fields[1], _parse(fields[2], number)))
        elif len(fields) == 2:
            edges.append((fields[0], fields[1], 1))
    return _graph(nodes, edges, directed, path.name)


def _graphml(path: Path, directed: bool) -> Graph:
    from networkx import read_graphml

    graph = read_graphml(path)
    default = graph.graph.get("edge_default", {}).get("weight", 1)
    edges = graph.edges(data="weight", default=default)
    return _graph(graph.nodes, edges, graph.is_directed(), path.name)


def _matrix_market(path: Path, directed: bool) -> Graph:
    from scipy.io import mmread

    return Graph.from_matrix(mmread(path), name=path.name)


def _npz(path: Path, directed: bool) -> Graph:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a zip archive")
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    if "format" in arrays:
        from scipy.sparse import load_npz

        return Graph.from_matrix(load_npz(path), name=path.name)
    if len(arrays) != 1:
        raise ValueError(f"expected one 2-D array or one scipy.sparse matrix, got {len(arrays)} arrays")
    return Graph.from_matrix(next(iter(arrays.values())), name=path.name)


def _graph(nodes: Iterable[str], edges: Iterable[tuple[str, str, Any]], directed: bool, name: str) -> Graph:
    """The graph of edges between text labels, which become integers if all of them are written as integers."""
    nodes = list(nodes)
    integers = all(re.fullmatch(r"0|-?[1-9][0-9]*", node) for node in nodes)
    label: dict[str, Hashable] = {node: int(node) if integers else node for node in nodes}
    labelled = ((label[u], label[v], weight) for u, v, weight in edges)
    return Graph.from_edges(labelled, nodes=label.values(), directed=directed, name=name)


def _parse(weight: str, line: int) -> int | float:
    """The number that a text says, exact if it is an integer."""
    for kind in (int, float):
        try:
            return kind(weight)
        except ValueError:
            continue
    raise ValueError(f"line {line}: weight {weight[:60]!r} is not a number")
