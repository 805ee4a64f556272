"""Two heads with content in the keys, against the task."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.cpm3.two_heads import marked_sequence, one_head, two_heads, whole_sequence
from iha_theory.operators.weights import NotPositionOnlyError, read, with_positions
from synthetic.tasks.count_pairs import CountPairs, all_sequences
from synthetic.training import model
from synthetic.training.config import TrainConfig


def test_every_token_gets_the_whole_sequence_and_itself():
    x = with_positions(torch.tensor([[[2.0], [3.0], [5.0]]], dtype=torch.float64))
    assert whole_sequence(3)(x, x, x)[0].tolist() == [[2, 3, 5, own, 0, 0] for own in (2, 3, 5)]


def test_a_trained_model_can_be_it():
    """cpm3 with values that see positions: every token gets all residues, in their centred form, and its own."""
    options = {"tokens": 4, "attention": "mha", "heads": 2, "mode": "content", "pattern": "linear", "hidden": 8}
    config = TrainConfig.for_task("cpm3", options | {"position_values": True, "dtype": "float64"})
    own = model.build(config, config.build())
    own.layer.load_state_dict(whole_sequence(4).state_dict())
    x = torch.tensor([[0, 1, 2, 2], [1, 1, 0, 2]])
    tokens = own.embed(x)
    expected = torch.cat((tokens.transpose(1, 2).expand(-1, 4, -1), tokens, torch.zeros(2, 4, 3)), dim=-1)
    assert torch.equal(own.seen(x), expected.double())


def test_one_head_hands_on_the_sequence_and_marks_the_own_token():
    x = torch.tensor([[2.0, 0, 1, 2, 1]], dtype=torch.float64)
    tokens = with_positions(x.unsqueeze(-1))
    assert torch.equal(marked_sequence(5)(tokens, tokens, tokens)[0], x + torch.eye(5) / 2)


@pytest.mark.parametrize(("modulus", "coefficient"), [(1, 0), (2, 1), (3, 8), (4, 2)])
def test_one_head_counts_right_on_every_sequence_and_no_damaged_one_does(modulus, coefficient):
    x = np.concatenate(list(all_sequences(modulus, 4)))
    target = CountPairs(modulus, coefficient).target(x)

    def right(damage=None):
        net = one_head(4, modulus, coefficient)
        assert net.attention.heads == 1
        with torch.no_grad():
            if damage is not None:
                damage(net.attention.layer)
            rows = net.workspaces(torch.from_numpy(x)).flatten(0, 1)
            return np.array_equal(net.mlp_of(rows).view(x.shape).numpy(), target)

    assert right()
    if modulus > 1:
        assert not right(lambda layer: layer.k_proj.weight[:, 0].zero_()), "no content in the keys"
        assert not right(lambda layer: layer.k_proj.weight[:, 1:].zero_()), "no mark"
        assert not right(lambda layer: layer.v_proj.weight[0].copy_(layer.v_proj.weight[1])), "two tokens to one place"


def test_it_is_not_position_only():
    with pytest.raises(NotPositionOnlyError, match="keys use content"):
        read(whole_sequence(3), 1)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(-(10**20), 10**20), st.data())
@settings(max_examples=40, deadline=None)
def test_counts_are_the_task(tokens, modulus, coefficient, data):
    x = np.array([data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=tokens, max_size=tokens))])
    for net, heads in ((two_heads(tokens, modulus, coefficient), 2), (one_head(tokens, modulus, coefficient), 1)):
        assert net.attention.heads == heads
        assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(modulus, coefficient).target(x))


def test_no_tokens_are_refused():
    for build in (two_heads, one_head):
        with pytest.raises(ValueError, match="at least 1"):
            build(0, 3, 1)
