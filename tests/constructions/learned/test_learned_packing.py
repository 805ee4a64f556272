"""Whether trained layers pack: the measures on layers that do and that do not."""

import itertools
import json
import math

import numpy as np
import pytest
import torch

from constructions.learned.packing import (
    BITS,
    accuracy,
    carried,
    mixings,
    packing,
    power_distance,
    round_to,
    smallest_difference,
)
from synthetic.tasks.count_pairs import CountPairs, all_sequences
from synthetic.training import data, model
from synthetic.training.config import TrainConfig

N, M, G = 4, 3, 8
SEQUENCES = np.concatenate(list(all_sequences(M, N)))
LABELS = CountPairs(M, G).target(SEQUENCES)


def config(**options):
    return TrainConfig.for_task("cpm3", {"tokens": N, "attention": "mha", "heads": 2, "hidden": 8} | options)


def started(**options):
    run = config(**options)
    problem = run.build()
    own = model.build(run, problem)
    model.initialise(own, run, problem, data.load(problem, run).initial)
    return own, problem


def smallest(w, modulus):
    """The length, having looked at the difference."""
    length, d = smallest_difference(w, modulus)
    size = np.linalg.norm(w, axis=1) * ((modulus**2 - 1) / 12) ** 0.5
    scaled = w / np.where(size > 0, size, 1)[:, None]
    assert 0 < np.abs(d).max() < modulus
    assert np.linalg.norm(scaled @ d) == pytest.approx(length, abs=1e-8)
    return length


def curve(w):
    """Accuracy of the best function at p bits, every token being handed the same numbers W x, and its own token."""
    shared = np.broadcast_to((SEQUENCES @ np.array(w).T)[:, None], (len(SEQUENCES), N, len(w)))
    numbers = np.concatenate((shared, SEQUENCES[:, :, None]), axis=2).astype(float)
    return [carried(round_to(numbers, p)[0], LABELS) for p in BITS]


@pytest.mark.parametrize(("rows", "columns", "modulus"), [(1, 3, 3), (2, 4, 3), (4, 4, 3), (5, 3, 4), (2, 3, 5)])
def test_the_smallest_difference_is_that_of_going_through_all(rows, columns, modulus):
    generator = np.random.default_rng(rows)
    for _ in range(5):
        w = generator.normal(size=(rows, columns))
        deviation = np.linalg.norm(w, axis=1) * ((modulus**2 - 1) / 12) ** 0.5
        every = np.array(list(itertools.product(range(1 - modulus, modulus), repeat=columns)))
        lengths = np.linalg.norm(every[every.any(1)] @ (w / deviation[:, None]).T, axis=1)
        assert smallest(w, modulus) == pytest.approx(lengths.min())


def test_the_smallest_difference_of_packed_numbers():
    assert smallest(np.eye(9), 3) == pytest.approx(1.5**0.5)
    for k in (2, 3, 5):
        powers = 3.0 ** np.arange(k)
        assert smallest(np.kron(np.eye(2), powers), 3) == pytest.approx(1.5**0.5 / np.linalg.norm(powers))
    for singular in (np.ones((1, 4)), np.zeros((2, 3)), np.eye(9)[:3]):
        assert smallest(singular, 3) == pytest.approx(0, abs=1e-8)
    assert smallest_difference(np.eye(40)[:3], 3) is None, "too many differences that this W does not see"


def test_k_tokens_a_number_need_k_times_the_bits():
    """M^k values: 2, 4 and 7 bits for 1, 2 and 4 tokens; and fewer bits are not enough."""
    for k, bits in ((1, 2), (2, 4), (4, 7)):
        found = curve(np.kron(np.eye(N // k), 3.0 ** np.arange(k)))
        assert [p for p, share in zip(BITS, found, strict=True) if share == 1] == list(range(bits, 13))
        assert all(share < 0.99 for share in found[: bits - 1])


def test_no_layer_is_right_with_fewer_bits_than_theorem_2_asks_for():
    generator = np.random.default_rng(0)
    for rows in (1, 2, 3, 4):
        found = curve(generator.normal(size=(rows, N)))
        exact = [p for p, share in zip(BITS, found, strict=True) if share == 1]
        assert min(exact, default=13) >= (N - 1) * math.log2(M) / rows
    assert curve(np.ones((1, N)))[-1] < 0.99, "the sum does not tell the counts, whatever its bits"


def test_where_runs_wait_that_know_sums_of_tokens_only():
    """N = 9: all other tokens but a pair, of which the sum; two pairs; the sum of all (docs/learning.md)."""
    x = np.concatenate(list(all_sequences(3, 9)))
    labels = CountPairs(3, 8).target(x)[:, :1]
    for groups, share in (([[1, 2]], 0.923), ([[1, 2], [3, 4]], 0.861), ([range(1, 9)], 0.714), ([], 1)):
        alone = sorted(set(range(9)) - {j for group in groups for j in group})
        numbers = np.column_stack([x[:, alone], *(x[:, list(group)].sum(1) for group in groups)])
        assert carried(numbers[:, None], labels) == pytest.approx(share, abs=5e-4)


def test_the_best_function_is_the_commonest_label_of_each_cell():
    levels = np.array([[[0], [5]], [[0], [5]], [[0], [6]], [[1], [6]]])
    labels = np.array([[2, 0], [2, 1], [3, 1], [0, 1]])
    assert carried(levels, labels) == (2 + 1 + 1 + 2) / 8


def test_rounding_goes_from_the_least_number_to_the_largest():
    numbers = np.array([0.0, 0.4, 0.6, 3.0])[:, None, None]
    levels, values = round_to(numbers, 2)
    assert levels.ravel().tolist() == values.ravel().tolist() == [0, 0, 1, 3]
    assert round_to(np.ones((3, 1, 1)), 4)[1].ravel().tolist() == [1, 1, 1]


def test_powers_of_m_are_told_from_other_ratios():
    powers = np.array([[1.0, -3.0, 9.0], [0.5, 4.5, 1e-9]])
    assert power_distance(powers, 3) == pytest.approx(0, abs=1e-12)
    assert power_distance(powers * 3**0.5, 3) == pytest.approx(0, abs=1e-12)
    assert power_distance(np.array([[1.0, 3**0.5]]), 3) == pytest.approx(0.5)
    spread = np.exp(-np.random.default_rng(0).uniform(0, 3 * math.log(3), size=(1000, 9)))
    assert power_distance(spread, 3) == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("attention", ["mha", "iha"])
def test_mixings_are_how_the_numbers_change_with_the_residues(attention):
    own, _ = started(attention=attention, dtype="float64")
    w = mixings(own).numpy()
    x = torch.from_numpy(SEQUENCES)
    with torch.no_grad():
        change = (own.seen(x) - own.seen(0 * x)).numpy()
    assert w.shape == (N, 2 if attention == "mha" else 4, N)
    assert np.allclose(change, np.einsum("irj,sj->sir", w, SEQUENCES))


def test_all_measures_of_a_model():
    own, problem = started(heads=N)
    found = packing(own, problem, (SEQUENCES, np.searchsorted(problem.counts, LABELS)))
    assert found.numbers == N
    assert found.carried is not None
    assert found.carried[-1] == 1
    assert found.carried[found.bits - 1] >= 0.99 > found.carried[found.bits - 2]
    assert found.used[-1] == pytest.approx(found.accuracy, abs=0.01)
    assert found.used[found.own_bits - 1] >= found.accuracy - 0.01
    with torch.no_grad():
        own.layer.v_proj.weight[2:] = 0  # two numbers that hold nothing
    less = packing(own, problem, (SEQUENCES[:10], LABELS[:10]))
    assert max(map(len, less.sums), default=2) == 2
    assert less.carried[0] < found.carried[0]
    assert less.difference < found.difference


def test_a_layer_that_hands_on_two_tokens_as_their_sum():
    """One head a token but for tokens 1 and 2, which one head takes together; scores of 20 make softmax hard enough."""
    own, problem = started(heads=3, circulant=False, dtype="float64")
    with torch.no_grad():
        own.layer.q_proj.weight.zero_()[:, :] = 1
        own.layer.k_proj.weight.zero_()
        for head, seen in enumerate(([0], [1, 2], [3])):
            own.layer.k_proj.weight[N * head, seen] = 20
    found = packing(own, problem, (SEQUENCES[:10], LABELS[:10]))
    assert found.sums == [[1, 2]] * N
    assert found.difference == pytest.approx(0, abs=1e-7)
    assert 0.7 < found.carried[-1] < 0.99


def test_of_many_sequences_only_the_mlp_is_judged():
    own, problem = started(tokens=11, heads=10)
    x, labels = problem.draw(np.random.default_rng(0), 200, "test")
    found = packing(own, problem, (x, labels))
    assert (found.carried, found.bits) == (None, None)
    with torch.no_grad():
        assert found.accuracy == float((own.double()(torch.from_numpy(x)).argmax(-1).numpy() == labels).mean())
        assert found.accuracy == accuracy(own.mlp, own.seen(torch.from_numpy(x)).numpy(), labels)


@pytest.mark.parametrize("options", [{"mode": "content"}, {"skip": True}, {"embedding": "one-hot"}])
def test_models_of_another_kind_are_refused(options):
    own, problem = started(**options)
    with pytest.raises(ValueError, match="position-only layers on scalar tokens"):
        packing(own, problem, (SEQUENCES, LABELS))


def test_the_command_measures_runs_that_count(call, tmp_path):
    small = ("--tokens", "4", "--hidden", "8", "--steps", "20", "--batch", "8", "--eval-size", "16")
    folder, file = tmp_path / "runs", tmp_path / "learned.json"
    for more in (("--attention", "mha", "--heads", "3"), ("--heads", "2"), ("--heads", "2", "--mode", "content")):
        assert call("train", "cpm3", *small, *more, "--out", str(folder))[0] == 0
    code, out, _ = call("learned", str(folder), "--json", str(file))
    found = json.loads(file.read_text())
    assert (code, found["runs"]) == (0, [])
    assert [(r["attention"], r["learned"]["numbers"]) for r in found["packing"]] == [("mha", 3), ("iha", 4)]
    assert all(r["start"]["powers"] != r["learned"]["powers"] for r in found["packing"])
    assert "MLP's bits" in out
