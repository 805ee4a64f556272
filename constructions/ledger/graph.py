"""The graph of the theory, put together from the annotations (`iha_theory.blueprint`) and the ledger's statements.

`theory` collects it, `faults` says what is wrong with it, `layers` how to draw it, `passages` where a proof stands.
"""

import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import networkx as nx

from constructions.ledger import MODULES, statements
from iha_theory import blueprint
from iha_theory.blueprint import Node

PACKAGES = ("iha_theory", "synthetic", "constructions")
Theory = Mapping[str, Node]


def theory() -> dict[str, Node]:
    """All nodes by name; the ledger's statements under their ids. Imports every module that may have annotations.

    Raises:
        ValueError: two nodes of one name; a statement without a place.
    """
    for package in PACKAGES:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if "command" not in module.name and not module.name.startswith("iha_theory.cli"):
                import_module(module.name)
    found = dict(sorted(blueprint.nodes().items()))
    rooms = {statement.id: module.__name__ for module in MODULES for statement in module.STATEMENTS}
    for statement in statements():
        if statement.place is None:
            raise ValueError(f"statement {statement.id} has no place in the graph of the theory")
        if statement.id in found:
            raise ValueError(f"two nodes {statement.id!r} in the graph of the theory")
        place, test = statement.place, statement.claim.test
        named = statement.source.startswith("docs/") and not statement.source.startswith("docs/results.md")
        found[statement.id] = Node(
            statement.id,
            "statement",
            statement.claim.text,
            place.check,
            place.uses,
            owner=_name(test.func if isinstance(test, partial) else test),
            proof=place.proof or (statement.source if named else rooms[statement.id]),
        )
    return found


def _name(code: Any) -> str:
    return f"{code.__module__}.{code.__qualname__}"


def owner(name: str) -> Any:
    """What an owner's importable name stands for.

    Raises:
        ImportError: nothing.
    """
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            value = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                raise ImportError(f"{name} is not there")
            value = getattr(value, part)
        return value
    raise ImportError(f"{name} is not there")


def digraph(nodes: Theory) -> "nx.DiGraph[str]":
    """An arc from each node to what it uses."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from((name, used) for name, node in nodes.items() for used in node.uses)
    return graph


def faults(nodes: Theory, root: Path) -> list[str]:
    """What is wrong with the graph, a line each.

    Unknown uses, cycles, owners that are not there, proofs that are not where they should be, no owner or no check
    where the node is not marked "proof only" or "open", files of tests that are not there, a definition that nothing
    uses.

    Args:
        nodes: of `theory`.
        root: the folder with docs/ and tests/.
    """
    out = [
        f"{node.name} uses {used}, which is unknown"
        for node in nodes.values()
        for used in node.uses
        if used not in nodes
    ]
    if out:
        return out
    graph = digraph(nodes)
    if not nx.is_directed_acyclic_graph(graph):
        cycle = nx.find_cycle(graph)
        return [f"a cycle: {' uses '.join([cycle[0][0], *(to for _, to in cycle)])}"]
    out: list[str] = []
    for node in nodes.values():
        out += _own_faults(node, any(nodes[user].kind == "statement" for user in graph.predecessors(node.name)), root)
        if node.kind == "definition" and not graph.in_degree(node.name):
            out.append(f"{node.name} is a definition that nothing uses")
    return out


def _own_faults(node: Node, claimed: bool, root: Path) -> Iterator[str]:
    marked = node.check in ("proof only", "open")
    if not node.owner and not marked:
        yield f"{node.name} has no owner, and is marked neither proof only nor open"
    if node.owner:
        try:
            owner(node.owner)
        except ImportError as error:
            yield f"{node.name}: {error}"
    if not (marked or claimed or node.kind == "statement" or node.tests):
        yield f"{node.name} is checked by no statement and by no tests, and is marked neither proof only nor open"
    if node.tests and not (root / node.tests).is_file():
        yield f"{node.name}: there is no {node.tests}"
    for passage in passages(node):
        if passage.startswith("docs/"):
            if heading(passage, root) is None:
                yield f"{node.name}: {passage} is not there"
        else:
            try:
                documented = bool(import_module(passage).__doc__)
            except ModuleNotFoundError:
                documented = False
            if not documented:
                yield f"{node.name}: {passage} is no module with a docstring"


def passages(node: Node) -> list[str]:
    """Where the proof stands: passages of docs/, or modules."""
    return node.proof.split("; ") if node.proof else []


def heading(passage: str, root: Path) -> str | None:
    """The heading that "docs/FILE.md, TITLE" or "docs/FILE.md, TITLE, bold words" is about; None if there is none.

    A heading may begin with a number, which TITLE leaves out. The bold words stand below it, before the next heading of
    its level.
    """
    file, _, rest = passage.partition(", ")
    path = root / file
    if not path.is_file():
        return None
    found: list[tuple[str, str]] = []
    for part in re.split(r"^(?=#+ )", path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        title, _, text = part.partition("\n")
        found.append((re.sub(r"^#+ *", "", title), text))
    for title, text in found:
        plain = re.sub(r"^\d+ +", "", title)
        if re.match(rf"{re.escape(rest)}(?!\w)", plain):
            return title
        for cut in (m.start() for m in re.finditer(", ", rest)):
            bold = rf"\*{{2}}{re.escape(rest[cut + 2 :])}[.*:]"
            if re.match(rf"{re.escape(rest[:cut])}(?!\w)", plain) and re.search(bold, text):
                return title
    return None


def layers(nodes: Theory, sweeps: int = 12) -> list[list[str]]:
    """Nodes in columns, each right of all that it uses, in an order with few crossings (barycentres, up and down)."""
    graph = digraph(nodes)
    columns = [sorted(column, key=list(nodes).index) for column in nx.topological_generations(graph.reverse())]
    for sweep in range(sweeps):
        forward = sweep % 2 == 0
        place = {name: i / max(1, len(column)) for column in columns for i, name in enumerate(column)}
        for column in columns if forward else reversed(columns):
            beside = graph.successors if forward else graph.predecessors
            column.sort(key=lambda name, beside=beside: _mean([place[n] for n in beside(name)], place[name]))
            place |= {name: i / len(column) for i, name in enumerate(column)}
    return columns


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
