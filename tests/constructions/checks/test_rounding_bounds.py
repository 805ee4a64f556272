"""The bounds that float64 is held to, counted again from the shapes of the weights that a sum runs over."""

import numpy as np
import pytest
import torch

from constructions.checks.inclusion import (
    TOKENS,
    WITNESS_WIDTH,
    outputs_error,
    real_mha,
    repeated_mha_error,
    witness_error,
    witness_weights,
)
from constructions.checks.operators import operations
from constructions.checks.state_space import fir_measure, float64_measure
from constructions.construction import Construction, blocks
from constructions.targets.inclusion import inclusion, witness
from constructions.targets.state_space import fir, rational_filter, transfer
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention, TwoLayerAttention
from iha_theory.rounding import gamma
from synthetic.systems import WIDTH, stable


def contracted(layer, tokens):
    """The lengths of all axes that a forward pass sums over, one after the other."""
    projections = [layer.q_proj, layer.k_proj, layer.v_proj]
    lengths = [p.weight.shape[1] for p in projections] + [layer.q_proj.weight.shape[0] // layer.num_heads]
    if isinstance(layer, InterleavedHeadAttention):
        lengths += [alpha.shape[0] for alpha in (layer.alpha_q, layer.alpha_k, layer.alpha_v)]
        lengths += [tokens * layer.alpha_q.shape[2], layer.collapse.shape[0] * layer.collapse.shape[2]]
    else:  # counted as an IHA with P = 1: more than there are
        lengths += [layer.num_heads] * 4 + [tokens]
    return sum(lengths) + (0 if layer.out_proj is None else layer.out_proj.weight.shape[1])


def made(layer, width=2):
    return Construction("test", "here", layer, blocks("X", 1, width), width)


@pytest.mark.parametrize("out_proj", [True, False])
def test_a_layers_longest_chain_is_the_sum_of_the_axes_it_sums_over(out_proj):
    sizes = {"head_dim": 3, "value_head_dim": 5, "pattern": "linear", "out_proj": out_proj}
    iha = InterleavedHeadAttention(7, 2, num_pseudo_heads=3, **sizes)
    mha = MultiHeadAttention(7, 4, **sizes)
    assert operations(made(iha), 5) == contracted(iha, 5)
    assert operations(made(mha), 5) == contracted(mha, 5)


def test_the_chains_of_two_layers_add_up():
    layer = TwoLayerAttention(8, 2, head_dim=3, value_head_dim=5, pattern="linear")
    assert operations(made(layer), 5) == contracted(layer.first, 5) + contracted(layer.second, 5)


@pytest.mark.parametrize(("order", "tokens"), [(2, 4), (12, 16)])
def test_a_state_space_model_is_held_to_the_longer_of_the_layers_and_the_runs_chains(order, tokens):
    model = stable(order, 0)
    construction = rational_filter("iha", transfer(model), tokens, rounded=True)
    by_layer = contracted(construction.layer, tokens) + 3
    by_run = (order + WIDTH) * (tokens + 2) + 1
    assert (by_layer > by_run) == (order == 2)
    assert float64_measure(construction, "iha", model, tokens)[1] == gamma(max(by_layer, by_run) + 1)


def test_a_filter_is_held_to_the_layers_chain_and_the_convolutions():
    taps = np.random.default_rng(0).standard_normal((3, WIDTH, WIDTH))
    construction = fir("iha", taps, 6)
    chain = contracted(construction.layer, 6) + 3 * WIDTH + 1
    assert fir_measure(construction, torch.from_numpy(taps), 6)[1] == gamma(chain)


def test_outputs_of_equal_softmax_layers_are_held_to_what_logits_and_averages_round():
    mha = real_mha(2, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for linear in (mha.q_proj, mha.k_proj):
            linear.weight.zero_()
            linear.bias.fill_(2.0)
    logits = mha.scale * mha.head_dim * 2 * 2
    chain = 2 * mha.embed_dim + mha.head_dim + mha.num_heads
    bound = outputs_error(mha, inclusion(mha, 3))[1]
    assert bound == pytest.approx(4 * gamma(chain) * (1 + logits) + 2 * gamma(2 * 3 * TOKENS + chain), rel=1e-12, abs=0)


def test_the_witness_is_held_to_what_its_logits_and_averages_round():
    zero = torch.zeros(WITNESS_WIDTH, WITNESS_WIDTH, dtype=torch.float64)
    weights = zero, zero, witness_weights(0)[2]
    bound = witness_error(witness(*weights, 3), weights)[1]
    assert bound == 4 * gamma(3 * WITNESS_WIDTH + 2 * 3 * TOKENS + 16)


def test_mha_on_repeated_tokens_is_held_to_its_two_projections_and_averages():
    layer = MultiHeadAttention(8, 2, dtype=torch.float64)
    assert repeated_mha_error(layer)[1] == gamma(4 * 8 + 4 * TOKENS)
