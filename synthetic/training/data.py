"""The data of a run, from its seed alone: the same whatever the batch size, the number of workers and the device."""

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

from synthetic.training.config import TrainConfig
from synthetic.training.problems import Bank, Counting, Split
from synthetic.training.streams import BLOCK, Samples, Stream, finite


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


def load(problem: Bank | Counting, config: TrainConfig) -> Data:
    """The data of a run; its four streams come from one seed sequence.

    Raises:
        ValueError: a task with too few inputs for three splits.
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
    digest = hashlib.sha256()
    for inputs, *_ in (shown, validation, test):
        digest.update(np.ascontiguousarray(inputs).tobytes())
    initial = torch.Generator().manual_seed(int(generators[3].integers(2**62)))
    return Data(train, validation, test, initial, digest.hexdigest())
