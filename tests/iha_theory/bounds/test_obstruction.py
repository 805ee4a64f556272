"""Theorem 1 of docs/parity.md on layers with random weights: 0 on one bit more, not before; what is refused."""

import itertools

import pytest
import torch

from iha_theory import attention
from iha_theory.attention.kinds import KINDS
from iha_theory.bounds.obstruction import Runs, Sizes, logits, run, sizes
from iha_theory.bounds.parity import UNBOUNDED, parity_bits

OPTIONS = {"head_dim": 2, "value_head_dim": 2, "out_dim": 1, "bias": True, "dtype": torch.float64}
OWN = {
    "multi-token": {"query_window": 2, "key_window": 3},
    "mqa": {"num_kv_heads": 1},
    "gqa": {"num_kv_heads": 2},
    "iha": {"num_pseudo_heads": 3},
}


def layer(kind, pattern="softmax", heads=2):
    return getattr(attention, KINDS[kind].layer)(4, heads, pattern=pattern, **OPTIONS, **OWN.get(kind, {}))


@pytest.mark.parametrize("pattern", ["softmax", "linear"])
@pytest.mark.parametrize("kind", KINDS)
def test_zero_on_one_bit_more_and_not_before(kind, pattern):
    bits = parity_bits(kind, 2, 3 if kind == "iha" else None, pattern, 3 if kind == "multi-token" else None)
    if kind in ("gated-linear", "forgetting"):
        assert bits is None
        return
    if bits is None:
        with pytest.raises(ValueError, match="no total degree"):
            run(layer(kind, pattern), 3)
        return
    more = run(layer(kind, pattern), bits + 1, weights=20)
    assert more.holds
    assert more.sums.shape == (20,)
    as_many = run(layer(kind, pattern), bits, weights=20)
    if kind == "multi-token" and pattern == "softmax":  # needs several tokens for a bit
        as_many = run(layer(kind, pattern), 2, weights=20)
    assert float((as_many.sums / as_many.bound).max()) > 1e4
    assert not as_many.holds


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNBOUNDED])
def test_the_logits_are_those_of_the_forward(kind):
    """An output whose values are 1 at one token and 0 elsewhere is its weight in the first row."""
    one = layer(kind, heads=1 if kind in ("differential", "iha") else 2)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        one.out_proj.weight.zero_()
        one.out_proj.weight[:, 0] = 1
        for name in ("out_proj.bias", "v_proj.bias", "v2_proj.bias", "lam"):
            if name in dict(one.named_parameters()):
                one.get_parameter(name).zero_()
        for name in ("v_proj.weight", "v2_proj.weight"):
            if name in dict(one.named_parameters()):
                one.get_parameter(name).zero_()[:, 3] = 1
        for name, parameter in one.named_parameters():
            if name.startswith("compose.weights"):
                parameter.zero_()
        for name, eye in (("alpha_v", torch.tensor([[[1.0, 0.0, 0.0]]])), ("mix_weights", torch.eye(2))):
            if name in dict(one.named_parameters()):
                one.get_parameter(name).copy_(eye)
        if kind == "mla":
            one.get_parameter("kv_down.weight").copy_(torch.eye(8, 4))
            one.get_parameter("kv_down.bias").zero_()
        if kind == "tensor-product":
            one.get_parameter("v_heads.weight").zero_()
            one.get_parameter("v_heads.bias").fill_(1)
        if "gate_proj.weight" in dict(one.named_parameters()):
            one.get_parameter("gate_proj.weight").zero_()
            one.get_parameter("gate_proj.bias").fill_(100)
        if kind == "iha":
            one.get_parameter("collapse").copy_(torch.tensor([[[1.0, 0.0, 0.0]]]))
    x = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
    x[..., 3] = 0
    x[:, 0, 3] = 1
    weights = logits(one, x).softmax(-1)[:, 0]
    torch.testing.assert_close(one(x[:, -1:], x, x)[:, -1, 0], weights[:, 0])


def test_wrong_signs_are_counted():
    runs = run(layer("mha"), 3, weights=5)
    signs = [(-1) ** sum(x) for x in itertools.product((0, 1), repeat=3)]
    assert runs.signs.tolist() == signs
    for out, wrong in zip(runs.outputs.tolist(), runs.wrong.tolist(), strict=True):
        assert wrong == sum(g * sign <= 0 for g, sign in zip(out, signs, strict=True))


def made(outputs, denominators=None):
    """Layers of output size 1 on one bit, whose signs are 1, -1."""
    g = torch.tensor(outputs, dtype=torch.float64)
    d = g.new_ones(*g.shape, 0) if denominators is None else g.new_tensor(denominators)[..., None]
    return Runs(g, d, Sizes(g.new_ones(len(g)), g.new_ones(len(g)), 1, 1))


def test_zero_is_a_wrong_sign_and_a_sum_of_zero_needs_one():
    assert made([[0.0, 0.0], [0.0, -1.0], [1.0, -1.0]]).wrong.tolist() == [2, 1, 0]
    assert made([[1.0, 1.0]]).holds
    without = made([[1.0, -2.0]], [[2.0, -1.0]])  # no denominator is negative
    assert (float(without.sums), int(without.wrong)) == (0, 0)
    assert not without.holds


def test_the_worst_layer_is_the_one_nearest_its_bound():
    found, bound = made([[1.0, 1.0], [1.0, -1.0], [1.0, 0.5]]).worst
    assert found == 1
    assert bound < 1e-14


def test_both_maps_of_differential_count_in_the_size_whatever_the_sign():
    one, tokens = layer("differential"), torch.ones(2, 4, dtype=torch.float64)
    found = []
    for lam in (0.0, 2.0, -2.0):
        with torch.no_grad():
            one.get_parameter("lam").fill_(lam)
            one.get_parameter("out_proj.bias").zero_()
        found.append(float(sizes(one, tokens, 3).output))
    assert found[1:] == pytest.approx([3 * found[0]] * 2)


@pytest.mark.parametrize("kind", ["mha", "iha", "simplicial"])
def test_as_many_keys_as_logits_in_a_row(kind):
    x = torch.ones(1, 4, 4, dtype=torch.float64)
    assert sizes(layer(kind), x[0], 4).keys == logits(layer(kind), x).shape[-1]


def test_dropout_is_off():
    one = layer("mha")
    dropped = attention.MultiHeadAttention(4, 2, dropout=0.5, **OPTIONS)
    assert torch.equal(run(dropped, 2, weights=3).outputs, run(one, 2, weights=3).outputs)
    assert dropped.training


def test_the_seed_decides():
    first, other = run(layer("iha"), 2, weights=3), run(layer("iha"), 2, weights=3, seed=1)
    assert torch.equal(first.outputs, run(layer("iha"), 2, weights=3).outputs)
    assert not torch.equal(first.outputs, other.outputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pattern": "hard"}, "softmax or linear"),
        ({"rotary": True}, "without rotary"),
        ({"window": 2}, "or a window"),
        ({}, "bits must be"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        run(attention.MultiHeadAttention(4, 2, **OPTIONS, **arguments), 0)


def test_bounds_are_of_rounding():
    runs = run(layer("mha"), 3, weights=5)
    assert 0 < float(runs.bound.max()) < 1e-11
