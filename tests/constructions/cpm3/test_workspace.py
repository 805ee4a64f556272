"""CPM-3's constructions, against values worked out by hand and the task's own oracle."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.construction import count
from constructions.cpm3.workspace import LAYERS, network, workspace
from constructions.filter_bank.layers import PAPER
from constructions.suite.cpm3 import counts_errors, counts_exact, workspace_exact
from iha_theory import exact
from iha_theory.costs import ceil_sqrt, pair_count_parameters, workspace_parameters
from synthetic.tasks.count_pairs import CountPairs, all_sequences


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("x", "modulus", "coefficient", "counts"),  # case 7
    [
        ([200, 100], 7, 3, [1, 0]),
        ([1, 4, 2], 5, -1, [1, 1, 2]),
        ([3, 1], 7, 2**62, [0, 1]),
        ([5, 6, 0], 1, 9, [9, 9, 9]),
        ([0, 1, 2], 3, 2, [3, 3, 3]),
        ([2], 6, 1, [1]),
    ],
)
def test_counts_by_hand(layer, x, modulus, coefficient, counts):
    net = network(workspace(layer, len(x)), modulus, coefficient)
    assert net(torch.tensor([x])).tolist() == [counts]
    assert net.counts(net.workspaces(torch.tensor([x]), share_pattern=True)).tolist() == [counts]


@pytest.mark.parametrize("layer", LAYERS)
def test_the_workspace_starts_with_the_own_token_and_goes_forward(layer):  # ledger E7
    out = workspace(layer, 4)(torch.tensor([[[1.0], [2.0], [3.0], [4.0]]], dtype=torch.float64))
    assert out[0].tolist() == [[1, 2, 3, 4], [2, 3, 4, 1], [3, 4, 1, 2], [4, 1, 2, 3]]


@given(st.sampled_from(LAYERS), st.integers(1, 12), st.integers(1, 9), st.integers(-(10**20), 10**20), st.data())
@settings(max_examples=60, deadline=None)
def test_counts_are_the_task(layer, tokens, modulus, coefficient, data):
    x = np.array([data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=tokens, max_size=tokens))])
    net = network(workspace(layer, tokens), modulus, coefficient)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(modulus, coefficient).target(x))


@given(st.sampled_from(LAYERS), st.integers(1, 7), st.integers(1, 5), st.integers(-9, 9), st.data())
@settings(max_examples=60, deadline=None)
def test_flags_leave_padding_out(layer, slots, modulus, coefficient, data):  # ledger E9
    present = np.array(data.draw(st.lists(st.booleans(), min_size=slots, max_size=slots).filter(any)))
    x = np.array(data.draw(st.lists(st.integers(0, 20), min_size=slots, max_size=slots)))
    net = network(workspace(layer, slots, width=2), modulus, coefficient, flags=True)
    counts = net(torch.from_numpy(x)[None], torch.from_numpy(present)[None].double())[0].numpy()
    assert np.array_equal(counts[present], CountPairs(modulus, coefficient).target(x[present]))
    assert not counts[~present].any()


SLOTS = range(1, 18)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("slots", SLOTS)
def test_every_length_up_to_n_max(layer, slots):  # ledger E9
    """Every N <= N_max, padded at the end by the call, in front, or anywhere, with 0 a token and padding that is not 0.

    The attention is exact for every content, and the MLP sees nothing else: so a mistake could only be in a hidden
    unit, and all residues and flags that a unit can see are run, in all sequences of up to 3 tokens.
    """
    construction = workspace(layer, slots, width=2)
    shifts = [exact.matrix(np.eye(slots, dtype=int)[(np.arange(slots) + t) % slots], QQ) for t in range(slots)]
    assert construction.heads == (slots if layer == "mha" else ceil_sqrt(slots))
    assert exact_gap(construction, shifts) == 0
    generator = np.random.default_rng(slots)
    for modulus, coefficient in ((3, 8), (2, 5)):
        net, task = network(construction, modulus, coefficient, flags=True), CountPairs(modulus, coefficient)
        for tokens in range(1, slots + 1):
            x = np.concatenate((generator.integers(0, 2 * modulus, (6, tokens)), np.zeros((1, tokens), dtype=np.int64)))
            if tokens <= 3:
                x = np.concatenate((x, *all_sequences(modulus, tokens)))
            expected = task.target(x)
            assert np.array_equal(net(torch.from_numpy(x)).numpy(), expected)
            present = np.zeros((len(x), slots), dtype=bool)
            present[0, -tokens:] = True
            for row in present[1:]:
                row[generator.permutation(slots)[:tokens]] = True
            padded = generator.integers(0, 9, present.shape)
            padded[present] = x.ravel()
            given = torch.from_numpy(padded), torch.from_numpy(present)
            for workspaces in (net.workspaces(*given), net.workspaces(*given, share_pattern=True)):
                counts = net.counts(workspaces).numpy()
                assert np.array_equal(counts[present], expected.ravel())
                assert not counts[~present].any()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("slots", [1, 2, 3, 4])
def test_every_sequence_with_every_padding(layer, slots):
    net = network(workspace(layer, slots, width=2), 3, 7, flags=True)
    x = np.concatenate(list(all_sequences(3, slots)))
    for present in np.concatenate(list(all_sequences(2, slots))).astype(bool):
        mask = torch.from_numpy(np.broadcast_to(present, x.shape).copy())
        counts = net.counts(net.workspaces(torch.from_numpy(x), mask, share_pattern=True)).numpy()
        assert not counts[:, ~present].any()
        if present.any():
            assert np.array_equal(counts[:, present], CountPairs(3, 7).target(x[:, present]))


def test_what_stands_in_padding_is_of_no_account():
    net = network(workspace("iha", 3, width=2), 5, -1, flags=True)
    x = torch.tensor([[1, -(2**62), 4], [2**62, 1, 4]])
    for present in (x.abs() < 10, (x.abs() < 10).double(), (x.abs() < 10).to(torch.uint8)):
        counts = net(x, present)
        assert counts[x.abs() < 10].view(2, 2).tolist() == [CountPairs(5, -1).target(np.array([1, 4])).tolist()] * 2
    tokens, present = torch.tensor([[200, 100]], dtype=torch.uint8), torch.ones(1, 2)
    assert network(workspace("iha", 3, width=2), 7, 3, flags=True)(tokens, present).tolist() == [[1, 0]]  # case 7


@pytest.mark.parametrize("layer", LAYERS)
def test_heads_and_parameters(layer):
    for tokens in range(1, 27):
        construction = workspace(layer, tokens)
        assert construction.heads == (tokens if layer == "mha" else ceil_sqrt(tokens))
        assert construction.parameters == workspace_parameters(layer, tokens)
    net = network(construction, 3, 5)
    assert count(net.mlp) == pair_count_parameters(26, construction.layer.out_dim)
    assert count(net.module) == count(net.mlp) + construction.parameters


@pytest.mark.parametrize("layer", PAPER)
def test_checks_hold_and_say_what_they_compared(layer):
    construction = workspace(layer, 6)
    assert workspace_exact(layer, construction).holds
    everything, other = counts_exact(layer, construction, 3, [8, 7])
    assert other.holds
    assert everything.holds
    assert everything.setting["sequences"] == 3**6
    assert "all" in everything.compared
    (some,) = counts_exact(layer, construction, 100, [8])
    assert some.holds
    assert "random" in some.compared


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        workspace("iha", 0)
    with pytest.raises(ValueError, match="modulus"):
        network(workspace("iha", 2), 0, 1)
    net = network(workspace("iha", 2), 7, 1)
    for big in (2**52, -(2**52), -(2**63)):
        with pytest.raises(ValueError, match="overflow"):
            net(torch.tensor([[big, 1]]))
    with pytest.raises(ValueError, match="no sequences"):
        net(torch.zeros(0, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="unknown layer 'gqa': accepted are mha, iha"):
        workspace("gqa", 2)
    one = torch.ones(1, 1, dtype=torch.int64)
    for x in (one, one.expand(1, 3)):
        with pytest.raises(ValueError, match="tokens: accepted are 2"):
            net(x)
    with pytest.raises(ValueError, match="has none"):
        net(one.expand(1, 2), one.expand(1, 2))
    flagged = network(workspace("iha", 2, width=2), 7, 1, flags=True)
    with pytest.raises(ValueError, match="3 tokens: accepted are 1 to 2"):
        flagged(one.expand(1, 3))
    for present in (2 * one, torch.tensor([[float("nan")]])):
        with pytest.raises(ValueError, match="expected 0 and 1"):
            flagged(one, present)
    with pytest.raises(ValueError, match=r"shape \(1, 2\): expected"):
        flagged._content(one, one.expand(1, 2))  # whose signature does not check shapes already
    for width, flags in ((1, True), (2, False), (3, True)):
        with pytest.raises(ValueError, match="width 2 is for flags"):
            network(workspace("iha", 2, width=width), 7, 1, flags=flags)


@pytest.mark.parametrize("layer", LAYERS)
def test_attention_that_follows_content_is_seen(layer):
    construction = workspace(layer, 4)
    with torch.no_grad():
        construction.layer.q_proj.weight[0, 0] = 5.0  # token 0's key now wins where the token is large
    errors, _ = counts_errors([network(construction, 3, 8)], [CountPairs(3, 8)], 4)
    assert errors[0] > 0
