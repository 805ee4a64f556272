"""Random matrices instead of powers, in linear attention: where the square root is lost (docs/results.md T5)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float64

from iha_theory.options import option
from synthetic.tasks.bank import LinearBankTask
from synthetic.tasks.task import Grid, Sweep

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix


@dataclass(frozen=True)
class Unstructured(LinearBankTask):
    """T_t with independent normal entries, the same for every seed."""

    summary: ClassVar[str] = "k random matrices instead of powers, linear attention"
    defaults: ClassVar[dict[str, int]] = {"heads": 5}
    learned: ClassVar[tuple[str, ...]] = ("tokens", "unit_norm", "terms", "width", "mode")
    sweeps: ClassVar[dict[str, Sweep]] = {
        "unstructured": Sweep(
            "nine random matrices, for which ceil(sqrt k) heads of IHA are not enough",
            (Grid({}, {"mha": range(1, 10), "iha": range(1, 7)}),),
        )
    }

    tokens: int = option(16, "tokens N", 1)

    @property
    def label(self) -> str:
        """N and k."""
        return f"N={self.tokens} k={self.terms}"

    @property
    def shape(self) -> tuple[int, int]:
        """N and k."""
        return self.tokens, self.terms

    def matrices(self) -> Float64[np.ndarray, "k N N"]:
        """From one stream for all seeds."""
        return np.random.default_rng(0).standard_normal((self.terms, self.tokens, self.tokens))

    def exact_matrices(self) -> "tuple[tuple[np.ndarray, ...], list[DomainMatrix]]":
        """The matrices, twice."""
        from sympy import QQ

        from iha_theory.exact import matrix

        given = tuple(self.matrices())
        return given, [matrix(m, QQ) for m in given]
