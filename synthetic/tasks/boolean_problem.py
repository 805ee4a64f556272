"""Boolean functions as a run sees them: every input in every batch, and attention read linearly at a query token."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from synthetic.tasks.task import Measured, Problem, Samples, Split

MARGIN = 1e-3
"""An input is right if its output has the right sign and at least this size, relative to the largest and to 1, for
which the loss aims. What is nearer to 0 is rounding."""
NOISE = 0.1
"""Standard deviation at the start of what tells positions apart; what they share has 1."""


class Signs(Problem):
    """Answers b in {0, 1} as the signs y = (-1)^b of one output g, which is at best 1 or more: y g >= 1.

    A sample is all 2^n inputs, in one order, so that there is nothing to hold out: validation and test are the same.
    The loss is the squared hinge, mean max(0, 1 - y g)^2. The error is the share of inputs that are not right
    (`MARGIN`), in float64; a run has succeeded if it is 0.

    Args:
        x: the inputs, (2^n, n).
        answers: b.
        width: of the embedding.
        readout_lr: peak rate of what g is linear in.
        floor: the least error that theory allows.
        alone: whether the query token alone attends: the same output, but for layers whose other tokens reach it.
    """

    def __init__(
        self,
        x: Shaped[np.ndarray, "inputs n"],
        answers: Shaped[np.ndarray, " inputs"],
        width: int,
        readout_lr: float,
        floor: float | None,
        alone: bool,
    ) -> None:
        self.x, self.signs, self.floor = x, 1 - 2 * answers, floor
        self.width, self.readout_lr, self.alone = width, readout_lr, alone

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """All inputs and their signs as one sample, (1, 2^n, n) and (1, 2^n)."""
        return self.x[None].astype(np.int8), self.signs[None].astype(np.int8)

    def model(self, make: Callable[..., nn.Module]) -> "QueryToken":
        """`QueryToken`."""
        return QueryToken(make, self.x.shape[1], self.width, self.alone)

    def loss(
        self,
        model: Callable[[Tensor], Tensor],
        x: Int[Tensor, "batch inputs n"],
        signs: Int[Tensor, "batch inputs"],
    ) -> Float[Tensor, ""]:
        """The squared hinge."""
        return (1 - signs.flatten() * model(x.flatten(0, 1))).clamp(min=0).square().mean()

    def measure(
        self, model: nn.Module, run: Callable[[Tensor], Tensor], validation: Samples, test: Samples
    ) -> Measured:
        """The share of inputs that are wrong, and that of the right ones; a constant's is the baseline."""
        with torch.no_grad():
            found = copy.deepcopy(model).cpu().double()(torch.from_numpy(self.x)).numpy()
        right = float((self.signs * found > MARGIN * max(1.0, np.abs(found).max())).mean())
        return Measured(error=1 - right, accuracy=right, baseline_accuracy=float(abs(self.signs.mean()) + 1) / 2)

    def rate(self, parameter: str, rate: float) -> float:
        """The output projection and the threshold, in which g is linear, have their own."""
        return self.readout_lr if "out_proj" in parameter or parameter == "threshold" else rate


class QueryToken(nn.Module):
    """(batch, n) bits -> g, (batch,): one attention layer over n bit tokens and a query token, and a threshold.

    Token t is position_t + s direction_t, s = -1 for bit 0 and 1 for bit 1, which is any function of bit and position;
    the query token is a vector of its own and carries no bit. All see all. g is the layer's output at the query
    token, of width 1, minus the threshold.
    """

    def __init__(self, make: Callable[..., nn.Module], tokens: int, width: int, alone: bool) -> None:
        super().__init__()
        self.alone = alone
        self.position = nn.Parameter(torch.zeros(tokens + 1, width))
        self.direction = nn.Parameter(torch.zeros(tokens, width))
        self.threshold = nn.Parameter(torch.zeros(()))
        layer: Any = make(width, width, width, content=1, tokens=tokens + 1, pattern="softmax", out=1)
        self.layer: nn.Module = layer

    def forward(self, x: Int[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
        """g."""
        s = (2 * x - 1).to(self.direction.dtype).unsqueeze(-1)
        bits = self.position[:-1] + s * self.direction
        tokens = torch.cat((bits, self.position[-1:].expand(len(x), -1, -1)), dim=1)
        query = tokens[:, -1:] if self.alone else tokens
        return self.layer(query, tokens, tokens)[:, -1, 0] - self.threshold

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        """The query token and one direction for all positions normal, with `NOISE` on all positions and directions."""

        def normal(like: Tensor) -> Tensor:
            return torch.randn(like.shape, dtype=torch.float64, generator=generator)

        self.direction.copy_(normal(self.direction[:1]) + NOISE * normal(self.direction))
        self.position.copy_(NOISE * normal(self.position))
        self.position[-1] = normal(self.position[-1])
        self.threshold.zero_()
