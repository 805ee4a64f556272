"""Retrieval of several keys among distractors, in the style of associative recall (arXiv 2312.04927)."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from iha_theory.options import option
from synthetic.tasks.reasoning.base import AT_ONCE, DEFAULTS, NOTHING, Inputs, Labels, places
from synthetic.tasks.reasoning.causal import Causal, schedules
from synthetic.tasks.reasoning.grids import QUICK, equal_heads, others, paper, tuned
from synthetic.tasks.task import Size, Sweep

SHORT = {"layers": 2, "width": 48, "mlp": 192}
LONG = {"length": 512, "keys": 32, "queries": 8, "key_symbols": 64, "value_symbols": 64, "layers": 2}
QUICKLY: dict[str, Any] = {"width": 32, "mlp": 64, "queries": 4, "batch": 32, "steps": 1000, "eval_size": 500}
HYBRID: tuple[tuple[dict[str, Any], int], ...] = (
    ({"keys": 4, "test_lengths": (32, 64, 128)}, 16),
    ({"keys": 8, "test_lengths": (64, 128, 256)}, 32),
)
"""What is trained in the preset for the hybrid schedule: keys, tests, and N."""


@dataclass(frozen=True)
class Retrieval(Causal):
    """A context of keys, each with its value behind it, among distractors; then the keys that are asked for.

    The last `queries` of N tokens are different keys of the K in the context; the label of each is its value. Before
    them stand (N - queries) / 2 pairs of tokens: K pairs of a key and its value, at random places, the others two
    distractors. Keys differ; values and distractors are uniform. A token sees those before it.

        length 9, keys 2, queries 1:    . .  k3 v1  . .  k0 v2  k3  ->  v1
    """

    summary: ClassVar[str] = "values of several keys among distractors, causal (docs/reasoning.md)"
    defaults: ClassVar[Mapping[str, object]] = DEFAULTS | {"train_size": None}
    learned: ClassVar[tuple[str, ...]] = ("length", "keys", "queries", "key_symbols", "value_symbols", "distractors")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "retrieval": Sweep(
            "values of 4 and 6 keys in 16 and 32 tokens, two layers of six attentions",
            tuple(
                grid
                for length, keys in ((16, 4), (16, 6), (32, 4))
                for grid in equal_heads(SHORT | {"length": length, "keys": keys}, QUICK)
            ),
            seeds=3,
            presets={
                "hybrid": Sweep(
                    "trained on 16 and 32 tokens, tested on up to 256: windows and global layers (App. C), five layers",
                    tuple(grid for own, length in HYBRID for grid in schedules(QUICKLY | own, length)),
                    seeds=3,
                ),
                "others": others(SHORT | {"length": 16, "keys": 6}),
                "tuned": tuned(SHORT | {"length": 32, "keys": 4}),
                "paper": Sweep("32 keys in 512 tokens, the protocol of App. D, for a GPU", paper(LONG), seeds=1),
            },
        )
    }

    length: int = option(32, "tokens N, with the queries", 3)
    keys: int = option(4, "keys K in the context", 1)
    queries: int = option(2, "keys that are asked for", 1)
    key_symbols: int = option(16, "different keys there are", 1)
    value_symbols: int = option(16, "different values there are", 2)
    distractors: int = option(16, "different distractors there are", 1)
    test_lengths: tuple[int, ...] = option(
        (), "longer inputs, with more distractors, that the trained weights are tested on too", 3, late=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        most = min((self.length - self.queries) // 2, self.key_symbols)
        if not self.queries <= self.keys <= most:
            raise ValueError(f"keys must be from queries, {self.queries}, to what fits, {most}, got {self.keys}")
        if self.test_lengths and self.positions == "learned":
            raise ValueError("test_lengths are for positions of any length: give positions rotary")
        if self.test_lengths and min(self.test_lengths) <= self.length:
            raise ValueError(f"test_lengths must be above the length {self.length}, got {min(self.test_lengths)}")

    @property
    def label(self) -> str:
        """N and K."""
        return f"N={self.length}, {self.keys} keys"

    @property
    def tokens(self) -> int:
        """N."""
        return self.length

    @property
    def classes(self) -> int:
        """The values."""
        return self.value_symbols

    @property
    def channels(self) -> tuple[int, ...]:
        """A symbol, keys first, then values, then distractors; its place."""
        return self.key_symbols + self.value_symbols + self.distractors, *self.placed

    def size(self) -> Size:
        """With the longest test: symbols, places and labels; h, LayerNorm's, and queries and keys or the MLP's."""
        if not self.test_lengths:
            return super().size()
        longest = max(self.test_lengths)
        judged = longest * (2 * self.width + max(2 * self.width, self.mlp))
        return super().size()._replace(test=3 * longest, judged=judged, at_once=AT_ONCE)

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        slots = (self.length - self.queries) // 2
        first = self.key_symbols + self.value_symbols
        x = generator.integers(first, first + self.distractors, (count, self.length))
        keys = _some(generator, count, self.key_symbols, self.keys)
        where = 2 * _some(generator, count, slots, self.keys)
        values = generator.integers(self.value_symbols, size=(count, self.keys))
        np.put_along_axis(x, where, keys, axis=1)
        np.put_along_axis(x, where + 1, self.key_symbols + values, axis=1)
        asked = _some(generator, count, self.keys, self.queries)
        x[:, -self.queries :] = np.take_along_axis(keys, asked, axis=1)
        return np.stack((x, places(count, self.tokens)), axis=-1), self.answers(x)

    def answers(self, x: Shaped[np.ndarray, "samples N"]) -> Labels:
        """The value behind the first token that equals a query, for rows of symbols."""
        y = np.full_like(x, NOTHING)
        for at in range(self.length - self.queries, self.length):
            found = (x == x[:, [at]]).argmax(1)
            y[:, at] = x[np.arange(len(x)), found + 1] - self.key_symbols
        return y

    def parts(self, x: Inputs) -> Mapping[str, Bool[np.ndarray, " samples"]]:
        """All, by the length, where others are tested too."""
        return {f"N={self.length}": np.ones(len(x), dtype=np.bool_)} if self.test_lengths else {}

    def longer(self, x: Inputs, y: Labels) -> Iterator[tuple[str, Inputs, Labels]]:
        """The same pairs and queries among more distractors, at each of the `test_lengths`.

        What is drawn depends on the samples alone, and so on the run's seed.
        """
        for length in self.test_lengths:
            own = hashlib.sha256(np.ascontiguousarray(x).tobytes() + str(length).encode()).digest()
            yield f"N={length}", *self.lengthened(x, y, length, np.random.default_rng(int.from_bytes(own, "big")))

    def lengthened(
        self, x: Inputs, y: Labels, length: int, generator: np.random.Generator
    ) -> tuple[Int64[np.ndarray, "samples longer channels"], Int64[np.ndarray, "samples longer"]]:
        """Samples as those of `length` tokens are: the pairs in their order at random places, the queries last."""
        first, count = self.key_symbols + self.value_symbols, len(x)
        known, slots = (self.length - self.queries) // 2, (length - self.queries) // 2
        longer = generator.integers(first, first + self.distractors, (count, length))
        where = 2 * np.sort(_some(generator, count, slots, known), axis=1)
        for side in (0, 1):
            np.put_along_axis(longer, where + side, x[:, side : 2 * known : 2, 0], axis=1)
        longer[:, -self.queries :] = x[:, -self.queries :, 0]
        labels = np.full_like(longer, NOTHING)
        labels[:, -self.queries :] = y[:, -self.queries :]
        return np.stack((longer, places(count, length)), axis=-1), labels

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """The last value in the context."""
        symbols = x[..., 0]
        value = (symbols >= self.key_symbols) & (symbols < self.key_symbols + self.value_symbols)
        last = symbols.shape[1] - 1 - value[:, ::-1].argmax(1)
        found = symbols[np.arange(len(symbols)), last] - self.key_symbols
        return {"last value": np.broadcast_to(found[:, None], symbols.shape)}


def _some(generator: np.random.Generator, count: int, among: int, many: int) -> Int64[np.ndarray, "count many"]:
    """Different numbers below `among`, in random order, a row for each sample."""
    return generator.permuted(np.broadcast_to(np.arange(among), (count, among)), axis=1)[:, :many]
