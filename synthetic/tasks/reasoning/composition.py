"""Composing a function with itself: whether f(f(0)) = 0 (arXiv 2402.08164, 2501.19215)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Int64, Shaped

from iha_theory.options import option
from synthetic.tasks.reasoning.base import NOTHING, Inputs, Labels, Ranged, places
from synthetic.tasks.reasoning.grids import cpu, strassen
from synthetic.tasks.task import Sweep

STRASSEN = {"smallest": 25, "largest": 30, "width": 16, "mlp": 64, "steps": 18000}
"""The setting of arXiv 2501.19215."""


@dataclass(frozen=True)
class Composition(Ranged):
    """f(0), f(1), .., f(n - 1) in 0 .. n - 1; label of the first token: whether f(f(0)) = 0.

    n is uniform in smallest .. largest, f too, but for one value: half of the samples get f(f(0)) = 0, and the others
    another value there, at random. So a sample with label 1 tends to have one 0 more: see the baseline "zeros".
    """

    summary: ClassVar[str] = "composing a function with itself: is f(f(0)) = 0 (docs/reasoning.md)"
    learned: ClassVar[tuple[str, ...]] = ("smallest", "largest")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "composition": Sweep(
            "is f(f(0)) = 0, f on 12 to 15 numbers, on seven attentions",
            cpu({}, more=16, wide=84, longer=1650),
            seeds=3,
            presets={"strassen": Sweep("arXiv 2501.19215, n = 25 to 30, for a GPU", strassen(STRASSEN, heads=1))},
        )
    }

    smallest: int = option(12, "least n", 2)
    largest: int = option(15, "largest n", 2)

    @property
    def label(self) -> str:
        """n."""
        return f"n={self.smallest}-{self.largest}"

    @property
    def tokens(self) -> int:
        """The largest n."""
        return self.largest

    @property
    def channels(self) -> tuple[int, ...]:
        """A value and its place."""
        return self.tokens, self.tokens

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        n, rows = generator.integers(self.smallest, self.largest + 1, count), np.arange(count)
        f = generator.integers(n[:, None], size=(count, self.tokens))
        wanted, elsewhere, other = generator.random(count) < 0.5, generator.integers(1, n), generator.integers(1, n)
        f[:, 0] = np.where(~wanted & (f[:, 0] == 0), elsewhere, f[:, 0])  # else f(f(0)) = f(0) = 0
        end = f[rows, f[:, 0]]
        f[rows, f[:, 0]] = np.where(wanted, 0, np.where(end == 0, other, end))
        x = np.where(np.arange(self.tokens) < n[:, None], f, NOTHING)
        y = np.full_like(x, NOTHING)
        y[:, 0] = ends_in_zero(x)
        return np.stack((x, places(count, self.tokens)), axis=-1), y

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """f(0); and how many zeros there are."""
        zeros = (x[..., 0] == 0).sum(1, keepdims=True)
        return {"own token": x[..., 0].clip(0), "zeros": np.broadcast_to(zeros, x.shape[:2])}


def ends_in_zero(f: Shaped[np.ndarray, "samples N"]) -> Int64[np.ndarray, " samples"]:
    """Whether f(f(0)) = 0, for rows f(0), f(1), ..."""
    return (np.take_along_axis(f, f[:, :1], axis=1)[:, 0] == 0).astype(np.int64)
