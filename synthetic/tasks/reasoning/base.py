"""What the reasoning tasks share: options of the model, and what a task says of its examples. Imports no torch."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from iha_theory.options import option
from synthetic.tasks.reasoning.grids import HEADS, WIDTH
from synthetic.tasks.task import Problem, Setting, Size, Task

Inputs = Int64[np.ndarray, "samples N channels"]
Labels = Int64[np.ndarray, "samples N"]
AT_ONCE = 64
"""Samples that are judged together."""
NOTHING = -1
"""In the first channel a token that is padding, in the labels a token without a question."""
DEFAULTS: dict[str, Any] = {
    "heads": HEADS,
    "head_dim": 0,
    "steps": 800,
    "batch": 64,
    "lr": 0.003,
    "warmup": 0,
    "schedule": "constant",
    "train_size": 20000,
    "eval_size": 2000,
    "eval_every": 100,
    "patience": 10000,
}
"""The patience is longer than any run: none stops early, but the weights of the best validation loss are kept."""


@dataclass(frozen=True)
class Reasoning(Task):
    """Base of the tasks. The problem of a run is `synthetic.tasks.reasoning.frame.Answers`.

    A sample is N tokens of several channels: first its symbol, then codes of where it stands. Shorter samples are
    padded on the right. A label at each token that is asked about: the number of its class.

    Attributes:
        causal: whether a token sees those before it only.
    """

    defaults: ClassVar[Mapping[str, Any]] = DEFAULTS
    inert: ClassVar[tuple[str, ...]] = ("value_dim",)
    causal: ClassVar[bool] = False

    width: int = option(WIDTH, "width d of the model", 1)
    layers: int = option(1, "attention layers", 1)
    mlp: int = option(256, "hidden width of the MLP after each attention layer; 0 for none", 0)
    norm: Literal["pre", "none"] = option("pre", "LayerNorm before each attention layer and each MLP")
    bias: bool = option(False, "biases in the projections of queries, keys and values")

    @property
    @abstractmethod
    def channels(self) -> tuple[int, ...]:
        """How many values each channel takes: 0 .. n - 1."""

    @property
    @abstractmethod
    def tokens(self) -> int:
        """N, with the padding."""

    @property
    def pads(self) -> bool:
        """Whether there is padding."""
        return False

    @property
    def classes(self) -> int:
        """Of the labels."""
        return 2

    @abstractmethod
    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """Fresh samples of every split."""

    def canonical(self, x: Inputs) -> Shaped[np.ndarray, "samples key"]:
        """What the split is drawn by: equal for samples that must not be in two splits. Here: the symbols."""
        return x[..., 0]

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """Simple features of each token, by name, from 0 on: the best guess from each is a baseline."""
        return {}

    def parts(self, x: Inputs) -> Mapping[str, Bool[np.ndarray, " samples"]]:
        """Parts of the test set whose accuracy is told apart."""
        return {}

    def longer(self, x: Inputs, y: Labels) -> Iterator[tuple[str, Inputs, Labels]]:
        """Further test sets, of other lengths, made of the test set: each a part of the record, by name."""
        return iter(())

    def layer_options(self) -> tuple[Mapping[str, Any], ...]:
        """What each attention layer is made with beyond what all have (`LayerOptions.make`)."""
        return ({},) * self.layers

    def size(self) -> Size:
        """With the hidden states, and the weights of the MLP."""
        own = self.tokens * (len(self.channels) + 1)
        return Size(self.tokens, own, self.width * (self.tokens + 2 * self.mlp * self.layers))

    def build(self, setting: Setting) -> Problem:
        """See the class."""
        from synthetic.tasks.reasoning.frame import Answers

        return Answers(self)


@dataclass(frozen=True)
class Ranged(Reasoning):
    """Base of the tasks whose samples differ in size.

    Raises:
        ValueError: as `Options`; an empty range.
    """

    smallest: int = option(4, "least size", 1)
    largest: int = option(5, "largest size", 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.smallest > self.largest:
            raise ValueError(f"smallest {self.smallest} is above largest {self.largest}: give a range")

    @property
    def pads(self) -> bool:
        """If sizes differ."""
        return self.smallest < self.largest


def places(count: int, tokens: int) -> Int64[np.ndarray, "count N"]:
    """The channel of positions 0 .. N - 1."""
    return np.broadcast_to(np.arange(tokens), (count, tokens))
