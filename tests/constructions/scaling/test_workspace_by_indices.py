"""The workspace as indices: the very weights where matrices fit, damages noticed, thousands of tokens."""

import numpy as np
import pytest
import torch

from constructions.cpm3.workspace import workspace
from constructions.scaling.workspace import LAYERS, as_matrices, damaged, index_gap, indexed, sampled_gap
from iha_theory.operators.weights import to_layer


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("tokens", [1, 2, 5, 9, 12, 16])
def test_small_ones_are_the_workspace(layer, tokens):
    given = indexed(layer, tokens)
    same = workspace(layer, tokens).layer.state_dict()
    for name, tensor in to_layer(as_matrices(given)).state_dict().items():
        assert torch.equal(tensor, same[name]), name
    assert index_gap(given) == 0
    assert sampled_gap(given, heads=2, rows=3) == 0


@pytest.mark.parametrize("layer", LAYERS)
def test_damages_are_noticed(layer):
    for tokens in (9, 16):
        for name, wrong in damaged(indexed(layer, tokens)).items():
            assert index_gap(wrong) > 0, name
            gaps = [sampled_gap(wrong, heads=tokens, rows=tokens, seed=seed) for seed in range(3)]
            assert max(gaps) > 0, name


def test_what_is_no_permutation_or_a_mixture_is_refused():
    given = indexed("iha", 9)
    given.mixing.alpha_k[:, 1, 1] = 1
    with pytest.raises(ValueError, match="indices say nothing"):
        index_gap(given)
    flat = indexed("mha", 5)
    object.__setattr__(flat, "keys", lambda _: np.zeros(5, dtype=np.int64))
    with pytest.raises(ValueError, match="no permutation"):
        index_gap(flat)
    with pytest.raises(ValueError, match="unknown layer"):
        indexed("gqa", 5)


def test_hundreds_of_tokens_take_a_moment():
    given = indexed("iha", 1024)
    assert given.heads == 32
    assert index_gap(given) == 0
    assert sampled_gap(given, heads=1, rows=2) == 0
