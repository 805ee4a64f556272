"""Parity and endpoint selection: answers by definition, reduction to parity, floors, and small trainings."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from iha_theory.bounds.parity_errors import least_endpoint_errors, least_errors
from synthetic.tasks.boolean import EndpointSelection, Parity
from synthetic.training import model
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train


def cube(n):
    return np.array(list(itertools.product((0, 1), repeat=n)))


def hop(sequence, hops):
    """Induction in several hops from the last place (arXiv 2402.09268): a hop from a symbol goes to the place behind
    its latest earlier occurrence. The symbol that is reached.
    """
    at = len(sequence) - 1
    for _ in range(hops):
        at = max(j for j in range(1, at + 1) if sequence[j - 1] == sequence[at])
    return sequence[at]


def as_pointers(x, k):
    return {(0, 0): x[0]} | {(t, v): x[2 * t - 1 + v] for t in range(1, k) for v in (0, 1)}


def written(x, k):
    """Pointers as a sequence of pairs (vertex, where it points), last layer first, and the start."""
    pairs = [((t, v), (t + 1, end)) for (t, v), end in sorted(as_pointers(x, k).items(), reverse=True)]
    return [*itertools.chain(*pairs), (0, 0)]


def test_parity_is_the_parity():
    for k in (1, 2, 5):
        assert Parity(bits=k).answers(cube(k)).tolist() == [f"{i:b}".count("1") % 2 for i in range(2**k)]


def follow(x, k):
    """The path through a dictionary of pointers."""
    pointers, at = as_pointers(x, k), (0, 0)
    while at in pointers:
        at = at[0] + 1, pointers[at]
    return at


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_endpoint_selection_follows_the_pointers(k):
    x = cube(2 * k - 1)
    assert [(k, end) for end in EndpointSelection(pointers=k).answers(x)] == [follow(row, k) for row in x.tolist()]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_where_it_is_parity_it_is_induction_in_k_hops(k):
    x = cube(2 * k - 1)
    x = x[(x[:, 1::2] != x[:, 2::2]).all(1)]
    assert len(x) == 2**k
    ends = [hop(written(row, k), k) for row in x.tolist()]
    assert ends == [(k, bit) for bit in Parity(bits=k).answers(x[:, [0, *range(1, 2 * k - 1, 2)]])]
    assert ends == [follow(row, k) for row in x.tolist()]


def families(k):
    """The inputs of endpoint selection, split as the floor splits them: (inputs, bits of the parity) each."""
    x = cube(2 * k - 1)
    permutation = x[:, 1::2] != x[:, 2::2]
    for kinds in itertools.product((False, True), repeat=k - 1):
        last = next((t for t in range(k - 2, -1, -1) if not kinds[t]), -1)  # the last layer that forgets
        own = x[(permutation == kinds).all(1)]
        for before in {tuple(row[: 2 * last + 1]) for row in own} if last >= 0 else [()]:
            yield own[(own[:, : len(before)] == before).all(1)], k - 1 - last


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_endpoint_selection_is_a_parity_on_families_that_cover_all(k):
    task, found = EndpointSelection(pointers=k), list(families(k))
    assert sum(len(x) for x, _ in found) == 2 ** (2 * k - 1)
    for x, bits in found:
        own = x[:, [0, *range(1, 2 * k - 1, 2)]][:, k - bits :]  # a bit of each of the last layers
        assert len({tuple(row) for row in own}) == len(x) == 2**bits
        assert len(set((task.answers(x) + own.sum(1)) % 2)) == 1
        for token in x.T:  # each token sees one bit of the parity at most
            assert (
                any((token == column).all() or (token == 1 - column).all() for column in own.T) or len(set(token)) == 1
            )
    for rows in range(1, k + 2):
        assert least_endpoint_errors(k, rows) == sum(least_errors(bits, rows) for _, bits in found)


def test_floors_are_those_of_the_rows():
    def floor(task="parity", **options):
        return TrainConfig.for_task(task, {"attention": "mha", **options}).build().floor

    assert [floor(bits=5, heads=h) for h in (1, 2, 4, 5)] == [10 / 32, 6 / 32, 1 / 32, 0]
    assert floor(bits=5, attention="iha", heads=2) == floor(bits=5, heads=4)
    assert floor(bits=5, attention="iha", heads=1, pseudo_heads=3) == floor(bits=5, heads=3)
    assert floor(bits=5, attention="differential", heads=2) == floor(bits=5, heads=4)
    assert floor(attention="two-layer", heads=1) is None
    assert floor(attention="torch.nn:MultiheadAttention", heads=3) is None
    assert [floor("esp", pointers=3, heads=h) for h in (1, 2, 3)] == [4 / 32, 1 / 32, 0]


def test_learned_with_enough_rows_and_wrong_somewhere_with_too_few():
    """A run below its floor would have failed."""

    def runs(points, **options):
        given = [options | {"attention": "mha", "heads": h, "seed": seed} for h, seed in points]
        return train([TrainConfig.for_task("parity", own) for own in given])

    for run in runs([(2, 0), (2, 1), (2, 2)], bits=2, steps=150):
        assert (run.outcome, run.measured.error, run.floor) == ("finished", 0, 0)
        assert (run.measured.accuracy, run.measured.baseline_accuracy) == (1, 0.5)
    for run, floor in zip(runs([(1, 0), (2, 0), (2, 1)], bits=3, steps=60), (2 / 8, 1 / 8, 1 / 8), strict=True):
        assert (run.outcome, run.floor) == ("finished", floor)
        assert (run.measured.error or 0) >= floor


def test_what_is_near_0_is_no_success():
    problem = TrainConfig.for_task("parity", {"bits": 2}).build()
    signs = torch.tensor([1.0, -1, -1, 1])

    class Given(torch.nn.Module):
        def __init__(self, sizes):
            super().__init__()
            self.g = signs.double() * torch.tensor(sizes, dtype=torch.float64)

        def forward(self, x):
            return self.g

    cases = ([1, 1, 1, 1], 0), ([1e-9] * 4, 4), ([1, 1, 1, 1e-4], 1), ([5e3, 1, 1, 1], 3), ([1, -1, 0, 1], 2)
    for sizes, wrong in cases:
        assert problem.measure(Given(sizes), print, (), ()).error == wrong / 4


def test_the_query_token_alone_gives_the_same():
    run = TrainConfig.for_task("parity", {"attention": "iha", "heads": 2, "dtype": "float64"})
    problem = run.build()
    own: Any = model.build(run, problem)
    model.initialise(own, run, problem, torch.Generator().manual_seed(0))
    x = torch.from_numpy(cube(3))
    assert own.alone
    with torch.no_grad():
        alone = own(x)
        own.alone = False
        assert torch.allclose(own(x), alone, rtol=1e-12)
    assert len(set(alone.tolist())) == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("parity", "--bits", "0"), "bits must be at least 1 and at most 10, got 0"),
        (("parity", "--bits", "11"), "bits must be at least 1 and at most 10, got 11"),
        (("parity", "--width", "3", "--circulant"), "circulant projections to width 4 need inputs as wide, got 3"),
        (("parity", "--pointers", "2"), "pointers is an option of esp; parity has width, readout_lr, bits"),
        (("esp", "--bits", "2"), "bits is an option of parity; esp has width, readout_lr, pointers"),
        (("esp", "--pointers", "6"), "pointers must be at least 1 and at most 5, got 6"),
    ],
)
def test_what_does_not_fit_is_one_line(refused, arguments, words):
    assert words in refused("train", *arguments)
