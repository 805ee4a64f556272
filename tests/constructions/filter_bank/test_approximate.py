"""Heads at a tolerance: the floor attained, the numbers of docs/results.md T4, products of polynomials, the judge."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.checks.operators import frobenius_error
from constructions.filter_bank import approximate, product_fit
from constructions.filter_bank.approximate import UnitPowers
from constructions.filter_bank.layers import LAYERS
from iha_theory.bounds.heads import least_rank, spectrum, unstructured_heads
from iha_theory.operators.weights import NotPositionOnlyError
from iha_theory.rounding import ceil_sqrt
from synthetic.graphs import builtin, normalise

TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
MHA_HEADS = {
    "karate": (4, 7, 11, 16),
    "les_miserables": (5, 8, 12, 16),
    "petersen": (3, 3, 3, 3),
    "cycle:16": (16, 16, 16, 16),
}


def matrix(name):
    graph = builtin(name)
    return torch.tensor((graph if graph.directed else normalise(graph, "symmetric")).adjacency.astype(float))


def random_bank(k, size, seed):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((k, size, size)))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", sorted(MHA_HEADS))
def test_heads_at_a_tolerance(name, layer):
    """MHA's numbers are those of docs/results.md T4; all others attain ceil(sqrt R), which is a lower bound."""
    a = matrix(name)
    powers = UnitPowers(a, 16)
    for tolerance, rank in zip(TOLERANCES, MHA_HEADS[name], strict=True):
        construction = powers.within(layer, tolerance)
        assert construction.heads == (rank if layer == "mha" else ceil_sqrt(rank))
        assert frobenius_error(construction, powers.bank) <= tolerance
        assert construction.pseudo_heads <= (ceil_sqrt(construction.heads) if layer != "iha" else construction.heads)


@settings(max_examples=25, deadline=None)
@given(
    k=st.integers(1, 6),
    size=st.integers(1, 4),
    heads=st.integers(1, 3),
    width=st.integers(1, 2),
    seed=st.integers(0, 2**16),
)
def test_mha_and_wide_iha_attain_the_floor_for_any_bank(k, size, heads, width, seed):
    bank = random_bank(k, size, seed)
    values = spectrum(bank)
    mha = approximate.truncated_mha(bank, min(heads, k), width)
    iha = approximate.wide_iha(bank, heads, width)
    assert iha.heads == heads
    for construction, capacity in ((mha, min(heads, k)), (iha, heads**2)):
        error = frobenius_error(construction, bank)
        assert error == pytest.approx(approximate.floor(values, capacity), abs=1e-12)
        assert error == pytest.approx(construction.error_bound, abs=1e-12)


def test_unstructured_banks_need_wide_heads():
    """Nine generic matrices: three heads of d_k = 3 N; with d_k = N more are needed (docs/results.md T5)."""
    tokens = 64
    bank = random_bank(9, tokens, 0)
    construction = approximate.wide_iha(bank, 3)
    assert frobenius_error(construction, bank) < 1e-13
    assert construction.layer.head_dim == 3 * tokens
    assert unstructured_heads(9, tokens, 3 * tokens) == 3 < unstructured_heads(9, tokens)


@pytest.mark.parametrize("name", ["random:20", "path:12", "star:9", "complete:5", "gnp:30:0.2"])
def test_products_for_other_matrices(name):
    """Directed, nilpotent, with few distinct powers: the tolerance is met with the least heads."""
    a = matrix(name)
    bank = approximate.unit_powers(a, 12)
    for tolerance in (0.3, 1e-3, 1e-9):
        least = ceil_sqrt(least_rank(spectrum(bank), tolerance))
        found = UnitPowers(a, 12).products(least, tolerance)
        construction = approximate.product_bank("iha-tiled", found, 2)
        assert frobenius_error(construction, bank) <= tolerance
        assert construction.heads == least
        assert construction.error_bound == found.error <= tolerance


def test_fitted_error_is_the_measured_one_and_above_the_floor():
    a = matrix("karate")
    bank = approximate.unit_powers(a, 16)
    found = product_fit.fit(a, bank, 2, 0.1)
    measured = frobenius_error(approximate.product_bank("iha", found), bank)
    assert measured == pytest.approx(found.error, rel=1e-9)
    assert approximate.floor(spectrum(bank), 4) < measured < 0.1
    start = product_fit.fit(a, bank, 2, 0.9)
    assert start.error == pytest.approx(0.332, abs=1e-3)  # T_0, T_2 times T_0, T_1: what the optimiser starts from


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 6), heads=st.tuples(st.integers(1, 3), st.integers(1, 3)), seed=st.integers(0, 2**16))
def test_products_of_chebyshev_series(n, heads, seed):
    generator = np.random.default_rng(seed)
    p, q = (generator.standard_normal((h, n)) for h in heads)
    found = product_fit.times(torch.from_numpy(p), torch.from_numpy(q)).numpy()
    for a, b in np.ndindex(*heads):
        assert np.allclose(found[a, b], np.polynomial.chebyshev.chebmul(p[a], q[b]))


def test_unit_powers():
    a = 1e100 * matrix("karate")
    bank = approximate.unit_powers(a, 30)
    assert torch.allclose(bank.flatten(1).norm(dim=1), torch.ones(30, dtype=torch.float64))
    power = torch.linalg.matrix_power(matrix("karate"), 5)
    assert torch.allclose(bank[5], power / power.norm())
    assert float(approximate.unit_powers(matrix("path:3"), 4)[3].abs().max()) == 0
    with pytest.raises(ValueError, match="at least 1"):
        approximate.unit_powers(a, 0)


def test_a_large_graph():
    """No N^2 x N^2 matrix, and no more than seconds."""
    a = matrix("gnp:256:0.05")
    bank = approximate.unit_powers(a, 16)
    rank = least_rank(spectrum(bank), 1e-2)
    assert rank < 9
    for layer, heads in (("mha", rank), ("iha-tiled", ceil_sqrt(rank))):
        construction = UnitPowers(a, 16).within(layer, 1e-2)
        assert construction.heads == heads
        assert frobenius_error(construction, bank) <= 1e-2


class TestJudge:
    """`frobenius_error`."""

    bank = approximate.unit_powers(matrix("cycle:16")[:5, :5], 3)

    def test_relative_to_the_target(self):
        construction = approximate.truncated_mha(self.bank, 3, 2)
        doubled = 2 * self.bank
        assert frobenius_error(construction, doubled) == pytest.approx(0.5)

    def test_content_in_the_queries_is_seen(self):
        construction = approximate.truncated_mha(self.bank, 3)
        assert frobenius_error(construction, self.bank) < 1e-14
        with torch.no_grad():
            construction.layer.q_proj.weight[0, 0] = 0.1
        with pytest.raises(NotPositionOnlyError):
            frobenius_error(construction, self.bank)

    def test_nan_never_passes(self):
        construction = approximate.truncated_mha(self.bank, 3)
        with torch.no_grad():
            construction.layer.out_proj.weight[0, 0] = math.nan
        assert frobenius_error(construction, self.bank) == math.inf

    def test_shapes_must_match(self):
        construction = approximate.truncated_mha(self.bank, 3)
        with pytest.raises(ValueError, match="2 blocks"):
            frobenius_error(construction, self.bank[:2])


def test_refusals():
    a = matrix("karate")
    powers = UnitPowers(a, 4)
    with pytest.raises(ValueError, match="unknown layer 'gqa'"):
        powers.within("gqa", 0.1)
    for tolerance in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            powers.within("mha", tolerance)
    beyond = UnitPowers(a, 16).within("iha", 1e-17)
    assert beyond.error_bound > 1e-17  # said, where rounding does not let it be met


@pytest.mark.parametrize(("k", "heads"), [(1, 1), (3, 2), (5, 3), (6, 4), (2, 3)])
def test_half_as_many_heads_as_maps(k, heads):
    """Random banks, exactly; with a map less the floor of capacity k - 1; singular spans are told by the error."""
    bank = random_bank(k, 5, k)
    found = approximate.half_products(bank, k, heads)
    assert found.error < 1e-12
    built = approximate.product_bank("iha-tiled", found)
    assert built.heads == heads
    assert frobenius_error(built, bank) < 1e-12
    if k > 1:
        less = approximate.half_products(bank, k - 1, heads)
        assert math.isclose(less.error, approximate.floor(spectrum(bank), k - 1), rel_tol=1e-9)
    bank[:, 1:] = 0
    assert k <= heads or approximate.half_products(bank, k, heads).error > 1e-3


def test_half_as_many_heads_where_no_fit_is_found(monkeypatch):
    def none(a, bank, heads, tolerance):
        return product_fit.Products(*(torch.zeros(heads, *s) for s in ((16, 16), (16, 16), (heads, 16))), 1.0)

    monkeypatch.setattr(approximate, "fit", none)
    powers = UnitPowers(matrix("petersen"), 16)  # R = 3
    for layer in ("iha", "iha-tiled", "mha-two-layer"):
        construction = powers.within(layer, 1e-8)
        assert construction.heads == 2
        assert frobenius_error(construction, powers.bank) <= 1e-8
