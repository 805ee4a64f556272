"""The workspace of CPM-3: every position collects all tokens, x_n, x_{n+1}, ..., in softmax attention (App. B.3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float64

from iha_theory.options import option
from synthetic.graphs import builtin
from synthetic.tasks.bank import BankTask, exact_powers, powers
from synthetic.tasks.task import Grid, Sweep, up_to

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix


@dataclass(frozen=True)
class Workspace(BankTask):
    """T_t = the cyclic shift by t, of N tokens, t = 0 .. N - 1."""

    summary: ClassVar[str] = "x_n, x_(n+1), ..., the N cyclic shifts, softmax attention"
    defaults: ClassVar[dict[str, int]] = {"heads": 4}
    learned: ClassVar[tuple[str, ...]] = ("tokens", "width")
    sweeps: ClassVar[dict[str, Sweep]] = {
        "workspace": Sweep("the 16 cyclic shifts, softmax attention", (Grid({}, up_to(16)),))
    }

    tokens: int = option(16, "tokens N", 1)

    @property
    def label(self) -> str:
        """N."""
        return f"N={self.tokens}"

    @property
    def shape(self) -> tuple[int, int]:
        """N twice."""
        return self.tokens, self.tokens

    def matrices(self) -> Float64[np.ndarray, "k N N"]:
        """The powers of a directed cycle."""
        return powers(builtin(f"cycle:{self.tokens}"), "none", self.tokens)

    def exact_matrices(self) -> "tuple[tuple[np.ndarray, ...], list[DomainMatrix]]":
        """The directed cycle, and its powers."""
        return exact_powers(builtin(f"cycle:{self.tokens}").adjacency, self.tokens)
