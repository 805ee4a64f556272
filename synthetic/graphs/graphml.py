"""GraphML by its schema: what says something about the edges is read or refused, nothing is dropped.

Source: http://graphml.graphdrawing.org (namespace and schema 1.0). Read: one `graph` with its `edgedefault`; nodes in
the order of the file; edges; weights from the edge attribute called `weight`, its default where an edge has none, else
1. Attributes of other names are no part of A and are named in the graph's notes. Refused, with the line: several or
nested graphs, hyperedges, ports, other attributes of the element <edge>, elements in a weight, external references,
edges whose `directed` contradicts `edgedefault`, nodes that are missing or there twice, an id that two edges between
the same nodes have, keys that are missing, there twice or for something else, counts (`parse.nodes`) that are wrong,
elements that the schema has not, and DTDs.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from synthetic.graphs.adjacency import Graph
from synthetic.graphs.numbers import Number, parse

NAMESPACES = ("", "http://graphml.graphdrawing.org/xmlns", "http://graphml.graphdrawing.org/xmlns/graphml")
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
WHOLE, REAL = ("int", "long"), ("float", "double", "string", None)
PARENTS = {
    "graphml": (None,),
    "key": ("graphml",),
    "graph": ("graphml",),
    "node": ("graph",),
    "edge": ("graph",),
    "data": ("graphml", "graph", "node", "edge"),
    "default": ("key",),
    "desc": ("graphml", "key", "graph", "node", "edge"),
}


def read(path: Path) -> Graph:
    """The graph of a GraphML file.

    Raises:
        ValueError: not well-formed XML, or what the module's docstring refuses; with the line.
    """
    reader = _Reader()
    with path.open("rb") as file:
        try:
            reader.parser.ParseFile(file)
        except expat.ExpatError as error:
            raise ValueError(f"line {error.lineno}: {expat.ErrorString(error.code)}") from None
        except LookupError as error:  # Python has no such encoding
            raise ValueError(f"line 1: {error}") from None
    return reader.graph(path.name)


@dataclass
class _Key:
    """A declared attribute."""

    name: str
    of: str
    kind: str | None
    line: int
    default: str | None = None


@dataclass
class _Reader:
    """What was read so far; its parser fills it."""

    keys: dict[str, _Key] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str], int]] = field(default_factory=list)
    ids: set[tuple[str | None, ...]] = field(default_factory=set)
    directed: bool | None = None
    counts: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    path: list[str] = field(default_factory=list)
    inside: dict[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    at: str = ""
    foreign: int = 0

    def __post_init__(self) -> None:
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = lambda *_: self._refuse("a DTD, which may define entities")

    def _refuse(self, what: str) -> NoReturn:
        raise ValueError(f"line {self.parser.CurrentLineNumber}: {what}")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        namespace, _, name = tag.rpartition(" ")
        parent = self.path[-1] if self.path else None
        if self.foreign or (namespace not in NAMESPACES and parent in ("data", "default", "desc")):
            if parent != "desc" and self.at in self._weights():
                self._refuse(f"<{name}> in a weight")
            self.foreign += 1  # a drawing program's own description, inside of an attribute
            return
        if namespace not in NAMESPACES or (parent is None and name != "graphml"):
            self._refuse(f"the element <{name}> of the namespace {namespace!r}: expected GraphML")
        if name == "graph" and (parent != "graphml" or self.directed is not None):
            self._refuse("a second <graph>: files with one graph, not nested, are read")
        if parent not in PARENTS.get(name, ()):
            self._refuse(
                f"<{name}> in <{parent}>: accepted are graphs of nodes and edges, without ports and hyperedges"
            )
        self.path.append(name)
        self.text = []
        if name in ("key", "graph", "node", "edge", "data"):
            getattr(self, f"_{name}")(attributes)

    def _key(self, attributes: dict[str, str]) -> None:
        self.at = self._required("key", attributes, "id")
        if self.at in self.keys:
            self._refuse(f"the key {self.at!r} is there twice")
        of = attributes.get("for", "all")
        name = attributes.get("attr.name", "")
        self.keys[self.at] = _Key(name, of, attributes.get("attr.type"), self.parser.CurrentLineNumber)
        if of in ("edge", "all") and name.casefold() == "weight" and len(self._weights()) > 1:
            self._refuse("a second edge attribute called weight")

    def _graph(self, attributes: dict[str, str]) -> None:
        default = self._required("graph", attributes, "edgedefault")
        if default not in ("directed", "undirected"):
            self._refuse(f"edgedefault={default!r}: accepted are directed and undirected")
        self.directed = default == "directed"
        self.counts = attributes

    def _node(self, attributes: dict[str, str]) -> None:
        node = self._required("node", attributes, "id")
        if node in self.nodes:
            self._refuse(f"the node {node!r} is there twice")
        self.nodes[node] = None
        self.inside = {}

    def _edge(self, attributes: dict[str, str]) -> None:
        u, v = (self._required("edge", attributes, end) for end in ("source", "target"))
        if odd := [name for name in attributes if name not in ("id", "source", "target", "directed")]:
            self._refuse(f"an edge with {odd[0]}=: accepted are id, source, target, directed, and weights in <data>")
        directed = attributes.get("directed")
        if directed is not None:
            if directed.strip() not in BOOLEANS:
                self._refuse(f"directed={directed!r}: accepted are true, false, 1 and 0")
            if BOOLEANS[directed.strip()] != self.directed:
                default = "directed" if self.directed else "undirected"
                self._refuse(f"an edge with directed={directed!r} in a graph whose edgedefault is {default}")
        own = attributes.get("id"), *((u, v) if self.directed else sorted((u, v)))
        if "id" in attributes and own in self.ids:
            self._refuse(f"the edge {own[0]!r} between {u!r} and {v!r} is there twice")
        self.ids.add(own)
        self.inside = {}
        self.edges.append((u, v, self.inside, self.parser.CurrentLineNumber))

    def _data(self, attributes: dict[str, str]) -> None:
        self.at = self._required("data", attributes, "key")
        of = self.path[-2]
        if self.at not in self.keys:
            self._refuse(f"the key {self.at!r} is not declared before it is used")
        if self.keys[self.at].of not in ("all", of):
            self._refuse(f"the key {self.at!r} is for {self.keys[self.at].of}, not for {of}")
        if of in ("node", "edge") and self.at in self.inside:
            self._refuse(f"the key {self.at!r} is there twice in one {of}")
        if of in ("node", "edge"):
            self.used.add(self.at)

    def _end(self, tag: str) -> None:
        if self.foreign:
            self.foreign -= 1
            return
        name = self.path.pop()
        text = "".join(self.text).strip()
        if name == "data" and self.path[-1] in ("node", "edge"):
            self.inside[self.at] = text
        elif name == "default" and self.keys[self.at].default is not None:
            self._refuse(f"a second default of the key {self.at!r}")
        elif name == "default":
            self.keys[self.at].default = text
        elif name != "data" and name != "desc" and text:
            self._refuse(f"the text {text[:60]!r} in <{name}>")
        self.text = []

    def _characters(self, text: str) -> None:
        if not self.foreign:
            self.text.append(text)

    def _required(self, element: str, attributes: dict[str, str], name: str) -> str:
        if name not in attributes:
            self._refuse(f"<{element}> without {name}")
        return attributes[name]

    def _weights(self) -> dict[str, _Key]:
        return {i: k for i, k in self.keys.items() if k.of in ("edge", "all") and k.name.casefold() == "weight"}

    def graph(self, name: str) -> Graph:
        """The graph, when all is read."""
        if self.directed is None:
            raise ValueError("there is no <graph>")
        for count, found in (("parse.nodes", len(self.nodes)), ("parse.edges", len(self.edges))):
            if self.counts.get(count, str(found)).strip() != str(found):
                raise ValueError(f"{count} says {self.counts[count][:20]!r}, and there are {found}")
        (key, weight), *_ = [*self._weights().items(), ("", _Key("", "edge", None, 0, None))]
        default = 1 if weight.default is None else _number(weight.default, weight)
        edges: list[tuple[str, str, Number]] = []
        for u, v, data, line in self.edges:
            for end in (u, v):
                if end not in self.nodes:
                    raise ValueError(f"line {line}: an edge at {end[:60]!r}, which is no node of the file")
            try:
                edges.append((u, v, _number(data[key], weight) if key in data else default))
            except ValueError as error:
                raise ValueError(f"line {line}: {error}") from None
        others = sorted({f"{self.keys[i].name or i}" for i in self.used if i != key})
        notes = [f"attributes that are no weights of edges: {', '.join(others)}"] if others else []
        return Graph.from_text(self.nodes, edges, directed=self.directed, name=name, notes=notes)


def _number(text: str, key: _Key) -> Number:
    if key.kind not in WHOLE + REAL:
        raise ValueError(f"weights of type {key.kind!r} (line {key.line}): accepted are int, long, float and double")
    value = parse(text)
    if key.kind in WHOLE and not isinstance(value, int):
        raise ValueError(f"weight {text[:60]!r} of type {key.kind}")
    return value
