"""Corners of the fused routes: layouts, scales that are not positive, derivatives of other kinds and orders."""

import pytest
import torch
from torch.autograd import forward_ad

from iha_theory.attention import GatedAttention, InterleavedHeadAttention, MultiHeadAttention, patterns
from iha_theory.attention.fused import kernel
from iha_theory.attention.generation import KeyValueCache, extend

F64 = torch.float64


def tokens(count, width=8, dtype=F64):
    return torch.randn(1, count, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).to(dtype)


def by_definition(call, monkeypatch):
    """The same with the mask written out."""
    with monkeypatch.context() as changed:
        changed.setattr(patterns, "DENSE", 10**9)
        return call()


def test_what_is_padded_is_contiguous_in_its_last_axis():
    x = torch.randn(1, 4, 9, 2).contiguous(memory_format=torch.channels_last)
    assert kernel.fit_width(x, 3).stride(-1) == 1


@torch.no_grad()
def test_rotary_heads_narrower_than_their_values(monkeypatch):
    layer, x = MultiHeadAttention(8, 4, head_dim=2, value_head_dim=4, rotary=True, window=4, dtype=F64), tokens(200)
    expected = by_definition(lambda: layer(x, x, x, is_causal=True), monkeypatch)
    assert torch.allclose(layer(x, x, x, is_causal=True), expected, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("scale", [0.0, -1.0])
@pytest.mark.parametrize("count", [5, 200])
@pytest.mark.parametrize("causality", ["token", "virtual"])
def test_scales_that_are_not_positive(causality, count, scale):
    layer = InterleavedHeadAttention(8, 2, num_pseudo_heads=2, scale=scale, causality=causality)
    x = tokens(count, dtype=torch.float32)
    expected = InterleavedHeadAttention(8, 2, num_pseudo_heads=2, scale=1.0, causality=causality)
    expected.load_state_dict(layer.state_dict())
    expected.alpha_q.mul_(scale)
    assert torch.allclose(layer(x, x, x, is_causal=True), expected(x, x, x, is_causal=True), atol=1e-5)


def test_third_derivatives(monkeypatch):
    layer = InterleavedHeadAttention(4, 1, num_pseudo_heads=2, init="random", dtype=F64)

    def third():
        x = tokens(70, 4).requires_grad_()
        value = layer(x, x, x, is_causal=True).pow(2).sum()
        for _ in range(3):
            (gradient,) = torch.autograd.grad(value, x, create_graph=True)
            value = gradient.pow(2).sum()
        return gradient.detach()

    assert torch.allclose(third(), by_definition(third, monkeypatch), rtol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # of torch's own, in its first such derivative
def test_derivatives_forwards():
    layer, x = MultiHeadAttention(8, 2, window=3, dtype=F64).requires_grad_(False), tokens(140)
    tangent, step = torch.ones_like(x), 1e-6
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        found = forward_ad.unpack_dual(layer(dual, dual, dual)).tangent
    ahead, behind = (layer(y, y, y) for y in (x + step * tangent, x - step * tangent))
    assert torch.allclose(found, (ahead - behind) / (2 * step), atol=1e-7)


def test_no_tokens_and_a_window_of_any_length():
    x, y = tokens(0), tokens(200)
    mask = torch.ones(0, 0, dtype=torch.bool)
    assert MultiHeadAttention(8, 2, dtype=F64)(x, x, x, mask=mask).shape == (1, 0, 8)
    assert MultiHeadAttention(8, 2, rotary=True, dtype=F64)(x, x, x, positions=torch.arange(0)).shape == (1, 0, 8)
    assert MultiHeadAttention(8, 2, window=10**30, dtype=F64)(y, y, y).shape == (1, 200, 8)


def test_a_cache_is_of_one_layer_and_batch():
    layer, x = MultiHeadAttention(8, 2, dtype=F64), tokens(5)
    for window in (0, True):
        with pytest.raises(ValueError, match="integer of at least 1"):
            KeyValueCache(window)
    cache = KeyValueCache()
    extend(layer, x, x, x, cache)
    with pytest.raises(ValueError, match="another batch or layer"):
        extend(layer, *[x.expand(2, -1, -1)] * 3, cache)
    with pytest.raises(TypeError, match="GatedAttention: accepted"):
        extend(GatedAttention(8, 2, dtype=F64), x, x, x, KeyValueCache())
