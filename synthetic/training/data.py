"""The data of a run, from its seed alone: the same whatever the batch size, the number of workers and the device.

`Stream`: endless training data that can be saved and continued; `load`: the splits of a run.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from synthetic.tasks.task import Problem, Samples, Split
from synthetic.training.config import TrainConfig

BLOCK = 1024
"""Samples drawn at once. A fixed number, so that what is drawn never depends on how it is used."""


class Stream:
    """Samples one after another, drawn in blocks: the same ones for the same generator, however many are taken at once.

    Args:
        draw: makes the next block, of any length, from the generator; several empty blocks in a row are refused.
        generator: the stream's own.
    """

    def __init__(self, draw: Callable[[np.random.Generator], Samples], generator: np.random.Generator) -> None:
        self._draw, self._generator = draw, generator
        self._next_block()

    def _next_block(self) -> None:
        for _ in range(100):
            self._before = self._generator.bit_generator.state
            self._block, self._used = self._draw(self._generator), 0
            if len(self._block[0]):
                return
        raise ValueError("no sample passes the split into training and held-out data: the task has too few inputs")

    def take(self, count: int) -> Samples:
        """The next samples, as new arrays."""
        parts = []
        while count:
            if self._used == len(self._block[0]):
                self._next_block()
            end = min(len(self._block[0]), self._used + count)
            parts.append(tuple(array[self._used : end] for array in self._block))
            count -= end - self._used
            self._used = end
        return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))

    def state(self) -> dict[str, Any]:
        """Where the stream stands, as JSON values."""
        return {"generator": self._before, "used": self._used}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues where another stream with the same `draw` stood."""
        self._generator.bit_generator.state = state["generator"]
        self._next_block()
        self._used = state["used"]


def finite(samples: Samples, generator: np.random.Generator) -> Stream:
    """A finite set over and over, each time in a new random order: no sample comes twice in an epoch."""

    def draw(own: np.random.Generator) -> Samples:
        order = own.permutation(len(samples[0]))
        return tuple(array[order] for array in samples)

    return Stream(draw, generator)


@dataclass(frozen=True)
class Data:
    """The streams of a run.

    Attributes:
        train: endless; a finite set, in a new order each epoch, if the run has a `train_size`.
        validation: the set that early stopping looks at.
        test: the set that only the final measurement looks at.
        initial: the generator of the initial weights.
        digest: of the inputs (SHA-256): the training set, or the first block of fresh data, then the other two.
    """

    train: Stream
    validation: Samples
    test: Samples
    initial: torch.Generator
    digest: str


def load(problem: Problem, config: TrainConfig) -> Data:
    """The data of a run; its four streams come from one seed sequence.

    Raises:
        ValueError: a task with too few inputs for three splits, or whose splits share samples.
    """
    generators = np.random.default_rng(config.seed).spawn(5)

    def stream(split: Split, generator: np.random.Generator) -> Stream:
        return Stream(lambda own: problem.draw(own, BLOCK, split), generator)

    train, first = stream("train", generators[0]), stream("train", np.random.default_rng(config.seed).spawn(1)[0])
    shown = first.take(BLOCK if config.train_size is None else config.train_size)
    if config.train_size is not None:
        train = finite(shown, generators[4])
    validation = stream("validation", generators[1]).take(config.eval_size)
    test = stream("test", generators[2]).take(config.eval_size)
    if shared := problem.shared(shown, validation, test):
        raise ValueError(f"{shared} samples that are in two of training, validation and test: the task's split leaks")
    digest = hashlib.sha256()
    for inputs, *_ in (shown, validation, test):
        digest.update(np.ascontiguousarray(inputs).tobytes())
    initial = torch.Generator().manual_seed(int(generators[3].integers(2**62)))
    return Data(train, validation, test, initial, digest.hexdigest())
