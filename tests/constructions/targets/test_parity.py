"""Parity: right for every input, exactly; the nodes; what is refused; damaged layers are noticed."""

import itertools
from fractions import Fraction

import pytest
import torch

from constructions.checks.softmax import RationalSoftmax
from constructions.targets.parity import LAYERS, MOST_BITS, nodes, parity, readout, row_output

every_layer = pytest.mark.parametrize("layer", LAYERS)


def all_bits(n):
    return torch.tensor(list(itertools.product((0, 1), repeat=n)))


def exact_tokens(bits):
    """[s, q] as rationals, written down again."""
    return [(Fraction(1 if b else -1), Fraction(0)) for b in bits] + [(Fraction(0), Fraction(1))]


def right(construction):
    """How many of the n + 1 Hamming weights get the right sign, in exact arithmetic from the torch weights."""
    layer, n = RationalSoftmax(construction.layer), construction.bits
    return sum(layer(exact_tokens([1] * c + [0] * (n - c)))[0] * (-1) ** c > 0 for c in range(n + 1))


@every_layer
@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 16])
def test_exactly_right_by_hamming_weight(layer, n):
    construction = parity(layer, n)
    assert construction.heads == (n if layer == "mha" else next(h for h in range(1, n + 1) if h * h >= n))
    assert right(construction) == n + 1


@every_layer
@pytest.mark.parametrize("n", [1, 2, 4])
def test_exactly_right_for_every_input(layer, n):
    exact = RationalSoftmax(parity(layer, n).layer)
    for bits in itertools.product((0, 1), repeat=n):
        assert exact(exact_tokens(bits))[0] * (-1) ** sum(bits) > 1 - Fraction(1, 10**9)


@every_layer
@pytest.mark.parametrize("n", [1, 2, 3, 7, 10])
def test_the_torch_layer_on_every_input(layer, n):
    bits = all_bits(n)
    torch.testing.assert_close(parity(layer, n)(bits), (-1.0) ** bits.sum(1).double(), rtol=0, atol=1e-8)


@pytest.mark.parametrize(("pseudo", "heads"), [(1, 6), (2, 3), (4, 2), (6, 1), (9, 1)])
def test_any_number_of_pseudo_heads(pseudo, heads):
    construction = parity("iha", 6, pseudo)
    assert (construction.heads, construction.pseudo_heads) == (heads, pseudo)
    assert right(construction) == 7


def test_nine_bits_take_three_heads_of_iha():
    assert (parity("iha", 9).heads, parity("mha", 9).heads) == (3, 9)
    assert right(parity("iha", 9)) == 10


@pytest.mark.parametrize("n", [1, 2, 9, 16])
def test_the_identity_holds_exactly(n):
    rs = nodes(n)
    theta, w = readout(n, rs)
    assert len(set(rs)) == n
    assert all(r > 0 for r in rs)
    for c in range(n + 1):
        assert theta + sum(x * row_output(r, c, n) for x, r in zip(w, rs, strict=True)) == (-1) ** c


def test_weights_stay_small():
    assert max(map(abs, readout(9, nodes(9))[1])) < 13_000
    assert max(map(abs, readout(16, nodes(16))[1])) < 2 * 10**9
    plain = tuple(map(Fraction, range(2, 11)))
    assert max(map(abs, readout(9, plain)[1])) > 10**8


def damage(name, factor):
    def make(construction):
        with torch.no_grad():
            parameter = construction.layer.get_parameter(name)
            parameter.view(-1)[0] = factor * parameter.view(-1)[0] + (parameter.view(-1)[0] == 0)
        return construction

    return make


@every_layer
@pytest.mark.parametrize("name", ["out_proj.weight", "v_proj.weight", "out_proj.bias"])
def test_a_damaged_layer_is_wrong_somewhere(layer, name):
    assert right(damage(name, -1)(parity(layer, 6))) < 7


def test_a_row_less_is_wrong_somewhere():
    construction = parity("iha", 9)
    with torch.no_grad():
        construction.layer.collapse[2, 2] = 0
    assert right(construction) < 10


def test_another_node_is_wrong_somewhere():
    construction = parity("iha", 9)
    with torch.no_grad():
        construction.layer.alpha_q[1, 1, 0] = construction.layer.alpha_q[0, 0, 0]
    assert right(construction) < 10


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("gqa", 3), "unknown layer 'gqa'"),
        (("mha", 0), "bits must be an integer of at least 1"),
        (("mha", MOST_BITS + 1), f"up to {MOST_BITS} bits"),
        (("iha", 3, 0), "pseudo_heads must be"),
    ],
)
def test_refusals(arguments, word):
    with pytest.raises(ValueError, match=word):
        parity(*arguments)


def test_inputs_are_bits():
    with pytest.raises(ValueError, match="bits are 0 and 1"):
        parity("mha", 2)(torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match="3 bits for a layer of 2"):
        parity("mha", 2)(torch.tensor([[0, 1, 1]]))
