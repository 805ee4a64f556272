"""CPM-3 as a run sees it: labels as classes, and attention with an MLP as the model."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from synthetic.tasks.count_pairs import CountPairs
from synthetic.tasks.cpm3 import CPM3
from synthetic.tasks.task import SPLITS, Measured, Problem, Samples, Split, split_of

MULTISETS = 10**5
"""Most multisets of residues that are gone through to find the counts of CPM-3 that occur."""


class Counting(Problem):
    """CPM-3 from its labels: sequences of N residues, the counts that occur as classes, cross-entropy.

    A sequence belongs to validation, to test or to training by a hash of its tokens, a tenth, a tenth and the rest: the
    three never share a sequence.

    Attributes:
        counts: the classes' counts, ascending: those of all multisets of residues, 0 .. N^2 where these are too many.
    """

    def __init__(self, task: CPM3) -> None:
        self.options, self.tokens = task, task.tokens
        self.task = CountPairs(task.modulus, task.coefficient)
        self.counts = np.arange(self.tokens**2 + 1)
        if math.comb(self.tokens + task.modulus - 1, self.tokens) <= MULTISETS:
            every = itertools.combinations_with_replacement(range(task.modulus), self.tokens)
            self.counts = np.unique(self.task.target(np.array(list(every))))

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """Sequences (samples, N) of the split among `count` uniform ones, and their labels: places in `counts`."""
        x = self.task.sample(generator, count, self.tokens, self.task.modulus)
        x = x[split_of(x) == SPLITS.index(split)]
        return x, np.searchsorted(self.counts, self.task.target(x))

    def model(self, make: Callable[..., nn.Module]) -> "Counter":
        """`Counter`."""
        return Counter(make, self.options, len(self.counts))

    def loss(
        self, model: Callable[[Tensor], Tensor], x: Shaped[Tensor, "batch N"], labels: Shaped[Tensor, "batch N"]
    ) -> Float[Tensor, ""]:
        """Mean cross-entropy over the tokens."""
        return F.cross_entropy(model(x).flatten(0, 1), labels.flatten())

    def measure(
        self, model: nn.Module, run: Callable[[Tensor], Tensor], validation: Samples, test: Samples
    ) -> Measured:
        """The share of right labels on the test set, and that of the validation set's commonest label."""
        x, target = test
        right = run(torch.from_numpy(x)).argmax(-1).cpu().numpy() == target
        commonest = np.bincount(validation[1].ravel()).argmax()
        return Measured(accuracy=float(right.mean()), baseline_accuracy=float((target == commonest).mean()))

    def rate(self, parameter: str, rate: float) -> float:
        """The MLP has its own."""
        own = self.options.mlp_lr
        return own if parameter.startswith("mlp") and own is not None else rate


class Sine(nn.Module):
    """x -> sin x: a smooth stand-in for the construction's periodic activation "mod M" (App. B.3, ledger E10)."""

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Elementwise."""
        return torch.sin(x)


class Counter(nn.Module):
    """CPM-3: attention over embedded tokens, then an MLP at each position: (batch, N) -> (batch, N, classes) logits.

    A token is its value minus the mean over its standard deviation ("scalar"), or its one-hot residue. Queries and keys
    see positions, in content mode tokens too; values see tokens, with `position_values` positions too (a head's values
    are then N wide, for MHA). The MLP sees the attention's output, with `skip` the position's own token beside it.
    """

    positions: Tensor

    def __init__(self, make: Callable[..., nn.Module], options: CPM3, classes: int) -> None:
        super().__init__()
        self.options = options
        tokens, width = options.tokens, 1 if options.embedding == "scalar" else options.modulus
        seen = tokens + width if options.mode == "content" else tokens
        value, content = (tokens + width, tokens) if options.position_values else (width, width)
        layer: Any = make(seen, seen, value, content=content, tokens=tokens, pattern=options.pattern, out=None)
        self.layer: nn.Module = layer
        sizes = [layer.out_dim + width * options.skip] + [options.hidden] * options.layers
        active = {"relu": nn.ReLU, "sin": Sine}[options.activation]
        hidden = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), active())]
        self.mlp = nn.Sequential(*hidden, nn.Linear(sizes[-1], classes))
        self.register_buffer("positions", torch.eye(tokens).unsqueeze(0), persistent=False)

    def embed(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N width"]:
        """The tokens' features."""
        dtype, modulus = self.positions.dtype, self.options.modulus
        if self.options.embedding == "one-hot":
            return (x.unsqueeze(-1) == torch.arange(modulus, device=x.device)).to(dtype)
        deviation = max(1.0, (modulus**2 - 1) / 12) ** 0.5
        return ((x.to(dtype) - (modulus - 1) / 2) / deviation).unsqueeze(-1)

    def seen(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N features"]:
        """What the MLP sees at each position."""
        tokens = self.embed(x)
        both = torch.cat((tokens, self.positions.expand(len(x), -1, -1)), dim=-1)
        where = both if self.options.mode == "content" else self.positions
        mixed = self.layer(where, where, both if self.options.position_values else tokens)
        return torch.cat((tokens, mixed), dim=-1) if self.options.skip else mixed

    def forward(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N classes"]:
        """Logits of the counts that occur (`Counting.counts`) at each position."""
        return self.mlp(self.seen(x))

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """The MLP: normal with variance 1 / inputs (2 / inputs before an activation), biases 0, but `sine_layer` for
        the first layer of an MLP of sines.
        """
        linears = [m for m in self.mlp if isinstance(m, nn.Linear)]
        for linear in linears:
            gain = 1.0 if linear is linears[-1] else 2.0
            linear.weight.copy_(_normal(linear.weight, (gain / linear.in_features) ** 0.5, generator))
            linear.bias.zero_()
        if self.options.activation == "sin":
            x = torch.randint(self.options.modulus, (256, self.options.tokens), generator=generator)
            sine_layer(linears[0], self.seen(x), generator)


@torch.no_grad()
def sine_layer(linear: nn.Linear, features: Float[Tensor, "... inputs"], generator: torch.Generator) -> None:
    """Weights for which the arguments of sin(W z + b) start with variance about 2 + 1, whatever the size of z.

    W: normal with variance 2 / (inputs * variance of `features`); b: standard normal, without which every sine is odd.

    Args:
        linear: the MLP's first layer.
        features: z for random content; soft patterns average, so these are small.
        generator: of the weights.
    """
    deviation = (2 / linear.in_features) ** 0.5 / features.double().std()
    linear.weight.copy_(deviation * _normal(linear.weight, 1.0, generator))
    linear.bias.copy_(_normal(linear.bias, 1.0, generator))


def _normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return deviation * torch.randn(like.shape, dtype=torch.float64, generator=generator)
