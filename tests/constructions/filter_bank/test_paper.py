"""The filter bank's constructions, against values worked out by hand and the task's own oracle."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.filter_bank.layers import PAPER, bank
from constructions.filter_bank.paper import powers
from constructions.suite.bank import bank_exact, bank_float64, graph_checks, largest_difference
from constructions.suite.every_matrix import bank_random, bank_symbolic
from iha_theory import exact
from iha_theory.costs import bank_parameters
from synthetic.graphs import Graph, builtin, load
from synthetic.tasks.filter_bank import PolynomialBank, power_blocks

LAYERS = list(PAPER)


def built(layer: str, adjacency: list[list[float]] | np.ndarray, terms: int, width: int = 1):
    return bank(layer, powers(torch.tensor(np.asarray(adjacency, dtype=np.float64))), terms, width)


@pytest.mark.parametrize("layer", LAYERS)
def test_a_directed_path_is_summed_over_its_out_neighbours(layer):  # case 1
    path = [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    out = built(layer, path, 3)(torch.tensor([[[2.0], [3.0], [5.0]]], dtype=torch.float64))
    assert out[0].T.tolist() == [[2, 3, 5], [3, 5, 0], [5, 0, 0]]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_directed_cycle_returns_after_its_length(layer):  # case 2
    x = torch.tensor([[[2.0], [3.0], [5.0], [7.0]]], dtype=torch.float64)
    blocks = built(layer, builtin("cycle:4").adjacency, 6)(x)[0].T.tolist()
    assert blocks[4] == blocks[0]
    assert blocks[5] == blocks[1] == [3, 5, 7, 2]


@pytest.mark.parametrize(("terms", "heads"), [(1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4), (17, 5)])
def test_heads_and_last_block(terms, heads):  # case 3; more terms than the 4 nodes
    a = np.array([[1, 2, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 0]], dtype=np.int64)
    x = np.array([[1], [-2], [3], [1]])
    for layer, expected in (("mha", terms), ("iha", heads)):
        construction = built(layer, a, terms)
        assert construction.heads == expected
        assert [block.name for block in construction.readout] == [f"A^{t} X" for t in range(terms)]
        out = construction(torch.from_numpy(x)[None].double())[0].detach()
        assert out.shape == (4, terms)
        assert np.array_equal(out[:, -1:].numpy(), np.linalg.matrix_power(a, terms - 1) @ x)


@pytest.mark.parametrize("layer", LAYERS)
def test_no_edges_give_x_and_zeros(layer):  # case 6
    x = torch.tensor([[[2.0], [3.0]]], dtype=torch.float64)
    assert built(layer, np.zeros((2, 2)), 3)(x)[0].T.tolist() == [[2, 3], [0, 0], [0, 0]]
    assert built(layer, [[3.0]], 3)(torch.tensor([[[2.0]]], dtype=torch.float64)).flatten().tolist() == [2, 6, 18]


@pytest.mark.parametrize("layer", LAYERS)
def test_large_powers_are_exact(layer):  # case 8
    out = built(layer, np.ones((3, 3)), 10)(torch.eye(3, dtype=torch.float64)[None, :, :1])
    assert (out[0, :, -1] == 3**8).all()  # A^9 = 6561 everywhere


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("terms", [0, -1])
def test_fewer_than_one_term_is_refused(layer, terms):
    with pytest.raises(ValueError, match="at least 1"):
        built(layer, np.eye(2), terms)


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=n, max_size=n)
    ),
    st.integers(1, 10),
    st.integers(1, 3),
    st.sampled_from(LAYERS),
)
@settings(max_examples=60, deadline=None)
def test_any_integer_matrix(rows, terms, width, layer):
    graph = Graph.from_matrix(np.array(rows, dtype=np.int64))
    x = np.arange(len(rows) * width).reshape(1, len(rows), width) - 3
    construction = built(layer, rows, terms, width)
    out = construction(torch.from_numpy(x).double()).detach().numpy()
    blocks = PolynomialBank(graph, terms).target(x[0])
    assert np.array_equal(out[0], blocks.astype(np.float64))
    a = exact.matrix(graph.adjacency, QQ)
    assert exact_gap(bank(layer, powers(a), terms, width), list(power_blocks(a, terms))) == 0


@pytest.mark.parametrize("layer", LAYERS)
def test_weights_beyond_float64_are_checked_modulo_primes(layer):
    result = bank_exact(layer, builtin("les_miserables"), 25)
    assert result.holds
    assert "primes" in result.compared
    with pytest.raises(OverflowError):
        bank(layer, powers(exact.matrix(builtin("les_miserables").adjacency, QQ)), 25, 1)


def test_largest_difference_bounds_every_entry():
    a = exact.matrix([[0.5, -3.0], [2.0, 0.25]], QQ)
    q = 4
    for t, block in enumerate(power_blocks(a, 6)):
        scaled = [abs(x) * q**t for x in block.to_list_flat()]
        assert all(x.denominator == 1 and 2 * x <= largest_difference(a, 6) for x in scaled)


@pytest.mark.parametrize("layer", LAYERS)
def test_fractional_and_normalised_weights_hold_exactly(layer):
    graph = Graph.from_matrix(np.array([[0.1, 0.7], [1 / 3, 0.0]]))
    for terms in (1, 2, 9):
        assert bank_exact(layer, graph, terms).holds
        assert bank_float64(layer, graph, terms).holds


@pytest.mark.parametrize("weight", [10**400, 10**100, 2**53 + 1, 1e-100])
def test_what_float64_cannot_run_is_checked_exactly_only(weight):
    graph = Graph.from_matrix(np.array([[0, weight], [weight, 0]], dtype=object if weight > 1 else None))
    with pytest.raises(ValueError, match="exactly only"):
        bank_float64("iha", graph, 5)
    results = list(graph_checks(graph, 5, exact_only=False))
    assert [r.tier for r in results] == ["exact", "exact"]
    assert all(r.holds and "float64" in r.compared for r in results)


@pytest.mark.parametrize("text", ["3 2\n2 0\n1\n", "0 0\n1 2\n3\n"])
def test_blocks_of_equal_bytes_and_different_shapes(text, tmp_path):
    (tmp_path / "g.txt").write_text(text)
    graph = load(str(tmp_path / "g.txt"), directed=True)
    for terms in (10, 16):
        assert all(r.holds for r in graph_checks(graph, terms, exact_only=False))


def test_many_nodes_are_run_on_random_inputs():
    assert all(r.holds for r in graph_checks(builtin("cycle:300"), 2, exact_only=False))


def test_more_heads_than_claimed_fail():
    result = bank_exact("iha", builtin("petersen"), 4)
    assert result.holds
    assert not replace(result, heads=3).holds


def test_too_many_terms_are_refused():
    with pytest.raises(ValueError, match="query weights"):
        built("mha", np.eye(3), 10**20)


@pytest.mark.parametrize("layer", LAYERS)
def test_all_matrices_at_once(layer):
    assert bank_symbolic(layer, 2, 5).holds
    result = bank_random(layer, 6, 9)
    assert result.holds
    assert result.setting["failure_probability"] < 1e-14


@pytest.mark.parametrize(("nodes", "width", "terms"), [(3, 2, 4), (5, 1, 9), (4, 3, 5)])
def test_parameters_follow_the_formulas(nodes, width, terms):
    for layer in LAYERS:
        construction = built(layer, np.eye(nodes), terms, width)
        assert construction.parameters == bank_parameters(layer, nodes, width, terms)
