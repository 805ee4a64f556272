"""Exact matrices: nothing is rounded on the way in or out."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy import QQ

from iha_theory import exact


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=6))
def test_floats_go_in_and_out_unchanged(values):
    tensor = torch.tensor([values], dtype=torch.float64)
    m = exact.matrix(tensor, QQ)
    assert [Fraction(int(x.numerator), int(x.denominator)) for x in m.to_list_flat()] == [Fraction(v) for v in values]
    if all(abs(v) < 2.0**900 and (v == 0 or abs(v) > 2.0**-900) for v in values):
        assert torch.equal(exact.to_float64(m), tensor + 0.0)


def test_what_float64_cannot_hold_is_refused():
    for value in (2**53 + 1, 3**80, 10**400, QQ(1, 3)):
        with pytest.raises(OverflowError):
            exact.to_float64(exact.matrix(np.array([[value]], dtype=object), QQ))
    assert exact.to_float64(exact.matrix(np.array([[2**80]], dtype=object), QQ)).item() == 2.0**80


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError, match="not a number"):
        exact.matrix(np.array([[1.0, bad]]), QQ)


def test_empty_and_flat_arrays_are_refused():
    for array in (np.zeros((0, 2)), np.zeros(3)):
        with pytest.raises(ValueError, match="non-empty matrix"):
            exact.matrix(array, QQ)


@given(st.integers(0, 10**60))
def test_primes_reach_the_bound(bound):
    product = 1
    primes = list(exact.primes_beyond(bound))
    for prime in primes:
        product *= prime
    assert product > bound
    assert len(set(primes)) == len(primes)
    assert all(p < 2**53 for p in primes)


def test_residues_of_dyadic_fractions():
    prime = 101
    m = exact.residues(exact.matrix([[0.5, -3.0]], QQ), prime)
    half, minus_three = (int(x) for x in m.to_list_flat())
    assert 2 * half % prime == 1
    assert minus_three == prime - 3


def test_difference_is_zero_only_for_equal_matrices():
    a = exact.matrix([[1, 2], [3, 4]], QQ)
    tiny = exact.matrix(np.array([[QQ(1, 10**400), 0], [0, 0]], dtype=object), QQ)
    assert exact.difference([a], [a]) == 0
    assert exact.difference([a], [a + tiny]) > 0
    assert exact.difference([a], [None]) == 4
    assert exact.difference([None], [None]) == 0
    field = exact.gf(7)
    assert exact.difference([exact.matrix([[1, 2], [3, 4]], field)], [exact.matrix([[1, 0], [3, 0]], field)]) == 2
    with pytest.raises(ValueError, match="shapes"):
        exact.difference([a], [exact.matrix([[1, 2]], QQ)])
