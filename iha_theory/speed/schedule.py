"""What `bench hybrid` measures: five causal layers in a row with App. C's schedule, at several windows."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.costs.schedule import hybrid

WIDTH, HEADS, LAYERS = 256, 4, 5
BASE = "mha"
"""All layers global: what the others are compared with."""


@dataclass(frozen=True)
class Schedule:
    """N tokens; a window of W tokens in layers 1 to 4 for W in `windows` and P in `pseudo`, layer 5 global MHA."""

    tokens: int = 2048
    windows: tuple[int, ...] = field(default=(1024, 256, 64))
    pseudo: tuple[int, ...] = (1, 2)

    @property
    def ways(self) -> dict[str, tuple[int, int | None]]:
        """P and W of each way, by name; P = 1 is MHA. N / (2 P^2) is the window of App. C."""
        own = {"mha" if p == 1 else f"iha P={p}": p for p in self.pseudo}
        plain: dict[str, tuple[int, int | None]] = {name: (p, None) for name, p in own.items()}
        return plain | {f"{name} window={w}": (p, w) for name, p in own.items() for w in self.windows}

    def flops(self, name: str) -> int:
        """Of a way's attention layers, one sequence forward."""
        pseudo, window = self.ways[name]
        own = None if pseudo == 1 else pseudo
        rest = None if window else own
        sizes = hybrid(self.tokens, WIDTH, HEADS, LAYERS, window=window, pseudo_heads=own, global_pseudo_heads=rest)
        return sum(layer.flops for layer in sizes)

    def passes(self) -> dict[str, Callable[[], None]]:
        """Forward and backward of each way."""
        return {name: _pass(layers(*own), self.tokens) for name, own in self.ways.items()}


def layers(pseudo: int, window: int | None) -> list[nn.Module]:
    """Five of MHA (P = 1) or IHA; with a window the last is global, and MHA."""
    torch.manual_seed(0)

    def layer(own: int, width: int | None) -> nn.Module:
        if own == 1:
            return MultiHeadAttention(WIDTH, HEADS, window=width)
        return InterleavedHeadAttention(WIDTH, HEADS, num_pseudo_heads=own, init="random", window=width)

    last = pseudo if window is None else 1
    return [*(layer(pseudo, window) for _ in range(LAYERS - 1)), layer(last, None)]


def _pass(stack: list[nn.Module], tokens: int) -> Callable[[], None]:
    x = torch.randn(1, tokens, WIDTH, requires_grad=True)
    grad = torch.randn_like(x)
    leaves: list[Tensor] = [x, *(p for layer in stack for p in layer.parameters())]

    def run() -> None:
        h = x
        for layer in stack:
            h = h + layer(h, h, h, is_causal=True)
        h.backward(grad)
        for leaf in leaves:
            leaf.grad = None

    return run
