"""Operators of many layers from their stacked weights, against each layer's own pass."""

import pytest
import torch

from iha_theory.attention import (
    GroupedQueryAttention,
    InterleavedHeadAttention,
    MultiHeadAttention,
)
from iha_theory.operators import stacked
from iha_theory.rounding import gamma

TOKENS, WIDTH = 5, 2
OPTIONS = {"kdim": TOKENS, "vdim": WIDTH, "head_dim": 3, "value_head_dim": 4, "pattern": "linear", "out_dim": 7}


def layer(kind=MultiHeadAttention, heads=3, **options):
    return kind(TOKENS, heads, **(OPTIONS | {"dtype": torch.float64} | options))


LAYERS = [
    lambda: layer(),
    lambda: layer(scale=-0.3),
    lambda: layer(InterleavedHeadAttention, num_pseudo_heads=2),
    lambda: layer(InterleavedHeadAttention, 4, num_kv_heads=2, scale=0.5),
    lambda: layer(InterleavedHeadAttention, 4, num_kv_heads=2, num_pseudo_heads=3, collapse="per_head"),
    lambda: layer(InterleavedHeadAttention, 1),
]


@pytest.mark.parametrize("make", LAYERS)
def test_images_are_those_of_each_layer(make):
    torch.manual_seed(0)
    layers = [make() for _ in range(3)]
    for own in layers:
        for p in own.parameters():
            torch.nn.init.normal_(p)
    names = [name for name, _ in layers[0].named_parameters()]
    weights = {name: torch.stack([own.get_parameter(name).detach() for own in layers]) for name in names}
    found = stacked.images(layers[0], weights)
    positions = torch.eye(TOKENS, dtype=torch.float64)[None]
    basis = torch.eye(TOKENS * WIDTH, dtype=torch.float64).unflatten(1, (TOKENS, WIDTH))
    assert stacked.saves(layers[0])
    for got, own in zip(found, layers, strict=True):
        wanted = own(positions, positions, basis).detach()
        assert got.shape == wanted.shape == (TOKENS * WIDTH, TOKENS, 7)
        for p in own.parameters():
            p.detach().abs_()
        sizes = own(positions, positions, basis).detach().abs()  # the sum of all terms' sizes: at most 64 are chained
        assert bool(((got - wanted).abs() <= 2 * gamma(64) * sizes).all())


@pytest.mark.parametrize(
    "make",
    [
        lambda: layer(pattern="softmax"),
        lambda: layer(pattern="hard"),
        lambda: layer(window=2),
        lambda: layer(rotary=True, head_dim=4),
        lambda: layer(dropout=0.1),
        lambda: layer(bias=True),
        lambda: layer(out_proj=False, out_dim=None),
        lambda: layer(GroupedQueryAttention, num_kv_heads=1),
        lambda: layer(InterleavedHeadAttention, num_pseudo_heads=1),  # nine pairs of base heads for three maps
        lambda: torch.nn.Identity(),
    ],
)
def test_other_layers_are_not_taken(make):
    assert not stacked.saves(make())
