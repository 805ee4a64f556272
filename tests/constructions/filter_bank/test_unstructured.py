"""Any bank by half as many heads: counts, exactness, what is singular, refusals."""

import numpy as np
import pytest
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.filter_bank.unstructured import bank, grid, heads
from iha_theory import exact
from iha_theory.bounds.heads import least_heads
from synthetic import systems

FIELD = exact.gf(systems.PRIME)


def random(count, tokens, domain=FIELD, most=systems.PRIME, seed=0):
    generator = np.random.default_rng(seed)
    return [exact.matrix(generator.integers(-most, most, (tokens, tokens)), domain) for _ in range(count)]


def test_heads_are_the_least_with_enough_cells():
    for rank in range(1, 60):
        assert heads(rank) == rank // 2 + 1
        for m in range(1, 9):
            h = heads(rank, m)
            assert h >= m
            assert m * (2 * h - m) >= rank
            assert h == m or m * (2 * (h - 1) - m) < rank
        assert min(heads(rank, m) for m in range(1, 9)) == least_heads("iha", rank)


@pytest.mark.parametrize(("count", "factor"), [(1, 1), (2, 1), (5, 1), (8, 1), (9, 2), (12, 2), (9, 3), (3, 2)])
def test_any_bank(count, factor):
    maps = random(count, 3)
    for layer in ("iha", "iha-tiled"):
        built = bank(layer, maps, 2 if count < 4 else 1, factor)
        assert built.heads == heads(count, factor)
        assert exact_gap(built, maps, FIELD) == 0
        assert exact_gap(built, [*maps[:-1], exact.identity(3, FIELD)], FIELD) > 0


def test_one_invertible_matrix_in_the_span_is_enough():
    """Units E_ij of 2 x 2: none is invertible, E_00 + E_11 is; dependent maps do not count; over the rationals."""
    units = [exact.matrix(np.eye(4, dtype=int)[i].reshape(2, 2), QQ) for i in range(4)]
    for maps, count in (([*units, units[0] + units[3]], 3), (units[:1], 1), ([units[0] - units[0]] * 2, 1)):
        built = bank("iha", maps)
        assert built.heads == count
        assert exact_gap(built, maps) == 0


def test_a_span_of_singular_matrices_is_refused():
    singular = [exact.matrix([[i, j], [0, 0]], QQ) for i, j in ((1, 0), (0, 1))]
    with pytest.raises(ValueError, match="no invertible matrix of size 2 was found in the span of the 2 maps"):
        grid(singular)
    assert len(grid(singular, 2).queries) == 2
    with pytest.raises(ValueError, match="unknown layer 'mha'"):
        bank("mha", singular)
