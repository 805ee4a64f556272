"""Enclosures of the Schmidt spectrum against numpy's, and decimals that are rounded outward."""

from fractions import Fraction

import numpy as np
import pytest
from sympy import QQ

from iha_theory import exact
from synthetic.tasks import TASKS
from synthetic.training.certified.spectrum import DIGITS, outward, shares, square, written


def bank(**options):
    return TASKS["polynomial"](**options).exact().bank


@pytest.mark.parametrize(
    ("graph", "terms", "zeros"),
    [("orthogonal:5", 4, 0), ("cycle:4", 6, 2), ("petersen", 5, 2), ("path:3", 3, 0), ("star:4", 2, 0)],
)
def test_shares_enclose_the_squared_singular_values(graph, terms, zeros):
    made = bank(graph=graph, terms=terms)
    flat = np.array(
        [
            exact.to_float64(m).numpy().ravel() if graph != "orthogonal:5" else exact.nearest_float64(m).numpy().ravel()
            for m in made
        ]
    )
    values = np.linalg.svd(flat, compute_uv=False) ** 2
    found = shares(made)
    assert len(found) == terms
    assert [ends for ends in found if ends == (0, 0)] == [(0, 0)] * zeros
    assert sum(low for low, _ in found) <= 1 <= sum(high for _, high in found)
    for (low, high), value in zip(found, values / values.sum(), strict=True):
        assert 0 <= high - low < 1e-60
        assert float(low) == pytest.approx(value, abs=1e-13)


def test_shares_of_many_powers_are_those_of_an_independent_few():
    made = bank(graph="random:4", terms=40)
    made = [m * QQ(1, 8) ** t for t, m in enumerate(made)]
    flat = np.array([exact.nearest_float64(m).numpy().ravel() for m in made])
    found = shares(made)
    assert [ends for ends in found if ends == (0, 0)] == [(0, 0)] * 36
    values = np.linalg.svd(flat, compute_uv=False) ** 2
    assert [float(low) for low, _ in found[:16]] == pytest.approx(list(values / values.sum()), abs=1e-13)


def test_independent_matrices_need_not_be_the_first():
    first, second = exact.matrix(np.diag([3, 4]), QQ), exact.matrix(np.diag([4, -3]), QQ)
    found = shares([first, first * QQ(-1), second, first])
    for (low, high), share in zip(found[:2], (Fraction(3, 4), Fraction(1, 4)), strict=True):
        assert low <= share <= high
        assert high - low < 1e-60
    assert found[2:] == [(0, 0)] * 2


def test_multiple_values_are_found_as_such():
    assert [ends[0] <= Fraction(1, 3) <= ends[1] for ends in shares(bank(graph="cycle:3", terms=3))] == [True] * 3


@pytest.mark.parametrize("x", [Fraction(1, 3), Fraction(-2, 7), Fraction(0), Fraction(10**40, 3), Fraction(1, 2**400)])
def test_decimals_are_rounded_outward(x):
    low, high = map(Fraction, outward(x, x))
    assert low <= x <= high
    assert high - low <= abs(x) / 10 ** (DIGITS - 2)


def test_unit_norm_is_to_the_nearest_float():
    made = bank(graph="petersen", terms=4, unit_norm=True)
    assert [float(square([m])) for m in made] == pytest.approx([1.0] * 4, rel=1e-15)
    m = exact.matrix(np.diag([3, 4]), QQ)
    assert square([m]) == 25


def test_matrices_are_written_without_rounding():
    content = written(np.array([[1, Fraction(1, 3)], [0.1, -2]], dtype=object))
    assert content == [[1, "1/3"], [0.1, -2]]
    assert written(np.array([[0.1]])) == [[0.1]]


@pytest.mark.parametrize(
    ("task", "options", "word"),
    [
        ("polynomial", {"mode": "content"}, "position-only"),
        ("cpm3", {}, "accepted are workspace, polynomial"),
        ("parity", {}, "accepted are workspace, polynomial"),
    ],
)
def test_tasks_without_an_exact_target_say_so(task, options, word):
    with pytest.raises(ValueError, match=word):
        TASKS[task](**options).exact()


def test_a_bank_of_zeros_has_no_shares():
    with pytest.raises(ValueError, match="zeros"):
        shares([exact.zeros((2, 2), QQ)])
