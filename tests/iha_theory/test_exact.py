"""Exact matrices: nothing is rounded on the way in or out."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ, isprime
from sympy.polys.matrices import DomainMatrix

from iha_theory import exact


@settings(deadline=None)
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


@settings(deadline=None)
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


def listed(m):
    """The entries as Python's numbers; None for a matrix that is left out."""
    return None if m is None else [[Fraction(int(x.numerator), int(x.denominator)) for x in row] for row in m.to_list()]


def test_residues_are_not_negative():
    field = exact.gf(7)
    assert [int(x) for x in exact.matrix([[-1, 6, 8]], field).to_list_flat()] == [6, 6, 1]


@pytest.mark.parametrize(
    ("x", "is_"),
    [
        (3, Fraction(3)),
        (np.int64(-3), Fraction(-3)),
        (4.0, Fraction(4)),
        (0.75, Fraction(3, 4)),
        (np.float32(0.1), Fraction(float(np.float32(0.1)))),
        (Fraction(2, 6), Fraction(1, 3)),
        (QQ(5, 2), Fraction(5, 2)),
    ],
)
def test_an_element_is_the_number_that_it_was(x, is_):
    found = exact.element(QQ, x)
    assert (found.numerator, found.denominator) == (is_.numerator, is_.denominator)
    if not isinstance(x, type(QQ(1))):
        residue = exact.element(exact.gf(101), x)
        assert int(residue) * is_.denominator % 101 == is_.numerator % 101


def test_what_is_refused_is_named():
    with pytest.raises(ValueError, match=r"^nan is not a number that can be checked exactly$"):
        exact.element(QQ, float("nan"))
    with pytest.raises(ValueError, match=r"^expected a non-empty matrix, got shape \(3,\)$"):
        exact.matrix([1, 2, 3], QQ)
    one, many = exact.matrix([[1]], QQ), exact.matrix([[1, 2]], QQ)
    with pytest.raises(ValueError, match=r"^shapes \(1, 1\) and \(1, 2\) differ$"):
        exact.difference([one], [many])
    with pytest.raises(OverflowError, match=r"^an entry is too large for float64$"):
        exact.to_float64(exact.matrix([[2**1000 + 1]], QQ))
    with pytest.raises(OverflowError, match=r"^an entry is not a float64$"):
        exact.to_float64(exact.matrix([[Fraction(1, 3)]], QQ))


@pytest.mark.parametrize(
    "rows",
    [
        [[1, 2], [3, -4]],
        [[1.0, 2.0], [3.0, -4.0]],
        [[0.5, 2.0], [3.0, -4.25]],
        [[Fraction(1, 3), 2], [3, -4]],
        torch.tensor([[1.0, 2.5], [3.0, -4.0]], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([[1, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]], dtype=np.uint8),
        np.array([[True, False]]),
    ],
    ids=lambda rows: str(type(rows)),
)
def test_a_matrix_has_the_entries_that_it_was_given(rows):
    made = exact.matrix(rows, QQ)
    given_ = rows.tolist() if hasattr(rows, "tolist") else rows
    assert listed(made) == [[Fraction(x) for x in row] for row in given_]
    assert made.rep.fmt == "dense"


def test_identity_and_zeros_are_dense():
    one, none = exact.identity(2, QQ), exact.zeros((1, 3), QQ)
    assert (listed(one), listed(none)) == ([[1, 0], [0, 1]], [[0, 0, 0]])
    assert (one.rep.fmt, none.rep.fmt) == ("dense", "dense")
    assert (one.domain, none.domain, exact.zeros((1, 1), exact.gf(7)).domain) == (QQ, QQ, exact.gf(7))


def test_minimal_polynomials():
    """The rotation's x^2 + 1, the identity's x - 1, and a diagonal's (x - 1)(x - 2), also modulo 7."""
    for rows, expected in (([[0, -1], [1, 0]], [1, 0, 1]), ([[1, 0], [0, 1]], [1, -1]), ([[1, 0], [0, 2]], [1, -3, 2])):
        assert exact.minimal_polynomial(exact.matrix(rows, QQ)) == expected
        field = exact.gf(7)
        assert exact.minimal_polynomial(exact.matrix(rows, field)) == [field(c) for c in expected]


def test_combinations_are_sums():
    a, b = exact.matrix([[1, 2]], QQ), exact.matrix([[0, 3]], QQ)
    assert listed(exact.combination([2, 0, 1], [a, a, b])) == [[2, 7]]
    assert exact.combination([1, 0], [a, b]) is a  # not copied
    assert exact.combination([0, 0], [a, b]) is None
    assert exact.combination([], []) is None
    with pytest.raises(ValueError, match="zip"):
        exact.combination([1], [a, b])
    rows = exact.matrix([[2, 5, 1], [0, 7, 0], [1, 0, 0]], QQ)
    found = exact.combinations(rows, [a, None, b])
    assert [listed(m) for m in found] == [[[2, 7]], None, [[1, 2]]]
    assert found[0].rep.fmt == "dense"
    assert exact.combinations(rows, [None, None, None]) == [None, None, None]
    two = exact.matrix([[2, 5, 1], [1, 0, 0]], QQ)  # fewer rows than matrices
    assert [listed(m) for m in exact.combinations(two, [a, None, b])] == [[[2, 7]], [[1, 2]]]
    assert exact.combinations(two, [None, None, None]) == [None, None]
    tall = exact.matrix([[1], [4]], QQ)
    assert listed(exact.combinations(exact.matrix([[3]], QQ), [tall])[0]) == [[3], [12]]


def test_numerators_share_the_least_denominator():
    a, b = exact.matrix([[0.5, 1]], QQ), exact.matrix([[Fraction(1, 3), 0]], QQ)
    whole, common = exact.numerators([a, b])
    assert common == 6
    assert whole.tolist() == [[[3, 6]], [[2, 0]]]
    assert all(type(x) is int for x in whole.flat)
    assert exact.denominator(a, b) == 6
    assert exact.denominator(a) == 2
    assert exact.numerators([exact.matrix([[10**30], [1]], QQ)])[0].tolist() == [[[10**30], [1]]]


def test_residues_of_a_fraction():
    m = exact.matrix([[Fraction(1, 3), -2], [5, 9]], QQ)
    array = exact.residue_array(m, 7)
    assert array.tolist() == [[5, 5], [5, 2]]  # 3 * 5 = 15 = 1
    assert exact.residues(m, 7).domain == exact.gf(7)
    assert [int(x) for x in exact.residues(m, 7).to_list_flat()] == [5, 5, 5, 2]


def test_the_nearest_float64():
    m = exact.matrix([[Fraction(1, 3)], [Fraction(-2, 7)], [5]], QQ)
    found = exact.nearest_float64(m)
    assert (found.dtype, found.shape) == (torch.float64, (3, 1))
    assert found.flatten().tolist() == [1 / 3, -2 / 7, 5.0]
    with pytest.raises(OverflowError):
        exact.nearest_float64(exact.matrix([[10**400]], QQ))


def test_float64_at_its_limits():
    for rows in (
        [[Fraction(1, 2), 3]],
        [[2**53]],
        [[-(2**53)]],
        [[2**1000]],
        [[2**54, 1]],
        [[Fraction(1, 2**40), -(2**30)]],
    ):
        found = exact.to_float64(exact.matrix(rows, QQ))
        assert (found.dtype, found.shape) == (torch.float64, (1, len(rows[0])))
        assert [Fraction(x) for x in found[0].tolist()] == rows[0]
    with pytest.raises(OverflowError):
        exact.to_float64(exact.matrix([[1, 2**53 + 1]], QQ))
    with pytest.raises(OverflowError):
        exact.to_float64(exact.matrix([[Fraction(1, 2), Fraction(2**60 + 1, 2)]], QQ))
    prime = exact.gf(2**61 - 1)
    assert exact.to_float64(exact.matrix([[-1]], exact.gf(7))).item() == 6
    assert exact.to_float64(exact.matrix([[2**53]], prime)).item() == 2.0**53
    with pytest.raises(OverflowError):  # a residue is an integer below 2^53, no other will do
        exact.to_float64(exact.matrix([[2**54]], prime))


def test_primes_are_the_largest_in_turn_but_the_divisors():
    first, second = list(exact.primes_beyond(2**60))
    assert isprime(first)
    assert not any(isprime(n) for n in range(first + 1, 2**53, 2))
    assert not any(isprime(n) for n in range(second + 1, first))
    assert type(first) is int
    assert list(exact.primes_beyond(1, avoided=3 * first)) == [second]
    assert list(exact.primes_beyond(0)) == []
    assert list(exact.primes_beyond(first - 1)) == [first]
    assert list(exact.primes_beyond(first)) == [first, second]


def test_the_size_of_a_difference():
    a, b = exact.matrix([[1, 2]], QQ), exact.matrix([[1, 0]], QQ)
    c, d = exact.matrix([[0, 0]], QQ), exact.matrix([[-7, 3]], QQ)
    assert exact.difference([a, c], [b, d]) == 7
    assert exact.difference([c, a], [d, b]) == 7
    assert exact.difference([a, b], [a, None]) == 1
    assert exact.difference([c], [None]) == exact.difference([None], [c]) == 0
    assert exact.difference([None, None, d], [c, a, d]) == 2
    assert exact.difference([exact.matrix([[Fraction(1, 4)]], QQ)], [exact.zeros((1, 1), QQ)]) == 0.25
    assert exact.difference([exact.matrix([[10**400]], QQ)], [None]) == np.finfo(np.float64).max
    assert exact.difference([exact.matrix([[Fraction(1, 10**400)]], QQ)], [None]) == np.finfo(np.float64).tiny
    field = exact.gf(7)
    e, f = exact.matrix([[1, 2, 3]], field), exact.matrix([[1, 0, 0]], field)
    assert exact.difference([e, e, None], [f, e, f]) == 3
    with pytest.raises(ValueError, match="zip"):
        exact.difference([a], [a, b])
    sparse = DomainMatrix([[1, 2]], (1, 2), QQ).to_sparse()
    assert exact.difference([sparse], [a]) == 0
