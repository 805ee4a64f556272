"""Parameters: the least constant of E11."""

import pytest

from iha_theory.costs.formulas import PAPER
from iha_theory.rounding import ceil_sqrt


def test_the_least_constant_of_e11(judged):
    by_count = {case["counts"]: finding for case, finding in judged("E11").evidence[0].findings}
    assert by_count["printed"].values["least_constant"] == pytest.approx(72 / 2**2.5)
    assert by_count["built"].values["least_constant"] == pytest.approx(80 / 2**2.5)
    assert {finding.values["attained_at"] for finding in by_count.values()} == {2}


def test_the_printed_counts_by_hand(judged):
    """App. B.3 at N = 2, 3, 4, 10, worked out term by term: H = 2, 2, 2, 4."""
    attention_mha = {2: 16 + 8, 3: 54 + 27, 4: 128 + 64, 10: 2000 + 1000}
    mlp = {
        "mha": {2: 3 * 2 * 1 + 4, 3: 4 * 3 * 2 + 9, 4: 5 * 4 * 3 + 16, 10: 11 * 10 * 9 + 100},
        "iha": {2: 4 * 2 * 1 + 4, 3: 4 * 3 * 2 + 9, 4: 4 * 4 * 3 + 16, 10: 16 * 10 * 9 + 100},
    }
    total, hidden = (judged(name).statement.claim.test for name in ("E2", "P-cpm3-mlp-parameters"))
    for n, printed in attention_mha.items():
        right = 2 * n * n * (n + 1) + n * (n + 1) + n * n * (n + 1)
        assert total(n).what == f"N = {n}: {printed + mlp['mha'][n]} is not {right} counted"
        assert PAPER["mha attention"](n) == printed
        for layer, by_hand in mlp.items():
            assert hidden(layer, n).values["printed"] == by_hand[n] == PAPER[f"{layer} mlp"](n)


def test_the_printed_and_the_right_counts_agree_nowhere():
    n = range(1, 1001)
    assert [i for i in n if PAPER["mha attention"](i) == 2 * i * i * (i + 1) + i * (i + 1)] == []
    for layer in ("mha", "iha"):
        width = {i: i if layer == "mha" else ceil_sqrt(i) ** 2 for i in n}
        short = {"mha": lambda i: i, "iha": lambda i: i * ceil_sqrt(i) ** 2}[layer]
        assert [i for i in n if PAPER[f"{layer} mlp"](i) != i * i * (width[i] + 1) - short(i)] == []
