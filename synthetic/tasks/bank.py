"""What the three banks of matrices share: X -> [T_0 X, ..., T_{k-1} X] for X with normal entries, (N, d)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from iha_theory.options import option
from synthetic.tasks.task import Problem, Setting, Size, Task

if TYPE_CHECKING:
    from synthetic.graphs import Graph, Normalisation

Mode = Literal["position-only", "content"]


@dataclass(frozen=True)
class BankTask(Task):
    """Base of the banks. The problem of a run is `synthetic.tasks.bank_problem.Bank`."""

    padded: ClassVar[bool] = True

    width: int = option(1, "content width d", 1)

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """N and k."""

    def size(self) -> Size:
        """With the matrices and the target of each basis content, and of its gradient."""
        tokens, terms = self.shape
        return Size(tokens, tokens * self.width, terms * tokens**2 + 2 * terms * (tokens * self.width) ** 2)

    @abstractmethod
    def matrices(self) -> Float64[np.ndarray, "k N N"]:
        """T."""

    def build(self, setting: Setting) -> Problem:
        """See the class; softmax attention."""
        from synthetic.tasks.bank_problem import Bank

        return Bank(self.matrices(), self.width, setting, pattern="softmax")


@dataclass(frozen=True)
class LinearBankTask(BankTask):
    """Base of the banks of k blocks for linear attention."""

    unit_norm: bool = option(False, "scale each matrix to norm 1")
    terms: int = option(9, "blocks k", 1)
    mode: Mode = option("position-only", "whether queries see content")

    def build(self, setting: Setting) -> Problem:
        """See the class."""
        from iha_theory.bounds.heads import unit_norm
        from synthetic.tasks.bank_problem import Bank

        matrices = unit_norm(self.matrices()).numpy() if self.unit_norm else self.matrices()
        return Bank(matrices, self.width, setting, pattern="linear", content=self.mode == "content")


def powers(graph: "Graph", normalisation: "Normalisation", terms: int) -> Float64[np.ndarray, "k N N"]:
    """I, A, ..., A^{k-1} of a graph, by the oracle."""
    from synthetic.graphs import normalise
    from synthetic.tasks.filter_bank import PolynomialBank

    bank = PolynomialBank(normalise(graph, normalisation), terms)
    n = len(bank.graph.nodes)
    return bank.target(np.eye(n)).reshape(n, terms, n).transpose(1, 0, 2)
