"""Head bounds, floors against numpy, tolerances, and the dimension count against the rank of a Jacobian."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.bounds.exact_rank import bank_rank, output_width
from iha_theory.bounds.heads import (
    error_floor,
    least_heads,
    least_rank,
    spectrum,
    unit_norm,
    unstructured_heads,
)
from iha_theory.operators.numerical import position_only, realignment
from synthetic.graphs import load, normalise
from synthetic.tasks.filter_bank import power_blocks_float


def unit_powers(graph: str, terms: int) -> torch.Tensor:
    g = load(graph)
    a = g.adjacency if g.directed else normalise(g, "symmetric").adjacency
    return unit_norm(np.stack(list(power_blocks_float(a.astype(float), terms))))


@settings(max_examples=60)
@given(st.integers(1, 200), st.integers(1, 8))
def test_least_heads_are_the_formulas_of_T2(rank, pseudo):
    root = math.isqrt(rank - 1) + 1
    for kind in ("mha", "mqa", "gqa", "talking-heads", "differential"):
        assert least_heads(kind, rank) == rank
    assert least_heads("iha", rank) == least_heads("two-layer", rank) == root
    assert least_heads("mha", rank, depth=2) == least_heads("two-layer", rank)
    assert least_heads("mha", rank, depth=4) == least_heads("iha", rank, depth=2) == math.ceil(round(rank**0.25, 9))
    assert least_heads("iha", rank, pseudo) == max(root, -(-rank // pseudo**2))
    assert least_heads("iha", rank, pseudo, "per_head") == max(root, -(-rank // pseudo))


def test_the_paper_examples():
    assert (least_heads("mha", 9), least_heads("iha", 9)) == (9, 3)
    assert (least_heads("mha", 3), least_heads("iha", 3)) == (3, 2)
    assert least_heads("iha", 9, 1) == 9


def test_least_heads_refuses():
    with pytest.raises(ValueError, match=r"^rank must"):
        least_heads("mha", 0)
    with pytest.raises(ValueError, match=r"^depth must"):
        least_heads("mha", 4, depth=0)
    with pytest.raises(ValueError, match="simplicial"):
        least_heads("simplicial", 4)
    with pytest.raises(ValueError, match="pseudo_heads"):
        least_heads("mha", 4, 2)
    with pytest.raises(ValueError, match="collapse"):
        least_heads("iha", 4, 2, "sideways")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_floors_are_numpys(terms, rows, columns, seed):
    bank = np.random.default_rng(seed).standard_normal((terms, rows, columns))
    s = np.linalg.svd(bank.reshape(terms, -1), compute_uv=False)
    values = spectrum(bank)
    assert len(values) == terms
    np.testing.assert_allclose(values[: len(s)].numpy(), s, rtol=1e-10, atol=1e-12)
    for rank in range(terms + 2):
        expected = (s[rank:] ** 2).sum() / (s**2).sum()
        assert error_floor(values, rank) == pytest.approx(expected, rel=1e-8, abs=1e-14)
    assert error_floor(values, 0) == 1


def test_the_floor_is_a_floor_and_is_reached():
    """No layer among many random ones of R heads is below it in expectation, and the truncated SVD is at it."""
    generator = torch.Generator().manual_seed(0)
    bank = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64)
    values, flat = spectrum(bank), bank.flatten(1).T
    u, s, v = torch.linalg.svd(flat, full_matrices=False)
    for rank in (1, 2):
        floor = error_floor(values, rank)
        best = (u[:, :rank] * s[:rank]) @ v[:rank]
        assert float(((best - flat) ** 2).sum() / (flat**2).sum()) == pytest.approx(floor)
        for _ in range(200):
            maps = torch.randn(25, rank, generator=generator, dtype=torch.float64)
            fit = maps @ torch.linalg.lstsq(maps, flat).solution
            assert float(((fit - flat) ** 2).sum() / (flat**2).sum()) >= floor


def test_the_bank_spectrum_is_the_schmidt_spectrum_of_a_layer():
    """sqrt d times the singular values, measured on a torch layer; and the expected error over normal content."""
    generator = torch.Generator().manual_seed(1)
    n, k, d = 4, 3, 2
    bank = torch.randn(k, n, n, generator=generator, dtype=torch.float64)
    layer = MultiHeadAttention(
        n, k, vdim=d, head_dim=n, value_head_dim=d, out_proj=False, pattern="linear", dtype=torch.float64
    )
    with torch.no_grad():
        layer.q_proj.weight.copy_(torch.cat([m.T for m in bank]))
        layer.k_proj.weight.copy_(torch.eye(n, dtype=torch.float64).repeat(k, 1))
        layer.v_proj.weight.copy_(torch.eye(d, dtype=torch.float64).repeat(k, 1))
    operator = position_only(layer, torch.eye(n, dtype=torch.float64))
    measured = torch.linalg.svdvals(realignment(operator))[:k]
    torch.testing.assert_close(measured, math.sqrt(d) * spectrum(bank))


T4 = [
    ("karate", 16, [4, 7, 11, 16]),
    ("les_miserables", 16, [5, 8, 12, 16]),
    ("petersen", 16, [3, 3, 3, 3]),
    ("cycle:16", 16, [16, 16, 16, 16]),
]


@pytest.mark.parametrize(("graph", "terms", "heads"), T4)
def test_heads_at_a_tolerance(graph, terms, heads):
    values = spectrum(unit_powers(graph, terms))
    assert [least_rank(values, e) for e in (1e-1, 1e-2, 1e-4, 1e-8)] == heads
    for e in (1e-1, 1e-2, 1e-4):
        r = least_rank(values, e)
        assert math.sqrt(error_floor(values, r)) <= e < math.sqrt(error_floor(values, r - 1))


def test_rounding_never_raises_the_bound():
    """16 equal singular values: 12 of them leave exactly 1/2, whatever rounding says."""
    values = spectrum(unit_powers("cycle:16", 16))
    assert least_rank(values, 0.5) == 12
    assert least_rank(values, 0.5 - 1e-9) == 13


def test_numbers_are_read_as_float64():
    assert spectrum(np.ones((1, 2, 2), dtype=int)).tolist() == pytest.approx([2])
    assert error_floor(torch.tensor([3.0, 1.0, 1.0]), 1) == pytest.approx(2 / 11, rel=1e-14)  # float32


def test_unit_norm_keeps_zero():
    out = unit_norm(np.stack([np.zeros((2, 2)), np.full((2, 2), 1e200), np.full((2, 2), 1e-200)]))
    assert out.norm(dim=(1, 2)).tolist() == pytest.approx([0, 1, 1])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: spectrum(np.ones((2, 2))), "k, rows, columns"),
        (lambda: spectrum(np.full((1, 1, 1), np.nan)), "NaN"),
        (lambda: error_floor([0.0, 0.0], 1), "not all 0"),
        (lambda: error_floor([1.0, math.nan], 1), "finite"),
        (lambda: error_floor([1.0], -1), "at least 0"),
        (lambda: least_rank([1.0], 0.0), "tolerance"),
        (lambda: least_rank([1.0], math.nan), "tolerance"),
        (lambda: unstructured_heads(0, 4), "terms"),
        (lambda: unstructured_heads(4, 0), "^tokens must"),
        (lambda: unstructured_heads(4, 4, 0), "head_dim"),
    ],
)
def test_refusals(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_unstructured_banks_need_about_half_as_many_heads_as_matrices():
    assert unstructured_heads(9, 16) == 5  # docs/results.md T5: H = 4 trained to .019, H = 5 to 1e-5
    assert [unstructured_heads(k, 10_000) for k in (4, 9, 16, 25, 36)] == [3, 5, 9, 13, 19]
    assert unstructured_heads(9, 16, head_dim=3 * 16) == 3  # wide heads make any H^2 maps
    assert unstructured_heads(9, 16, pseudo_heads=1) == 9
    assert unstructured_heads(4, 7) == 3  # two have 7 (28 - 7) + 4 4 2 + 4 4 = 195 dimensions, of 4 49
    for k in range(1, 40):
        assert unstructured_heads(k, 64) >= least_heads("iha", k)


@pytest.mark.parametrize(("tokens", "terms", "enough"), [(8, 4, False), (6, 3, True)])
def test_the_dimension_count_bounds_the_rank_of_the_jacobian(tokens, terms, enough):
    """The dimension of the set of banks that IHA makes with H = P = 2 is the rank of the derivative, generically.

    For N = 8, k = 4 the count forbids two heads, which 2 H N d_k for queries and keys (docs/results.md T5) would not.
    """
    n, h, p = tokens, 2, 2
    shapes = [(h, n, n), (h, n, n), (h, h, p), (h, h, p), (h, h, p), (h, h, p), (terms, h, h)]
    sizes = [math.prod(shape) for shape in shapes]

    def bank(flat: torch.Tensor) -> torch.Tensor:
        q, k, aq, ak, av, collapse, c = (
            part.view(shape) for part, shape in zip(flat.split(sizes), shapes, strict=True)
        )
        maps = torch.einsum("mad,mhj,nbd,nhi->hjiab", q, aq, k, ak)
        return torch.einsum("tom,ohj,mhi,hjiab->tab", c, collapse, av, maps).flatten()

    flat = torch.randn(sum(sizes), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    jacobian = torch.func.jacrev(bank)(flat)
    s = torch.linalg.svdvals(jacobian)
    rank = int((s > 1e-10 * s[0]).sum())
    count = n * (2 * h * n - n) + 4 * h**2 * p + terms * h**2
    assert rank <= count
    assert (unstructured_heads(terms, tokens) <= h) == enough
    assert (rank == terms * n**2) == enough
    assert 2 * h * n**2 + 4 * h**2 * p + terms * h**2 >= terms * n**2


def test_the_rank_of_zero_and_of_what_differs_far_behind():
    """Entries are eliminated in chunks, the first of 2^13: a later one is found where it stands."""
    assert bank_rank(np.zeros((2, 3, 3))).relations == {0: (), 1: ()}
    ends = np.zeros((2, 100, 100), dtype=int)
    ends[0, 0, 0] = ends[1, 99, 98] = 1
    found = bank_rank(ends).certificate
    assert found is not None
    assert found.rows == ((0, 0), (99, 98))


def test_output_width():
    """Rows of the powers: all three of Petersen's, one of a diagonal matrix; and what a softmax layer fills."""
    assert output_width([np.linalg.matrix_power(load("petersen").adjacency, t) for t in range(9)], 2) == 6
    assert output_width([np.diag([1, 2, 3]) ** t for t in range(1, 6)]) == 1
    assert output_width([[[1, 0], [0, 1]], [[0, 1], [0, 1]]]) == 2
    layer = InterleavedHeadAttention(4, 2, value_head_dim=1, out_dim=9, dtype=torch.float64)
    outputs = layer(*[torch.randn(50, 5, 4, dtype=torch.float64)] * 3)[:, 2]
    assert torch.linalg.matrix_rank(outputs) == 2
    for maps, width, message in (([], 1, "got none"), ([[[1]], [[1, 2]]], 1, "got "), ([[[1]]], 0, "width")):
        with pytest.raises(ValueError, match=message):
            output_width(maps, width)
