"""The graph of the theory: what is defined, proved, built and claimed, what each rests on, and how it is checked.

Annotations stand beside the code that they are about:

    @blueprint.theorem("capacity", "...", uses=("mha", "iha"), check="numerical", proof="docs/bounds.md, Theorem 1")
    def capacity_bound(...)

The owner is what is decorated, which stays as it is. An edge "uses" says that the proof, the weights or the test needs
the other one. The statements of the ledger have a `Place` each; `constructions.ledger.graph` puts all together and
finds what is wrong with it. Imports nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

Kind = Literal["definition", "theorem", "construction", "statement"]
Check = Literal["exact", "numerical", "proof only", "open"]
Owner = TypeVar("Owner")


@dataclass(frozen=True)
class Place:
    """Where a statement of the ledger stands in the graph. Fields: see `Node`; no proof means where its source is."""

    check: Check
    uses: tuple[str, ...] = ()
    proof: str = ""


@dataclass(frozen=True)
class Node:
    """Something of the theory.

    Attributes:
        name: short, unique.
        kind: what it is.
        text: what it says, in a sentence.
        check: "exact" (rationals, integers, primes), "numerical" (floating point has a part in it), "proof only" or
            "open" (nobody has a proof).
        uses: names of what it needs, and not of what these need.
        owner: the importable name of the code that it is about; "" only if the check is "proof only" or "open".
        proof: "docs/FILE.md, Theorem 1", with the beginning of a heading, or a module whose docstring has the proof;
            several are separated by "; ".
        tests: a file of tests that checks it, where no statement does.
    """

    name: str
    kind: Kind
    text: str
    check: Check
    uses: tuple[str, ...] = ()
    owner: str = ""
    proof: str = ""
    tests: str = ""


_NODES: dict[str, Node] = {}


def nodes() -> dict[str, Node]:
    """What the modules imported so far have annotated, by name."""
    return dict(_NODES)


def _add(node: Node) -> None:
    known = _NODES.setdefault(node.name, node)
    if known != node:
        raise ValueError(f"two nodes {node.name!r} in the graph of the theory: of {known.owner} and of {node.owner}")


def _annotate(
    kind: Kind, name: str, text: str, *, check: Check, uses: Iterable[str] = (), proof: str = "", tests: str = ""
) -> Callable[[Owner], Owner]:
    def decorate(owner: Owner) -> Owner:
        code: Any = owner
        place = f"{code.__module__}.{code.__qualname__}"
        _add(Node(name, kind, text, check, tuple(uses), place, proof or code.__module__, tests))
        return owner

    return decorate


definition = partial(_annotate, "definition")
theorem = partial(_annotate, "theorem")
construction = partial(_annotate, "construction")


def unowned(check: Literal["proof only", "open"], name: str, text: str, *, proof: str, uses: Iterable[str]) -> None:
    """A theorem that no code checks, or a question that is open, beside the code that is nearest."""
    _add(Node(name, "theorem", text, check, tuple(uses), "", proof))
