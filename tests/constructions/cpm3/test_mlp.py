"""The ReLU-only MLP that counts pairs, against the task, and its number of units."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from constructions.cpm3.mlp import (
    ReluPairCount,
    folds,
    interpolation,
    largest_sum,
    least_knots,
    relu_pair_count_units,
    relu_units,
    tents,
)
from constructions.cpm3.workspace import CountPairsNetwork, workspace
from synthetic.tasks.count_pairs import CountPairs, all_sequences

FORMS = {"tents": False, "folds": True}


def relu_network(layer, tokens, modulus, coefficient, *, flags=False, **options):
    attention = workspace(layer, tokens, 1 + flags)
    starts = [block.start for block in attention.readout]
    present = [s + 1 for s in starts] if flags else None
    mlp = ReluPairCount(starts, attention.layer.out_dim, modulus, coefficient, present, **options)
    return CountPairsNetwork(attention, mlp)


@pytest.mark.parametrize("deep", FORMS.values(), ids=FORMS)
def test_the_test_is_one_at_multiples_and_zero_elsewhere(deep):
    for modulus, top in product(range(2, 13), range(2, 50)):
        z = torch.arange(top + 1, dtype=torch.float64)
        net = (folds if deep else tents)(modulus, top)
        assert torch.equal(net(z.unsqueeze(-1)).squeeze(-1), (z % modulus == 0).double())
        counted = sum(m.out_features for m in list(net)[:-1] if isinstance(m, nn.Linear))
        assert counted == relu_units(modulus, top, deep=deep)
        if not deep and modulus >= 4:  # the shallow form is then the least
            assert counted == least_knots([int(v % modulus == 0) for v in range(top + 1)])


def test_only_linear_layers_and_relu():
    mlp = ReluPairCount([0, 1], 2, 5, 3, deep=True)
    assert {type(m) for m in mlp.modules()} <= {ReluPairCount, nn.Sequential, nn.Linear, nn.ReLU}


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=9))
def test_interpolation(values):
    z = torch.arange(len(values), dtype=torch.float64).unsqueeze(-1)
    net = interpolation(values)
    assert net(z).squeeze(-1).tolist() == values
    assert net[0].out_features >= least_knots(values)


def test_least_knots_by_hand():
    assert least_knots([0, 1, 2, 3]) == 0
    assert least_knots([1, 0, 0, 1]) == 1  # one knot between 1 and 2 serves both
    assert least_knots([0, 0, 0, 0, 1, 0, 0, 0]) == 3
    assert least_knots([0, 1, 4, 9, 16]) == 2  # knots between the integers: every other one is enough


@pytest.mark.parametrize("deep", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    ("tokens", "modulus", "coefficient"),
    [(1, 7, 16), (12, 2, 5), (8, 3, 8), (6, 4, -9), (5, 5, 2**62), (4, 9, 19), (9, 1, 3)],
)
def test_all_sequences(deep, tokens, modulus, coefficient):
    net, task = relu_network("iha", tokens, modulus, coefficient, deep=deep), CountPairs(modulus, coefficient)
    for x in all_sequences(modulus, tokens):
        counts = net.counts(net.workspaces(torch.from_numpy(x), share_pattern=True))
        assert np.array_equal(counts.numpy(), task.target(x))
    units = relu_pair_count_units(tokens, modulus, coefficient, modulus - 1, deep=deep)
    assert net.mlp.hidden_units == units


@pytest.mark.parametrize("deep", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("tokens", [17, 33, 64])
def test_long_sequences(deep, tokens):
    x = CountPairs(7, 16).sample(np.random.default_rng(tokens), 3, tokens, 7)
    net = relu_network("iha", tokens, 7, 16, deep=deep)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(7, 16).target(x))


@given(
    st.booleans(),
    st.integers(1, 6),
    st.integers(1, 7),
    st.integers(-20, 20),
    st.integers(0, 25),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_padding_and_tokens_beyond_the_residues(deep, slots, modulus, coefficient, highest, data):  # ledger E9
    present = np.array(data.draw(st.lists(st.booleans(), min_size=slots, max_size=slots).filter(any)))
    x = np.array(data.draw(st.lists(st.integers(0, highest), min_size=slots, max_size=slots)))
    net = relu_network("iha", slots, modulus, coefficient, flags=True, deep=deep, highest=highest)
    counts = net(torch.from_numpy(x)[None], torch.from_numpy(present)[None])[0].numpy()
    assert np.array_equal(counts[present], CountPairs(modulus, coefficient).target(x[present]))
    assert not counts[~present].any()


def test_folds_take_logarithmically_many_units():
    modulus, coefficient = 64, 63
    top = largest_sum(modulus, coefficient, modulus - 1)
    assert relu_units(modulus, top, deep=False) == 3 * (top // modulus) + 1 - max(0, 2 - top % modulus) == 190
    assert relu_units(modulus, top, deep=True) == 14


@pytest.mark.parametrize("deep", FORMS.values(), ids=FORMS)
def test_what_is_refused(deep):
    with pytest.raises(ValueError, match="modulus"):
        ReluPairCount([0], 1, 0, 1, deep=deep)
    with pytest.raises(ValueError, match="largest token"):
        ReluPairCount([0], 1, 3, 1, highest=-1, deep=deep)
    mlp = ReluPairCount([0, 1], 2, 3, 1, deep=deep)
    for bad in (3.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"tokens must be in 0 \.\. 2"):
            mlp(torch.tensor([[0.0, bad]], dtype=torch.float64))


def test_sums_beyond_float64_are_refused():
    with pytest.raises(ValueError, match="may not be exact: reduce them mod M"):
        ReluPairCount([0, 1], 2, 45, 20, highest=2**52, deep=True)
