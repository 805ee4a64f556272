"""MHA inside causal IHA."""

import pytest

from constructions.ledger.attention.inclusion import causal_row


def test_the_causal_algorithm(judged):
    """H = 1, P = 2, zero logits, V = [1, 3]."""
    _, finding = judged("E4").counterexample
    assert finding.values["first"] == pytest.approx([1, 5 / 3], abs=1e-15)
    assert finding.values["last"] == finding.values["mha"] == [1, 2]


def test_virtual_rotary_positions_break_both_rows():
    for pseudo in (2, 3):
        values = causal_row("virtual", pseudo, 2).values
        for row in ("first", "last"):
            assert values[row][1] != pytest.approx(values["mha"][1], abs=1e-3)
