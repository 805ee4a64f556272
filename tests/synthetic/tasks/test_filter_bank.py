"""The filter-bank oracle: exact where the inputs are, float64 otherwise, never wrapped."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import GF, QQ, ZZ, symbols
from sympy.polys.matrices import DomainMatrix

from synthetic.graphs import Graph, builtin, normalise
from synthetic.tasks.filter_bank import PolynomialBank, power_blocks, power_blocks_float


def blocks(bank, X):
    target = bank.target(X)
    return np.split(target, bank.terms, axis=-1)


def test_directed_path():  # case 1
    X = np.array([[2], [3], [5]])
    got = [block.ravel().tolist() for block in blocks(PolynomialBank(builtin("path:3"), 3), X)]
    assert got == [[2, 3, 5], [3, 5, 0], [5, 0, 0]]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, object])
def test_directed_four_cycle_returns(dtype):  # case 2
    X = np.arange(8).reshape(4, 2).astype(dtype)
    got = blocks(PolynomialBank(builtin("cycle:4"), 6), X)
    assert (got[4] == X).all()
    assert (got[5] == got[1]).all()
    assert (got[1] == np.roll(X, -1, axis=0)).all()


@pytest.mark.parametrize("terms", [1, 2, 4, 5, 9, 10, 17])
def test_last_block_is_the_top_power(terms):  # case 3
    graph = builtin("random:5:2")
    X = np.arange(10).reshape(5, 2)
    target = PolynomialBank(graph, terms).target(X)
    assert target.shape == (5, 2 * terms)
    top = np.linalg.matrix_power(graph.adjacency.astype(object), terms - 1) @ X
    assert (target[:, -2:] == top).all()
    assert (target[:, :2] == X).all()


def test_isolated_nodes_and_no_edges():  # case 6
    X = np.arange(1, 6)[:, None]
    one = PolynomialBank(Graph.from_edges([(0, 1)], nodes=range(5), directed=True), 3).target(X)
    assert one.tolist() == [[1, 2, 0], [2, 0, 0], [3, 0, 0], [4, 0, 0], [5, 0, 0]]
    none = PolynomialBank(Graph.from_edges([], nodes=range(5)), 3).target(X)
    assert none.tolist() == [[x, 0, 0] for x in range(1, 6)]
    assert PolynomialBank(Graph.from_edges([], nodes=[0]), 2).target(np.array([[7]])).tolist() == [[7, 0]]


def test_all_ones_to_the_ninth():  # case 8
    ones = Graph.from_matrix(np.ones((3, 3)))
    for X in (np.eye(3, dtype=np.int64), np.eye(3)):
        assert (blocks(PolynomialBank(ones, 10), X)[9] == 6561).all()


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 7), st.integers(0, 9), st.integers(1, 2**64))
def test_integers_are_never_wrapped(n, terms, seed, scale):
    generator = np.random.default_rng(seed)
    A = generator.integers(-3, 4, (n, n)).astype(object) * scale
    X = generator.integers(-128, 128, (2, n, 2)).astype(np.int8)
    got = PolynomialBank(Graph.from_matrix(A), terms).target(X)
    rows, expected = A.tolist(), []
    for x in X.tolist():
        block = x
        for power in range(terms):
            if power:
                block = [[sum(rows[i][j] * block[j][d] for j in range(n)) for d in range(2)] for i in range(n)]
            expected.append(block)
    assert np.split(got, terms, axis=-1)[0].shape == (2, n, 2)
    for b, power in itertools.product(range(2), range(terms)):
        assert got[b, :, 2 * power : 2 * power + 2].tolist() == expected[b * terms + power]


def test_exact_dtypes():
    small, large = PolynomialBank(builtin("karate"), 3), PolynomialBank(builtin("karate"), 40)
    X = np.eye(34, dtype=np.uint8)
    assert small.target(X).dtype == np.int64
    assert large.target(X).dtype == object
    power = np.linalg.matrix_power(builtin("karate").adjacency.astype(object), 39)
    assert (blocks(large, X)[39] == power).all()
    assert power.max() > 2**64
    assert small.target(X.astype(np.float16)).dtype == np.float64
    huge = np.full((34, 1), 2**64, dtype=object)
    assert small.target(huge)[:, 0].tolist() == [2**64] * 34
    assert large.target(np.zeros((3, 0, 34, 2), dtype=np.int64)).shape == (3, 0, 34, 80)


@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("shape", [(2, 1), (3, 2, 4), (2, 0), (0, 2, 1)])
def test_weights_beyond_int64_with_zero_or_empty_features(terms, shape):
    bank = PolynomialBank(Graph.from_edges([(0, 1, 2**70)]), terms)
    target = bank.target(np.zeros(shape, dtype=np.int64))
    assert target.shape == (*shape[:-1], shape[-1] * terms)
    assert not target.any()


def test_float64_follows_the_exact_answer():
    graph = builtin("random:20:1")
    X = np.random.default_rng(0).integers(-9, 10, (20, 3))
    exact = PolynomialBank(graph, 12).target(X)
    error = np.abs(PolynomialBank(graph, 12).target(X.astype(float)) - exact.astype(float))
    norm = np.abs(graph.adjacency).sum(1).max() ** 11 * 9
    assert error.max() <= 12 * 20 * 2.0**-53 * norm


def test_samples_depend_on_the_seed_alone():
    bank = PolynomialBank(builtin("karate"), 2)
    whole = bank.sample(np.random.default_rng(3), 6, 5)
    generator = np.random.default_rng(3)
    assert (np.concatenate([bank.sample(generator, size, 5) for size in (1, 3, 2)]) == whole).all()
    train, test = np.random.default_rng(3).spawn(2)
    assert not np.isin(bank.sample(train, 6, 5), bank.sample(test, 6, 5)).any()
    assert abs(whole.mean()) < 0.1


@pytest.mark.parametrize("terms", [0, -1, True])
def test_terms_below_one_are_refused(terms):
    A = DomainMatrix([[ZZ(1)]], (1, 1), ZZ)
    for call in (
        lambda: PolynomialBank(builtin("cycle:3"), terms),
        lambda: next(power_blocks(A, terms)),
        lambda: next(power_blocks_float(np.eye(2), terms)),
    ):
        with pytest.raises(ValueError, match=r"^terms must be an integer of at least 1"):
            call()


@pytest.mark.parametrize(
    ("X", "word"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((4, 3)), "shape"),
        (np.zeros((3, 1), dtype=complex), "complex"),
        (np.zeros((3, 1), dtype=bool), "bool"),
        (np.array([["a"], ["b"], ["c"]]), "dtype"),
        (np.array([[0.5], [1], [1]], dtype=object), "object"),
        (np.array([[np.nan], [1], [1]]), "finite"),
        (np.array([[1e308], [-1e308], [1e308]]), "finite"),
    ],
)
def test_bad_inputs_are_refused(X, word):
    with pytest.raises(ValueError, match=word):
        PolynomialBank(Graph.from_edges([(0, 1, 9), (1, 2, 9)]), 5).target(X)


def test_integers_that_float64_would_round_are_refused():
    halves = PolynomialBank(normalise(builtin("star:4"), "row"), 2)
    assert halves.target(np.full((4, 1), 2**53)).dtype == np.float64
    with pytest.raises(ValueError, match="round"):
        halves.target(np.full((4, 1), 2**53 + 1))
    with pytest.raises(ValueError, match="round"):
        PolynomialBank(Graph.from_edges([(0, 1, 10**400)]), 2).target(np.ones((2, 1)))


@pytest.mark.parametrize("domain", [ZZ, QQ, GF(7), GF(2**61 - 1), ZZ[symbols("a b c")], QQ.frac_field(symbols("a"))])
def test_power_blocks_over_any_domain(domain):
    entries = [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    if domain.is_PolynomialRing or domain.is_FractionField:
        entries[0][0] = domain.gens[0]
    A = DomainMatrix([[domain.convert(x) for x in row] for row in entries], (3, 3), domain)
    for form in (A, A.to_dense(), A.to_sparse()):
        got = list(power_blocks(form, 6))
        assert len(got) == 6
        expected = DomainMatrix.eye((3, 3), domain)
        for block in got:
            assert block.to_list() == expected.to_list()
            expected = expected * A.to_sparse()


def test_power_blocks_agree_with_the_bank():
    graph = builtin("random:7")
    A = DomainMatrix([[ZZ(x) for x in row] for row in graph.adjacency.tolist()], (7, 7), ZZ)
    exact = blocks(PolynomialBank(graph, 30), np.eye(7, dtype=np.int64))
    for block, power in zip(exact, power_blocks(A, 30), strict=True):
        assert block.tolist() == [[int(x) for x in row] for row in power.to_list()]
    for block, power in zip(exact[:5], power_blocks_float(graph.adjacency.astype(float), 5), strict=True):
        assert (block == power).all()


def test_bad_power_blocks_are_refused():
    with pytest.raises(ValueError, match="square"):
        next(power_blocks(DomainMatrix([[ZZ(1), ZZ(2)]], (1, 2), ZZ), 2))
    with pytest.raises(ValueError, match="square"):
        next(power_blocks_float(np.ones((1, 2)), 2))
    with pytest.raises(ValueError, match=r"A\^2"):
        list(power_blocks_float(np.full((2, 2), 1e200), 3))
    with pytest.raises(ValueError, match="finite"):
        list(power_blocks_float(np.full((2, 2), np.nan), 2))
