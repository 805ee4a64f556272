"""Match3: which tokens are one of three that sum to 0 modulo M (arXiv 2306.02896, 2501.19215)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from iha_theory.options import option
from synthetic.tasks.reasoning.base import NOTHING, Inputs, Labels, Ranged, places
from synthetic.tasks.reasoning.grids import cpu, strassen
from synthetic.tasks.task import Sweep

STRASSEN = {"smallest": 30, "largest": 35, "modulus": 37, "most_kinds": 10, "width": 128, "mlp": 512, "steps": 9000}
"""The setting of arXiv 2501.19215."""


@dataclass(frozen=True)
class Match3(Ranged):
    """Residues x_1 .. x_n; label i says whether some j and k have x_i + x_j + x_k = 0 mod M; i, j, k may be equal.

    n is uniform in smallest .. largest. Were the residues uniform, almost every label would be 1. So a sample uses a
    few of 1 .. M - 1 only, chosen at random: as many as a number uniform in 2 .. most_kinds. Labels do not depend on
    the order of the tokens: orders of one multiset are all in one split.
    """

    summary: ClassVar[str] = "Match3: which tokens are one of three that sum to 0 modulo M (docs/reasoning.md)"
    learned: ClassVar[tuple[str, ...]] = ("smallest", "largest", "modulus", "most_kinds")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "match3": Sweep(
            "Match3, 10 to 12 tokens modulo 17, on seven attentions",
            cpu({}, more=16, wide=80, longer=1500),
            seeds=3,
            presets={"strassen": Sweep("arXiv 2501.19215, n = 30 to 35, M = 37", strassen(STRASSEN, heads=2))},
        )
    }

    smallest: int = option(10, "least number of tokens n", 1)
    largest: int = option(12, "largest n", 1)
    modulus: int = option(17, "modulus M", 3)
    most_kinds: int = option(7, "most different residues in a sample", 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_kinds >= self.modulus:
            raise ValueError(f"most_kinds must be below the modulus {self.modulus}, got {self.most_kinds}")

    @property
    def label(self) -> str:
        """n and M."""
        return f"n={self.smallest}-{self.largest}, M={self.modulus}"

    @property
    def tokens(self) -> int:
        """The largest n."""
        return self.largest

    @property
    def channels(self) -> tuple[int, ...]:
        """A residue and its place."""
        return self.modulus, self.tokens

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        kinds = generator.permuted(np.broadcast_to(np.arange(1, self.modulus), (count, self.modulus - 1)), axis=1)
        chosen = generator.integers(generator.integers(2, self.most_kinds + 1, (count, 1)), size=(count, self.tokens))
        n = generator.integers(self.smallest, self.largest + 1, (count, 1))
        x = np.where(np.arange(self.tokens) < n, np.take_along_axis(kinds, chosen, axis=1), NOTHING)
        return np.stack((x, places(count, self.tokens)), axis=-1), matches(x, self.modulus)

    def canonical(self, x: Inputs) -> Shaped[np.ndarray, "samples key"]:
        """The residues in order."""
        return np.sort(x[..., 0], axis=1)

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """The own residue; and how many different residues there are."""
        symbols = np.sort(x[..., 0], axis=1)
        new = (symbols[:, 1:] != symbols[:, :-1]) & (symbols[:, 1:] != NOTHING)
        different = new.sum(1) + (symbols[:, 0] != NOTHING)
        return {
            "own token": x[..., 0].clip(0),
            "different residues": np.broadcast_to(different[:, None], symbols.shape),
        }


def matches(x: Shaped[np.ndarray, "samples N"], modulus: int) -> Labels:
    """The labels of rows of residues, from the set of those that are there; `NOTHING` where there is no token."""
    rows, there = np.arange(len(x))[:, None], x != NOTHING
    present: Bool[np.ndarray, "samples M"] = np.zeros((len(x), modulus), dtype=bool)
    present[np.broadcast_to(rows, x.shape)[there], x[there] % modulus] = True
    sums = np.zeros_like(present)
    for a in range(modulus):  # b + a is there as a sum of two if both are
        sums |= present[:, [a]] & np.roll(present, a, axis=1)
    found: Any = sums[rows, -x % modulus]
    return np.where(there, found.astype(np.int64), NOTHING)
