"""The capacity of torch's attention, of ours, and of a layer of your own: how many different maps can mix content.

    uv run python examples/measure_layers.py

The capacity is the largest operator Schmidt rank of layer(positions, positions, X): k independent blocks take k
(docs/bounds.md, Theorem 1). It is measured with random weights. `OneMap` stands for your layer.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from iha_theory import InterleavedHeadAttention, measure_module

WIDTH = 24


class OneMap(nn.Module):
    """Heads that share one attention map, of the mean of their logits."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(embed_dim, embed_dim) for _ in range(4))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """As torch.nn.MultiheadAttention is called, batch first."""
        q, k, v = (
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (self.q(query), self.k(key), self.v(value))
        )
        shared = (q @ k.mT).mean(dim=1, keepdim=True).softmax(-1)
        return self.out((shared @ v).transpose(1, 2).flatten(2))


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "torch.nn.MultiheadAttention": lambda heads: nn.MultiheadAttention(WIDTH, heads, batch_first=True),
    "InterleavedHeadAttention": lambda heads: InterleavedHeadAttention(WIDTH, heads, init="random"),
    "OneMap": lambda heads: OneMap(WIDTH, heads),
}


def main(heads: tuple[int, ...] = (1, 2, 3, 4)) -> dict[str, list[int]]:
    """The ranks of each layer, for each number of heads."""
    torch.manual_seed(0)
    return {
        name: [measure_module(name, build(number), number).rank for number in heads] for name, build in LAYERS.items()
    }


if __name__ == "__main__":
    for name, ranks in main().items():
        print(f"{name:28} rank {ranks} with 1, 2, 3, 4 heads")
