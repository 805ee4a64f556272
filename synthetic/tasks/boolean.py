"""Boolean functions of few bits, read linearly at a query token: parity, endpoint selection (docs/parity.md)."""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Shaped

from iha_theory import blueprint
from iha_theory.options import option
from synthetic.tasks.count_pairs import all_sequences
from synthetic.tasks.task import Grid, Problem, Setting, Size, Sweep, Task

Bits = Shaped[np.ndarray, "inputs n"]


@dataclass(frozen=True)
class BooleanTask(Task):
    """Base of the two. The problem of a run is `synthetic.tasks.boolean_problem.Signs`."""

    defaults: ClassVar[dict[str, Any]] = {"steps": 1000, "lr": 0.003, "batch": 1, "eval_size": 1}
    padded: ClassVar[dict[str, float]] = {"mha": inf}

    width: int = option(16, "width of the embedding of a bit and its position", 1)
    readout_lr: float = option(0.3, "peak learning rate of the output projection and of the threshold", 0)

    @property
    @abstractmethod
    def tokens(self) -> int:
        """n, a bit each."""

    @abstractmethod
    def answers(self, x: Bits) -> Shaped[np.ndarray, " inputs"]:
        """0 or 1 for each row of bits, in integers."""

    @abstractmethod
    def least_errors(self, rows: int) -> int:
        """On so many of the 2^n inputs at least, a layer whose rows have this total degree has a wrong sign."""

    def size(self) -> Size:
        """A sample is all 2^n inputs, embedded."""
        return Size(1, 1, 2**self.tokens * self.tokens * self.width)

    def build(self, setting: Setting) -> Problem:
        """See the class."""
        from synthetic.tasks.boolean_problem import Signs

        x = next(all_sequences(2, self.tokens))
        rows = setting.parity_bits  # known for one layer of ours, which may then attend from the query token alone
        floor = None if rows is None else self.least_errors(rows) / len(x)
        return Signs(x, self.answers(x), self.width, self.readout_lr, floor, alone=rows is not None)


@blueprint.definition(
    "parity-task",
    "parity of n bits, read linearly at a query token",
    check="exact",
    proof="docs/parity.md, Setting",
    tests="tests/synthetic/tasks/test_boolean.py",
)
@dataclass(frozen=True)
class Parity(BooleanTask):
    """The sum of k bits modulo 2. Floor: E(k, R) of the 2^k inputs (docs/parity.md, Theorem 4)."""

    summary: ClassVar[str] = "parity of k bits at a query token, softmax with content anywhere; a sample is all inputs"
    learned: ClassVar[tuple[str, ...]] = ("bits",)
    sweeps: ClassVar[dict[str, Sweep]] = {
        "parity": Sweep(
            "parity of 2 to 5 bits, with fewer softmax rows than bits, as many and more",
            (
                *(Grid({"bits": k}, {"mha": range(1, k + 2), "iha": (1, 2)}) for k in (2, 3, 4)),
                Grid({"bits": 5}, {"mha": range(1, 7), "iha": (2, 3)}),
                *(Grid({"bits": k, "pseudo_heads": k}, {"iha": (1,)}) for k in (2, 3, 4)),
                *(Grid({"bits": k, "pseudo_heads": 3}, {"iha": (2,)}) for k in (4, 5)),
            ),
        )
    }

    bits: int = option(3, "bits k", 1, 10)

    @property
    def label(self) -> str:
        """k."""
        return f"k={self.bits}"

    @property
    def tokens(self) -> int:
        """k."""
        return self.bits

    def answers(self, x: Bits) -> Shaped[np.ndarray, " inputs"]:
        """The sum modulo 2."""
        return x.sum(1) % 2

    def least_errors(self, rows: int) -> int:
        """E(k, R)."""
        from iha_theory.bounds.parity_errors import least_errors

        return least_errors(self.bits, rows)


@blueprint.definition(
    "endpoint-task",
    "endpoint selection: where k pointers {0,1} -> {0,1} lead, read linearly at a query token",
    check="exact",
    proof="docs/parity.md, Theorem 4",
    tests="tests/synthetic/tasks/test_boolean.py",
)
@dataclass(frozen=True)
class EndpointSelection(BooleanTask):
    """Where a path of k pointers ends. k + 1 layers of two vertices, 0 and 1; the path starts at vertex 0 of the first.

    x_1 is the vertex of the second layer to which the start points, x_{t,v} the vertex to which vertex v of layer t
    points, t = 2 .. k: n = 2 k - 1 bits, x_1, x_{2,0}, x_{2,1}, x_{3,0}, ... The answer is the end in the last layer.

        EndpointSelection(pointers=2).answers(np.array([[0, 1, 0], [1, 1, 0]])) == [1, 0]

    If the two pointers of every layer differ, x_{t,1} = 1 - x_{t,0}, the answer is the parity of x_1, x_{2,0}, ...,
    x_{k,0}: so what bounds parity bounds this (docs/parity.md, Section 8, with the floor). Written as a sequence of
    pairs, a vertex and where it points, last layer first, these inputs are ones of induction in k hops (arXiv
    2402.09268), which is bounded likewise. The name is from arXiv 2609.04046; this form of the task is ours.
    """

    summary: ClassVar[str] = "endpoint of a path of k pointers, in the same frame as parity"
    learned: ClassVar[tuple[str, ...]] = ("pointers",)
    sweeps: ClassVar[dict[str, Sweep]] = {
        "esp": Sweep(
            "endpoint selection with 2 and 3 pointers",
            tuple(Grid({"pointers": k}, {"mha": range(1, k + 2), "iha": (1, 2)}) for k in (2, 3)),
        )
    }

    pointers: int = option(2, "pointers k on the path", 1, 5)

    @property
    def label(self) -> str:
        """k."""
        return f"k={self.pointers}"

    @property
    def tokens(self) -> int:
        """2 k - 1."""
        return 2 * self.pointers - 1

    def answers(self, x: Bits) -> Shaped[np.ndarray, " inputs"]:
        """The endpoint, pointer by pointer."""
        at = x[:, 0]
        for first in range(1, self.tokens, 2):
            at = np.where(at == 0, x[:, first], x[:, first + 1])
        return at

    def least_errors(self, rows: int) -> int:
        """By the sub-families on which the answer is a parity."""
        from iha_theory.bounds.parity_errors import least_endpoint_errors

        return least_endpoint_errors(self.pointers, rows)
