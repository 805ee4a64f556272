"""Parity with any number of pseudo-heads; the identity and its nodes; what is refused. `verify parity` has the rest."""

from fractions import Fraction

import pytest
import torch

from constructions.checks.parity import exact_errors, float64_run
from constructions.targets.parity import MOST_BITS, nodes, parity, readout, row_output


@pytest.mark.parametrize(("pseudo", "heads"), [(1, 6), (2, 3), (4, 2), (6, 1), (9, 1)])
def test_any_number_of_pseudo_heads(pseudo, heads):
    construction = parity("iha", 6, pseudo)
    assert (construction.heads, construction.pseudo_heads) == (heads, pseudo)
    assert exact_errors(construction.layer, 6)[0] == 0
    assert float64_run(construction, torch.eye(6, dtype=torch.long)).margin > 0.99


@pytest.mark.parametrize("n", [1, 2, 9, 16])
def test_the_identity_holds_exactly(n):
    rs = nodes(n)
    theta, w = readout(n, rs)
    assert len(set(rs)) == n
    assert all(r > 0 for r in rs)
    for c in range(n + 1):
        assert theta + sum(x * row_output(r, c, n) for x, r in zip(w, rs, strict=True)) == (-1) ** c


def test_weights_stay_small():
    assert max(map(abs, readout(9, nodes(9))[1])) < 13_000
    assert max(map(abs, readout(16, nodes(16))[1])) < 2 * 10**9
    plain = tuple(map(Fraction, range(2, 11)))
    assert max(map(abs, readout(9, plain)[1])) > 10**8


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("gqa", 3), "unknown layer 'gqa'"),
        (("mha", 0), "bits must be an integer of at least 1"),
        (("mha", MOST_BITS + 1), f"up to {MOST_BITS} bits"),
        (("iha", 3, 0), "pseudo_heads must be"),
    ],
)
def test_refusals(arguments, word):
    with pytest.raises(ValueError, match=word):
        parity(*arguments)


def test_more_rows_than_bits_are_refused():
    with pytest.raises(ValueError, match="3 bits take at most 3 rows, got 4"):
        parity("mha", 3, rows=4)


def test_inputs_are_bits():
    with pytest.raises(ValueError, match="bits are 0 and 1"):
        parity("mha", 2)(torch.tensor([[0, 2]]))
    with pytest.raises(ValueError, match="3 bits for a layer of 2"):
        parity("mha", 2)(torch.tensor([[0, 1, 1]]))
