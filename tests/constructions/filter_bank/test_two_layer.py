"""The bank by two layers: exact for any matrix, counted, bounded, judged."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from iha_theory import exact
from iha_theory.operators.exact import layer_columns
from iha_theory.operators.weights import NotPositionOnlyError, read, with_positions
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.filter_bank import power_blocks


def integers(size, seed=0):
    return exact.matrix(np.random.default_rng(seed).integers(-2, 3, (size, size)), QQ)


@settings(max_examples=30, deadline=None)
@given(terms=st.integers(1, 17), size=st.integers(1, 4), width=st.integers(1, 3), seed=st.integers(0, 2**16))
def test_exact_for_any_matrix(terms, size, width, seed):
    a = integers(size, seed)
    construction = bank("mha-two-layer", powers(a), terms, width)
    assert construction.heads == construction.layer.first.num_heads == ceil_sqrt(terms)
    assert construction.pseudo_heads == 1
    blocks = list(power_blocks(a, terms))
    assert exact_gap(construction, blocks) == 0
    assert exact_gap(construction, [*blocks[:-1], exact.identity(size, QQ) * QQ(7, 2)]) > 0


def test_the_operator_read_is_the_function():
    """Each layer mixes tokens and coordinates at random: the composition of the weights is what the module computes."""
    generator = torch.Generator().manual_seed(0)
    width, tokens = 2, 4
    construction = bank("mha-two-layer", powers(torch.eye(tokens, dtype=torch.float64)), 4, width)
    layer = construction.layer
    with torch.no_grad():
        for part, own in ((layer.first, width), (layer.second, layer.first.out_dim)):
            for linear, keep in ((part.q_proj, slice(width, None)), (part.k_proj, slice(width, None))):
                weight = linear.weight[:, keep]
                weight.copy_(torch.randint(-3, 4, weight.shape, generator=generator))
            values = part.v_proj.weight[:, :own]
            values.copy_(torch.randint(-3, 4, values.shape, generator=generator))
    x = torch.randint(-9, 10, (1, tokens, width), generator=generator).double()
    out = construction.layer(*(with_positions(x),) * 3)[0]
    for e, maps in enumerate(layer_columns(layer, width)):
        expected = sum(exact.to_float64(m) @ x[0, :, a] for a, m in enumerate(maps) if m is not None)
        assert torch.equal(out[:, e], expected)


def test_same_heads_as_iha_and_twice_the_query_parameters():
    power = powers(torch.eye(16, dtype=torch.float64))
    for terms in (4, 9, 16, 25):
        ours, iha = bank("mha-two-layer", power, terms, 1), bank("iha", power, terms, 1)
        heads = ceil_sqrt(terms)
        assert ours.heads == iha.heads == heads
        assert ours.layer.attention_maps == 2 * heads
        queries = sum(p.numel() for n, p in ours.layer.named_parameters() if "q_proj" in n or "k_proj" in n)
        assert queries == 4 * heads * 16 * 17
        assert sum(p.numel() for n, p in iha.layer.named_parameters() if n[:6] in ("q_proj", "k_proj")) * 2 == queries


@pytest.mark.parametrize("part", ["first", "second"])
@pytest.mark.parametrize("name", ["q_proj", "k_proj"])
def test_content_in_queries_or_keys_is_refused(part, name):
    construction = bank("mha-two-layer", powers(integers(3)), 4, 2)
    with torch.no_grad():
        getattr(getattr(construction.layer, part), name).weight[0, 1] = 1
    with pytest.raises(NotPositionOnlyError):
        list(layer_columns(construction.layer, 2))


def test_positions_in_the_first_layers_values_are_refused():
    construction = bank("mha-two-layer", powers(integers(3)), 4, 2)
    with torch.no_grad():
        construction.layer.first.v_proj.weight[0, -1] = 1
    with pytest.raises(NotPositionOnlyError, match="values use positions"):
        list(layer_columns(construction.layer, 2))


def test_read_takes_values_without_positions_only_where_told():
    second = bank("mha-two-layer", powers(integers(3)), 4, 2).layer.second
    assert read(second, 2, value_width=4).width == 4
    with pytest.raises(NotPositionOnlyError):
        read(second, 2)


@pytest.mark.parametrize(("terms", "width"), [(0, 1), (1, 0)])
def test_refusals(terms, width):
    with pytest.raises(ValueError, match="at least 1"):
        bank("mha-two-layer", powers(integers(2)), terms, width)
