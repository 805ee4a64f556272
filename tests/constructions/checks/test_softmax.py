"""Softmax in exact arithmetic: against torch on layers whose logits are logarithms, and what is refused."""

import math
from fractions import Fraction

import pytest
import torch

from constructions.checks.parity import rational_layer
from constructions.checks.softmax import LARGEST, Logit, RationalSoftmax, logit_number
from iha_theory.attention import MultiHeadAttention


@pytest.mark.parametrize("kind", ["mha", "global", "per_head"])
@pytest.mark.parametrize("seed", range(3))
def test_equals_torch(kind, seed):
    generator = torch.Generator().manual_seed(seed)
    layer = rational_layer(kind, 2, 2, generator, value_head_dim=2, out_dim=3)
    x = torch.randint(-1, 2, (1, 4, 3), generator=generator).double()
    exact = RationalSoftmax(layer)
    out = layer(x, x, x)[0]
    tokens = [[Fraction(v) for v in row] for row in x[0].tolist()]
    for query in (0, 3):
        got = [float(v) for v in exact(tokens, query)]
        assert got == pytest.approx(out[query].tolist(), rel=1e-12, abs=1e-12)


def test_numbers():
    assert logit_number(math.log(2)) == Logit(logs=((Fraction(2), Fraction(1)),))
    assert logit_number(math.log(Fraction(7, 2))) == Logit(logs=((Fraction(7, 2), Fraction(1)),))
    for dyadic in (0.5, 0.0, 1000.0):
        assert logit_number(dyadic) == Logit(Fraction(dyadic))
    two = logit_number(math.log(2))
    assert (two + two).exponential() == 4
    assert (two * Logit(Fraction(-3))).exponential() == Fraction(1, 8)
    assert (two + two * Logit(Fraction(-1))) == Logit()


def test_logarithms_are_known_up_to_the_largest_numbers():
    for r in (Fraction(LARGEST), Fraction(1, LARGEST), Fraction(LARGEST - 1, LARGEST)):
        assert logit_number(math.log(r)) == Logit(logs=((r, Fraction(1)),))
    for r in (Fraction(LARGEST + 1), Fraction(1, LARGEST + 1)):
        assert logit_number(math.log(r)) == Logit(Fraction(math.log(r)))


@pytest.mark.parametrize("bad", [Logit(Fraction(1)), Logit(logs=((Fraction(2), Fraction(1, 2)),))])
def test_irrational_weights_are_refused(bad):
    with pytest.raises(ValueError, match=r"^a logit is no sum .* not rational$"):
        bad.exponential()
    with pytest.raises(ValueError, match="product of two logarithms"):
        logit_number(math.log(2)) * logit_number(math.log(3))


def test_other_layers_are_refused():
    with pytest.raises(ValueError, match="softmax"):
        RationalSoftmax(MultiHeadAttention(4, 2, pattern="hard", dtype=torch.float64))
    with pytest.raises(ValueError, match="float64"):
        RationalSoftmax(MultiHeadAttention(4, 2))
