"""Graphs as adjacency matrices: built-in, random or from a file, under one set of rules.

A[i, j] is the weight of the edge from node i to node j, so (A X)_i sums X over the out-neighbours of i. On every
path (edge list, GraphML, Matrix Market, .npz, edges or a matrix in memory):

- repeated edges add their weights;
- an undirected edge fills both triangles; a self-loop counts once, on the diagonal, directed or not;
- an isolated node keeps its zero row;
- rows are in numeric order if all labels are integers, else in order of first appearance (networkx's node order for
  its own graphs, the file's for GraphML). A text label is an integer if it is written as Python writes it: 7 and -3,
  but not 07. The rows of a matrix are labelled 0, 1, ...;
- numbers keep their kind. Written ones are what they say: 0.1 is one tenth, 1/3 a third. The dtype is int64 if all
  weights are integers that fit in it, object (Python's integers and fractions) if they are exact, and float64 for
  floats from memory or .npz, of which those without a fraction count as integers up to 2^53. What float64 would have
  to round beside floats makes all of them fractions. NaN, infinite and complex weights are refused;
- row normalisation keeps exact numbers exact.

A file that fits its format only half is refused, by line, and so is one that may be another format: `edge_list`,
`graphml` and `matrices` have the rules, `foreign` what is told apart. `fields` and `sentence` say what was read.
"""

from pathlib import Path

from synthetic.graphs.adjacency import MAX_NODES, NORMALISATIONS, Graph, Normalisation, normalise
from synthetic.graphs.families import NAMES, builtin, family_size
from synthetic.graphs.files import read
from synthetic.graphs.summary import digest, fields, sentence

__all__ = [
    "MAX_NODES",
    "NAMES",
    "NORMALISATIONS",
    "Graph",
    "Normalisation",
    "builtin",
    "digest",
    "family_size",
    "fields",
    "is_file",
    "load",
    "normalise",
    "read",
    "sentence",
]


def load(spec: str, directed: bool = False) -> Graph:
    """A graph by built-in name or family (`builtin`), else from the file of that name (`read`).

    Raises:
        ValueError: see `builtin` and `read`.
        FileNotFoundError: what looks like a file name, but is none.
    """
    return read(spec, directed) if is_file(spec) else builtin(spec)


def is_file(spec: str) -> bool:
    """Whether `load` takes the graph from a file of that name, or looks for one."""
    looks_like_file = "/" in spec or Path(spec).suffix or Path(spec).is_file()
    return bool(looks_like_file) and spec.split(":")[0] not in NAMES
