"""Layers one behind the other: heads, exactness, torch's run, refusals."""

import numpy as np
import pytest
import torch

from constructions.filter_bank import deep
from constructions.filter_bank.paper import powers
from iha_theory import exact
from synthetic import systems
from synthetic.tasks.filter_bank import power_blocks

FIELD = exact.gf(systems.PRIME)


@pytest.mark.parametrize(
    ("layer", "terms", "depth", "heads"),
    [
        ("iha", 16, 2, 2),
        ("mha", 9, 2, 3),
        ("mha", 8, 3, 2),
        ("iha", 5, 1, 3),
        ("iha-tiled", 17, 2, 3),
        ("mha", 1, 2, 1),
    ],
)
def test_powers_of_any_matrix(layer, terms, depth, heads):
    a = exact.matrix(np.random.default_rng(terms).integers(0, systems.PRIME, (2, 2)), FIELD)
    layers = deep.bank(layer, powers(a), terms, depth)
    assert [one.num_heads for one in layers] == [heads] * depth
    found = [column[0] for column in deep.columns(layers, 1, FIELD)]
    assert len(found) == (heads if layer == "mha" else heads**2) ** depth >= terms
    assert found[:terms] == list(power_blocks(a, terms))


def test_torch_runs_them():
    """k = 81 by two layers of three IHA heads, on content of width 2: to rounding, as the powers are orthogonal."""
    a = torch.eye(5, dtype=torch.float64).roll(1, 0)
    x = torch.randn(1, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    out = deep.run(deep.bank("iha", powers(a), 81, 2, 2), x)
    assert torch.equal(out, torch.cat([torch.linalg.matrix_power(a, t) @ x for t in range(81)], -1))


def test_refusals():
    power = powers(torch.eye(2, dtype=torch.float64))
    for arguments, message in (
        (("mha-two-layer", power, 4, 2), "unknown layer 'mha-two-layer'"),
        (("iha", power, 0, 2), "rank must be an integer of at least 1"),
        (("iha", power, 4, 0), "depth must be an integer of at least 1"),
        (("iha", power, 4, 2, 0), "width must be an integer of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            deep.bank(*arguments)
