"""Weights from `iha-theory heads --weights`, in torch layers again.

    uv run iha-theory heads petersen --terms 9 --tolerance 0 --weights petersen.safetensors
    uv run python examples/load_weights.py petersen.safetensors

A file has the layers of one graph, with what is needed to make and to read them (`constructions.heads.files`); nothing
in it is run. Each makes all blocks [X, AX, ..., A^(k-1) X] at once.
"""

import sys
from collections.abc import Sequence

import torch
from safetensors.torch import load_file

from constructions.heads.files import read
from synthetic.graphs import load


@torch.no_grad()
def main(file: str) -> dict[str, float]:
    """The largest difference between each layer's output and the powers of the graph's matrix, on random content."""
    content = read(file)
    tensors = load_file(file)
    assert content.intact  # as it was written
    graph = load(content.graph)
    A = torch.tensor(graph.adjacency.astype(float))
    x = torch.randn(1, len(A), 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    wanted = torch.cat([torch.linalg.matrix_power(A, t) @ x for t in range(content.terms)], dim=-1)
    differences: dict[str, float] = {}
    for name, construction in content.constructions.items():
        layer = construction.layer  # a torch module, such as MultiHeadAttention; its state dict is in the file:
        for key, weight in layer.state_dict().items():
            assert torch.equal(tensors[f"{name}.{key}"], weight)
        off = float((construction(x) - wanted).abs().max() / wanted.abs().max())
        print(f"{name:14} {construction.heads} heads, {construction.parameters} parameters: off by {off:.0e}")
        differences[name] = off
    return differences


def arguments(words: Sequence[str]) -> str:
    """The one argument."""
    if len(words) != 1:
        raise SystemExit(f"usage: load_weights.py FILE, got {len(words)} arguments")
    return words[0]


if __name__ == "__main__":
    main(arguments(sys.argv[1:]))
