"""Temperatures and number formats: the numbers that findings carry."""

import pytest

from constructions.ledger.precision import compact_keys, finite_temperature, tokens_in


def test_findings_carry_the_numbers():
    assert finite_temperature("iha", 5, 3).values["b"] == pytest.approx(2.995732273553991)
    assert tokens_in("bfloat16", "iha", 9).values == {"largest": 86, "wrong": 87}
    finding = compact_keys("iha", 9, 1)
    assert (finding.values["heads"], finding.values["parameters"], finding.values["error"]) == (3, 318, 0.0)
