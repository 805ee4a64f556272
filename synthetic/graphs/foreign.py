"""What is no edge list: texts of other formats, told by how they begin or by what fits them and hardly an edge list."""

import re
from collections.abc import Sequence

ACCEPTED = "accepted are edge lists ('u v [weight]' a line), GraphML (.graphml), Matrix Market (.mtx) and .npz"
BINARY = {
    b"\x1f\x8b": "a gzip archive",
    b"PK\x03\x04": "a zip archive",
    b"BZh91AY": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"\x93NUMPY": "a numpy array (.npy; write it with numpy.savez)",
    b"\x89HDF": "an HDF5 file",
    b"MATLAB 5.0 MAT": "a MATLAB file",
    b"\xff\xfe": "UTF-16 text (UTF-8 is needed)",
    b"\xfe\xff": "UTF-16 text (UTF-8 is needed)",
    b"%PDF-": "a PDF file",
    b"\x89PNG": "a picture",
    b"SQLite format 3": "a database",
}
TEXTS = {
    r"%%MatrixMarket\b": "Matrix Market (name it .mtx)",
    r"<(?=.*graphml\b)": "GraphML (name it .graphml)",
    r"<(?=.*gexf\b)": "GEXF",
    r"<": "XML",
    r"[\[{]": "JSON",
    r"\*(vertices|arcs|edges|network|partition|matrix)\b": "Pajek",
    r"(strict\s+)?(di)?graph\b[^{\[]{,200}\{": "DOT",
    r"(creator\b[^\n]*\n(\s*version\b[^\n]*\n)?\s*)?graph\s*\[": "GML",
    r"LEDA\.GRAPH\b": "LEDA",
    r">>(graph|sparse|digraph)6<<": "graph6",
    r"nodedef\s*>": "GDF",
    r"dl\s+(n|nr|nc|nm|format|labels)\s*=": "UCINET DL",
    r"\(tlp\b": "Tulip",
    r"@(nodes|arcs|relation)\b": "LEMON or ARFF",
    r"(c\b[^\n]*\n\s*)*p\s+[a-z]+\s+\d+\s+\d+\s*(\n|$)": "DIMACS",
}
SUFFIXES = {
    ".adjlist": "an adjacency list",
    ".lgl": "LGL",
    ".g6": "graph6",
    ".s6": "sparse6",
    ".d6": "digraph6",
    ".tgf": "Trivial Graph Format",
    ".metis": "METIS",
    ".sif": "SIF",
}


def refuse(content: bytes, suffix: str) -> None:
    """Refuses the content of a file that is to be an edge list, if it is another format by its name or beginning.

    Raises:
        ValueError: it is; with the format's name and the accepted ones.
    """
    start = content[:4096].removeprefix(b"\xef\xbb\xbf")
    form = SUFFIXES.get(suffix) or next((name for magic, name in BINARY.items() if start.startswith(magic)), None)
    if form is None and b"\0" in content:
        form = "binary"
    if form is None:
        text = "\n".join(start.decode("utf-8", "replace").splitlines())
        bare = re.sub(r"\A(\s*(#|//|%(?!%))[^\n]*\n|\s*/\*.*?\*/|\s+)*", "", text, flags=re.S)
        form = _trivial(content) or next(
            (name for shape, name in TEXTS.items() if re.match(shape, bare, re.I | re.S)), None
        )
    if form is not None:
        raise ValueError(f"it looks like {form}, not like an edge list; {ACCEPTED}")


def refuse_rows(numbers: Sequence[int], rows: Sequence[Sequence[str]], directed: bool) -> None:
    """Refuses rows that fit another format, where there is no header that says they are edges.

    Args:
        numbers: of the lines.
        rows: their fields.
        directed: as the list would be read.

    Raises:
        ValueError: as `refuse`.
    """
    found = (_table(rows), _counted(rows), _words(rows), _letters(rows), _matrix(rows, directed), _graph6(rows))
    form = next((name for name in (*found, _neighbours(rows)) if name), None)
    if form is not None:
        raise ValueError(
            f"line {numbers[0]} and what follows fit {form}, and perhaps no edge list; {ACCEPTED}, and a first line "
            "'source target [weight]' says that it is one"
        )


def _trivial(content: bytes) -> str | None:
    """Nodes, a line with # alone, and edges between these nodes."""
    parts = re.split(rb"^#[ \t]*\r?$", content, maxsplit=2, flags=re.M)
    nodes, *edges = ([line.split() for line in part.splitlines()] for part in parts)
    names = [line[0] for line in nodes if line]
    ends = [end for line in edges[0] for end in line[:2]] if len(edges) == 1 else []
    if (
        ends
        and not any(name.startswith(b"#") for name in names)
        and len(set(names)) == len(names)
        and {*ends} <= {*names}
    ):
        return "Trivial Graph Format"
    return None


def _table(rows: Sequence[Sequence[str]]) -> str | None:
    """More than three columns."""
    lengths = {len(row) for row in rows}
    if max(lengths) <= 3:
        return None
    if not rows[0][0] or (len(lengths) == 1 and all(is_number(x) for row in rows[1:] for x in row)):
        return "a matrix"
    if any("{" in row[2] for row in rows if len(row) > 2):
        return "an edge list of networkx with data (write it with data=['weight'])"
    return "an adjacency list" if len(lengths) > 1 else None


def _counted(rows: Sequence[Sequence[str]]) -> str | None:
    """A first line with the numbers of nodes and edges, n and m, or with one of them."""
    if len(rows[0]) == 1 and len(rows) > 1 and all(len(row) > 1 and all(map(_is_integer, row[:2])) for row in rows[1:]):
        labels = {label for row in rows[1:] for label in row[:2]}
        count = int(rows[0][0]) if _is_integer(rows[0][0]) and rows[0][0] not in labels else 0
        if count == len(rows) - 1 or count >= max(map(int, labels)) > 0:
            return "a list that begins with the number of nodes or edges"
    numbers = [[int(x) if re.fullmatch(r"\d{1,9}", x) else -1 for x in row] for row in rows]
    (n, m), *rest = numbers if len(rows[0]) == 2 else [[-1, -1]]
    entries = [x for row in rest for x in row[:2]]
    if n < 1 or m < 1 or not rest or min(entries) < 0 or max(entries) > n:
        return None
    if len(rest) == m and all(len(row) > 1 for row in rest) and not (min(entries) == 0 and max(entries) == n):
        return "a list that begins with the numbers of nodes and edges"
    arcs = {(i, j) for i, row in enumerate(rest, 1) for j in row}
    if len(rest) == n and sum(map(len, rest)) == 2 * m and all((j, i) in arcs for i, j in arcs):
        return "METIS"
    return None


def _words(rows: Sequence[Sequence[str]]) -> str | None:
    """A word between the nodes, which are integers: `1 pp 2`, `0 to 1`."""
    words = all(len(row) == 3 and _is_integer(row[0]) and _is_integer(row[2]) for row in rows)
    return "SIF" if words and len({row[1] for row in rows}) == 1 and not is_number(rows[0][1]) else None


def _neighbours(rows: Sequence[Sequence[str]]) -> str | None:
    """Each node once, then its neighbours, two as in a cycle: as a list of edges the second is a weight."""
    arcs = {(row[0], other) for row in rows for other in row[1:]}
    once = all(len(row) == 3 for row in rows) and len({row[0] for row in rows}) == len(rows)
    return "an adjacency list" if once and all((v, u) in arcs for u, v in arcs) else None


def _letters(rows: Sequence[Sequence[str]]) -> str | None:
    """Lines of DIMACS: `e 1 2` or `a 1 2 5`."""
    lines = [row for row in rows if row[0] in ("e", "a") and len(row) > 2 and all(map(str.isdigit, row[1:]))]
    others = [row for row in rows if row[0] not in ("e", "a", "c", "p", "n")]
    return "DIMACS" if lines and not others else None


def _matrix(rows: Sequence[Sequence[str]], directed: bool) -> str | None:
    """As many rows as columns, two or three: as a list of edges a double edge, or a weight of 0."""
    if len(rows) not in (2, 3) or not all(len(row) == len(rows) and all(map(is_number, row)) for row in rows):
        return None
    symmetric = all(rows[i][j] == rows[j][i] for i in range(len(rows)) for j in range(i))
    if len(rows) == 2:
        unclear = symmetric and not directed and sorted(rows[0]) == sorted(rows[1]) and set(rows[0]) <= {"0", "1"}
    else:
        unclear = symmetric or any(float(row[2]) == 0 for row in rows)
    return "a matrix" if unclear else None


def _graph6(rows: Sequence[Sequence[str]]) -> str | None:
    """Nothing but lone words, each a graph of 2 to 62 nodes in graph6."""
    for row in rows:
        codes = [ord(x) - 63 for x in row[0] or "?"]
        size = codes[0]
        if len(row) > 1 or not 2 <= size <= 62 or len(codes) - 1 != -(-(size * (size - 1) // 2) // 6):
            return None
        if not all(0 <= code < 64 for code in codes) or codes[-1] & (2 ** (-(size * (size - 1) // 2) % 6) - 1):
            return None
    return "graph6"


def _is_integer(text: str) -> bool:
    return bool(re.fullmatch(r"-?\d{1,99}", text, re.A))


def is_number(text: str) -> bool:
    """Whether it is written as a decimal number, of any size."""
    return bool(re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", text, re.I | re.A))
