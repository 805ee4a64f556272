"""Layers in half precision and under autocast: without a mask of all pairs as right as with one."""

import pytest
import torch

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention, patterns
from iha_theory.attention.fused import operation

TOKENS = 150


def results(layer, x, low):
    """Output and the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        out = layer(x, x, x, is_causal=True)
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [y.double() for y in (out, *torch.autograd.grad(out, (x, *layer.parameters()), weights))]


def worst(found, right):
    """The largest error of each, relative to the largest entry."""
    return torch.stack([(a - b).abs().max() / b.abs().max() for a, b in zip(found, right, strict=True)])


@pytest.mark.parametrize("autocast", [False, True], ids=["bfloat16", "autocast"])
@pytest.mark.parametrize(
    "layer",
    [
        MultiHeadAttention(16, 2, window=20),
        InterleavedHeadAttention(16, 2, num_pseudo_heads=2, init="random"),
        InterleavedHeadAttention(16, 2, num_pseudo_heads=2, init="random", causality="virtual", window=20),
    ],
    ids=["window", "token", "virtual, window"],
)
def test_half_precision(layer, autocast, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator).bfloat16().float() / 4
    x = torch.randn(1, TOKENS, 16, generator=generator).bfloat16().float()
    taken = []
    attention = operation.attention
    monkeypatch.setattr(operation, "attention", lambda q, *rest: taken.append(q.dtype) or attention(q, *rest))
    low = (layer, x) if autocast else (layer.bfloat16(), x.bfloat16())
    fused = results(*low, autocast)
    monkeypatch.setattr(patterns, "DENSE", 10**9)
    plain = results(*low, autocast)
    right = results(layer.double(), x.double(), low=False)
    layer.float()
    assert taken == [torch.bfloat16]
    unit = torch.finfo(torch.bfloat16).eps
    errors = worst(fused, right), worst(plain, right)
    assert (errors[0] <= 2 * errors[1] + unit).all(), errors
    assert (errors[0] <= 16 * unit).all()
