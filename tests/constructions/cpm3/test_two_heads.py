"""Two heads with content in the keys, against the task."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.cpm3.two_heads import two_heads, whole_sequence
from iha_theory.attention import MultiHeadAttention
from iha_theory.operators.weights import NotPositionOnlyError, read, with_positions
from synthetic.tasks.count_pairs import CountPairs
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


def test_one_head_hands_on_the_sequence_and_which_token_is_the_own():
    """Query e_i, key x_j 1 + e_j / 2, value e_j: token i gets x + e_i / 2, whole numbers but for the own one."""
    layer = MultiHeadAttention(6, 1, head_dim=5, value_head_dim=5, out_proj=False, pattern="linear", scale=1.0)
    eye = torch.eye(5)
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.cat((torch.zeros(5, 1), eye), dim=1))
        layer.k_proj.weight.copy_(torch.cat((torch.ones(5, 1), eye / 2), dim=1))
        layer.v_proj.weight.copy_(torch.cat((torch.zeros(5, 1), eye), dim=1))
    x = torch.tensor([[2.0, 0, 1, 2, 1]])
    tokens = with_positions(x.unsqueeze(-1))
    assert torch.equal(layer(tokens, tokens, tokens)[0], x + eye / 2)


def test_it_is_not_position_only():
    with pytest.raises(NotPositionOnlyError, match="keys use content"):
        read(whole_sequence(3), 1)


@given(st.integers(1, 12), st.integers(1, 9), st.integers(-(10**20), 10**20), st.data())
@settings(max_examples=40, deadline=None)
def test_counts_are_the_task(tokens, modulus, coefficient, data):
    x = np.array([data.draw(st.lists(st.integers(-(10**6), 10**6), min_size=tokens, max_size=tokens))])
    net = two_heads(tokens, modulus, coefficient)
    assert net.attention.heads == 2
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(modulus, coefficient).target(x))


def test_no_tokens_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        two_heads(0, 3, 1)
