"""Graphs from files, in the format that the name says. The rules are in `synthetic.graphs`."""

from pathlib import Path

from synthetic.graphs import edge_list, foreign, graphml, matrices
from synthetic.graphs.adjacency import Graph

MAX_TEXT = 2**28
"""Bytes of a text file: a quarter of a GiB, or some ten million edges."""


def read(path: str | Path, directed: bool = False) -> Graph:
    """A graph from a file, in the format that its suffix says.

    - `.graphml`: GraphML (`synthetic.graphs.graphml`), directed or not as the file says.
    - `.mtx`: Matrix Market; `.npz`: a matrix saved by scipy.sparse.save_npz, or one 2-D array saved by numpy
      (`synthetic.graphs.matrices`). Undirected if the matrix is symmetric.
    - anything else: an edge list, `u v [weight]` a line (`synthetic.graphs.edge_list`).

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
    suffix = path.suffix.lower()
    form = suffix if suffix in (".graphml", ".mtx", ".npz") else "an edge list"
    try:
        if not path.is_file():
            raise ValueError("it is not a file")
        size = path.stat().st_size
        if form != ".npz" and size > MAX_TEXT:
            raise ValueError(f"{size} bytes: at most {MAX_TEXT} are read")
        if form == ".graphml":
            return graphml.read(path)
        if form == ".npz":
            return matrices.npz(path)
        content = path.read_bytes()
        if form == ".mtx":
            return matrices.matrix_market(_text(content), path.name)
        foreign.refuse(content, suffix)
        return edge_list.read(_text(content), path.name, directed, separated=suffix == ".csv")
    except Exception as error:
        if form != ".npz" and not isinstance(error, ValueError | OSError):  # numpy and scipy raise what they like
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot read {path} as {form}: {reason}") from error


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line}: the byte {content[error.start]:#x} is not UTF-8 text") from None
