"""A task as training sees it: data, loss, and how a trained model is judged.

- `Bank`: X -> [T_0 X, ..., T_{k-1} X], with a theoretical floor for the error (docs/bounds.md, Theorem 3);
- `Counting`: the labels of CPM-3, as classes.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from iha_theory.bounds import heads as bounds
from iha_theory.bounds.content import content_floor
from iha_theory.capacity import capacity_bound
from iha_theory.operators.numerical import EPS, position_only, realignment
from synthetic.graphs import builtin, load, normalise
from synthetic.tasks.count_pairs import CountPairs
from synthetic.tasks.filter_bank import PolynomialBank
from synthetic.training.config import TrainConfig
from synthetic.training.streams import Samples

Split = Literal["train", "validation", "test"]
Model = Callable[[Tensor], Tensor]
SPLITS = get_args(Split)
MULTISETS = 10**5
"""Most multisets of residues that are gone through to find the counts of CPM-3 that occur."""


@dataclass(frozen=True)
class Measured:
    """What a trained model reached.

    Attributes:
        error: relative squared error; None if the task has none.
        slack: how far the error may fall below the floor by rounding or, where it is estimated from samples, by chance.
        accuracy: share of right labels over all tokens of the test set; None if the task has no labels.
        baseline_accuracy: the same for the commonest label of the validation set.
    """

    error: float | None = None
    slack: float = 0.0
    accuracy: float | None = None
    baseline_accuracy: float | None = None


def build(config: TrainConfig) -> "Bank | Counting":
    """The problem of a run.

    Raises:
        ValueError, OSError: an unknown graph or a file that holds none, or parameters that the task refuses.
    """
    return Counting(config) if config.task == "cpm3" else Bank(config)


class Bank:
    """X -> [T_0 X, ..., T_{k-1} X] for X with independent standard normal entries, (N, d).

    `polynomial`: T_t = A^t; `workspace`: the N cyclic shifts, x_n, x_{n+1}, ...; `unstructured`: k matrices with
    independent normal entries, the same for every seed.

    The loss is the relative squared error |output - target|^2 / E |target|^2 of the batch. The floor is that of
    docs/bounds.md (Theorem 3) at the layer's capacity R, H for MHA and min(H^2, H P^2) for IHA; in content mode, where
    queries and values see content and keys positions only, that of docs/content.md (Theorem 1).

    Attributes:
        matrices: T, (k, N, N).
        norm: E |target|^2.
        images: the target of each basis content, (N d, N, k d), in the run's dtype on its device.
        floor: see above.
    """

    def __init__(self, config: TrainConfig) -> None:
        self.width, self.content = config.width, config.mode == "content"
        if config.task == "unstructured":
            shape = (config.terms, config.tokens, config.tokens)
            self.matrices = np.random.default_rng(0).standard_normal(shape)
            self.task = PolynomialBank(builtin(f"cycle:{config.tokens}"), 1)
        else:
            name, terms = config.graph, config.terms
            if config.task == "workspace":
                name, terms = f"cycle:{config.tokens}", config.tokens
            self.task = PolynomialBank(normalise(load(name), config.normalise), terms)
            n = len(self.task.graph.nodes)
            self.matrices = self.task.target(np.eye(n)).reshape(n, terms, n).transpose(1, 0, 2)
        if config.unit_norm:
            self.matrices = bounds.unit_norm(self.matrices).numpy()
        self.terms, self.tokens = self.matrices.shape[:2]
        self.norm = float((self.matrices**2).sum()) * self.width
        self.images = self._images().to(torch.device(config.device), getattr(torch, config.dtype))
        self.floor: float | None = self._floor(config)

    def _images(self) -> Tensor:
        eye = torch.eye(self.width, dtype=torch.float64)
        images = torch.einsum("tij,ab->jaitb", torch.from_numpy(self.matrices.copy()), eye)
        return images.reshape(self.tokens * self.width, self.tokens, self.terms * self.width)

    def _floor(self, config: TrainConfig) -> float:
        collapse = None if config.pseudo is None else "global"
        capacity = capacity_bound(config.attention, config.heads, config.pseudo, collapse)
        if self.content:
            return content_floor(self.matrices, capacity)
        return bounds.error_floor(bounds.spectrum(self.matrices), capacity)

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """X, (count, N, d); every split takes every X."""
        return (self.task.sample(generator, count, self.width),)

    def loss(self, model: Model, X: Float[Tensor, "batch N d"]) -> Float[Tensor, ""]:
        """|model(X) - target|^2 / E |target|^2 over the batch.

        A position-only model is linear: X (model - target) on the basis contents, which costs the same for any batch.
        """
        contents = X.flatten(1)
        if self.content:
            residual = model(X).flatten(1) - contents @ self.images.flatten(1)
        else:
            basis = torch.eye(contents.shape[1], dtype=X.dtype, device=X.device).unflatten(1, X.shape[1:])
            residual = contents @ (model(basis) - self.images).flatten(1)
        return residual.square().sum() / (self.norm * len(X))

    def measure(self, model: nn.Module, run: Model, validation: Samples, test: Samples) -> Measured:
        """The exact operator's relative squared error in float64; in content mode that of the test set."""
        if not self.content:
            layer = model.get_submodule("layer")
            got = realignment(position_only(layer, torch.eye(self.tokens), width=self.width))
            eye = torch.eye(self.width, dtype=torch.float64)
            wanted = torch.einsum("tij,ab->ijatb", torch.from_numpy(self.matrices.copy()), eye).reshape(got.shape)
            return Measured(error=float((got - wanted).square().sum()) / self.norm, slack=1e3 * EPS)
        X = torch.from_numpy(test[0])
        residual = run(X).double().cpu().flatten(1) - X.flatten(1) @ self._images().flatten(1)
        errors = residual.square().sum(1) / self.norm
        chance = 6 * float(errors.std()) / len(X) ** 0.5
        return Measured(error=float(errors.mean()), slack=chance + 1e3 * EPS)


class Counting:
    """CPM-3 from its labels: sequences of N residues, the counts that occur as classes, cross-entropy.

    A sequence belongs to validation, to test or to training by a hash of its tokens, a tenth, a tenth and the rest: the
    three never share a sequence.

    Attributes:
        counts: the classes' counts, ascending: those of all multisets of residues, 0 .. N^2 where these are too many.
    """

    floor: float | None = None

    def __init__(self, config: TrainConfig) -> None:
        self.task = CountPairs(config.modulus, config.coefficient)
        self.tokens = config.tokens
        self.counts = np.arange(self.tokens**2 + 1)
        if math.comb(self.tokens + config.modulus - 1, self.tokens) <= MULTISETS:
            every = itertools.combinations_with_replacement(range(config.modulus), self.tokens)
            self.counts = np.unique(self.task.target(np.array(list(every))))

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """Sequences (samples, N) of the split among `count` uniform ones, and their labels: places in `counts`."""
        x = self.task.sample(generator, count, self.tokens, self.task.modulus)
        x = x[split_of(x) == SPLITS.index(split)]
        return x, np.searchsorted(self.counts, self.task.target(x))

    def loss(self, model: Model, x: Shaped[Tensor, "batch N"], labels: Shaped[Tensor, "batch N"]) -> Float[Tensor, ""]:
        """Mean cross-entropy over the tokens."""
        return F.cross_entropy(model(x).flatten(0, 1), labels.flatten())

    def measure(self, model: nn.Module, run: Model, validation: Samples, test: Samples) -> Measured:
        """The share of right labels on the test set, and that of the validation set's commonest label."""
        x, target = test
        right = run(torch.from_numpy(x)).argmax(-1).cpu().numpy() == target
        commonest = np.bincount(validation[1].ravel()).argmax()
        return Measured(accuracy=float(right.mean()), baseline_accuracy=float((target == commonest).mean()))


def split_of(x: Shaped[np.ndarray, "samples N"]) -> Shaped[np.ndarray, " samples"]:
    """0 (train), 1 (validation) or 2 (test) for each sequence of integers, by a hash: in a ratio of 8 to 1 to 1."""
    h = np.zeros(len(x), dtype=np.uint64)
    for column in x.T.astype(np.uint64):
        h = (h ^ column) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return np.select([h % np.uint64(10) == 8, h % np.uint64(10) == 9], [1, 2], 0)
