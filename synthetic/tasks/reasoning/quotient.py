"""Composing relations through colours: R o R^T where the two steps meet in a colour (arXiv 2501.19215)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int64

from iha_theory.options import option
from synthetic.tasks.reasoning.base import NOTHING, Inputs, Labels, Ranged
from synthetic.tasks.reasoning.grids import cpu, strassen
from synthetic.tasks.reasoning.relations import Matrices, coded, flat, inside, matrices
from synthetic.tasks.task import Sweep

STRASSEN = {"smallest": 6, "largest": 8, "width": 16, "mlp": 64, "steps": 3600}
"""The sizes of arXiv 2501.19215's relations."""


@dataclass(frozen=True)
class Quotient(Ranged):
    """An m x m Boolean matrix R with zeros on the diagonal, and a colour of each of the m things.

    Label (i, j), i != j: whether there are k != l of one colour with R_ik = R_jl = 1; none on the diagonal. Token
    (i, j) holds R_ij and the colour of j. m is uniform in smallest .. largest, the colours in 0 .. m - 1.
    """

    summary: ClassVar[str] = "composing relations through colours, R o R^T (arXiv 2501.19215, docs/reasoning.md)"
    learned: ClassVar[tuple[str, ...]] = ("smallest", "largest", "density")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "quotient": Sweep(
            "composing relations through colours, m = 4 or 5, on seven attentions",
            cpu({}, more=16, wide=92, longer=2300),
            seeds=3,
            presets={"strassen": Sweep("arXiv 2501.19215, m = 6 to 8, for a GPU", strassen(STRASSEN, heads=1))},
        )
    }

    smallest: int = option(4, "least m", 2)
    largest: int = option(5, "largest m", 2)
    density: float = option(0.433, "probability that an entry off the diagonal is 1", 0, 1)

    @property
    def label(self) -> str:
        """m."""
        return f"m={self.smallest}-{self.largest}"

    @property
    def tokens(self) -> int:
        """The largest m^2."""
        return self.largest**2

    @property
    def channels(self) -> tuple[int, ...]:
        """An entry, the colour of its column, its place in the sequence."""
        return 2, self.largest, self.tokens

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        m = generator.integers(self.smallest, self.largest + 1, count)
        entries = generator.random((count, self.largest, self.largest)) < self.density
        relation = entries & inside(m, self.largest) & ~np.eye(self.largest, dtype=bool)
        colours = generator.integers(m[:, None], size=(count, self.largest))
        labels = through_colours(relation, colours)
        labels[:, np.arange(self.largest), np.arange(self.largest)] = NOTHING
        return coded(relation, m, "flat", np.broadcast_to(colours[:, None], relation.shape)), flat(labels, m)

    def canonical(self, x: Inputs) -> np.ndarray:
        """The entries and the colours."""
        return x[..., :2].reshape(len(x), -1)

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """The own entry; and how many ones the two rows have."""
        relation, m = matrices(x)
        rows = relation.sum(2)
        both = rows[:, :, None] * (self.largest + 1) + rows[:, None, :]
        return {"own token": x[..., 0].clip(0), "degrees": flat(both, m).clip(0)}


def through_colours(relation: Matrices, colours: Int64[np.ndarray, "samples m"]) -> Int64[np.ndarray, "samples m m"]:
    """1 at (i, j) if there are k != l with R_ik = R_jl = 1 and colours c_k = c_l: R S R^T, counted."""
    relation = relation.astype(np.int64)
    alike = (colours[:, :, None] == colours[:, None, :]).astype(np.int64) - np.eye(colours.shape[1], dtype=np.int64)
    return (relation @ alike @ relation.transpose(0, 2, 1) > 0).astype(np.int64)
