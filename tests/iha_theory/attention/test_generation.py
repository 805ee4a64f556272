"""Generation with the cache equals the full pass, and keeps as many numbers as the formula says."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iha_theory.attention import DifferentialAttention
from iha_theory.attention.generation import KeyValueCache, extend
from iha_theory.costs.cache import cache_numbers

from .layers import BY_NAME, PATTERNS, tokens

NAMES = (
    *("mha", "gqa", "mqa", "iha-P1", "iha-P3-global-token", "iha-P3-global-virtual"),
    *("iha-P2-per_head-token", "iha-P5-per_head-virtual", "iha-P2-grouped"),
)
N = 9


def in_pieces(layer, x, pieces, cache, positions=None):
    outputs, begin = [], 0
    for count in (*pieces, *[1] * (x.shape[1] - sum(pieces))):
        piece = x[:, begin : begin + count]
        at = None if positions is None else positions[begin : begin + count]
        outputs.append(extend(layer, piece, piece, piece, cache, positions=at))
        begin += count
    return torch.cat(outputs, 1)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_generation_is_the_full_pass(data):
    draw = data.draw
    row = BY_NAME[draw(st.sampled_from(NAMES))]
    rotary = draw(st.sampled_from([None, "token", "virtual"]))
    window = draw(st.sampled_from([None, 1, 2, 4, 20]))
    pattern = draw(st.sampled_from(PATTERNS))
    layer = row.build(window=window, rotary=rotary, pattern=pattern, head_dim=4, bias=draw(st.booleans()))
    x = tokens(2, N, 8, seed=draw(st.integers(0, 99)))
    positions = torch.arange(N) * 3 + 2 if rotary and draw(st.booleans()) else None
    pieces = draw(st.sampled_from([(), (1, 3), (5,), (2, 2), (9,)]))
    cache = KeyValueCache(window, mixed=draw(st.booleans()))
    got = in_pieces(layer, x, pieces, cache, positions)
    torch.testing.assert_close(got, layer(x, x, x, is_causal=True, positions=positions), rtol=1e-9, atol=1e-11)
    assert cache.tokens == N
    assert len(cache) == (N if window is None else min(N, window - 1))


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_the_cache_is_as_large_as_the_formula(name, mixed):
    layer = BY_NAME[name].build(head_dim=3, value_head_dim=5)
    cache, x = KeyValueCache(mixed=mixed), tokens(2, N, 8)
    in_pieces(layer, x, (4,), cache)
    pseudo = getattr(layer, "num_pseudo_heads", 1) if mixed else 1
    heads = layer.num_heads if mixed and pseudo > 1 else getattr(layer, "num_kv_heads", layer.num_heads)
    assert cache.numbers == 2 * N * cache_numbers(heads, 3, 5, pseudo_heads=pseudo)


def test_a_forgetful_cache_is_seen(monkeypatch):
    layer, x = BY_NAME["iha-P3-global-token"].build(), tokens(2, N, 8)
    kept = KeyValueCache.extend
    monkeypatch.setattr(KeyValueCache, "extend", lambda cache, *new: tuple(t[:, -3:] for t in kept(cache, *new)))
    assert (in_pieces(layer, x, (), KeyValueCache()) - layer(x, x, x, is_causal=True)).abs().max() > 1e-3


def test_gradients_stop_at_the_cache():
    layer, x = BY_NAME["mha"].build(), tokens(1, 4, 8)
    cache = KeyValueCache()
    extend(layer, x, x, x, cache)
    assert extend(layer, x, x, x, cache).requires_grad
    assert not any(t.requires_grad for t in cache.extend(*(torch.zeros(1, 1, 4, 2, dtype=x.dtype),) * 2))


def test_what_is_refused():
    x = tokens(2, 4, 8)
    with pytest.raises(TypeError, match="layer of type DifferentialAttention: accepted are MHA, GQA and IHA"):
        extend(DifferentialAttention(8, 4, dtype=x.dtype), x, x, x, KeyValueCache())
    with pytest.raises(ValueError, match="cache of window None, but the layer's is 3"):
        extend(BY_NAME["mha"].build(window=3), x, x, x, KeyValueCache())
    with pytest.raises(ValueError, match=re.escape("query and key differ in tokens: 3 and 4")):
        extend(BY_NAME["mha"].build(), x[:, :3], x, x, KeyValueCache())
    with pytest.raises(ValueError, match="num_kv_heads must divide num_heads 4, got 3"):
        BY_NAME["iha-P2-grouped"].build(num_kv_heads=3)
