"""The workspace from keys of two coordinates (docs/results.md T10)."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from constructions.cpm3.compact import (
    WEIGHTS,
    compact_workspace,
    gaps,
    keys_on_circle,
    largest_circle,
    least_inverse_temperature,
    parameters,
    temperature_constant,
)
from constructions.cpm3.precision import significand_bits
from constructions.cpm3.temperature import error_bound, hardest, rounds_exactly, soften, workspace_error
from constructions.cpm3.workspace import network, workspace
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.count_pairs import CountPairs

HARD = ("mha", "iha")


@pytest.mark.parametrize("layer", HARD)
@pytest.mark.parametrize("tokens", [*range(1, 18), 36, 50])
def test_hard_attention_copies_exactly(layer, tokens):
    x = torch.cat((torch.arange(tokens)[None], hardest(tokens, 7)))
    built = compact_workspace(layer, tokens)
    assert workspace_error(built, x) == 0
    assert built.heads == (tokens if layer == "mha" else ceil_sqrt(tokens))


@pytest.mark.parametrize("layer", HARD)
def test_it_counts_pairs(layer):
    x = np.random.default_rng(0).integers(0, 5, (20, 10))
    net = network(compact_workspace(layer, 10), 5, 11)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(5, 11).target(x))


@pytest.mark.parametrize("layer", WEIGHTS)
@pytest.mark.parametrize("tokens", [2, 3, 4, 5, 8, 13, 30])
@pytest.mark.parametrize("spread", [1, 4])
def test_the_least_temperature_is_sharp(layer, tokens, spread):
    built, x = compact_workspace(layer, tokens), hardest(tokens, spread)
    b = least_inverse_temperature(layer, tokens, spread)
    step = 1e-6 * (1 + b)
    assert rounds_exactly(soften(built, b + step), x)
    assert not rounds_exactly(soften(built, b - step), x)
    n = keys_on_circle(layer, tokens)
    if n > 2:
        assert abs(b / n**2 / temperature_constant(spread) - 1) <= max(10 / n**2, 1.0 * (tokens == 2))


def test_temperature_grows_as_the_square_and_the_cube():
    small, large = (least_inverse_temperature("mha", n, 1) for n in (32, 64))
    assert large / small == pytest.approx(4, rel=0.01)
    small, large = (least_inverse_temperature("iha", n, 1) for n in (16, 64))
    assert large / small == pytest.approx(4**3, rel=0.01)


def test_ties_of_floats_do_not_survive_hard_attention():
    tied = compact_workspace("iha-ties", 9)
    tied.layer.pattern = "hard"
    assert workspace_error(tied, torch.arange(9)[None]) > 1
    b = least_inverse_temperature("iha-ties", 9, 8)
    assert rounds_exactly(soften(tied, 1.01 * b), torch.arange(9)[None])


@pytest.mark.parametrize("layer", WEIGHTS)
def test_parameters_and_base_queries(layer):
    for tokens in range(1, 20):
        built = compact_workspace(layer, tokens)
        assert built.parameters == parameters(layer, tokens)
        assert built.layer.q_proj.weight.shape == (2 * built.heads, tokens + 1)
        assert torch.linalg.matrix_rank(built.layer.q_proj.weight.unflatten(0, (built.heads, 2)).flatten(1)) <= 2
    one_hot = [workspace(one, 16).parameters for one in HARD]
    compact = [compact_workspace(one, 16).parameters for one in HARD]
    assert (one_hot, compact) == ([8976, 2704], [1360, 800])
    assert parameters("mha", 10**6) / parameters("iha", 10**6) == pytest.approx(5, rel=0.01)


@pytest.mark.parametrize("layer", HARD)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_hard_attention_in_lower_precision(layer, dtype):
    largest = largest_circle(2.0 ** -significand_bits(dtype))
    seen = [n for n in (2, 3, 4, 5, 11, 13, 25, 37, 64) if keys_on_circle(layer, n) <= largest]
    for tokens in seen:
        built = compact_workspace(layer, tokens)
        low = replace(built, layer=copy.deepcopy(built.layer).to(dtype))
        x = torch.arange(tokens).to(dtype)[None, :, None]
        assert torch.equal(low(x).double(), built(x.double()))
    if dtype == torch.bfloat16:  # and it does end
        tokens = 80 if layer == "mha" else 17
        built = compact_workspace(layer, tokens)
        x = torch.arange(tokens, dtype=torch.float64)[None, :, None]
        low = replace(built, layer=copy.deepcopy(built.layer).to(dtype))
        assert not torch.equal(low(x.to(dtype)).double(), built(x))
    assert seen


def test_limits_of_the_circle():
    assert [largest_circle(2.0**-p) for p in (53, 24, 8)] == [79_685_763, 3_439, 13]
    assert gaps(4) == pytest.approx([1, 2, 1])
    assert error_bound(4, 1, 0.0) == 0.75


def test_what_is_refused():
    with pytest.raises(ValueError, match="unknown layer"):
        compact_workspace("gqa", 4)
    with pytest.raises(ValueError, match="at least 1"):
        compact_workspace("mha", 0)
