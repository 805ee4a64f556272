"""Relations composed by two heads, and two-step paths counted by m, against walks along the arrows."""

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from constructions.checks.oracles import relations as oracle
from constructions.targets.copying import COPIES, copying
from constructions.targets.relations import PATTERNS, composition, paths, sharpness
from iha_theory.operators.weights import NotPositionOnlyError, read
from synthetic.tasks.reasoning.relations import compose


def walk(relation, hops):
    """Where each point gets to in so many steps."""
    graph = nx.from_numpy_array(relation, create_using=nx.DiGraph)
    found = np.zeros_like(relation)
    for start in graph:
        reached = {start}
        for _ in range(hops):
            reached = {b for a in reached for b in graph.successors(a)}
        found[start, sorted(reached)] = 1
    return found


square = st.integers(1, 7).flatmap(lambda m: arrays(np.int64, (1, m, m), elements=st.integers(0, 1)))


@given(square, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_paths_of_so_many_steps(relations, hops):
    expected = walk(relations[0], hops)
    assert np.array_equal(compose(relations, hops)[0], expected)
    for pattern in PATTERNS:
        assert np.array_equal(composition(len(expected), hops, pattern)(torch.from_numpy(relations))[0], expected)


@given(square)
@settings(max_examples=30, deadline=None)
def test_three_steps_in_one_layer(relations):
    expected = walk(relations[0], 3)
    for pattern in COPIES:
        net = copying(len(expected), pattern)
        assert np.array_equal(net(torch.from_numpy(relations))[0], expected)
        assert np.allclose(net.scores(torch.from_numpy(relations))[0], np.linalg.matrix_power(relations[0], 3))
        assert net.layer.num_heads == 1


@given(square)
@settings(max_examples=30, deadline=None)
def test_two_step_paths_are_counted(relations):
    expected = np.linalg.matrix_power(relations[0], 2)
    assert np.array_equal(oracle.two_step_paths(relations)[0], expected)
    construction = paths(len(expected))
    assert construction.heads == len(expected)
    bits = torch.from_numpy(relations).double().flatten(1).unsqueeze(-1)
    assert construction(bits).detach().flatten().tolist() == expected.flatten().tolist()


def test_the_overlap_by_hand():
    relation = torch.tensor([[[1, 1, 0], [0, 1, 1], [0, 0, 0]]])
    scores = composition(3).scores(relation)[0]
    assert scores[0, 1] == pytest.approx(1.0)  # row {0, 1}, column {0, 1}
    assert scores[0, 2] == pytest.approx(0.5)  # row {0, 1}, column {1}
    assert scores[1, 0] == pytest.approx(0.0)  # row {1, 2}, column {0}
    assert scores[2, 1] == pytest.approx(1 - 3)  # an empty row
    assert np.allclose(oracle.overlap(relation.numpy(), relation.numpy())[0], scores)


def test_softmax_needs_its_scale():
    """All of the leak that the proof allows for, at the largest size that is verified."""
    relation = (torch.rand(20, 10, 10, generator=torch.Generator().manual_seed(0)) < 0.3).long()
    net = composition(10, 2, "softmax")
    assert net.layer.scale == sharpness(10)
    net.layer.scale /= 4
    assert not torch.equal(net(relation), torch.from_numpy(compose(relation.numpy(), 2)).double())


def test_they_see_content():
    with pytest.raises(NotPositionOnlyError, match="keys use content"):
        read(paths(2).layer, 1)
    assert not copying(2).layer.q_proj.weight[:, :4].any()  # this one does not


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: composition(0), "at least 1"),
        (lambda: composition(3, 0), "at least 1"),
        (lambda: composition(3, 2, "linear"), "hard, softmax"),
        (lambda: paths(0), "at least 1"),
        (lambda: copying(0), "at least 1"),
        (lambda: copying(3, "hard"), "linear, softmax"),
        (lambda: copying(3)(torch.full((1, 3, 3), 2)), "0 and 1"),
        (lambda: composition(3)(torch.full((1, 3, 3), 2)), "0 and 1"),
        (lambda: composition(3)(torch.zeros(1, 2, 2, dtype=torch.long)), "on 3 points"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
