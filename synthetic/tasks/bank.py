"""What the three banks of matrices share: X -> [T_0 X, ..., T_{k-1} X] for X with normal entries, (N, d)."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isqrt
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from jaxtyping import Float64

from iha_theory.options import option
from synthetic.tasks.task import EXACT_TASKS, ExactTarget, Problem, Setting, Size, Task

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix

    from synthetic.graphs import Graph, Normalisation

Mode = Literal["position-only", "content"]


@dataclass(frozen=True)
class BankTask(Task):
    """Base of the banks. The problem of a run is `synthetic.tasks.bank_problem.Bank`."""

    padded: ClassVar[Mapping[str, float]] = {"mha": inf}

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

    @abstractmethod
    def exact_matrices(self) -> "tuple[tuple[np.ndarray, ...], list[DomainMatrix]]":
        """What the bank is made of, and the bank over QQ before any scaling."""

    def exact(self) -> ExactTarget:
        """See the class; softmax attention."""
        given, bank = self.exact_matrices()
        return ExactTarget(given, tuple(bank), self.width, "softmax")

    def build(self, setting: Setting) -> Problem:
        """See the class; softmax attention."""
        from synthetic.tasks.bank_problem import Bank

        return Bank(self.matrices(), self.width, setting, pattern="softmax")


@dataclass(frozen=True)
class LinearBankTask(BankTask):
    """Base of the banks of k blocks for linear attention.

    IHA takes H^4 numbers to mix: up to 4 heads their arithmetic is less than the price of a step.
    """

    padded: ClassVar[Mapping[str, float]] = {"mha": inf, "iha": 4}

    unit_norm: bool = option(False, "scale each matrix to norm 1")
    terms: int = option(9, "blocks k", 1)
    mode: Mode = option("position-only", "whether queries see content")

    def build(self, setting: Setting) -> Problem:
        """See the class."""
        from iha_theory.bounds.heads import unit_norm
        from synthetic.tasks.bank_problem import Bank

        matrices = unit_norm(self.matrices()).numpy() if self.unit_norm else self.matrices()
        return Bank(matrices, self.width, setting, pattern="linear", content=self.mode == "content")

    def exact(self) -> ExactTarget:
        """See the class. With `unit_norm` each matrix is times the float64 nearest to 1 / norm; a zero matrix stays."""
        if self.mode != "position-only":
            raise ValueError(f"--mode {self.mode} has an error estimated from samples: accepted are {EXACT_TASKS}")
        given, bank = self.exact_matrices()
        if self.unit_norm:
            bank = [m if m.is_zero_matrix else m * m.domain(*_inverse_norm(m).as_integer_ratio()) for m in bank]
        return ExactTarget(given, tuple(bank), self.width)


def _inverse_norm(m: "DomainMatrix") -> float:
    """The float64 nearest to 1 / |M|_F, from 128 bits of the root."""
    from iha_theory.exact import numerators

    whole, common = numerators([m])
    square = Fraction(int((whole**2).sum()), common**2)
    n, d = square.numerator, square.denominator
    shift = max(0, 128 + (n.bit_length() - d.bit_length() + 1) // 2)
    return isqrt((d << 2 * shift) // n) / (1 << shift)


def exact_powers(a: np.ndarray, terms: int) -> "tuple[tuple[np.ndarray, ...], list[DomainMatrix]]":
    """A, and I, A, ..., A^{k-1} over QQ."""
    from sympy import QQ

    from iha_theory.exact import matrix
    from synthetic.tasks.filter_bank import power_blocks

    return (a,), list(power_blocks(matrix(a, QQ), terms))


def powers(graph: "Graph", normalisation: "Normalisation", terms: int) -> Float64[np.ndarray, "k N N"]:
    """I, A, ..., A^{k-1} of a graph, by the oracle."""
    from synthetic.graphs import normalise
    from synthetic.tasks.filter_bank import PolynomialBank

    bank = PolynomialBank(normalise(graph, normalisation), terms)
    n = len(bank.graph.nodes)
    return bank.target(np.eye(n)).reshape(n, terms, n).transpose(1, 0, 2)
