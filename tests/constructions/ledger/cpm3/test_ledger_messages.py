"""The sets behind the bound with content anywhere."""

from itertools import product

import numpy as np
import pytest
import torch

from constructions.ledger.cpm3 import messages, rounded


@pytest.mark.parametrize("half", [1, 2, 4])
def test_the_count_is_twice_the_common_elements_and_one(half):
    modulus = 2 * half + 3
    for first, second in product(messages.sets(half), repeat=2):
        x = messages.sequence(first, second)
        assert ((x >= 0) & (x < modulus)).all()
        pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if (x[0] + x[i] + x[j]) % modulus == 0]
        assert len(pairs) == 1 + 2 * int((first & second).sum())


@pytest.mark.parametrize("kind", messages.NARROW)
def test_outputs_are_made_of_the_sums(kind):
    layer = messages.built(kind, 2)
    x = torch.randn(3, 5, messages.WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[:, 0] = x[0, 0]
    with torch.no_grad():
        sums = messages.shares(layer, x[0, 0], x)
        torch.testing.assert_close(messages.output(layer, sums), layer(x, x, x)[:, 0])
    rows = 2 * getattr(layer, "num_pseudo_heads", 1)
    assert sums.shape == (3, rows, 1 if kind == "linear MHA" else 2)


def test_windows_meet_what_they_should():
    """By definition, in place of the search."""
    for modulus, coefficient in ((29, 5), (31, 12), (23, 4)):
        start, length = rounded.window(modulus, coefficient)
        inside, inverse = range(start, start + length + 1), pow(coefficient, -1, modulus)
        assert length >= 2
        assert inside[-1] < modulus
        for w in inside:
            t = -(1 + coefficient) * w % modulus
            pairs = [(u, v) for u in inside for v in inside if (t + coefficient * u + v) % modulus == 0]
            assert pairs == [(w, w)]
            assert (-t - coefficient * t) % modulus not in inside
            assert -2 * t * inverse % modulus not in inside


def test_theorem_seven_needs_pinned_tokens():
    """(4, 0, 4) and (2, 4, 2) have one table for M = 3."""
    tables = []
    for h in ((4, 0, 4), (2, 4, 2)):
        z = np.repeat([0, 1, 2], h)
        tables.append([sum((t + a + b) % 3 == 0 for a in (t, *z) for b in (t, *z)) for t in range(3)])
    assert tables[0] == tables[1]
