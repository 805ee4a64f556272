"""Generation with the cache equals the full pass, and keeps as many numbers as the formula says."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha_theory.attention import DifferentialAttention, generation
from iha_theory.attention.generation import KeyValueCache, extend, kept_numbers, take_up
from iha_theory.costs.cache import cache_numbers, token_flops
from iha_theory.costs.counted import flops_of

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
    assert cache.nbytes == 8 * cache.numbers
    assert kept_numbers(layer, mixed=mixed) == cache_numbers(heads, 3, 5, pseudo_heads=pseudo)


@pytest.mark.parametrize("name", ["gqa", "iha-P3-global-virtual"])
def test_tokens_taken_up_are_those_of_the_full_pass(name):
    layer, cache, x = BY_NAME[name].build(rotary="token"), KeyValueCache(), tokens(2, N, 8)
    take_up(layer, x[:, : N - 2], x[:, : N - 2], cache)
    got = in_pieces(layer, x[:, N - 2 :], (), cache)
    torch.testing.assert_close(got, layer(x, x, x, is_causal=True)[:, N - 2 :], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_mixed_maps_round_as_pseudo_keys_do(dtype):
    """Scores of base heads, rounded and mixed, are about as good as scores of pseudo-keys, mixed and rounded."""
    errors = {False: 0.0, True: 0.0}
    for seed in range(6):
        layer, x = BY_NAME["iha-P3-global-token"].build(head_dim=16, seed=seed).to(dtype), tokens(1, 41, 8, seed=seed)
        outputs = {}
        for mixed in errors:
            cache = KeyValueCache(mixed=mixed)
            take_up(layer, x[:, :40].to(dtype), x[:, :40].to(dtype), cache)
            outputs[mixed] = extend(layer, *[x[:, 40:].to(dtype)] * 3, cache)
        exact, x = layer.double(), x.to(dtype).double()
        right = exact(x, x, x, is_causal=True)[:, -1:]
        for mixed, out in outputs.items():
            errors[mixed] += ((out - right).norm() / right.norm()).item()
    assert 0 < errors[False] < 2 * errors[True]


def test_a_forgetful_cache_is_seen(monkeypatch):
    layer, x = BY_NAME["iha-P3-global-token"].build(), tokens(2, N, 8)
    kept = KeyValueCache.extend
    monkeypatch.setattr(KeyValueCache, "extend", lambda cache, *new: tuple(t[:, :, -3:] for t in kept(cache, *new)))
    assert (in_pieces(layer, x, (), KeyValueCache()) - layer(x, x, x, is_causal=True)).abs().max() > 1e-3


def test_maps_mixed_without_the_order_in_a_token_are_seen(monkeypatch):
    layer, x = BY_NAME["iha-P3-global-virtual"].build(head_dim=8), tokens(2, N, 8)
    weights = generation.pattern_weights
    monkeypatch.setattr(
        generation, "pattern_weights", lambda scores, pattern, allowed: weights(scores, pattern=pattern)
    )
    assert (in_pieces(layer, x, (), KeyValueCache()) - layer(x, x, x, is_causal=True)).abs().max() > 1e-3


def test_gradients_stop_at_the_cache():
    layer, x = BY_NAME["mha"].build(), tokens(1, 4, 8)
    cache = KeyValueCache()
    extend(layer, x, x, x, cache)
    assert extend(layer, x, x, x, cache).requires_grad
    assert not any(t.requires_grad for t in cache.extend(*(torch.zeros(1, 4, 1, 2, dtype=x.dtype),) * 2))


def test_what_is_refused():
    x = tokens(2, 4, 8)
    with pytest.raises(TypeError, match="layer of type DifferentialAttention: accepted are MHA, GQA and IHA"):
        extend(DifferentialAttention(8, 4, dtype=x.dtype), x, x, x, KeyValueCache())
    with pytest.raises(ValueError, match="cache of window None, but the layer's is 3"):
        extend(BY_NAME["mha"].build(window=3), x, x, x, KeyValueCache())
    with pytest.raises(ValueError, match=re.escape("query and key differ in tokens: 3 and 4")):
        extend(BY_NAME["mha"].build(), x[:, :3], x, x, KeyValueCache())
    for options in ({"pattern": "hard"}, {"rotary": "virtual", "head_dim": 4}):
        layer = BY_NAME["iha-P3-global-token"].build(**options)
        with pytest.raises(ValueError, match='mix="maps" is for softmax and linear attention without virtual'):
            extend(layer, x[:, :1], x[:, :1], x[:, :1], KeyValueCache(), mix="maps")
    with pytest.raises(ValueError, match="num_kv_heads must divide num_heads 4, got 3"):
        BY_NAME["iha-P2-grouped"].build(num_kv_heads=3)


WAYS = {(False, None): "mixed maps", (False, "virtual"): "formed anew", (True, None): "kept"}


@pytest.mark.parametrize(("mixed", "rotary"), WAYS)
@pytest.mark.parametrize("name", ["mha", "gqa", "iha-P3-global-token", "iha-P2-per_head-token"])
def test_a_token_takes_the_flops_of_the_formula(name, mixed, rotary):
    row, seen = BY_NAME[name], 6
    if rotary and not name.startswith("iha"):
        pytest.skip("only pseudo-heads are mixed")
    layer = row.build(head_dim=6, value_head_dim=4, rotary=rotary).to("meta")
    pseudo = getattr(layer, "num_pseudo_heads", None)
    cache, x = KeyValueCache(mixed=mixed), torch.empty(1, 1, 8, device="meta", dtype=torch.float64)
    take_up(layer, x.expand(1, seen - 1, 8), x.expand(1, seen - 1, 8), cache)
    collapse = getattr(layer, "collapse_kind", "global")
    grouped = {"kv_heads": layer.num_kv_heads} if name == "gqa" else {"pseudo_heads": pseudo, "collapse": collapse}
    expected = token_flops(seen, 8, layer.num_heads, 6, 4, way=WAYS[mixed, rotary], **grouped)
    with sdpa_kernel(SDPBackend.MATH):
        got = flops_of(lambda x: extend(layer, x, x, x, cache), (1, 1, 8))
    turned = 0 if rotary is None else (4 * layer.num_heads + 1) * 6 * pseudo * (seen + 1)  # rotary's products
    assert got == expected + turned, (got, expected)
