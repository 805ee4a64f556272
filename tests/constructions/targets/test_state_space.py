"""State-space models and FIR filters: constructions against plain recursions, bounds, mutants, refusals."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.bounds import certified, lower_bound
from constructions.checks.operators import exact_operator_gap
from constructions.checks.oracles import filters
from constructions.checks.state_space import float64_measure
from constructions.filter_bank.layers import PAPER
from constructions.suite import state_space as suite
from constructions.targets.state_space import (
    RationalFilter,
    fir,
    rational_filter,
    state_space,
    toeplitz,
    transfer,
)
from iha_theory import exact
from iha_theory.rounding import ceil_sqrt, gamma
from synthetic import systems
from synthetic.systems import StateSpace, system

FIELD = exact.gf(systems.PRIME)


def plain_taps(a, b, c, d, tokens):
    """D + C B, C A B, ... with Python's integers."""
    a, b, c = (np.array(m, dtype=object) for m in (a, b, c))
    taps, state = [], b
    for _ in range(tokens):
        taps.append(c @ state)
        state = a @ state
    if d is not None:
        taps[0] = taps[0] + np.array(d, dtype=object)
    return taps


def target_of(taps, tokens, domain):
    return filters.exact_target([exact.matrix(tap, domain) for tap in taps], tokens)


def matrices(rows, columns):
    entries = st.lists(st.integers(-3, 3), min_size=rows * columns, max_size=rows * columns)
    return entries.map(lambda e: np.array(e).reshape(rows, columns))


@st.composite
def models(draw):
    n, d, outputs = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shapes = ((n, n), (n, d), (outputs, n), (outputs, d))
    a, b, c, feedthrough = (draw(matrices(*shape)) for shape in shapes)
    return a, b, c, draw(st.sampled_from((None, feedthrough)))


@settings(max_examples=60, deadline=None)
@given(model=models(), tokens=st.integers(1, 7), layer=st.sampled_from(sorted(PAPER)))
def test_equals_the_recursion_for_every_input(model, tokens, layer):
    """Any order, width and N, derogatory, nilpotent, unreachable or not; modulo a prime, where every weight fits."""
    a, b, c, d = model
    given = system(a, b, c, d, FIELD)
    construction = state_space(layer, given, tokens)
    taps = plain_taps(a, b, c, d, tokens)
    assert exact_operator_gap(construction, target_of(taps, tokens, FIELD), FIELD) == 0
    filtered = transfer(given)
    terms, rank = len(filtered.numerators), len(filtered.independent()[1])
    assert terms <= len(a) + (d is not None)
    assert construction.heads == {"mha": rank, "iha": min(rank // 2 + 1, ceil_sqrt(terms))}[layer]
    certificate = suite.certificate_of(system(a, b, c, d), tokens)
    assert lower_bound(layer, certificate) <= construction.heads
    if tokens >= terms:
        assert lower_bound("mha", certificate) == rank  # MHA's count is the least


@settings(max_examples=30, deadline=None)
@given(
    taps=st.integers(1, 6).flatmap(lambda k: st.lists(matrices(2, 3), min_size=k, max_size=k)),
    tokens=st.integers(1, 7),
    layer=st.sampled_from(sorted(PAPER)),
)
def test_fir_equals_its_taps(taps, tokens, layer):
    construction = fir(layer, taps, tokens, FIELD)
    assert exact_operator_gap(construction, target_of(taps, tokens, FIELD), FIELD) == 0
    assert construction.heads <= {"mha": len(taps), "iha": ceil_sqrt(len(taps))}[layer]


def test_a_worked_example():
    """x_t = x_{t-1} / 2 + u_t, y_t = x_t, order 1, one head: an impulse halves."""
    model = system([[0.5]], [[1]], [[1]])
    assert transfer(model) == RationalFilter((exact.matrix([[1]], QQ),), (QQ(1), QQ(-1, 2)))
    u = torch.tensor([[[8.0], [0], [0], [1]]], dtype=torch.float64)
    for layer in PAPER:
        construction = state_space(layer, model, 4)
        assert construction.heads == 1
        assert construction.error_bound is None
        assert construction(u).flatten().tolist() == [8, 4, 2, 2]


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        ([[2]], [1, -2]),
        (np.zeros((3, 3), dtype=int), [1, 0]),
        (np.eye(4, dtype=int), [1, -1]),
        (np.eye(3, k=1, dtype=int), [1, 0, 0, 0]),
        (np.diag([1, 1, 2]), [1, -3, 2]),
        (np.kron(np.eye(2, dtype=int), [[0, 1], [-1, 0]]), [1, 0, 1]),
        ([[1, 1], [0, 1]], [1, -2, 1]),
        (np.diag([0.1, 0.1, 0.5]), None),  # exactly derogatory in binary too
    ],
)
def test_minimal_polynomial(a, expected):
    c = exact.minimal_polynomial(exact.matrix(np.array(a), QQ))
    assert c[0] == 1
    if expected is None:
        assert len(c) == 3
    else:
        assert c == expected


@settings(max_examples=30, deadline=None)
@given(a=st.integers(1, 5).flatmap(lambda n: matrices(n, n)))
def test_minimal_polynomial_is_zero_at_a_and_least(a):
    m = exact.matrix(a, QQ)
    c = exact.minimal_polynomial(m)
    degree = len(c) - 1
    powers = [exact.identity(len(a), QQ)]
    for _ in range(degree):
        powers.append(powers[-1] * m)
    assert exact.combination(reversed(c), powers).is_zero_matrix
    assert certified(powers[:-1]).rank == degree


def test_feedthrough_takes_one_term_unless_a_is_singular():
    general = suite.integers(4, 0, feedthrough=True)
    assert len(transfer(general).numerators) == 5
    assert suite.certificate_of(general, 20).rank == 5
    a = np.diag([0, 1, 2, 3])
    b, c, d = (np.random.default_rng(0).integers(-3, 4, s) for s in ((4, 4), (4, 4), (4, 4)))
    singular = system(a, b, c, d)
    assert len(transfer(singular).numerators) == 4
    for layer, heads in (("mha", 4), ("iha", 2)):
        construction = state_space(layer, singular, 6, rounded=True)
        assert construction.heads == heads
        error, bound = float64_measure(construction, layer, singular, 6)
        assert error <= bound


@pytest.mark.parametrize("layer", sorted(PAPER))
def test_scalar_taps_are_one_operator(layer):
    """d = D = 1: one head, whatever the number of taps or the order."""
    taps = [[[2**t]] for t in range(9)]
    construction = fir(layer, taps, 12)
    assert construction.heads == 1
    assert exact_operator_gap(construction, target_of(np.array(taps), 12, QQ)) == 0
    assert certified(suite.responses([exact.matrix(tap, QQ) for tap in taps])).rank == 1
    generator = np.random.default_rng(0)
    model = system(np.diag(generator.uniform(-0.9, 0.9, 5)), np.ones((5, 1)), generator.standard_normal((1, 5)))
    construction = state_space(layer, model, 16, rounded=True)
    assert construction.heads == 1
    assert construction.error_bound == gamma(3)
    error, bound = float64_measure(construction, layer, model, 16)
    assert error <= bound < 1e-12


@pytest.mark.parametrize("layer", sorted(PAPER))
def test_nothing_comes_out_of_a_filter_that_is_zero(layer):
    model = system(np.eye(3), np.ones((3, 2)), np.zeros((2, 3)))
    construction = state_space(layer, model, 4)
    assert construction.heads == 1
    assert exact_operator_gap(construction, target_of([np.zeros((2, 2))], 4, QQ)) == 0


@pytest.mark.parametrize(("rank", "lead", "heads"), [(3, 0, 2), (3, 2, 2), (5, 0, 3), (7, 1, 4), (8, 0, 4)])
def test_half_as_many_heads_as_independent_taps(rank, lead, heads):
    """16 taps of rank r, the first ones 0 so that no map is invertible: ceil((r + 1) / 2) heads, or the root's 4."""
    generator = np.random.default_rng(rank)
    basis = generator.integers(0, 99, (rank, 3, 3))
    mix = generator.integers(0, 99, (16, rank))
    mix[:lead] = 0
    taps = np.einsum("tr,rij->tij", mix, basis)
    construction = fir("iha", taps, 20, FIELD)
    assert construction.heads == heads
    assert exact_operator_gap(construction, target_of(taps, 20, FIELD), FIELD) == 0
    taps[15] += 1
    assert exact_operator_gap(construction, target_of(taps, 20, FIELD), FIELD) > 0
    assert rational_filter("iha", RationalFilter(tuple(exact.matrix(t, QQ) for t in taps)), 20, rounded=True).heads == 4


def test_derogatory_floats_need_no_tolerance():
    """Two exact copies of a random A: the floats are rationals, and the degree is that of one."""
    model = systems.repeated(systems.stable(4, 0), 1)
    assert len(transfer(model).denominator) == 5
    for layer, heads in (("mha", 4), ("iha", 2)):
        construction = state_space(layer, model, 32, rounded=True)
        assert construction.heads == heads
        error, bound = float64_measure(construction, layer, model, 32)
        assert error <= bound


def test_simulations_agree():
    model = systems.stable(3, 0, feedthrough=True)
    parts = [systems.floats(m) for m in (model.a, model.b, model.c, model.feedthrough)]
    u = torch.from_numpy(np.random.default_rng(1).standard_normal((3, 12, systems.WIDTH)))
    ours = systems.recursion(*parts)(u)
    taps = torch.from_numpy(np.stack([systems.floats(tap) for tap in systems.impulse_response(model, 12)]))
    for other in (systems.dlsim(*parts)(u), filters.conv1d(taps)(u), filters.causal(taps)(u)):
        assert other.shape == ours.shape
        assert torch.allclose(ours, other, rtol=0, atol=1e-12)


def test_exact_only():
    for results in (suite.special_checks(exact_only=True), suite.fir_checks(4, exact_only=True)):
        assert {result.tier for result in results} == {"exact"}


def test_toeplitz():
    column = torch.tensor([1.0, 2, 3], dtype=torch.float64)
    assert toeplitz(column, 1).tolist() == [[1]]
    assert toeplitz(column, 4).tolist() == [[1, 0, 0, 0], [2, 1, 0, 0], [3, 2, 1, 0], [0, 3, 2, 1]]


ONE = [[1]]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: system([[1, 2]], ONE, ONE), ValueError, "A of shape"),
        (lambda: system(ONE, [[1], [2]], ONE), ValueError, "B of shape"),
        (lambda: system(ONE, ONE, [[1, 2]]), ValueError, "C of shape"),
        (lambda: system(ONE, ONE, ONE, [[1, 2]]), ValueError, "D of shape"),
        (lambda: system([[float("nan")]], ONE, ONE), ValueError, "nan"),
        (lambda: state_space("iha", system(ONE, ONE, ONE), 0), ValueError, "tokens must be an integer of at least 1"),
        (lambda: state_space("gqa", system(ONE, ONE, ONE), 3), ValueError, "unknown layer 'gqa'"),
        (lambda: fir("iha", [], 3), ValueError, "taps of one shape, got none"),
        (lambda: fir("iha", [ONE, [[1, 2]]], 3), ValueError, "taps of one shape"),
        (lambda: RationalFilter((exact.matrix(ONE, QQ),), (QQ(2),)), ValueError, "must start with 1"),
        (lambda: state_space("iha", system([[3]], ONE, ONE), 64), OverflowError, "not a float64"),
        (lambda: fir("mha", [[[3]], ONE], 3), OverflowError, "not a float64"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message) as info:
        make()
    assert "\n" not in str(info.value)


def test_rounding_is_asked_for():
    numerators = tuple(exact.matrix([[tap]], QQ) for tap in (3, 1))
    construction = rational_filter("mha", RationalFilter(numerators), 3, rounded=True)
    assert construction.error_bound == gamma(3)
    u = torch.ones(1, 3, 1, dtype=torch.float64)
    assert torch.allclose(construction(u).flatten(), torch.tensor([3.0, 4, 4], dtype=torch.float64), rtol=1e-15)


def test_a_model_over_another_field_is_not_mixed():
    with pytest.raises(ValueError, match=r"B is over .* and A over QQ: use one field"):
        StateSpace(exact.matrix(ONE, QQ), exact.matrix(ONE, FIELD), exact.matrix(ONE, QQ))
