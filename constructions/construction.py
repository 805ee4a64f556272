"""What a construction is: a torch layer with explicit weights, and where each thing is in its output."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.operators.weights import with_positions


@dataclass(frozen=True)
class Block:
    """A named run of output coordinates: columns start .. start + width - 1 hold `name`."""

    name: str
    start: int
    width: int

    @property
    def columns(self) -> range:
        """The coordinates, as a range."""
        return range(self.start, self.start + self.width)


def blocks(name: str, count: int, width: int = 1) -> tuple[Block, ...]:
    """`count` blocks side by side from column 0 on; block t's name is `name` with t for each {}, such as "A^{} X"."""
    return tuple(Block(name.replace("{}", str(t)), t * width, width) for t in range(count))


class Counted:
    """What has a layer, and is counted by it."""

    layer: Any

    @property
    def heads(self) -> int:
        """H; of two layers, in each."""
        return self.layer.num_heads

    @property
    def pseudo_heads(self) -> int:
        """P; 1 for MHA."""
        return getattr(self.layer, "num_pseudo_heads", 1)

    @property
    def parameters(self) -> int:
        """Number of parameters, counted."""
        return count(self.layer)


@dataclass(frozen=True)
class Construction(Counted):
    """Explicit weights in a real layer, with a readout.

    name: what it represents and by which attention, such as "bank/iha". source: where the weights come from, such as
    "App. B.2". layer: an `AttentionLayer` or a `TwoLayerAttention`, on the input [X, I_N], in float64. readout: the
    output blocks in the order of the target; coordinates that no block names are padding. width: the content's width d.
    error_bound: None if the weights are exact in exact arithmetic. is_causal: whether the layer runs under the causal
    mask.
    """

    name: str
    source: str
    layer: Any
    readout: tuple[Block, ...]
    width: int
    error_bound: float | None = None
    is_causal: bool = False

    def __post_init__(self) -> None:
        for block in self.readout:
            if block.start < 0 or block.width < 1 or block.start + block.width > self.layer.out_dim:
                raise ValueError(f"{block} is not in the layer's {self.layer.out_dim} output coordinates")

    @property
    def causality(self) -> Causality | None:
        """How the causal mask counts, by "token" or "virtual" token; None if the layer runs without it."""
        return getattr(self.layer, "causality", "token") if self.is_causal else None

    def pick(self, out: Float[Tensor, "batch tokens out"]) -> Float[Tensor, "batch tokens read"]:
        """The readout's blocks of a layer output, side by side: (batch, tokens, sum of the blocks' widths)."""
        return torch.cat([out[..., b.start : b.start + b.width] for b in self.readout], dim=-1)

    def __call__(self, x: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens read"]:
        """The layer as self-attention on [X, I_N], then the readout."""
        inputs = with_positions(x)
        return self.pick(self.layer(inputs, inputs, inputs, is_causal=self.is_causal))


def count(module: nn.Module) -> int:
    """Number of parameters of a module."""
    return sum(p.numel() for p in module.parameters())
