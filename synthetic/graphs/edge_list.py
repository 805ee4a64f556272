"""Edge lists: one edge `u v [weight]` a line, in one layout for the whole file.

- **Separator.** Tabs if there is one anywhere; else semicolons or commas (not both); else blanks.
- **Columns.** Two, or three with a weight, the same on every line with an edge.
- **Lone nodes.** A line with one label declares a node, before the edges that name it, or without any. Unquoted it has
  letters, digits, `_` and `.` only, and perhaps a sign. A number at the top that may count the nodes or the edges is
  refused.
- **Header.** A first line such as `source target weight` or `from,to`; it settles what else would be unclear.
- **Comments** are lines that start with `#` or `%`.
- **Quotes.** `"..."` around a label allows anything in it; a quote inside is doubled. Without them a label has no
  blanks (unless tabs separate, or commas in a file called .csv), no separators, in a list with blanks no `#` and `%`,
  and is no fraction.

What does not fit is refused, with its line; so is what reads as another format (`synthetic.graphs.foreign`).
"""

import re
from collections.abc import Sequence
from typing import NamedTuple
from unicodedata import category

from synthetic.graphs import foreign
from synthetic.graphs.adjacency import Graph
from synthetic.graphs.numbers import Number, parse

SEPARATORS = {"\t": "tabs", ";": "semicolons", ",": "commas", " ": "blanks"}
FIRST = {
    "from",
    "source",
    "src",
    "origin",
    "start",
    "tail",
    "u",
    "i",
    "x",
    "nodea",
    "node1",
    "vertex1",
    "id1",
    "n1",
    "v1",
}
SECOND = {"to", "target", "tgt", "destination", "dest", "dst", "end", "head", "v", "j", "y"}
SECOND |= {"nodeb", "node2", "vertex2", "id2", "n2", "v2"}
WEIGHT = {"weight", "weights", "edgeweight", "w", "value"}
_QUOTED = r'"(?:[^"]|"")*"'
_FIELD = {s: re.compile(rf" *(?:({_QUOTED})|([^{s}\"]*)) *({s}|$)") for s in "\t;,"}
_FIELD[" "] = re.compile(rf"(?:({_QUOTED})|([^ \"]+))( +|$)")
_LONE = re.compile(r"[+-]?[\w.]+")
_ODD_BLANK = re.compile(r"[^\S \t]|[\x00-\x08\x0e-\x1f\x7f]")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBERS = re.compile(r"[+-]?[\d.,]+( +[+-]?[\d.,]+)+", re.ASCII)
_FRACTIONAL = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+(\.\d*)?[eE][+-]?\d+)([eE][+-]?\d+)?", re.ASCII)
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))


class Field(NamedTuple):
    """A label or a weight, and whether it stood in quotes."""

    text: str
    quoted: bool


class Row(NamedTuple):
    """A line that is no comment: its number from 1, and its fields."""

    number: int
    fields: list[Field]


def read(text: str, name: str, directed: bool, separated: bool = False) -> Graph:
    """The graph of an edge list.

    Args:
        text: the list.
        name: of the graph.
        directed: each line is an arc from u to v; else an undirected edge.
        separated: the file's name says that commas or semicolons separate: labels may have blanks.

    Raises:
        ValueError: what the module's docstring refuses, with the line.
    """
    lines = [(number, line.strip(" ")) for number, line in enumerate(re.split("\r\n|\r|\n", text), 1)]
    lines = [(number, line) for number, line in lines if line.strip()]
    data = [(number, line) for number, line in lines if line[0] not in "#%"]
    if not data:
        raise ValueError("the graph is empty: at least one node is needed")
    separator = _separator(data)
    rows = [Row(number, _fields(line, number, separator)) for number, line in data]
    notes = [f"{len(lines) - len(data)} comment lines"] if len(lines) > len(data) else []
    if _is_header(rows):
        notes.append(f"line {rows[0].number} is a header: {' '.join(field.text for field in rows[0].fields)}")
        rows = rows[1:]
        if not rows:
            raise ValueError("the graph is empty: there is only a header")
    else:
        foreign.refuse_rows([row.number for row in rows], [[f.text for f in row.fields] for row in rows], directed)
    columns = next((len(row.fields) for row in rows if len(row.fields) > 1), 1)
    labels: dict[str, int] = {}
    for row in rows:
        _require_fitting(row, columns, separator)
        for text, quoted in row.fields[:2]:
            if not quoted:
                labels.setdefault(text, row.number)
    for label, number in labels.items():
        if reason := _unclear(label, separator, blanks=separator == "\t" or separated):
            raise ValueError(f"line {number}: label {label[:60]!r} {reason}; put it in quotes if it is one")
    if separator != " " and any("#" in field.text for row in rows for field in row.fields):
        _require_clear_comments([(number, line) for number, line in lines if line[0] in "#%"], separator)
    nodes: dict[str, None] = {}
    edges: list[tuple[str, str, Number]] = []
    for number, fields in rows:
        u, *others = (field.text for field in fields)
        if not others and u in nodes:
            raise ValueError(
                f"line {number}: node {u[:60]!r} has been named before; a line with one label declares a node that has "
                "no edges, or stands before them (adjacency lists are not read)"
            )
        nodes |= dict.fromkeys((u, *others[:1]))
        if others:
            edges.append((u, others[0], _weight(others[1], number) if len(others) == 2 else 1))
    return Graph.from_text(nodes, edges, directed=directed, name=name, notes=notes)


def _separator(lines: Sequence[tuple[int, str]]) -> str:
    bare = [(number, re.sub(_QUOTED, "", line)) for number, line in lines]
    for number, line in bare:
        if odd := _odd(line):
            raise ValueError(f"line {number}: a character U+{ord(odd):04X}, which only labels in quotes may have")
    found = {s: number for s in "\t;," for number, line in reversed(bare) if s in line}
    if "\t" in found:
        return "\t"
    if len(found) == 2:
        raise ValueError(
            f"semicolons (line {found[';']}) and commas (line {found[',']}): one separator is needed; put labels in "
            "quotes, and write 0.5 with a point"
        )
    return next(iter(found), " ")


def _odd(line: str) -> str | None:
    """A blank of another kind, or a character that nobody sees (Unicode's category Cf)."""
    if match := _ODD_BLANK.search(line):
        return match[0]
    return None if line.isascii() else next((x for x in line if category(x) == "Cf"), None)


def _fields(line: str, number: int, separator: str) -> list[Field]:
    if '"' not in line:
        return [Field(text.strip(" "), False) for text in (line.split(separator) if separator != " " else line.split())]
    fields, at, more = [], 0, True
    while more:
        match = _FIELD[separator].match(line, at)
        if not match:
            raise ValueError(f"line {number}: quotes go around a whole label, and are doubled in it, not {line[:60]!r}")
        quoted, plain, end = match.groups()
        fields.append(Field(quoted[1:-1].replace('""', '"') if quoted else plain.strip(" "), bool(quoted)))
        at, more = match.end(), bool(end)
    return fields


def _is_header(rows: Sequence[Row]) -> bool:
    """Whether the first row is a header.

    Raises:
        ValueError: it looks like one, but not like one that is known.
    """
    first, rest = rows[0].fields, [row.fields for row in rows[1:]]
    if len(first) not in (2, 3) or not all(field.text for field in first):
        return False
    if any(_INTEGER.fullmatch(field.text) for field in first[:2]) and _is_number(first[-1].text):
        return False
    words = [re.sub(r"[\W_]", "", field.text.casefold()) for field in first]
    words[:2] = [re.sub(r"(?<=.)(node|vertex)?(id|name|label)?$", "", word) for word in words[:2]]
    shown = " ".join(field.text for field in first)[:60]
    labels = [field.text for fields in rest for field in fields[:2]]
    weights = [fields[2].text for fields in rest if len(fields) == 3]
    named = len(first) == 3 and not _is_number(first[2].text) and bool(weights) and all(map(_is_number, weights))
    numbered = len(labels) > 1 and all(map(_INTEGER.fullmatch, labels))
    known = words[0] in FIRST and words[1] in SECOND and not (words[2:] and _is_number(first[2].text))
    if known and (len(words[0]) > 1 or named or numbered):
        if words[2:] and words[2] not in WEIGHT:
            raise ValueError(f"line {rows[0].number}: the third column is called {first[2].text[:60]!r}, not 'weight'")
        if {field.text for field in first[:2]} & set(labels):
            raise ValueError(
                f"line {rows[0].number}: {shown!r} is a header or an edge: put 'source target [weight]' above it"
            )
        return True
    swapped = words[0] in SECOND and words[1] in FIRST and len(words[0]) > 1
    if swapped or named or numbered:
        raise ValueError(
            f"line {rows[0].number}: {shown!r} looks like a header, but not like 'source target [weight]' or "
            "'from to'; put such a line above it if it is an edge"
        )
    return False


def _require_fitting(row: Row, columns: int, separator: str) -> None:
    """Refuses a row that has not the file's columns."""
    alone = len(row.fields) == 1 and not row.fields[0].quoted and not _LONE.fullmatch(row.fields[0].text)
    if len(row.fields) in (1, columns) and columns <= 3 and all(field.text for field in row.fields) and not alone:
        return
    place = f"line {row.number}"
    shown = separator.join(field.text for field in row.fields)[:60].replace("\t", "  ")
    if not all(field.text for field in row.fields):
        raise ValueError(f"{place}: an empty field between {SEPARATORS[separator]}; expected 'u v [weight]'")
    if alone:
        raise ValueError(
            f"{place}: no separator in {shown!r}; separators are tabs, commas, semicolons or blanks, the same in the "
            "whole file, and a node without edges goes in quotes if it is more than a word"
        )
    above = f", and {columns} columns, as the edges above have" if columns <= 3 else ""
    raise ValueError(
        f"{place}: {len(row.fields)} columns in {shown!r}; "
        f"expected 'u v [weight]', separated by {SEPARATORS[separator]}{above}"
    )


def _unclear(label: str, separator: str, blanks: bool) -> str | None:
    """Why a label without quotes may be something else."""
    if not re.search(r"[^\W_]", label):
        return "has no letter and no digit"
    if _FRACTIONAL.fullmatch(label):
        return "is written as a fraction, as in a matrix"
    if " " in label and (not blanks or _NUMBERS.fullmatch(label)):
        return f"has blanks, beside {SEPARATORS[separator]}"
    if any(label.count(left) != label.count(right) for left, right in BRACKETS):
        return "has a bracket alone"
    if label[-1] == ":":
        return "ends with a colon, as in an adjacency list"
    if label[0] in "'`" or label[-1] in "'`":
        return "has quotes of another kind"
    if separator == " " and (odd := re.search("[#%|]", label)):
        return f"has a {odd[0]} (comments are lines of their own)"
    return None


def _require_clear_comments(comments: Sequence[tuple[int, str]], separator: str) -> None:
    """Where labels have a #, a line that starts with one and has separators may be an edge."""
    for number, line in comments:
        if separator in line and not re.match("[#%]+( |$)", line):
            raise ValueError(
                f"line {number}: an edge or a comment? Put the label in quotes, or a blank after the {line[0]}"
            )


def _weight(text: str, line: int) -> Number:
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"line {line}: weight {error}") from None


def _is_number(text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return foreign.is_number(text) or text.lower().lstrip("+-") in ("nan", "inf", "infinity")  # meant as one
    return True
