"""The filter bank [X, A X, ..., A^{k-1} X] of a graph, in linear attention (Sec. 4.2)."""

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from iha_theory.options import option
from synthetic.graphs import Graph, digest, family_size, is_file, load, normalise
from synthetic.tasks.bank import LinearBankTask, exact_powers, powers
from synthetic.tasks.task import Grid, Sweep, up_to

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix

KARATE = {"graph": "karate", "normalise": "symmetric", "unit_norm": True, "terms": 9, "steps": 4000}
"""Its powers are nearly dependent, so that the last of them take more steps."""

CONTENT = {"mode": "content", "graph": "orthogonal:8", "lr": 0.01, "steps": 2000, "eval_size": 2**14}
"""Where the error is estimated from the test set, a large one."""


@dataclass(frozen=True)
class Polynomial(LinearBankTask):
    """T_t = A^t."""

    summary: ClassVar[str] = "[X, AX, ..., A^(k-1) X] of a graph, linear attention"
    learned: ClassVar[tuple[str, ...]] = ("graph", "normalise", "unit_norm", "terms", "width", "mode")
    sweeps: ClassVar[dict[str, Sweep]] = {
        "polynomial": Sweep(
            "the filter bank of a random orthogonal matrix (N = 16, k = 9 and 16) and of the karate club (k = 9)",
            (Grid({"terms": 9}, up_to(9)), Grid({"terms": 16}, up_to(16)), Grid(KARATE, up_to(9))),
        ),
        "content": Sweep(
            "queries that see content, against the floor of that class",
            (
                Grid(CONTENT | {"terms": 3, "width": 2}, {"mha": (1, 2, 3)}),
                Grid(CONTENT | {"terms": 4}, {"mha": (1, 2, 3, 4), "iha": (1, 2)}),
            ),
        ),
    }

    graph: str = option("orthogonal:16", "built-in graph, family or file, as for heads")
    normalise: Literal["none", "row", "symmetric"] = option("none", "normalisation of the graph")

    @property
    def label(self) -> str:
        """The graph and k."""
        return f"{self.graph} k={self.terms}"

    @property
    def shape(self) -> tuple[int, int]:
        """N and k; of a family, N is in its name."""
        family = None if is_file(self.graph) else family_size(self.graph)
        return family or len(self.given().nodes), self.terms

    def matrices(self) -> Float64[np.ndarray, "k N N"]:
        """I, A, ..., A^{k-1}."""
        return powers(self.given(), self.normalise, self.terms)

    def exact_matrices(self) -> "tuple[tuple[np.ndarray, ...], list[DomainMatrix]]":
        """The graph's matrix, normalised as the task says (symmetric: in float64), and its powers."""
        return exact_powers(normalise(self.given(), self.normalise).adjacency, self.terms)

    def given(self) -> Graph:
        """The graph.

        Raises:
            ValueError, OSError: a file that holds no graph, or no longer the one that `content` says.
        """
        if not is_file(self.graph):
            return load(self.graph)
        graph, found = _read(self.graph)
        if found != self._pinned:
            raise ValueError(f"{self.graph} was edited after this run was begun: begin it again")
        return graph

    def content(self) -> dict[str, str]:
        """The hash of the graph's matrix, of a graph in a file."""
        return {"graph": self._pinned} if is_file(self.graph) else {}

    @cached_property
    def _pinned(self) -> str:
        return _read(self.graph)[1]


def _read(file: str) -> tuple[Graph, str]:
    """The graph in a file as it is now, and its hash; parsed once as long as the file is the same."""
    return _parsed(file, hashlib.sha256(Path(file).read_bytes()).digest() if Path(file).is_file() else b"")


@lru_cache(4)
def _parsed(file: str, _bytes: bytes) -> tuple[Graph, str]:
    graph = load(file)
    return graph, digest(graph)
