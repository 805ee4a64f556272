"""Softmax in place of hard attention, and number formats, against derived limits (docs/results.md T9)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.cpm3 import precision
from constructions.cpm3.temperature import (
    error_bound,
    hardest,
    least_inverse_temperature,
    least_inverse_temperature_for,
    rounds_exactly,
    soften,
    workspace_error,
)
from constructions.cpm3.workspace import workspace

LAYERS = ("mha", "iha")
BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("tokens", [2, 3, 5, 9, 16, 17])
@pytest.mark.parametrize("spread", [1, 2, 9])
def test_the_bound_is_attained_and_the_least_temperature_is_sharp(layer, tokens, spread):
    hard, x = workspace(layer, tokens), hardest(tokens, spread)
    for b in (0.0, 0.7, 3.0, 8.0):
        assert workspace_error(soften(hard, b), x) == pytest.approx(error_bound(tokens, spread, b), rel=1e-10)
    b = least_inverse_temperature(tokens, spread)
    assert rounds_exactly(soften(hard, b + 1e-7), x)
    assert not rounds_exactly(soften(hard, b - 1e-7), x)


@given(st.sampled_from(LAYERS), st.integers(2, 12), st.integers(1, 9), st.floats(0, 6), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_no_sequence_is_worse_than_the_bound(layer, tokens, spread, b, seed):
    x = torch.randint(0, spread + 1, (5, tokens), generator=torch.Generator().manual_seed(seed)) - 3
    assert workspace_error(soften(workspace(layer, tokens), b), x) <= error_bound(tokens, spread, b) * (1 + 1e-9)


def test_softening_leaves_the_original_alone():
    hard = workspace("iha", 5)
    soft = soften(hard, 2.0)
    assert (hard.layer.pattern, soft.layer.pattern, soft.layer.scale) == ("hard", "softmax", 2.0)
    assert soft.layer.q_proj.weight.equal(hard.layer.q_proj.weight)


def test_least_temperature_by_hand():
    assert least_inverse_temperature(2, 1) == 0  # the mean of two tokens one apart is a tie
    assert least_inverse_temperature(5, 3) == pytest.approx(math.log(4 * 5))
    assert least_inverse_temperature(1, 9) == least_inverse_temperature(7, 0) == -math.inf
    assert least_inverse_temperature_for([1.0] * 4, 3) == pytest.approx(math.log(20), rel=1e-12)
    assert least_inverse_temperature_for([2.0] * 4, 3) == pytest.approx(math.log(20) / 2, rel=1e-12)
    # two keys of the right token with equal weights, four others of gap 1: 4 e^-b = 2
    assert least_inverse_temperature_for([1.0] * 4, 1, same=[0.0]) == pytest.approx(math.log(2), rel=1e-12)


@pytest.mark.parametrize(("gaps", "spread"), [([], 1), ([0.0], 1), ([1.0, -1.0], 1), ([1.0], 0)])
def test_what_is_refused(gaps, spread):
    with pytest.raises(ValueError, match="gap"):
        least_inverse_temperature_for(gaps, spread)


@pytest.mark.parametrize(("dtype", "bits"), BITS.items())
def test_what_a_format_holds(dtype, bits):
    assert precision.significand_bits(dtype) == bits
    for n in [*range(2 * 2**8 + 9), *range(2**bits - 5, 2**bits + 9), 2**bits * 3, -(2**bits) - 1]:
        if abs(n) < 60_000 or dtype != torch.float16:  # float16 ends at 65504
            held = int(torch.tensor(n, dtype=torch.int64).to(dtype).double()) == n if bits < 53 else int(float(n)) == n
            assert precision.holds(n, bits) == held


@pytest.mark.parametrize("heads", range(1, 20))
def test_largest_token_is_the_first_gap(heads):
    bits = 8
    wrong = next(x for x in range(1, 300) if not (precision.holds(x, bits) and precision.holds(heads * x, bits)))
    assert precision.largest_token(heads, bits) == wrong - 1 >= 2**bits // heads


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("dtype", "known"), [(torch.bfloat16, (256, 86)), (torch.float32, (16_777_216, 5_592_406))])
def test_the_first_token_that_is_copied_wrong(layer, dtype, known):
    for tokens in (2, 4, 6, 9, 16, 20):
        construction = workspace(layer, tokens)
        largest = precision.largest_token(construction.heads if layer == "iha" else 1, BITS[dtype])
        if tokens == 9:
            assert largest == known[layer == "iha"]
        seen = range(max(0, largest - 300), largest + 2)
        assert precision.first_wrong_token(construction, dtype, seen) == largest + 1
        assert precision.first_wrong_token(construction, dtype, seen[:-1]) is None


def test_many_heads_can_round_back():
    assert precision.largest_token(17, 8) == 16
    scaled = torch.tensor(17.0 * 17, dtype=torch.float64).to(torch.bfloat16)
    assert float(scaled) == 288
    assert float((scaled.float() / 17).to(torch.bfloat16)) == 17


def test_counts_in_float32():
    assert precision.largest_tokens_counted(24) == 4096
    assert precision.largest_tokens_counted(8) == 16
    for n, exact in ((4096, True), (4097, False)):
        total = torch.ones(n**2).sum()
        assert (int(total.double()) == n**2) == exact
