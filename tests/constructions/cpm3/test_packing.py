"""CPM-3 by packed numbers, against the task."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

from constructions.cpm3.packing import LAYERS, Digits, digits_held, network, packed
from constructions.suite.packing import CASES, error
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.count_pairs import CountPairs, all_sequences


@pytest.mark.parametrize(("modulus", "bits", "held"), [(4, 53, 26), (3, 53, 33), (2, 53, 53), (4, 2, 1), (5, 24, 10)])
def test_digits_held(modulus, bits, held):
    assert digits_held(modulus, bits) == held


def test_numbers_hold_the_tokens_behind():
    built = packed("mha", 4, 3, 4)  # two digits a number
    out = built(torch.tensor([[[1.0], [2.0], [0.0], [1.0]]], dtype=torch.float64))
    assert out[0].tolist() == [[2 + 3 * 0, 1 + 3 * 1], [0 + 3 * 1, 1 + 3 * 2], [1 + 3 * 1, 2], [1 + 3 * 2, 0 + 3 * 1]]


@pytest.mark.parametrize(("modulus", "held"), [(2, 1), (2, 53), (3, 4), (7, 18)])
def test_digits_up_to_the_largest_number(modulus, held):
    top = modulus**held
    numbers = [n for n in (0, 1, modulus - 1, modulus, top // 2, top - 2, top - 1) if 0 <= n < top]
    found = Digits(modulus, held)(torch.tensor(numbers, dtype=torch.float64)).argmax(-1)
    expected = [[n // modulus**t % modulus for t in range(held)] for n in numbers]
    assert found.tolist() == expected


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("tokens", "modulus", "bits"), [(2, 2, 1), (5, 3, 2), (5, 3, 4), (4, 5, 7), (8, 2, 3)])
def test_all_sequences(layer, tokens, modulus, bits):
    x = np.concatenate(list(all_sequences(modulus, tokens)))
    net = network(layer, tokens, modulus, 7, bits)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(modulus, 7).target(x))
    numbers = -(-(tokens - 1) // digits_held(modulus, bits))
    assert net.attention.heads == (numbers if layer == "mha" else ceil_sqrt(numbers))


def test_float32_holds_24_bits_and_no_more():
    tokens, modulus, bits = CASES[4]
    wrong = {}
    for p in (bits, 2 * bits):
        net = network("mha", tokens, modulus, 11, p)
        low = replace(net, **{name: copy.deepcopy(getattr(net, name)).float() for name in ("digits", "own", "count")})
        low.attention.layer.float()
        try:
            wrong[p] = error(low, tokens, modulus) > 0
        except ValueError:
            wrong[p] = True
    assert wrong == {24: False, 48: True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layer": "gqa"}, "unknown layer"),
        ({"tokens": 1}, "at least 2 tokens"),
        ({"modulus": 1}, "M >= 2"),
        ({"bits": 54}, "at most 53"),
        ({"bits": 1}, "at least log2 M"),
    ],
)
def test_what_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        network(**{"layer": "mha", "tokens": 5, "modulus": 3, "coefficient": 1, "bits": 4} | change)
    with pytest.raises(ValueError, match=r"residues 0 \.\. 2"):
        network("mha", 3, 3, 1)(torch.tensor([[0, 1, 3]]))
