"""Reasoning tasks as a run sees them: a small transformer around any attention, and guesses to compare it with."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.func import functional_call

from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.masks import allowed_pairs
from iha_theory.costs.counted import flops, flops_of
from synthetic.tasks.reasoning.base import AT_ONCE, NOTHING, Reasoning
from synthetic.tasks.task import SPLITS, Measured, Problem, Samples, Split, split_of


class Answers(Problem):
    """Cross-entropy of the labels that are asked for; two classes have one logit.

    A sample belongs to validation, to test or to training by a hash of its canonical form (`Reasoning.canonical`), a
    tenth, a tenth and the rest: the three share no sample.
    """

    at_once = AT_ONCE

    def __init__(self, task: Reasoning) -> None:
        self.task = task

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """Samples (samples, N, channels) of the split among `count` fresh ones, and their labels (samples, N)."""
        x, y = self.task.examples(generator, count)
        own = split_of(self.task.canonical(x)) == SPLITS.index(split)
        return x[own], y[own]

    def shared(self, train: Samples, validation: Samples, test: Samples) -> int:
        """How many canonical forms are in two of the splits."""
        rows = [set(map(bytes, np.ascontiguousarray(self.task.canonical(x)))) for x, *_ in (train, validation, test)]
        return sum(len(a & b) for a, b in itertools.combinations(rows, 2))

    def model(self, make: Callable[..., nn.Module]) -> "Reasoner":
        """`Reasoner`."""
        return Reasoner(make, self.task)

    def loss(
        self,
        model: Callable[[Tensor], Tensor],
        x: Int[Tensor, "batch N channels"],
        y: Int[Tensor, "batch N"],
    ) -> Float[Tensor, ""]:
        """Mean over the tokens that are asked about."""
        logits, asked = model(x), y != NOTHING
        wanted = y.clamp(min=0)
        if self.task.classes == 2:
            each = F.binary_cross_entropy_with_logits(logits[..., 0], wanted.to(logits.dtype), reduction="none")
        else:
            each = -logits.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
        return (each * asked).sum() / asked.sum()

    def measure(
        self, model: nn.Module, run: Callable[[Tensor], Tensor], validation: Samples, test: Samples
    ) -> Measured:
        """Accuracy on the test set, whole and in parts; that of guesses learned on the validation set."""
        x, y = test
        asked, right = y != NOTHING, self._right(run, x, y)
        guesses, known = self.task.guesses(x), self.task.guesses(validation[0])
        plain = {name: np.zeros(of.shape, dtype=np.int64) for name, of in (("test", y), ("known", validation[1]))}
        return Measured(
            accuracy=_share(right, asked),
            baseline_accuracy=_share(best_guess(plain["known"], validation[1], plain["test"]) == y, asked),
            baselines={
                name: _share(best_guess(known[name], validation[1], feature) == y, asked)
                for name, feature in guesses.items()
            },
            parts={
                name: _share(right, asked & part[:, None])
                for name, part in self.task.parts(x).items()
                if (asked & part[:, None]).any()
            }
            | {
                name: _share(self._right(run, longer, own), own != NOTHING)
                for name, longer, own in self.task.longer(x, y)
            },
            flops=self._flops(model),
        )

    def _right(self, run: Callable[[Tensor], Tensor], x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.concatenate([self._classes(run(torch.from_numpy(part))) for part in _parts(x)]) == y

    def _classes(self, logits: Tensor) -> np.ndarray:
        two = self.task.classes == 2
        return (logits[..., 0] > 0).long().cpu().numpy() if two else logits.argmax(-1).cpu().numpy()

    def _flops(self, model: nn.Module) -> int:
        """Of one sample of N tokens; in layers with a window of the pairs that may attend alone."""
        state = {name: torch.empty_like(tensor, device="meta") for name, tensor in model.state_dict().items()}
        shape = (1, self.task.tokens, len(self.task.channels))
        formed = flops_of(lambda x: functional_call(model, state, (x,)), shape, dtype=torch.int64)
        layers = model.get_submodule("layer").children()
        narrow = [layer for layer in layers if isinstance(layer, AttentionLayer) and layer.window]
        return formed - sum(spared(layer, self.task.tokens) for layer in narrow)


def spared(layer: AttentionLayer, tokens: int) -> int:
    """FLOPs of the pairs outside a layer's causal window, which the counter forms and the layer's own kernel does not.

    A layer that skips (`LayerOptions.skips`) takes a N + b N^2 FLOPs, b of them for each pair: half of the second
    difference of three counts.
    """
    shapes = ([(1, n, width) for width in (layer.embed_dim, layer.kdim, layer.vdim)] for n in (1, 2, 3))
    one, two, three = (flops(layer, *own, is_causal=True) for own in shapes)
    sizes: dict[str, Any] = {"batch": 1, "queries": tokens, "keys": tokens, "device": torch.device("cpu")}
    allowed = allowed_pairs(None, is_causal=True, window=layer.window, **sizes)
    assert allowed is not None
    return (three - 2 * two + one) // 2 * (tokens**2 - int(allowed.sum()))


def best_guess(
    known: Shaped[np.ndarray, "known N"],
    labels: Shaped[np.ndarray, "known N"],
    feature: Shaped[np.ndarray, "samples tokens"],
) -> Shaped[np.ndarray, "samples tokens"]:
    """The commonest label of each value of a feature, from labelled tokens; of all of them where it was never seen.

    Args:
        known: the feature, from 0 on, of the labelled tokens.
        labels: theirs; `NOTHING` does not count.
        feature: of the tokens to guess for.
    """
    values, classes = int(max(known.max(), feature.max())) + 1, int(labels.max()) + 1
    asked = labels != NOTHING
    counts = np.bincount(known[asked] * classes + labels[asked], minlength=values * classes).reshape(values, classes)
    commonest = np.where(counts.any(1), counts.argmax(1), counts.sum(0).argmax())
    return commonest[feature]


def _share(right: np.ndarray, among: np.ndarray) -> float:
    return float(right[among].mean())


def _parts(x: np.ndarray) -> Iterator[np.ndarray]:
    return (x[start : start + AT_ONCE] for start in range(0, len(x), AT_ONCE))


class Reasoner(nn.Module):
    """(batch, N, channels) integers -> (batch, N, classes) logits, or one logit for two classes.

    The sum of a learned vector for each channel; then, layer by layer, h + attention(h) and h + MLP(h), with ReLU; then
    a linear map. With norm "pre" each part sees LayerNorm(h). What is padding (`NOTHING`) is no key; what it gives as a
    query is not asked for. The attention's output has a bias whether or not its projections have. Channels beyond
    those of the task, such as places where positions are rotary, are not read; then there may be any number of tokens.
    """

    def __init__(self, make: Callable[..., nn.Module], task: Reasoning) -> None:
        super().__init__()
        self.causal, self.pads, width = task.causal, task.pads, task.width
        self.embeddings = nn.ModuleList(nn.Embedding(values, width) for values in task.channels)
        sizes: dict[str, Any] = {"content": None, "tokens": task.tokens, "pattern": "softmax", "out": width}
        layers = range(task.layers)
        sizes["bias"] = task.bias
        self.layer = nn.ModuleList(make(width, width, width, **sizes, **own) for own in task.layer_options())
        self.shifts = nn.ParameterList(torch.zeros(width) for _ in layers if not task.bias)
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, task.mlp), nn.ReLU(), nn.Linear(task.mlp, width)) for _ in layers if task.mlp
        )
        norm = nn.LayerNorm if task.norm == "pre" else nn.Identity
        self.norms = nn.ModuleList(norm(width) for _ in layers)
        self.mlp_norms = nn.ModuleList(norm(width) for _ in layers if task.mlp)
        self.readout = nn.Linear(width, 1 if task.classes == 2 else task.classes)

    def forward(self, x: Int[Tensor, "batch N channels"]) -> Float[Tensor, "batch N logits"]:
        """Logits."""
        options: dict[str, Any] = {"is_causal": True} if self.causal else {}
        if self.pads:
            there = x[..., 0] != NOTHING
            options["mask"] = there.unsqueeze(1).expand(-1, x.shape[1], -1)
        parts = [embedding(x[..., i].clamp(min=0)) for i, embedding in enumerate(self.embeddings)]
        h = torch.stack(parts).sum(0)
        for i, layer in enumerate(self.layer):
            seen = self.norms[i](h)
            h = h + layer(seen, seen, seen, **options)
            if len(self.shifts):
                h = h + self.shifts[i]
            if len(self.mlps):
                h = h + self.mlps[i](self.mlp_norms[i](h))
        return self.readout(h)
