"""Compute: what the FLOP-matched schedule costs."""

import pytest


def test_the_schedule_tends_to_what_the_note_says(judged):
    for case, finding in judged("P-schedule").evidence[0].findings:
        p, n = case["pseudo_heads"], case["tokens"]
        exact = 3 / 5 - 1 / (10 * p * p) + 1 / (5 * n) if case["counted"] == "square" else 1 - 1 / (5 * p * p)
        assert finding.values["ratio"] == pytest.approx(exact, abs=1e-9 if case["counted"] == "square" else 1 / n)
