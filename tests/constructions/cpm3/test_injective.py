"""Which position-only layers can count pairs, against all sequences."""

from itertools import combinations, product

import numpy as np
import pytest
import torch

from constructions.cpm3.injective import confusion
from constructions.cpm3.packing import packed
from constructions.cpm3.two_heads import whole_sequence
from constructions.cpm3.workspace import workspace
from iha_theory.operators.weights import NotPositionOnlyError


def count(x, token, modulus, coefficient):
    """By the task's definition."""
    return sum((x[token] + coefficient * a + b) % modulus == 0 for a in x for b in x)


@pytest.mark.parametrize("seed", range(12))
def test_small_maps_against_all_sequences(seed):
    generator = np.random.default_rng(seed)
    modulus, n = ((3, 3), (4, 3), (3, 4))[seed % 3]
    w = generator.integers(-9, 10, (1 + seed % 2, n)) / 2**seed
    x = np.array(list(product(range(modulus), repeat=n)))
    injective = len(np.unique(x @ w.T, axis=0)) == len(x)
    found = confusion(w, modulus, seed)
    assert (found is None) == injective
    if found is not None:
        assert found.first[0] == found.second[0]
        assert np.array_equal(w @ found.first[1:], w @ found.second[1:])
        counts = tuple(count(s, 0, modulus, seed) for s in (found.first, found.second))
        assert counts == found.counts
        assert counts[0] != counts[1]


def test_smallest_weights_for_three_residues():
    """The least sum is (3^n - 1)/2, that of 1, 3, 9; the least largest weight is not 9: (5, 7, 8)."""
    fit = [w for w in combinations(range(1, 10), 3) if confusion([list(w)], 3, 1) is None]
    assert min(map(sum, fit)) == sum((1, 3, 9)) == 13
    assert min(map(max, fit)) == 8
    assert (5, 7, 8) in fit


def test_a_layer_that_hands_on_nothing():
    built = workspace("mha", 3)
    with torch.no_grad():
        built.layer.v_proj.weight.zero_()
    assert confusion(built, 3, 1) is not None


@pytest.mark.parametrize(("layer", "tokens", "bits"), [("mha", 26, 53), ("iha", 17, 2), ("iha", 12, 9)])
def test_packed_layers_count_for_their_modulus_only(layer, tokens, bits):
    built = packed(layer, tokens, 4, bits)
    assert confusion(built, 4, 11) is None
    assert confusion(built.layer, 4, 11) is None
    if bits > 2:  # the weights are 1, 4, 16, ..
        found = confusion(built, 5, 11)
        x = torch.tensor([found.first, found.second], dtype=torch.float64)[:, :, None]
        assert built(x)[0, found.token].tolist() == built(x)[1, found.token].tolist()


def test_a_slot_that_is_missing_is_found_at_the_token_that_misses_it():
    built = workspace("mha", 5)
    assert confusion(built, 3, 8) is None
    with torch.no_grad():
        heads = built.layer.q_proj.weight.view(5, 5, 6)
        heads[2, :, 1 + 3] = heads[1, :, 1 + 3]  # slot 2 of token 3 shows token 4, as slot 1 does, and not token 0
    found = confusion(built, 3, 8)
    assert found.token == 3
    assert [i for i, (a, b) in enumerate(zip(found.first, found.second, strict=True)) if a != b] == [0]


def test_what_is_refused():
    with pytest.raises(ValueError, match="M >= 3, got 2"):
        confusion([[1, 1]], 2, 1)
    with pytest.raises(NotPositionOnlyError):
        confusion(whole_sequence(3), 3, 1)
    with pytest.raises(ValueError, match="width 2"):
        confusion(workspace("mha", 3, width=2), 3, 1)
    with pytest.raises(ValueError, match="65 other tokens"):
        confusion([[1] * 65], 3, 1)
    with pytest.raises(ValueError, match="too many differences"):
        confusion([np.random.default_rng(0).standard_normal(20)], 3, 1)
