"""Cases 15 to 43, for every layer they apply to, with the values written there.

Case 18 is in `mixing.test_interleaved`, the compiled part of 19 in `test_compile`.
"""

import io
import os

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, vmap

from iha_theory.attention import InterleavedHeadAttention, TwoSimplicialAttention
from iha_theory.attention.rotary import rotate

from .layers import BY_NAME, LAYERS, PATTERNS, ROTARY, average, tokens

F64 = torch.float64
all_layers = pytest.mark.parametrize("row", LAYERS, ids=str)
all_patterns = pytest.mark.parametrize("pattern", PATTERNS)
normalised = pytest.mark.parametrize("pattern", ["softmax", "hard"])
one_way_to_see_oneself = pytest.mark.parametrize("options", [{"window": 1}, {"mask": torch.eye(5, dtype=torch.bool)}])


def options_of(options):
    """Constructor options and call options."""
    return {n: o for n, o in options.items() if n != "mask"}, {n: o for n, o in options.items() if n == "mask"}


# Case 15: rotary positions.


def test_case_15_rotary_in_bfloat16_at_300_positions():
    """Rotation loses only the rounding of its result, half of 2^-7 relative, and no more at position 299 than at 0."""
    x = tokens(300, 16, dtype=torch.bfloat16)
    got = rotate(x, torch.arange(300), 10_000.0)
    assert got.dtype == torch.bfloat16
    exact = rotate(x.double(), torch.arange(300), 10_000.0)
    assert ((got.double() - exact).abs() <= 2.0**-8 * exact.abs() + 1e-6).all()


@pytest.mark.parametrize("name", ["mha", "iha-P2-per_head-token"])
def test_case_15_layers_in_bfloat16_at_300_virtual_positions(name):
    options = {"rotary": "virtual", "head_dim": 4}
    low = BY_NAME[name].build(dtype=torch.bfloat16, **options)
    high = BY_NAME[name].build(**options)
    high.load_state_dict(low.state_dict())
    n = 150 if "P2" in name else 300
    x = tokens(1, n, 8, dtype=torch.bfloat16)
    got, exact = low(x, x, x, is_causal=True).double(), high(*(x.double(),) * 3, is_causal=True)
    error = (got - exact).norm(dim=-1) / exact.norm(dim=-1).mean()
    assert error.max() < 0.1  # a rotation by a position that bfloat16 rounds (257 -> 256) misses by more than 1
    assert error[0, 200 if n == 300 else 100 :].mean() < 0.03


@pytest.mark.parametrize(("row", "rotary"), ROTARY, ids=str)
def test_case_15_only_differences_of_positions_matter(row, rotary):
    layer = row.build(rotary=rotary, head_dim=4)
    x = tokens(1, 3, 8)
    plain = layer(x, x, x, is_causal=True)

    def at(*positions):
        return layer(x, x, x, is_causal=True, positions=torch.tensor(positions))

    torch.testing.assert_close(at(0, 1, 2), plain, rtol=0, atol=0)
    torch.testing.assert_close(at(5, 6, 7), plain, rtol=1e-11, atol=1e-12)
    assert not torch.allclose(at(0, 2, 4), plain, rtol=1e-3)
    longer = tokens(1, 50, 8)
    assert layer(longer, longer, longer).shape == (1, 50, 8)
    with pytest.raises(ValueError, match="head_dim must be even, got 3"):
        row.build(rotary=rotary, head_dim=3)


def test_case_15_virtual_order_is_token_major():
    """Causal by virtual order, zero logits, P = 2: pseudo-query j of token n (from 0) sees 2 n + j virtual tokens."""
    layer = InterleavedHeadAttention(
        4, 2, num_pseudo_heads=2, causality="virtual", collapse="per_head", vdim=1, value_head_dim=1, out_proj=False
    )
    average(layer)
    ones, v = torch.ones(1, 3, 4), torch.tensor([1.0, 2.0, 4.0]).reshape(1, 3, 1)
    out = {}
    for j in range(2):
        with torch.no_grad():
            layer.alpha_v.fill_(0).copy_(torch.eye(2).unsqueeze(-1).expand(2, 2, 2))
            layer.collapse.zero_()[:, j] = 1
        out[j] = layer(ones, ones, v, is_causal=True)[0, :, 0]
    torch.testing.assert_close(out[0], torch.tensor([1, (1 + 1 + 2) / 3, (1 + 1 + 2 + 2 + 4) / 5]))
    torch.testing.assert_close(out[1], torch.tensor([1, (1 + 1 + 2 + 2) / 4, (1 + 1 + 2 + 2 + 4 + 4) / 6]))


# Case 16: a hidden key.


@all_patterns
@all_layers
def test_case_16_hidden_key(row, pattern):
    layer = row.build(pattern=pattern)
    x = tokens(1, 4, 8)
    other = x.clone()
    other[:, 0] = 3.0
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[:, 0] = False
    for key, value in ((other, x), (x, other)):
        assert torch.equal(layer(x, key, value, mask=mask), layer(x, x, x, mask=mask))
        unhidden = layer(x, key, value)
        found_the_same = pattern == "hard" and value is x
        assert found_the_same or not torch.allclose(unhidden, layer(x, x, x))
    if not row.one_sequence:
        torch.testing.assert_close(layer(x, x, x, mask=mask), layer(x, x[:, 1:], x[:, 1:]), rtol=1e-10, atol=1e-12)


def test_case_16_causal_pairs():
    """Row i of a causal 2-simplicial layer weighs (i+1)^2 pairs; one value coordinate a pair reads the weights out."""
    n = 4
    layer = TwoSimplicialAttention(n, 1, value_head_dim=n * n, out_proj=False, dtype=F64)
    pairs = torch.eye(n * n, dtype=F64).reshape(n, n, n * n)
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.v_proj.weight.copy_(pairs.sum(1).T)
        layer.v2_proj.weight.copy_(pairs.sum(0).T)
    x = torch.eye(n, dtype=F64).unsqueeze(0)
    weights = layer(x, x, x, is_causal=True)[0].reshape(n, n, n)
    for i in range(n):
        right = torch.zeros(n, n, dtype=F64)
        right[: i + 1, : i + 1] = 1 / (i + 1) ** 2
        torch.testing.assert_close(weights[i], right)


# Case 17: differential attention.


@all_patterns
def test_case_17_differential(pattern):
    layer = BY_NAME["differential"].build(pattern=pattern)
    first = BY_NAME["mha"].build(pattern=pattern)
    x = tokens(2, 5, 8)
    with torch.no_grad():
        for name in ("q_proj", "k_proj"):
            getattr(first, name).weight.copy_(getattr(layer, name).weight.chunk(2)[0])
        for name in ("v_proj", "out_proj"):
            getattr(first, name).weight.copy_(getattr(layer, name).weight)
        layer.lam.zero_()
        torch.testing.assert_close(layer(x, x, x), first(x, x, x), rtol=1e-12, atol=1e-12)
        layer.lam.fill_(0.3)
        assert not torch.allclose(layer(x, x, x), first(x, x, x))
        for name in ("q_proj", "k_proj"):
            weight = getattr(layer, name).weight
            weight.copy_(weight.chunk(2)[0].repeat(2, 1))
        layer.lam.fill_(1.0)
    out = layer(x, x, x, is_causal=True)
    assert out.abs().max() < 1e-14  # two equal products may be rounded apart by where they stand in a batch
    out.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


def test_case_17_lambda_is_learned():
    layer = BY_NAME["differential"].kind(8, 4, lambda_init=0.2)
    assert layer.lam.tolist() == pytest.approx([0.2] * 4)
    x = tokens(1, 5, 8).float()
    layer(x, x, x).pow(2).sum().backward()
    assert (layer.lam.grad != 0).all()


# Case 19: derivatives and transforms (torch.compile: test_compile).


@all_patterns
@all_layers
def test_case_19_gradgradcheck(row, pattern):
    """First and second derivatives by inputs and every parameter; hard attention has them by the values only."""
    small = row.build(2, 2, head_dim=2, value_head_dim=1, pattern=pattern)
    names = [n for n, _ in small.named_parameters()]
    parameters = [p.detach().requires_grad_() for p in small.parameters()]
    x, y, z = (tokens(1, 3, 2, seed=s).requires_grad_() for s in range(3))
    mask = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 1]], dtype=torch.bool)

    def call(x, y, z, *values):
        return functional_call(small, dict(zip(names, values, strict=True)), (x, y, z), {"mask": mask})

    if pattern == "hard":
        assert gradcheck(lambda z: call(x.detach(), y.detach(), z, *(p.detach() for p in parameters)), (z,))
    else:
        assert gradcheck(call, (x, y, z, *parameters), fast_mode=True)
        assert gradgradcheck(call, (x, y, z, *parameters), fast_mode=True)


@all_patterns
@pytest.mark.parametrize("call", [{}, {"is_causal": True}, {"mask": torch.eye(4, dtype=torch.bool).flip(0)}])
@all_layers
def test_case_19_vmap(row, pattern, call):
    layer = row.build(pattern=pattern)
    x = tokens(3, 2, 4, 8)
    got = vmap(lambda x: layer(x, x, x, **call))(x)
    one_by_one = torch.stack([layer(one, one, one, **call) for one in x])
    torch.testing.assert_close(got, one_by_one, rtol=1e-11, atol=1e-12)


@all_layers
def test_case_19_vmap_over_the_content_of_shared_positions(row):
    layer = row.build()
    pos, x = tokens(1, 4, 8), tokens(3, 2, 4, 8)
    got = vmap(lambda x: layer(pos, pos, x))(x)
    torch.testing.assert_close(got, layer(pos, pos, x.flatten(0, 1)).unflatten(0, (3, 2)), rtol=1e-11, atol=1e-12)


# Case 27, the part that layers have: weights saved and loaded.


@all_layers
def test_saved_weights_give_the_same_layer(row):
    layer = row.build(seed=1)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = row.build(seed=2)
    x = tokens(1, 4, 8)
    assert not torch.equal(other(x, x, x), layer(x, x, x))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(x, x, x), layer(x, x, x))


@pytest.mark.parametrize("source", LAYERS, ids=str)
def test_weights_of_another_kind_are_refused(source):
    """Never silently random: another kind of layer's weights do not load, unless all names and shapes are the same."""
    weights = source.build().state_dict()
    for target in LAYERS:
        layer = target.build()
        if {n: p.shape for n, p in weights.items()} == {n: p.shape for n, p in layer.state_dict().items()}:
            assert target.kind is source.kind
            continue
        with pytest.raises(RuntimeError, match=r"Missing key|Unexpected key|size mismatch"):
            layer.load_state_dict(weights)


# Case 43: sizes that numpy made.


@pytest.mark.skipif("IHA_TEST_SHAPES" in os.environ, reason="to a checker of types numpy's integers are no int")
@all_layers
def test_case_43_integers_of_numpy(row):
    layer = row.build(np.int64(8), np.int32(2))
    assert {type(layer.embed_dim), type(layer.num_heads), type(layer.out_dim)} == {int}
    for wrong in (np.float64(2), np.int64(0), np.bool_(True)):
        with pytest.raises(ValueError, match="integer of at least 1"):
            row.build(8, wrong)
