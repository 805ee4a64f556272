"""One head and a ReLU MLP for CPM-3, against the task."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from constructions.construction import count
from constructions.cpm3.histogram import HistogramCount, histogram_parameters, histogram_units, network, rounding_bound
from iha_theory.attention import MultiHeadAttention
from synthetic.tasks.count_pairs import CountPairs, all_sequences

PATTERNS = ("linear", "softmax", "hard")


def test_counts_by_hand():
    assert network(3, 5, -1)(torch.tensor([[1, 4, 2]])).tolist() == [[1, 1, 2]]  # case 7
    assert network(3, 3, 2)(torch.tensor([[0, 1, 2]])).tolist() == [[3, 3, 3]]
    assert network(3, 1, 9)(torch.tensor([[5, 6, -1]])).tolist() == [[9, 9, 9]]


@pytest.mark.parametrize(
    ("pattern", "tokens", "modulus", "coefficient"),
    [
        *(("linear", *c) for c in ((1, 7, 16), (16, 2, 5), (10, 3, 8), (8, 4, -9), (7, 5, 2**62), (5, 9, 19))),
        *((pattern, *c) for pattern in ("softmax", "hard") for c in ((9, 1, 3), (9, 3, 8), (5, 6, 17))),
    ],
)
def test_all_sequences(pattern, tokens, modulus, coefficient):
    net = network(tokens, modulus, coefficient, pattern)
    assert modulus**tokens <= 100_000
    for x in all_sequences(modulus, tokens, chunk=2**14):
        outputs, target = net.outputs(torch.from_numpy(x)).numpy(), CountPairs(modulus, coefficient).target(x)
        assert np.array_equal(net(torch.from_numpy(x)).numpy(), target)
        assert np.abs(outputs - target).max() <= (0 if pattern == "linear" else rounding_bound(tokens, modulus))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("tokens", "modulus"), [(17, 7), (49, 10), (64, 3), (64, 12)])
def test_long_sequences(pattern, tokens, modulus):
    task = CountPairs(modulus, 2 * modulus + 3)
    x = task.sample(np.random.default_rng(tokens), 8, tokens, modulus)
    net = network(tokens, modulus, 2 * modulus + 3, pattern)
    outputs, target = net.outputs(torch.from_numpy(x)).numpy(), task.target(x)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), target)
    assert np.abs(outputs - target).max() <= (0 if pattern == "linear" else rounding_bound(tokens, modulus))


@given(st.integers(1, 12), st.integers(1, 6), st.integers(-20, 20), st.data())
@settings(max_examples=40, deadline=None)
def test_linear_attention_takes_shorter_sequences(n_max, modulus, coefficient, data):  # ledger E9
    x = np.array([data.draw(st.lists(st.integers(-50, 50), min_size=1, max_size=n_max))])
    counts = network(n_max, modulus, coefficient)(torch.from_numpy(x)).numpy()
    assert np.array_equal(counts, CountPairs(modulus, coefficient).target(x))


def test_heads_units_and_parameters():
    for tokens in range(1, 20):
        for modulus in range(1, 8):
            net = network(tokens, modulus, 3)
            assert isinstance(net.attention, MultiHeadAttention)
            assert net.attention.num_heads == 1
            assert net.mlp.hidden_units == histogram_units(tokens, modulus)
            assert count(net.module) == histogram_parameters(tokens, modulus)
    assert {type(m) for m in HistogramCount(4, 3, 1).modules()} == {HistogramCount, nn.Linear}
    assert histogram_units(64, 10) == 1835 < 64**2  # fewer than the paper's MLP for the same sequences


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        network(0, 3, 1)
    with pytest.raises(ValueError, match="at least 1"):
        network(3, 0, 1)
    assert rounding_bound(64, 12) < 1e-4
    assert rounding_bound(20_000, 40) > 0.5


def test_the_bound_on_rounding_is_enforced(monkeypatch):
    monkeypatch.setattr("constructions.cpm3.histogram.UNIT", 2.0**-24)
    with pytest.raises(ValueError, match="too large for float64"):
        network(64, 12, 5)


def test_lengths_and_dtypes_it_cannot_count_are_refused():
    assert network(2, 7, 3)(torch.tensor([[200, 100]], dtype=torch.uint8)).tolist() == [[1, 0]]
    assert (
        network(5, 5, 11)(torch.tensor([[1, 2, 3]])).tolist()
        == CountPairs(5, 11).target(np.array([[1, 2, 3]])).tolist()
    )
    with pytest.raises(ValueError, match="sequences of 6 tokens: accepted are 1 to 3"):
        network(3, 5, 11)(torch.tensor([[1, 1, 1, 1, 1, 2]]))
    with pytest.raises(ValueError, match="sequences of 3 tokens: accepted are 5 to 5"):
        network(5, 5, 11, "softmax")(torch.tensor([[1, 2, 3]]))
