"""Temperatures and number formats: the numbers that findings carry."""

import numpy as np
import pytest
import torch

from constructions.cpm3.mlp import PairCount
from constructions.ledger.cpm3.precision import compact_keys, counts_in, finite_temperature, in_range, tokens_in
from synthetic.tasks.count_pairs import CountPairs


def test_findings_carry_the_numbers():
    assert finite_temperature("iha", 5, 3).values["b"] == pytest.approx(2.995732273553991)
    assert tokens_in("bfloat16", "iha", 9).values == {"largest": 86, "wrong": 87}
    finding = compact_keys("iha", 9, 1)
    assert (finding.values["heads"], finding.values["parameters"], finding.values["error"]) == (3, 318, 0.0)


def test_tokens_that_are_too_large_are_counted_wrong():
    """bfloat16 holds 15 and 16, but not 17 * 16."""
    mlp = PairCount([0, 1], 2, 17, 15).to(torch.bfloat16)
    with torch.no_grad():
        counted = mlp(torch.tensor([[15.0, 16.0]], dtype=torch.bfloat16)).item()
    assert counted != CountPairs(17, 15).target(np.array([[15, 16]]))[0, 0]
    assert counts_in("bfloat16", 2, 17, 15).values == {"tokens": 2, "highest": 15, "wrong": 0}


def test_values_beyond_the_range_of_float16():
    assert torch.isinf(torch.tensor(32 * 2048.0).to(torch.float16))
    assert in_range("float16", "iha", 31**2)
    assert not in_range("float16", "iha", 32**2)
    assert in_range("float32", "iha", 32**2)


def test_the_growth_for_two_tokens():
    """Why T10 starts at N = 3: b / n^2 is further from its limit than 10/n^2."""
    assert not compact_keys("iha", 2, 1).holds
