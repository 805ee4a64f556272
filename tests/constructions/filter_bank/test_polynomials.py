"""Combinations of powers by few heads of d_k = N, exactly and at the floor."""

import numpy as np
import pytest
import torch
from sympy import QQ

from constructions.checks.operators import exact_gap, frobenius_error
from constructions.filter_bank import polynomials
from constructions.filter_bank.approximate import floor, product_bank, unit_powers
from iha_theory import exact
from iha_theory.bounds.heads import spectrum


def orthogonal(tokens, seed=0):
    return torch.from_numpy(np.linalg.qr(np.random.default_rng((tokens, seed)).standard_normal((tokens, tokens)))[0])


def test_powers_with_a_gap_over_the_rationals():
    """1, x, x^3, x^4: W = <1, x^3>, the example of the proof."""
    a = exact.matrix([[0, 1, 0], [1, 0, 2], [0, 1, 1]], QQ)
    rows = exact.matrix(np.eye(5, dtype=int)[[0, 1, 3, 4]], QQ)
    assert [[int(x) for x in row] for row in polynomials.shifted_inside(rows, 2).to_list()] == [
        [1, 0, 0, 0],
        [0, 0, 0, 1],
    ]
    built = polynomials.bank(a, rows, 2)
    power = [exact.identity(3, QQ), a, a * a * a, a * a * a * a]
    assert (built.heads, built.layer.head_dim) == (2, 3)
    assert exact_gap(built, power) == 0


def test_an_exception_and_what_is_refused():
    """1, x^2, x^3, x^4 has W = <x^2, x^3>, and x x^2 = x^3; in degree 5 one polynomial is left."""
    a = exact.identity(2, QQ)
    with pytest.raises(ValueError, match="polynomials, got 3"):
        polynomials.bank(a, exact.matrix(np.eye(3, dtype=int), QQ))
    with pytest.raises(ValueError, match="dependent"):
        polynomials.bank(a, exact.matrix(np.eye(5, dtype=int)[[0, 2, 3, 4]], QQ))
    with pytest.raises(ValueError, match="only 1 of 2"):
        polynomials.bank(a, exact.matrix(np.random.default_rng(0).integers(-9, 10, (4, 6)), QQ))


@pytest.mark.parametrize(("tokens", "terms"), [(9, 7), (12, 5), (6, 6)])
def test_two_heads_at_the_floor(tokens, terms):
    bank = unit_powers(orthogonal(tokens), terms)
    found = polynomials.split_products(bank)
    assert found is not None
    built = product_bank("iha", found)
    assert (built.heads, built.layer.head_dim) == (2, tokens)
    assert frobenius_error(built, bank) == pytest.approx(floor(spectrum(bank), 4), abs=1e-9)
    assert found.error == pytest.approx(floor(spectrum(bank), 4), abs=1e-9)


def test_no_form_and_a_form_of_another_signature():
    assert polynomials.split_products(unit_powers(orthogonal(12), 9)) is None
    sphere = np.diag([1.0, 1.0, 1.0, -1.0])[None]
    assert polynomials.split_form(sphere) is None
    assert polynomials.split_form(np.diag([1.0, -1.0, 1.0, -1.0])[None]) is not None
    points = np.random.default_rng(0).standard_normal((20, 3))
    at = np.column_stack((points, np.linalg.norm(points, axis=1)))
    found, _ = polynomials.forms(at)
    assert len(found) == 1
    assert np.abs(found[0] / found[0][0, 0] - sphere[0]).max() < 1e-9
