"""Heads at a tolerance, where rounding could hide or invent something."""

import math

import numpy as np
import pytest
import torch

from constructions.checks.oracles import powers as oracle
from constructions.filter_bank import approximate
from constructions.filter_bank.product_fit import power_products
from constructions.heads.approximate import ApproximateTask, unit_powers
from iha_theory.bounds.heads import least_rank, spectrum
from iha_theory.rounding import ceil_sqrt
from synthetic.graphs import Graph, load, normalise


def counts(graph, terms, tolerance, layers=None):
    task = ApproximateTask(unit_powers(graph, terms), tolerance)
    return [task.count(layer) for layer in layers or task.layers]


def test_a_power_that_cancels_to_zero_is_zero():
    """A^2 = 0 by -3 + 3: scaled to norm 1, what rounding leaves of it would be a power of its own."""
    graph = Graph.from_matrix(np.array([[0, -3, -3, -1], [0, 0, 0, -1], [0, 0, 0, 1], [0, 0, 0, 0]]))
    powers = unit_powers(graph, 5)
    assert powers.bank.norm(dim=(1, 2)).tolist() == pytest.approx([1, 1, 0, 0, 0])
    for tolerance in (0.5, 1e-6):
        for row in counts(graph, 5, tolerance):
            assert row.achieved == row.lower == 2


def test_a_very_asymmetric_matrix_falls_back_on_its_powers():
    """Chebyshev coordinates lose the powers of this one: 1e-3 is what the fit reaches with H^2 = k."""
    for row in counts(load("random:40"), 25, 1e-8):
        assert row.achieved == row.lower == (25 if row.layer == "mha" else 5)
        assert row.verdict.error < 1e-12


@pytest.mark.parametrize("terms", [1, 2, 5, 9, 10])
def test_power_products_are_the_powers(terms):
    bank = unit_powers(load("random:6"), terms).bank
    found = power_products(bank, ceil_sqrt(terms))
    made = torch.einsum("aij,bjk,abt->tik", found.outer, found.inner, found.coefficients)
    torch.testing.assert_close(made, bank)
    assert found.error < 1e-14


def test_every_tolerance_is_met_in_any_order():
    powers = unit_powers(normalise(load("karate"), "symmetric"), 16)
    rows = {e: ApproximateTask(powers, e).count("iha") for e in (1e-4, 1e-8, 1e-1, 1e-2)}
    assert [rows[e].achieved for e in (1e-1, 1e-2, 1e-4, 1e-8)] == [2, 3, 4, 4]
    for e, row in rows.items():
        assert row.verdict.error <= e


def test_the_lower_bound_follows_the_spectrum_and_the_error_is_measured():
    graph = normalise(load("les_miserables"), "symmetric")
    for row in counts(graph, 9, 0.05, ("mha", "iha-wide")):
        rank = least_rank(spectrum(unit_powers(graph, 9).bank), 0.05)
        assert row.lower == (rank if row.layer == "mha" else math.isqrt(rank - 1) + 1)
        assert 0 < row.verdict.error <= 0.05 or row.built.heads**2 >= 9
        assert row.certificate is None


@pytest.mark.parametrize("layer", ["mha", "iha", "iha-wide", "mha-two-layer"])
def test_powers_in_the_wrong_order_are_noticed(layer, monkeypatch):
    graph = normalise(load("karate"), "symmetric")
    assert counts(graph, 9, 1e-4, (layer,))[0].verdict.holds
    right = approximate.unit_powers
    monkeypatch.setattr(approximate, "unit_powers", lambda a, terms: right(a, terms).flip(0))
    assert not counts(graph, 9, 1e-4, (layer,))[0].verdict.holds


@pytest.mark.parametrize("name", ["karate", "random:12", "cycle:16", "florentine"])
def test_powers_far_beyond_float64_have_a_target_too(name):
    a = torch.tensor(load(name).adjacency.astype(np.float64)) * 1e9
    torch.testing.assert_close(oracle.unit_powers(a, 60), approximate.unit_powers(a, 60), rtol=1e-11, atol=1e-13)
