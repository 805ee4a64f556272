"""Exact ranks against sympy and flint, and certificates that somebody has tampered with."""

import inspect
import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import flint
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sympy import QQ, Matrix, isprime

from iha_theory import exact
from iha_theory.bounds import certificates
from iha_theory.bounds.certificates import Certificate, bank_refusal, refusal, verify
from iha_theory.bounds.exact_rank import PRIME, bank_rank, power_rank
from synthetic.graphs import load

KNOWN = [
    ("karate", 9, 9),
    ("karate", 60, 25),
    ("les_miserables", 16, 16),
    ("petersen", 9, 3),
    ("complete:12", 9, 2),
    ("cycle:16", 16, 16),
    ("cycle:16", 40, 16),
    ("path:5", 9, 5),
    ("hypercube:4", 20, 5),
    ("star:6", 9, 3),
    ("complete:1", 3, 1),
    ("orthogonal:8", 5, 5),
]


def small_matrices(size: int, low: int = -2, high: int = 2):
    return st.lists(st.integers(low, high), min_size=size * size, max_size=size * size).map(
        lambda entries: np.array(entries).reshape(size, size)
    )


def sympy_rank(matrices) -> int:
    return Matrix([[int(x) for x in np.ravel(m)] for m in matrices]).rank()


def python_powers(a, terms):
    """I, A, ... in Python's integers."""
    out = [np.eye(len(a), dtype=object)]
    for _ in range(terms - 1):
        out.append(out[-1] @ np.asarray(a, dtype=object))
    return out


@pytest.mark.parametrize(("graph", "terms", "rank"), KNOWN)
def test_rank_of_the_powers_of_known_graphs(graph, terms, rank):
    a = load(graph).adjacency
    found = power_rank(a, terms)
    assert found.rank == rank
    assert found.certificate is not None
    assert refusal(found.certificate, a, terms) is None
    assert found.certificate.columns == tuple(range(rank))
    assert found.certificate.rank == rank


def test_the_rank_that_floating_point_gets_wrong():
    a = np.diag(np.arange(1, 13))
    powers = np.stack([np.ravel(m).astype(float) for m in python_powers(a, 12)])
    assert np.linalg.matrix_rank(powers) < 12
    found = power_rank(a, 12)
    assert found.rank == 12
    assert verify(found.certificate, a, 12)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4).flatmap(small_matrices), st.integers(1, 6))
def test_rank_of_powers_is_sympys(a, terms):
    found = power_rank(a, terms)
    assert found.rank == sympy_rank(python_powers(a, terms))
    assert verify(found.certificate, a, terms)
    assert power_rank(a, len(a)).rank == flint.fmpz_mat(a.tolist()).minpoly().degree()
    for t, coefficients in found.relations.items():
        powers = python_powers(a, t + 1)
        assert (sum(c * m for c, m in zip(coefficients, powers, strict=False)) == powers[t]).all()
    assert bool(found.relations) == (found.rank < terms)


@settings(max_examples=30, deadline=None)
@given(st.lists(small_matrices(2, -1, 1), min_size=1, max_size=6))
def test_rank_of_any_bank_is_sympys(maps):
    found = bank_rank(maps)
    assert found.rank == sympy_rank(maps)
    if found.rank:
        assert bank_refusal(found.certificate, maps) is None
        columns = found.certificate.columns
        for t, coefficients in found.relations.items():
            assert (sum(c * maps[u] for c, u in zip(coefficients, columns, strict=True)) == maps[t]).all()
    else:
        assert found.certificate is None


def test_a_prime_that_hides_a_dimension_is_given_up():
    """Modulo p the matrix is nilpotent, or the maps are dependent."""
    a = np.diag([0, PRIME, 2 * PRIME])
    found = power_rank(a, 5)
    assert found.rank == 3
    assert found.certificate.prime != PRIME
    assert verify(found.certificate, a, 5)
    assert found.relations[3] == (0, -2 * PRIME**2, 3 * PRIME)
    maps = [np.array([[1, 0]]), np.array([[1, PRIME]])]
    assert bank_rank(maps).rank == 2
    assert bank_rank([PRIME * m for m in maps]).rank == 2


def test_numbers_of_every_kind():
    """Denominators that are multiples of the first prime, floats as the numbers they are, beyond int64, sympy's."""
    third = np.array([[Fraction(1, PRIME), Fraction(1, 3)], [0, 1]], dtype=object)
    found = power_rank(third, 2)
    assert found.rank == 2
    assert found.certificate.prime != PRIME
    assert verify(found.certificate, third, 2)
    assert verify(found.certificate, exact.matrix(third, QQ), 2)
    a = np.array([[0.1, 1e-300], [2.5, 10.0]])
    assert verify(power_rank(torch.from_numpy(a), 2).certificate, a.tolist(), 2)
    big = np.array([[10**40, 1], [0, 10**40]], dtype=object)
    assert verify(power_rank(big, 2).certificate, big, 2)
    assert power_rank(np.array([[True, False], [False, True]]), 4).rank == 1


def test_large_rank_is_exact():
    a = load("gnp:64:0.5").adjacency
    found = power_rank(a, 32)
    assert found.rank == 32
    assert verify(found.certificate, a, 32)


def test_relations_stay_exact_with_large_numbers():
    """Degree 6, with entries of A^6 beyond int64: the relation is the minimal polynomial."""
    values = np.array([3, 5, 1000, 10**6, 10**7, 10**9])
    a = np.diag(np.repeat(values, 2))
    found = power_rank(a, 12)
    assert found.rank == 6
    expected = Matrix(np.diag(values).tolist()).charpoly().all_coeffs()[::-1]
    assert [-c for c in found.relations[6]] == [int(c) for c in expected[:-1]]


@pytest.mark.parametrize(
    ("a", "terms", "match"),
    [
        (np.zeros((2, 3)), 2, "square"),
        (np.array([[np.nan]]), 1, "exactly"),
        (np.eye(2), 0, "at least 1"),
        (np.eye(2), True, "at least 1"),
        (np.zeros((0, 0)), 1, "non-empty"),
    ],
)
def test_rank_refuses(a, terms, match):
    with pytest.raises(ValueError, match=match):
        power_rank(a, terms)


def test_bank_refuses():
    for maps in ([], [np.eye(2), np.eye(3)]):
        with pytest.raises(ValueError, match="one shape"):
            bank_rank(maps)
        with pytest.raises(ValueError, match="one shape"):
            bank_refusal(Certificate(1, ((0, 0),), (0,), 7, 1), maps)
    with pytest.raises(ValueError, match="finite"):
        bank_refusal(Certificate(1, ((0, 0),), (0,), 7, 1), [[[float("inf")]]])
    with pytest.raises(ValueError, match="square"):
        refusal(Certificate(1, ((0, 0),), (0,), 7, 1), [[1, 2]], 1)


A = load("karate").adjacency
TERMS = 9
FOUND = power_rank(A, TERMS).certificate
assert FOUND is not None


def test_json_round_trip():
    data = json.loads(json.dumps(FOUND.to_json(), allow_nan=False))
    assert set(data) == {"claim", "rank", "rows", "columns", "prime", "minor"}
    assert Certificate.from_json(data) == Certificate.from_json(FOUND.to_json()) == FOUND


def tampered(change) -> Certificate:
    return replace(FOUND, **change(FOUND))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: {"rank": 10}, "as many rows"),
        (lambda c: {"rank": 0, "rows": (), "columns": ()}, "as many rows"),
        (lambda c: {"rows": c.rows[:-1] + c.rows[:1]}, "twice"),
        (lambda c: {"columns": c.columns[:-1] + c.columns[:1]}, "twice"),
        (lambda c: {"rows": (*c.rows[:-1], (34, 0))}, "no entry"),
        (lambda c: {"rows": (*c.rows[:-1], (0, -1))}, "no entry"),
        (lambda c: {"columns": (*c.columns[:-1], 9)}, "none of the 9"),
        (lambda c: {"columns": (*c.columns[:-1], -1)}, "none of the 9"),
        (lambda c: {"prime": c.prime - 1}, "not a prime"),
        (lambda c: {"prime": 1}, "not a prime"),
        (lambda c: {"prime": -c.prime}, "not a prime"),
        (lambda c: {"prime": 2**89 - 1}, "not a prime below"),
        (lambda c: {"prime": 524269}, "the minor"),
        (lambda c: {"minor": c.minor % (c.prime - 1) + 1}, "the minor is"),
        (lambda c: {"minor": 0}, "the minor must"),
        (lambda c: {"minor": c.minor + c.prime}, "the minor must"),
        (lambda c: {"rows": (c.rows[1], c.rows[0], *c.rows[2:])}, "the minor is"),
        (lambda c: {"columns": (c.columns[1], c.columns[0], *c.columns[2:])}, "the minor is"),
    ],
)
def test_tampered_certificates_are_refused(change, reason):
    assert reason in refusal(tampered(change), A, TERMS)
    maps = python_powers(A, TERMS)
    assert reason in bank_refusal(tampered(change), maps)


def true_minor(certificate: Certificate) -> int:
    """By flint, from Python's powers."""
    powers = python_powers(A, TERMS)
    entries = [[int(powers[t][i, j]) for t in certificate.columns] for i, j in certificate.rows]
    return int(flint.fmpz_mat(entries).det()) % certificate.prime


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_one_changed_number_is_refused_unless_it_is_as_right(data):
    """A changed row, column, prime or minor passes only if it is a true statement, by an independent determinant."""
    part = data.draw(st.sampled_from(["rows", "columns", "prime", "minor"]))
    if part == "rows":
        at = data.draw(st.integers(0, FOUND.rank - 1))
        row = data.draw(st.tuples(st.integers(-2, 36), st.integers(-2, 36)))
        value = (*FOUND.rows[:at], row, *FOUND.rows[at + 1 :])
    elif part == "columns":
        at = data.draw(st.integers(0, FOUND.rank - 1))
        value = (*FOUND.columns[:at], data.draw(st.integers(-2, 12)), *FOUND.columns[at + 1 :])
    else:
        value = data.draw(st.integers(0, 2**20))
    assume(value != getattr(FOUND, part))
    changed = replace(FOUND, **{part: value})
    in_range = all(0 <= i < 34 and 0 <= j < 34 for i, j in changed.rows) and all(0 <= t < 9 for t in changed.columns)
    right = in_range and isprime(changed.prime) and 0 < true_minor(changed) == changed.minor
    assert verify(changed, A, TERMS) == right
    if right:
        assert len(set(changed.rows)) == len(set(changed.columns)) == FOUND.rank


def test_a_certificate_of_another_matrix_is_refused():
    other = A.copy()
    other[0, 1] = other[1, 0] = 7
    assert not verify(FOUND, other, TERMS)
    assert not verify(FOUND, A, TERMS - 1)
    assert not verify(FOUND, A[:20, :20], TERMS)
    a = np.array([[Fraction(1, FOUND.prime)]], dtype=object)
    assert "denominator" in refusal(Certificate(1, ((0, 0),), (0,), FOUND.prime, 1), a, 1)
    assert "denominator" in bank_refusal(Certificate(1, ((0, 0),), (0,), FOUND.prime, 1), [a])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"claim": "the realignment of the bank has rank at least 10"},
            "the claim of a certificate of rank 9 is '.* 9'",
        ),
        ({"rank": 9.0}, "the numbers of a certificate are integers"),
        ({"rank": True}, "the numbers of a certificate are integers"),
        ({"rows": [[0, 1, 2]]}, "the rows of a certificate are pairs"),
        ({"rows": [[0, 1], [0, 1, 2]]}, "the rows of a certificate are pairs"),
        ({"rows": "rows"}, "the rows of a certificate are pairs"),
        ({"rows": [["0", 1]]}, "the numbers of a certificate are integers"),
        ({"columns": {"0": 0}}, "the columns of a certificate are a list of integers"),
        ({"prime": None}, "the numbers of a certificate are integers"),
        ({"minor": "1"}, "the numbers of a certificate are integers"),
        ({"more": 1}, "a certificate has the fields claim, columns, minor, prime, rank, rows$"),
    ],
)
def test_json_of_another_form_is_refused(change, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        Certificate.from_json(FOUND.to_json() | change)
    with pytest.raises(ValueError, match="fields"):
        Certificate.from_json({})


def test_the_verifier_shares_no_code_with_the_search():
    """Only the data type goes from one module to the other."""
    lines = inspect.getsource(certificates).splitlines()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert imports
    assert not any("iha_theory" in line for line in imports)


def test_certificates_of_cyclic_shifts_and_of_convolutions():
    """N orthogonal shifts (the CPM-3 workspace), and the 9 two-dimensional shifts of a 3 x 3 kernel on a torus."""
    shifts = [np.roll(np.eye(7, dtype=int), t, axis=1) for t in range(7)]
    found = bank_rank(shifts)
    assert found.rank == 7
    assert bank_refusal(found.certificate, shifts) is None
    assert bank_refusal(found.certificate, [*shifts[:6], shifts[0]]) is not None
    plane = [np.kron(np.roll(np.eye(4), u, 1), np.roll(np.eye(5), v, 1)) for u, v in product((-1, 0, 1), repeat=2)]
    assert bank_rank(plane).rank == 9
    assert bank_refusal(bank_rank(plane).certificate, plane) is None
