"""Configs, streams and splits."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from iha_theory.attention import KINDS
from iha_theory.bounds.heads import spectrum, unit_norm
from synthetic.graphs import builtin, normalise
from synthetic.tasks import TASKS
from synthetic.tasks.count_pairs import CountPairs
from synthetic.tasks.task import SPLITS, split_of
from synthetic.training import data, model
from synthetic.training.config import TrainConfig
from synthetic.training.data import BLOCK, Stream, finite


def config(task, **options) -> Any:
    return TrainConfig.for_task(task, {"eval_size": 20} | options)


def small(task, **options):
    own = {
        "polynomial": {"graph": "cycle:5"},
        "unstructured": {"tokens": 5},
        "workspace": {"tokens": 5},
        "cpm3": {"tokens": 5},
    }.get(task, {})
    return config(task, **own | options)


def build(run) -> Any:
    return run.build()


def load(run):
    return data.load(build(run), run)


def started(run, seed=0, **other) -> Any:
    """The model of a run with its initial weights."""
    problem = build(run)
    found = model.build(run.but(**other), problem)
    model.initialise(found, run, problem, torch.Generator().manual_seed(seed))
    return found


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_data(task):
    run = small(task)
    whole = load(run).train.take(2 * BLOCK + 60)
    for other in ({"batch": 7}, {"attention": "mha", "heads": 2, "lr": 1.0}, {"steps": 3}):
        again = load(run.but(**other))
        parts = [again.train.take(size) for size in (1, 40, BLOCK, BLOCK + 19)]
        for array, pieces in zip(whole, zip(*parts, strict=True), strict=True):
            assert (array == np.concatenate(pieces)).all()
        assert again.digest == load(run).digest
    every_input_at_once = task in ("parity", "esp")
    assert (load(run.but(seed=1)).digest == load(run).digest) == every_input_at_once


@pytest.mark.parametrize("task", TASKS)
def test_streams_continue(task):
    run = small(task, train_size=9)
    for size in (3, 9, 30):
        stream = load(run).train
        stream.take(size)
        state = stream.state()
        expected = stream.take(40)
        other = load(run).train
        other.restore(state)
        assert all((a == b).all() for a, b in zip(expected, other.take(40), strict=True))


def test_a_finite_set_comes_whole_in_each_epoch():  # case 29
    samples = (np.arange(10), np.arange(10) ** 2)
    stream = finite(samples, np.random.default_rng(0))
    taken = [stream.take(4) for _ in range(5)]  # batches do not divide the epochs
    numbers, squares = (np.concatenate(arrays) for arrays in zip(*taken, strict=True))
    assert (squares == numbers**2).all()
    first, second = numbers[:10], numbers[10:]
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()


def test_small_cpm3_splits_share_no_sequence():  # case 22
    run = config("cpm3", tokens=3, modulus=3, coefficient=8, train_size=20)
    own = load(run)
    sets = [{tuple(x) for x in arrays[0]} for arrays in (own.train.take(20), own.validation, own.test)]
    assert all(sets)
    assert not any(a & b for a, b in itertools.combinations(sets, 2))
    everything = np.array(list(itertools.product(range(3), repeat=9)))
    shares = np.bincount(split_of(everything), minlength=3) / len(everything)
    assert np.allclose(shares, (0.8, 0.1, 0.1), atol=0.01)
    assert len(SPLITS) == 3


def test_too_few_inputs_for_a_split_are_refused():
    with pytest.raises(ValueError, match="too few inputs"):
        load(config("cpm3", tokens=1, modulus=1))


def test_labels_are_the_oracle():
    run = config("cpm3", tokens=4, modulus=5, coefficient=-2)
    x, labels = load(run).train.take(50)
    counts = build(run).counts
    assert (counts[labels] == CountPairs(5, -2).target(x)).all()
    assert x.max() == 4
    everything = np.array(list(itertools.product(range(5), repeat=4)))
    assert counts.tolist() == sorted({int(c) for c in CountPairs(5, -2).target(everything).flat})
    many = build(config("cpm3", tokens=16, modulus=11))
    assert many.counts.tolist() == list(range(257))


def test_accuracy_is_over_all_tokens():  # case 23
    problem = build(config("cpm3", tokens=5, modulus=2))
    target = np.array([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]])
    wrong = target.copy()
    wrong[0, 0], wrong[1, 1] = 7, 7

    def run(x):
        return torch.nn.functional.one_hot(torch.from_numpy(wrong), 26).double()

    validation = (target, np.array([[3, 3, 1, 0, 3]]))
    measured = problem.measure(torch.nn.Identity(), run, validation, (target, target))
    assert measured.accuracy == 0.8
    assert measured.baseline_accuracy == 0.2
    assert measured.error is None


def test_floors():
    run = config("polynomial", attention="mha", heads=2, terms=3, graph="path:4")
    values = spectrum(np.stack([np.linalg.matrix_power(np.eye(4, k=1), t) for t in range(3)])) ** 2
    assert build(run).floor == pytest.approx(float(values[2] / values.sum()))
    for heads, pseudo, rank in ((1, 3, 1), (2, 1, 2), (2, None, 4)):
        iha = build(config("workspace", tokens=9, heads=heads, pseudo_heads=pseudo))
        assert iha.floor == pytest.approx(1 - rank / 9)
    content = config("polynomial", attention="mha", heads=1, terms=3, graph="orthogonal:8", mode="content")
    A = builtin("orthogonal:8").adjacency
    rest = [p - np.trace(p) / 8 * np.eye(8) for p in (A, A @ A)]
    values = np.linalg.svd(np.reshape(rest, (2, -1)), compute_uv=False)
    assert build(content).floor == pytest.approx(values[1] ** 2 / 24)
    assert build(content.but(heads=2)).floor < 1e-15


def test_powers_scaled_to_one_norm():
    run = config("polynomial", graph="karate", normalise="symmetric", unit_norm=True, terms=4)
    A = normalise(builtin("karate"), "symmetric").adjacency
    powers = unit_norm(np.stack([np.linalg.matrix_power(A, t) for t in range(4)]))
    assert np.allclose(build(run).matrices, powers)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("mode", ["position-only", "content"])
def test_the_loss_is_the_relative_squared_error(width, mode):
    run = config("polynomial", graph="path:4", terms=3, width=width, mode=mode, heads=2, dtype="float64")
    problem = build(run)
    trained = started(run)
    (X,) = load(run).train.take(6)
    A = builtin("path:4").adjacency
    target = np.concatenate([X, A @ X, A @ A @ X], axis=-1)
    output = trained(torch.from_numpy(X)).detach().numpy()
    norm = width * sum((np.linalg.matrix_power(A, t) ** 2).sum() for t in range(3))
    expected = ((output - target) ** 2).sum() / (6 * norm)
    with torch.no_grad():
        assert float(problem.loss(trained, torch.from_numpy(X))) == pytest.approx(expected)


@pytest.mark.parametrize("circulant", [False, True])
@pytest.mark.parametrize("init", ["random", "construction", "random-keys", "identity", "mha"])
def test_initial_weights_depend_on_the_seed_alone(init, circulant):
    run = config("cpm3", tokens=4, heads=2, init=init, circulant=circulant, hidden=8, dtype="float64")

    def weights(seed, dtype="float64"):
        return dict(started(run, seed, dtype=dtype).named_parameters())

    first = weights(0)
    assert all(torch.equal(p, first[name]) for name, p in weights(0).items())
    assert all(torch.equal(p, first[name].float()) for name, p in weights(0, "float32").items())
    assert not torch.equal(weights(1)["layer.q_proj.weight"], first["layer.q_proj.weight"])
    head = first["layer.q_proj.weight"].detach()[:4]
    assert torch.allclose(head @ head.T, run.layer.gain**2 * torch.eye(4, dtype=torch.float64))


def test_iha_with_fewer_base_keys_and_values():
    """The same patterns, and records of runs without are as they were before there were any."""
    options = {"tokens": 4, "heads": 4, "pseudo_heads": 3, "hidden": 8, "noise": 0.0, "dtype": "float64"}
    for init, expected in (("identity", [[0, 0, 1, 1]] * 3), ("construction", [[0] * 4, [1] * 4, [0] * 4])):
        layer = started(config("cpm3", kv_heads=2, init=init, **options)).get_submodule("layer")
        for alpha in (layer.alpha_k, layer.alpha_v):
            assert alpha.shape == (2, 4, 3)
            assert alpha.argmax(0).T.tolist() == expected
            assert alpha.sum(0).eq(1).all()
    assert config("cpm3", kv_heads=2, **options).to_json()["kv_heads"] == 2
    assert "kv_heads" not in config("cpm3", **options).to_json()
    assert config("cpm3", kv_heads=2, **options).capacity == 8


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_circulant_orthogonal_matrices(size):
    generator = torch.Generator().manual_seed(0)
    first, second = (model.circulant_orthogonal(size, generator) for _ in range(2))
    assert torch.allclose(first @ first.T, torch.eye(size, dtype=torch.float64))
    assert torch.allclose(first.roll((1, 1), (0, 1)), first)
    assert size < 3 or not torch.allclose(first, second)


@pytest.mark.parametrize("init", ["construction", "random"])
def test_circulant_projections_treat_all_positions_alike(init):
    """The features of shifted tokens are the shifted features; not so for orthogonal projections."""
    x = torch.tensor([[0, 2, 1, 1, 0], [1, 0, 0, 2, 2]])
    alike = {}
    for circulant in (True, False):
        run = config("cpm3", tokens=5, heads=2, init=init, circulant=circulant, hidden=8, dtype="float64")
        own = started(run)
        with torch.no_grad():
            alike[circulant] = torch.allclose(own(x.roll(1, 1)), own(x).roll(1, 1))
    assert alike == {True: True, False: False}


def test_the_first_layer_of_sines_fits_the_attention_it_reads():
    run = config("cpm3", tokens=6, hidden=4000, layers=1, dtype="float64", gain=0.1)
    own = started(run)
    x = torch.from_numpy(np.random.default_rng(0).integers(3, size=(500, 6)))
    with torch.no_grad():
        arguments = own.mlp[0](own.seen(x))
        assert torch.equal(own.mlp[1](arguments), torch.sin(arguments))
    assert float(arguments.var()) == pytest.approx(3, rel=0.2)
    assert float(own.mlp[0].bias.detach().var()) == pytest.approx(1, rel=0.1)


def test_what_the_mlp_sees():
    for embedding, width in (("scalar", 1), ("one-hot", 3)):
        without, beside = (
            started(run)
            for run in (config("cpm3", tokens=4, skip=skip, embedding=embedding, hidden=8) for skip in (False, True))
        )
        x = torch.tensor([[0, 1, 2, 2]])
        beside.layer.load_state_dict(without.layer.state_dict())
        tokens, mixed = beside.seen(x).split([width, without.layer.out_dim], dim=-1)
        assert torch.equal(mixed, without.seen(x))
        assert torch.equal(tokens, without.embed(x))


def _late(made):
    return made.metadata.get("late", False)


def test_options_round_trip():  # case 26
    run = config("polynomial", seed=0, lr=1, heads=2)
    assert run.to_json()["seed"] == 0
    assert run.to_json()["lr"] == 1.0
    assert isinstance(run.to_json()["lr"], float)
    assert TrainConfig.from_json(run.to_json()) == run == run.but()
    assert len({run.but(seed=seed).identity for seed in range(20)}) == 20
    for task, kind in TASKS.items():
        for attention, layer in KINDS.items():
            run = config(task, attention=attention)
            assert run == TrainConfig.from_json(run.to_json())
            names = ["task", "attention", *kind.names(), *layer.names(), *TrainConfig.names()]
            late = {name for own in (kind, layer) for name, made in own.__dataclass_fields__.items() if _late(made)}
            assert list(run.to_json()) == [name for name in names if name not in late]
            assert len(set(names)) == len(names)
            assert set(kind.learned) <= set(names)
            assert set(kind.defaults) <= set(TrainConfig.names()).union(*(other.names() for other in KINDS.values()))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"learning_rate": 0.1}, "unknown option 'learning_rate'"),
        ({"task": "cpm3"}, "unknown option 'task'"),
        ({"heads": "3"}, "heads must be an integer"),
        ({"heads": True}, "heads must be an integer"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"steps": 1.5}, "steps must be an integer"),
        ({"lr": float("nan")}, "lr must be finite"),
        ({"lr": -1.0}, "lr must be at least 0"),
        ({"lr": None}, "lr must be a number"),
        ({"beta2": 1.0}, "beta2 must be below 1"),
        ({"attention": "rnn"}, "unknown attention 'rnn': accepted are mha, mqa, .*, and MODULE:CLASS"),
        ({"attention": 3}, "unknown attention 3"),
        ({"amp": 1}, "amp must be true or false"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"attention": "mha", "pseudo_heads": 2}, "pseudo_heads is an option of iha; mha has heads, head_dim"),
        ({"modulus": 5}, "modulus is an option of cpm3, match3; polynomial has width, .*, graph, normalise$"),
        (
            {"attention": "torch.nn:MultiheadAttention", "gain": 2.0},
            "MultiheadAttention has heads$",
        ),
        ({"circulant": True, "head_dim": 4}, "circulant projections are square"),
        ({"normalise": "twice"}, "normalise must be one of none, row, symmetric"),
    ],
)
def test_bad_options_are_named(options, word):
    with pytest.raises(ValueError, match=word):
        TrainConfig.for_task("polynomial", options)


def test_unknown_tasks_and_graphs_are_named():
    with pytest.raises(ValueError, match="unknown task 'sorting'"):
        config("sorting")
    with pytest.raises(ValueError, match="unknown graph"):
        build(config("polynomial", graph="nowhere"))


def test_a_stream_of_nothing_is_refused():
    with pytest.raises(ValueError, match="too few"):
        Stream(lambda generator: (np.zeros((0, 2)),), np.random.default_rng(0))
