"""Banks with dependent powers by as many heads as independent ones: coefficients, layers, tiers, checks, mutants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.checks.operators import exact_gap
from constructions.filter_bank import reduced
from constructions.filter_bank.layers import EXACT, LAYERS
from constructions.suite import fewer_heads
from iha_theory import exact
from iha_theory.bounds.heads import least_heads
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.filter_bank import power_blocks

HEADS = {"petersen": (3, 2), "complete:12": (2, 2), "cycle:16": (16, 4), "diagonal:12": (12, 4)}
"""MHA and IHA."""


def repeated(size, copies, seed, denominator=1):
    """A block-diagonal matrix of equal blocks, mixed by a unimodular matrix: a minimal polynomial of low degree."""
    generator = np.random.default_rng(seed)
    block = np.kron(np.eye(copies, dtype=np.int64), generator.integers(-2, 3, (size, size)))
    change = np.triu(generator.integers(-1, 2, block.shape), 1) + np.eye(len(block), dtype=np.int64)
    inverse = np.rint(np.linalg.inv(change)).astype(np.int64)
    return exact.matrix(inverse @ block @ change, QQ) * QQ(1, denominator)


@settings(max_examples=25, deadline=None)
@given(
    layer=st.sampled_from(EXACT),
    terms=st.integers(1, 8),
    size=st.integers(1, 3),
    copies=st.integers(1, 2),
    width=st.integers(1, 2),
    seed=st.integers(0, 2**16),
)
def test_exact_for_any_integer_matrix(layer, terms, size, copies, width, seed):
    a = repeated(size, copies, seed)
    given_bank = reduced.reduce(a, terms)
    flat = DomainMatrix([p.to_list_flat() for p in power_blocks(a, terms)], (terms, a.shape[0] ** 2), QQ)
    assert given_bank.rank == flat.rank() <= min(terms, size)
    construction = reduced.bank(layer, given_bank, width)
    assert construction.heads == given_bank.heads(layer) == (flat.rank() if layer == "mha" else ceil_sqrt(flat.rank()))
    assert exact_gap(construction, list(power_blocks(a, terms))) == 0
    if terms > 1 and given_bank.rank < terms:
        assert construction.heads <= ceil_sqrt(terms) if layer != "mha" else construction.heads < terms


@settings(max_examples=20, deadline=None)
@given(terms=st.integers(1, 9), size=st.integers(1, 3), denominator=st.integers(1, 6), seed=st.integers(0, 2**16))
def test_coefficients_give_every_power(terms, size, denominator, seed):
    a = repeated(size, 2, seed, denominator)
    found = reduced.reduce(a, terms)
    blocks = list(power_blocks(a, terms))
    for t, row in enumerate(found.coefficients.to_list()):
        total = exact.combination(row, blocks[: found.rank])
        assert exact.difference([total], [blocks[t]]) == 0


@pytest.mark.parametrize("layer", EXACT)
@pytest.mark.parametrize("graph", sorted(HEADS))
def test_head_counts(graph, layer):
    terms = {name: k for name, _, k in fewer_heads.CASES}[graph]
    found = reduced.reduce(fewer_heads.matrix(graph, "none"), terms)
    mha, iha = HEADS[graph]
    construction = reduced.bank(layer, found, 1)
    assert construction.heads == (mha if layer == "mha" else iha)
    assert construction.heads == least_heads(LAYERS[layer].kind, found.rank)
    if layer == "iha-tiled":
        assert construction.pseudo_heads <= ceil_sqrt(iha)


def test_a_rational_matrix_needs_primes_or_rounding():
    found = reduced.reduce(fewer_heads.matrix("petersen", "row"), 9)
    with pytest.raises(OverflowError):
        reduced.bank("iha", found, 1)
    construction, error, compared = fewer_heads.exact_measure("iha", found)
    assert error == 0
    assert "primes" in compared
    assert construction.error_bound is None
    rounded = reduced.bank("iha", found, 1, rounded=True)
    assert 0 < rounded.error_bound < 1e-15
    error, bound = fewer_heads.float64_measure(rounded, found)
    assert error <= bound < 1e-12


def test_modular_tier_sees_a_wrong_coefficient():
    found = reduced.reduce(fewer_heads.matrix("petersen", "row"), 9)
    rows = found.coefficients.to_list()
    rows[8][2] += QQ(1, 10**30)
    wrong = reduced.ReducedBank(found.matrix, DomainMatrix(rows, found.coefficients.shape, QQ).to_dense())
    for layer in EXACT:
        _, error, _ = fewer_heads.exact_measure(layer, wrong)
        assert error > 0


def test_exact_only():
    assert {r.tier for r in fewer_heads.checks(*fewer_heads.CASES[0], exact_only=True)} == {"exact"}


def test_refusals():
    found = reduced.reduce(exact.identity(2, QQ), 3)
    assert found.rank == 1
    with pytest.raises(ValueError, match="unknown layer 'gqa'"):
        reduced.bank("gqa", found, 1)
    with pytest.raises(ValueError, match="width must be an integer of at least 1"):
        reduced.bank("mha", found, 0)
    with pytest.raises(ValueError, match="at least 1"):
        reduced.reduce(exact.identity(2, QQ), 0)
    assert torch.equal(
        exact.nearest_float64(exact.identity(1, QQ) * QQ(1, 3)), torch.full((1, 1), 1 / 3, dtype=torch.float64)
    )
