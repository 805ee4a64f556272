"""Induction in k hops (arXiv 2402.09268)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from iha_theory.options import option
from synthetic.tasks.reasoning.base import DEFAULTS, Inputs, Labels, places
from synthetic.tasks.reasoning.causal import Causal
from synthetic.tasks.reasoning.grids import QUICK, equal_heads, paper
from synthetic.tasks.task import Sweep

SHORT = {"length": 24, "width": 48, "mlp": 192}
LONG = {"length": 100, "letters": 4, "most_hops": 16}
"""The setting of arXiv 2402.09268."""


@dataclass(frozen=True)
class Hops(Causal):
    """k, then n letters; label of token i: the letter k hops from it, or the class `letters` if there is none.

    A hop from token i goes to the token behind the latest earlier occurrence of i's letter: to the largest j <= i with
    X_{j-1} = X_i. With k = 0 the label is X_i. k is uniform in 0 .. most_hops, letters are uniform. The first token
    holds k and has no question. A token sees those before it.

        a b a a b    k = 1: - - b a a    k = 2: - - - a b
    """

    summary: ClassVar[str] = "induction in k hops, causal (arXiv 2402.09268, docs/reasoning.md)"
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS | {"train_size": None}
    learned: ClassVar[tuple[str, ...]] = ("length", "letters", "most_hops", "layers")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "hops": Sweep(
            "induction in up to 4 hops on 24 letters, in 2 and 3 layers of six attentions",
            tuple(grid for layers in (2, 3) for grid in equal_heads(SHORT | {"layers": layers}, QUICK)),
            seeds=3,
            presets={
                "paper": Sweep(
                    "arXiv 2402.09268, N = 100, k to 16, in 2, 4 and 6 layers, the protocol of App. D, for a GPU",
                    tuple(grid for layers in (2, 4, 6) for grid in paper(LONG | {"layers": layers}, [0.001])),
                    seeds=1,
                )
            },
        )
    }

    length: int = option(32, "letters n", 1)
    letters: int = option(4, "different letters", 2)
    most_hops: int = option(4, "largest k", 0)
    layers: int = option(2, "attention layers", 1)

    @property
    def label(self) -> str:
        """n and k."""
        return f"n={self.length}, k<={self.most_hops}"

    @property
    def tokens(self) -> int:
        """The letters, and k."""
        return self.length + 1

    @property
    def classes(self) -> int:
        """The letters, and none."""
        return self.letters + 1

    @property
    def channels(self) -> tuple[int, ...]:
        """A letter, or k behind them; its place."""
        return self.letters + self.most_hops + 1, *self.placed

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        k = generator.integers(self.most_hops + 1, size=count)
        word = generator.integers(self.letters, size=(count, self.length))
        x = np.concatenate((self.letters + k[:, None], word), axis=1)
        y = np.concatenate((np.full((count, 1), -1), reached(word, k, self.letters)), axis=1)
        return np.stack((x, places(count, self.tokens)), axis=-1), y

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """k and the own letter; k and the letter one hop away."""
        k, word = x[:, 0, 0] - self.letters, x[:, 1:, 0]
        one = reached(word, np.ones(len(x), dtype=np.int64), self.letters)
        return {
            name: np.pad(k[:, None] * (self.letters + 1) + letter, ((0, 0), (1, 0)))
            for name, letter in (("k and own letter", word), ("k and one hop", one))
        }

    def parts(self, x: Inputs) -> Mapping[str, Bool[np.ndarray, " samples"]]:
        """By k."""
        return {f"k={k}": x[:, 0, 0] == self.letters + k for k in range(self.most_hops + 1)}


def reached(
    word: Shaped[np.ndarray, "samples n"], k: Int64[np.ndarray, " samples"], letters: int
) -> Int64[np.ndarray, "samples n"]:
    """The letter k hops from each token, `letters` where there is none."""
    count, n = word.shape
    rows, hop = np.arange(count), np.full((count, n), -1)
    latest = np.full((count, letters), -1)  # where each letter was last
    for i in range(n):
        before = latest[rows, word[:, i]]
        hop[:, i] = np.where(before >= 0, before + 1, -1)
        latest[rows, word[:, i]] = i
    at = np.broadcast_to(np.arange(n), (count, n))
    for step in range(int(k.max(initial=0))):
        further = np.where(at >= 0, np.take_along_axis(hop, at.clip(0), axis=1), -1)
        at = np.where((step < k)[:, None], further, at)
    return np.where(at >= 0, np.take_along_axis(word, at.clip(0), axis=1), letters)
