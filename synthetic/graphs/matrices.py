"""Matrix Market and .npz: a matrix is a graph, undirected if it is symmetric.

scipy's reader of Matrix Market rounds (9007199254740993 beside 0.5 becomes ...992) and takes what follows the last
entry, so the format is read here, every number as it is written. Source: Boisvert, Pozo and Remington, The Matrix
Market Exchange Formats, NISTIR 5935.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from synthetic.graphs.adjacency import MAX_NODES, Graph, require_square
from synthetic.graphs.numbers import Number, parse

FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
_DIGITS = re.compile(r"\d+", re.ASCII)
SYMMETRIES = ("general", "symmetric", "skew-symmetric")
MAX_BYTES = 2**30
"""Of the arrays in an archive: a dense matrix of MAX_NODES nodes in float64 has 0.8 GB."""


def matrix_market(text: str, name: str) -> Graph:
    """The graph of a Matrix Market file.

    Entries of one place add up. The size is refused before anything is made of it.

    Raises:
        ValueError: another banner, size line or number of entries, an entry out of range or above the diagonal of a
            symmetric matrix, or a number that is none; with the line.
    """
    lines = iter(enumerate(re.split("\r\n|\r|\n", text), 1))
    layout, field, symmetry = _banner(next(lines, (1, ""))[1])
    body = ((number, line.split()) for number, line in lines if line.strip() and not line.startswith("%"))
    number, sizes = next(body, (1, []))
    if (
        len(sizes) != (3 if layout == "coordinate" else 2)
        or not all(map(_DIGITS.fullmatch, sizes))
        or len("".join(sizes)) > 60
    ):
        raise ValueError(f"line {number}: expected the matrix' size, 'rows columns" + " entries'" * (layout[0] == "c"))
    rows, columns, *counted = map(int, sizes)
    require_square((rows, columns))
    if layout == "coordinate":
        entries = _coordinates(body, rows, field, counted[0])
    else:
        entries = _column_by_column(body, rows, field, symmetry)
    edges: list[tuple[int, int, Number]] = []
    for line, i, j, x in entries:
        if symmetry != "general" and (i < j or (i == j and symmetry[1] == "k")):
            raise ValueError(f"line {line}: entry ({i + 1}, {j + 1}): a {symmetry} matrix has those below the diagonal")
        edges.append((i, j, x))
        if symmetry != "general" and i != j:
            edges.append((j, i, x if symmetry == "symmetric" else -x))
    return Graph.of_entries(edges, rows, name=name)


def _banner(line: str) -> tuple[str, str, str]:
    words = line.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise ValueError(f"line 1: expected '%%MatrixMarket matrix coordinate real general' or so, got {line[:60]!r}")
    _, _, layout, field, symmetry = words
    if field == "complex":
        raise ValueError("line 1: complex entries are not finite real numbers")
    for word, accepted in ((layout, ("coordinate", "array")), (field, FIELDS), (symmetry, SYMMETRIES)):
        if word not in accepted:
            raise ValueError(f"line 1: {word[:60]!r}: accepted are {', '.join(accepted)}")
    if layout == "array" and field == "pattern":
        raise ValueError("line 1: an array has no pattern")
    return layout, field, symmetry


Entries = Iterator[tuple[int, int, int, Number]]


def _coordinates(body: Iterator[tuple[int, list[str]]], size: int, field: str, count: int) -> Entries:
    found = 0
    for line, words in body:
        if len(words) != (2 if field == "pattern" else 3) or not all(map(_DIGITS.fullmatch, words[:2])):
            raise ValueError(f"line {line}: expected 'row column{' value' * (field != 'pattern')}'")
        i, j = (int(word) if len(word) < 9 else 0 for word in words[:2])
        if not (1 <= i <= size and 1 <= j <= size):
            raise ValueError(f"line {line}: entry ({words[0][:20]}, {words[1][:20]}) of a matrix of {size} rows")
        found += 1
        yield line, i - 1, j - 1, _value(words[2], field, line) if field != "pattern" else 1
    if found != count:
        raise ValueError(f"{found} entries, and the size line says {count}")


def _column_by_column(body: Iterator[tuple[int, list[str]]], size: int, field: str, symmetry: str) -> Entries:
    first = {"general": lambda j: 0, "symmetric": lambda j: j, "skew-symmetric": lambda j: j + 1}[symmetry]
    places = ((i, j) for j in range(size) for i in range(first(j), size))
    for line, words in body:
        if len(words) != 1:
            raise ValueError(f"line {line}: expected one value")
        place = next(places, None)
        if place is None:
            raise ValueError(f"line {line}: more entries than the size line says")
        value = _value(words[0], field, line)
        if value:
            yield line, *place, value
    if next(places, None) is not None:
        raise ValueError("fewer entries than the size line says")


def _value(word: str, field: str, line: int) -> Number:
    try:
        value = parse(word)
    except ValueError as error:
        raise ValueError(f"line {line}: {error}") from None
    if field.endswith("integer") and (not isinstance(value, int) or "/" in word or (field[0] == "u" and value < 0)):
        raise ValueError(f"line {line}: {word[:60]!r} in a matrix of {field}s")
    return value


def npz(path: Path) -> Graph:
    """The graph of a matrix that scipy.sparse.save_npz or numpy.savez wrote.

    Raises:
        ValueError: not such a file, arrays of objects, more than one matrix, or one that is too large.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError("it is not a zip archive")
    with zipfile.ZipFile(path) as archive:
        sparse = "format.npy" in archive.namelist()
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                raise ValueError(f"{member.filename[:60]!r} is no numpy array")
            with archive.open(member) as file:
                _require_small(file, member.file_size, sparse)
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    if "format" not in arrays:
        if len(arrays) != 1:
            raise ValueError(f"expected one 2-D array or one scipy.sparse matrix, got {len(arrays)} arrays")
        return Graph.from_matrix(next(iter(arrays.values())), name=path.name)
    require_square(tuple(arrays["shape"].tolist()))
    from scipy.sparse import load_npz

    matrix: Any = load_npz(path)
    if hasattr(matrix, "check_format"):
        matrix.check_format(full_check=True)
    return Graph.from_matrix(matrix, name=path.name)


def _require_small(file: Any, size: int, sparse: bool) -> None:
    """Refuses an array by its header, before it takes memory; the parts of a sparse matrix have any shape."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    if len(shape) == 2 and not sparse and dtype.kind != "O":
        require_square(shape)
    if size > MAX_BYTES:
        raise ValueError(f"an array of {size} bytes: at most {MAX_BYTES} are read, {MAX_NODES} nodes")
