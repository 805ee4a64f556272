"""Endless streams of training data that can be saved and continued."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped

Samples = tuple[Shaped[np.ndarray, "..."], ...]
"""Inputs, and labels if the task has any."""

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
