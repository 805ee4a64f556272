"""Floors with the identity projected out, kernels of polynomials against numpy, and the counts that follow."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from iha_theory import exact
from iha_theory.bounds.content import (
    Eigenvalues,
    content_floor,
    eigenvalues,
    identity_free_spectrum,
    largest_kernel,
    limit_heads,
    needs_rank_heads,
)
from iha_theory.bounds.heads import error_floor, spectrum
from synthetic.graphs import builtin

ROTATION = [[0, -1], [1, 0]]
JORDAN = [[2, 1, 0, 0], [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 5]]


def random_bank(seed: int, terms: int = 3, tokens: int = 4) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(terms, tokens, tokens, generator=generator, dtype=torch.float64)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 3))
def test_the_floor_is_the_least_error_of_a_fit_with_the_identity_free(seed, rank):
    """Alternately fit the multiple of the identity in each matrix and the best rank-R rest: never below the floor."""
    bank = random_bank(seed)
    flat, identity = bank.flatten(1).T.numpy(), np.eye(4).ravel()
    low, free = flat, np.zeros(3)
    for _ in range(200):
        u, s, v = np.linalg.svd(flat - np.outer(identity, free), full_matrices=False)
        low = (u[:, :rank] * s[:rank]) @ v[:rank]
        free = identity @ (flat - low) / 4
    error = np.square(flat - low - np.outer(identity, free)).sum() / np.square(flat).sum()
    floor = content_floor(bank, rank)
    assert floor - 1e-12 <= error <= floor + 1e-6
    assert floor <= error_floor(spectrum(bank), rank) + 1e-15


def test_the_floor_of_the_filter_bank():
    a = torch.linalg.qr(random_bank(0, 1, 8)[0]).Q
    bank = torch.stack((torch.eye(8, dtype=torch.float64), a, a @ a))
    assert content_floor(bank, 2) < 1e-15  # two heads for three terms
    assert float(identity_free_spectrum(bank)[2]) < 1e-15
    assert content_floor(bank, 3) == 0
    assert content_floor(bank[:1], 0) == 0  # X itself comes free


def test_banks_of_integers_and_lists_are_read():
    bank = torch.arange(12).view(3, 2, 2)
    for same in (bank, bank.float(), bank.tolist()):
        assert content_floor(same, 1) == content_floor(bank.double(), 1) > 0


def test_floors_refuse():
    with pytest.raises(ValueError, match="capacity"):
        content_floor(random_bank(0), -1)
    with pytest.raises(ValueError, match="zeros"):
        content_floor(torch.zeros(2, 3, 3), 1)
    with pytest.raises(ValueError, match="expected"):
        content_floor(torch.ones(2, 3, 4), 1)


def test_eigenvalues_of_known_matrices():
    assert eigenvalues(ROTATION) == (Eigenvalues(2, 0, (1,)),)
    assert set(eigenvalues(JORDAN)) == {Eigenvalues(1, 1, (2, 1)), Eigenvalues(1, 1, (1,))}
    petersen = {e.growth: (e.count, e.real) for e in eigenvalues(builtin("petersen").adjacency)}
    assert petersen == {(1,): (1, 1), (5,): (1, 1), (4,): (1, 1)}
    assert eigenvalues([[0, 2], [1, 0]]) == (Eigenvalues(2, 2, (1,)),)  # +- sqrt 2
    with pytest.raises(ValueError, match="square"):
        eigenvalues([[1, 2]])


@pytest.mark.parametrize(
    "matrix", [JORDAN, "star:5", "cycle:6", "path:4", "complete:4", [[0, 1, 0], [0, 0, 1], [0, 0, 0]]]
)
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_the_largest_kernel_is_that_of_the_best_product_of_factors(matrix, degree):
    a = np.array(builtin(matrix).adjacency if isinstance(matrix, str) else matrix)
    roots = np.unique(np.round(np.linalg.eigvals(a), 4))
    best = 0
    for chosen in combinations_with_replacement(roots, degree):
        product = np.linalg.multi_dot([np.eye(len(a), dtype=complex), *[a - z * np.eye(len(a)) for z in chosen]])
        best = max(best, len(a) - np.linalg.matrix_rank(product, tol=1e-3))
    assert largest_kernel(eigenvalues(a), degree) == best


def test_heads_in_the_limit():
    assert [limit_heads(ROTATION, 2, d) for d in (1, 2)] == [2, 2]
    assert [limit_heads(builtin("path:3").adjacency, 2, d) for d in (1, 2)] == [1, 2]
    assert [limit_heads(builtin("complete:3").adjacency, 2, d) for d in (1, 2, 3)] == [1, 1, 2]
    petersen = builtin("petersen").adjacency
    assert [limit_heads(petersen, 2, d) for d in (4, 5, 6)] == [1, 1, 2]
    assert [limit_heads(petersen, 9, d) for d in (1, 15, 16)] == [2, 2, 3]  # r = 3: N (r - 2) + 5
    assert limit_heads(exact.matrix(ROTATION, QQ), 2, 1) == limit_heads(np.array(ROTATION), 2, 1) == 2
    assert limit_heads([[1, 0], [0, 1]], 5, 1) == 1  # r = 1: nothing to save
    assert limit_heads(builtin("karate").adjacency, 16, 2) == 15
    with pytest.raises(ValueError, match="width"):
        limit_heads(ROTATION, 2, 0)


def test_where_content_anywhere_saves_nothing():
    cycle = builtin("cycle:9").adjacency
    assert [needs_rank_heads(cycle, k) for k in (1, 2, 5, 6)] == [True, True, True, False]  # N >= 2 r - 1
    assert [needs_rank_heads(builtin("cycle:8").adjacency, k) for k in (4, 5)] == [True, False]  # N = 2 r - 1, 2 r - 2
    assert not needs_rank_heads(builtin("cycle:4").adjacency, 3)
    assert [needs_rank_heads(builtin("karate").adjacency, k) for k in (13, 14)] == [True, False]
    petersen = builtin("petersen").adjacency
    assert [needs_rank_heads(petersen, k) for k in (2, 3, 9)] == [True, False, False]
