"""Training: the batched program, resuming, divergence, early stopping; nothing but small runs."""

import dataclasses
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from synthetic.training import checkpoint, data, loop, model, program
from synthetic.training.config import TrainConfig
from synthetic.training.optimiser import rate_factor
from synthetic.training.program import Program

train: Any = loop.train
SMALL = {"eval_size": 16, "batch": 8, "steps": 30, "eval_every": 10, "attention": "mha", "heads": 2}
OWN = {"polynomial": {"graph": "orthogonal:4", "terms": 3}, "unstructured": {"tokens": 4, "terms": 3}, "parity": {}}


def config(task: Any = "polynomial", **options) -> Any:
    return TrainConfig.for_task(task, SMALL | OWN.get(task, {"tokens": 4}) | options)


def same(a, b):
    """Equal to the bit."""
    return a.losses == b.losses and all(torch.equal(a.weights[name], b.weights[name]) for name in a.weights)


CASES = [
    {},
    {"attention": "iha", "width": 2},
    {"attention": "iha", "mode": "content", "width": 2},
    {"task": "workspace", "attention": "iha"},
    {"task": "cpm3", "hidden": 8, "layers": 1},
    {"task": "cpm3", "hidden": 8, "activation": "relu", "circulant": False, "skip": True},
    {"task": "cpm3", "hidden": 8, "embedding": "one-hot", "attention": "iha", "mode": "content", "init": "mha"},
    {"task": "cpm3", "hidden": 8, "mode": "content", "pattern": "linear", "position_values": True},
    {"task": "unstructured", "train_size": 20},
]


@pytest.mark.parametrize("options", CASES)
def test_a_run_among_others_is_the_run_alone(options):
    runs = [config(**options, dtype="float64", seed=seed) for seed in (3, 0, 7)]
    together = train(runs)
    for run, other in zip(runs, together, strict=True):
        (alone,) = train([run])
        assert alone.outcome == other.outcome == "finished"
        assert np.allclose(alone.losses, other.losses, rtol=1e-6, atol=1e-9)
        assert np.allclose(alone.losses[:3], other.losses[:3], rtol=1e-12, atol=1e-15)
        assert alone.digest == other.digest
    assert len({run.losses[-1] for run in together}) == 3


@pytest.mark.parametrize("attention", ["mha", "iha"])
@pytest.mark.parametrize("width", [1, 2])
def test_losses_of_linear_runs_are_those_of_their_models(attention, width):
    own = Program([config(attention=attention, width=width, dtype="float64", seed=seed) for seed in range(3)])
    samples = [torch.from_numpy(data_.validation[0]) for data_ in own.data]
    found = own.problem.losses(own.model, own.stack, torch.stack(samples))
    for row, X in enumerate(samples):
        own.model.load_state_dict({name: p.detach()[row] for name, p in own.stack.items()}, strict=False)
        assert found[row].item() == pytest.approx(own.problem.loss(own.model, X).item(), rel=1e-12)
    other = Program([config(attention=attention, mode="content")])
    assert other.problem.losses(other.model, other.stack, samples[0][None]) is None


IHA = {"attention": "iha"}


@pytest.mark.parametrize(
    "options",
    [
        *({"width": 2}, {"task": "workspace"}, {"mode": "content", "width": 2}, {"task": "parity"}),
        *(IHA, IHA | {"width": 2}, IHA | {"collapse": "per_head", "pseudo_heads": 2}),
        *(IHA | {"mode": "content", "width": 2}, IHA | {"task": "unstructured", "init": "mha"}),
    ],
)
def test_runs_of_several_head_counts_together(options):
    runs = [config(heads=heads, seed=seed, dtype="float64", **options) for heads, seed in ((1, 0), (3, 1), (2, 0))]
    together = train(runs)
    for run, other in zip(runs, together, strict=True):
        (alone,) = train([run])
        assert np.allclose(alone.losses, other.losses, rtol=1e-6, atol=1e-9)
        assert alone.floor == other.floor
        assert alone.measured.error == pytest.approx(other.measured.error, rel=1e-6)
        assert {n: w.shape for n, w in alone.weights.items()} == {n: w.shape for n, w in other.weights.items()}


def test_runs_that_would_cost_one_another_more_than_a_step_train_apart():
    one = config(heads=1, attention="iha")
    for options in ({"heads": 5}, {"heads": 2, "kv_heads": 2}, {"heads": 2, "collapse": "per_head"}):
        with pytest.raises(ValueError, match="in their seed"):
            Program([one, config(**IHA | options)])
    workspaces = [config("workspace", heads=heads, attention="iha") for heads in (1, 2)]
    with pytest.raises(ValueError, match="in their seed"):
        Program(workspaces)  # softmax: a pseudo-head more is a key more


def test_training_lands_on_the_floor():
    for attention, heads in (("mha", 2), ("iha", 2)):
        runs = train([config(attention=attention, heads=heads, steps=600, seed=s) for s in range(4)])
        floor = runs[0].floor
        errors = sorted(run.measured.error for run in runs)
        assert floor == 0 if attention == "iha" else floor > 0.1
        assert floor <= errors[0]
        assert errors[1] <= 1.01 * floor + 1e-4


def test_the_error_is_that_of_the_operator():
    (run,) = train([config(width=2, attention="iha")])
    problem = run.config.build()
    trained = model.build(run.config, problem).double()
    trained.load_state_dict({name: weight.double() for name, weight in run.weights.items()})
    X = np.random.default_rng(0).standard_normal((20_000, 4, 2))
    A = problem.matrices[1]
    target = np.concatenate([X, A @ X, A @ (A @ X)], axis=-1)
    with torch.no_grad():
        got = trained(torch.from_numpy(X).double()).numpy()
    estimate = ((got - target) ** 2).sum() / (target**2).sum()
    assert run.measured.error == pytest.approx(estimate, rel=0.05)


def test_an_error_below_the_floor_is_reported():
    program = Program([config(steps=1)])
    program.runs[0].floor = 1e6
    program.finish()
    assert program.runs[0].outcome == "failed"
    assert "below the floor" in str(program.runs[0].reason)


def test_divergence_ends_one_run_and_not_the_others():  # case 20
    (alone,) = train([config(lr=1e6)])
    assert alone.outcome == "diverged"
    assert len(alone.losses) < 30
    assert np.isfinite(alone.losses).all()
    assert alone.measured.error is None
    program = Program([config(seed=seed) for seed in range(3)])
    with torch.no_grad():
        program.stack["layer.q_proj.weight"][1].fill_(1e6)
        program.stack["layer.v_proj.weight"][1].fill_(float("nan"))
    program.advance(20)
    assert [run.outcome for run in program.runs] == [None, "diverged", None]
    program.advance(30)
    program.finish()
    for seed in (0, 2):
        (alone,) = train([config(seed=seed)])
        assert program.runs[seed].outcome == "finished"
        assert np.allclose(program.runs[seed].losses, alone.losses, rtol=1e-3)


RESUME = """
import sys
from pathlib import Path
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train
runs = [TrainConfig.for_task({task!r}, {options!r} | {{"seed": s}}) for s in range(2)]
train(runs, checkpoint_file=Path(sys.argv[1]), stop_at=int(sys.argv[2]))
"""


def test_resuming_is_exact(tmp_path):
    run = config(attention="iha", steps=40, eval_every=7, train_size=30, patience=9)
    options = run.to_json()
    task = options.pop("task")
    file = tmp_path / "c.safetensors"
    code = RESUME.format(task=task, options=options)
    train([run.but(seed=seed) for seed in range(2)], checkpoint_file=file, stop_at=13)
    subprocess.run([sys.executable, "-c", code, str(file), "20"], check=True, env=dict(os.environ))  # a new process
    runs = [run.but(seed=seed) for seed in range(2)]
    resumed, whole = train(runs, checkpoint_file=file), train(runs)
    assert file.exists()  # for the caller to remove, once the runs are kept
    for a, b in zip(resumed, whole, strict=True):
        assert same(a, b)
        assert a.validations == b.validations
        assert a.measured == b.measured


def test_resuming_with_a_run_that_has_ended(tmp_path):
    file = tmp_path / "c.safetensors"
    runs = [config(seed=seed) for seed in range(2)]
    program = Program(runs)
    with torch.no_grad():
        program.stack["layer.v_proj.weight"][0].fill_(float("nan"))
    program.advance(10)
    checkpoint.save(program, file)
    first, second = train(runs, checkpoint_file=file)
    assert first.outcome == "diverged"
    assert first.weights is not None
    assert len(second.losses) == 30


def test_checkpoints_of_other_runs_are_refused(tmp_path):
    file = tmp_path / "c.safetensors"
    train([config()], checkpoint_file=file, stop_at=10)
    with pytest.raises(ValueError, match="other runs"):
        train([config(seed=1)], checkpoint_file=file)
    file.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint"):
        train([config()], checkpoint_file=file)


def test_early_stopping_looks_at_validation_only_and_keeps_the_best(monkeypatch):
    run = config(steps=200, patience=2, lr=1.0, schedule="constant", eval_every=5, seed=5)
    (stopped,) = train([run])
    assert stopped.outcome == "stopped"
    assert len(stopped.losses) < 200
    values = [value for _, value in stopped.validations]
    assert min(values) == values[-3]
    problem = run.build()
    trained = model.build(run, problem)
    trained.load_state_dict(stopped.weights)
    own = data.load(problem, run)
    with torch.no_grad():
        loss = float(problem.loss(trained, torch.from_numpy(own.validation[0]).float()))
    assert loss == pytest.approx(min(values), rel=1e-4)

    real = data.load

    def other_test_set(*arguments):
        own = real(*arguments)
        return dataclasses.replace(own, test=tuple(1e3 * array for array in own.test))

    monkeypatch.setattr(data, "load", other_test_set)
    assert same(train([run])[0], stopped)


@pytest.mark.parametrize(("steps", "warmup"), [(10, 10), (10, 0), (10, 20), (1, 0), (1, 5)])
@pytest.mark.parametrize("kind", ["cosine", "constant"])
def test_learning_rates(steps, warmup, kind):  # case 24
    run = config(steps=steps, warmup=warmup, schedule=kind)
    rates = [rate_factor(run, step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    if warmup <= 1 or kind == "constant":
        assert max(rates) == (1 if warmup <= steps else steps / warmup)
    assert len(train([run])[0].losses) == steps


def test_runs_that_differ_in_more_than_the_seed_are_refused():
    for other in ({"lr": 0.1}, {"attention": "iha"}):
        with pytest.raises(ValueError, match="in their seed"):
            train([config(), config(**other)])


def test_everything_goes_to_the_device(monkeypatch):
    """Without a GPU: torch's "meta" device holds shapes only, and any tensor made elsewhere clashes with it."""
    monkeypatch.setattr(program, "find_device", torch.device)
    monkeypatch.setattr(model, "initialise", lambda *_: None)
    for options in CASES:
        run = config(**options, device="meta", patience=3)
        batch = Program([run, run.but(seed=1)])
        tensors = list(batch.model.parameters()) + list(batch.model.buffers())
        assert {tensor.device.type for tensor in tensors} == {"meta"}
        samples = [own.train.take(run.batch) for own in batch.data]
        tensors = batch._tensors(samples, 1)
        losses = batch._losses([array[0] for array in tensors], batch.stack)
        losses.sum().backward()
        assert losses.device.type == "meta"
        assert all(p.grad is not None and p.grad.device.type == "meta" for p in batch.stack.values())


@pytest.mark.parametrize("name", ["cuda:63", "meta", "gpu", "cuda:x"])
def test_devices_that_are_not_there(name):
    with pytest.raises(ValueError, match="device"):
        train([config(device=name)])


def test_mixed_precision_runs_and_learns():
    (run,) = train([config(amp=True, steps=60)])
    assert run.outcome == "finished"
    assert run.losses[-1] < run.losses[0]
    assert all(weight.dtype == torch.float32 for weight in run.weights.values())


@pytest.mark.parametrize(
    ("options", "learned"),
    [
        ({"attention": "iha", "heads": 2}, True),
        ({"heads": 4}, True),
        ({"heads": 1, "embedding": "one-hot", "lr": 0.01}, True),
        ({"heads": 1}, False),
    ],
)
def test_small_cpm3_is_learned_from_labels(options, learned):
    """N = 4 scalar tokens by 2 heads of IHA or 4 of MHA, one-hot tokens by one head of MHA; held-out sequences."""
    (run,) = train([config("cpm3", hidden=32, steps=500, batch=32, warmup=20, eval_size=64, eval_every=500, **options)])
    assert run.measured.accuracy is not None
    assert (run.measured.accuracy >= 0.99) == learned


def test_divergence_in_the_last_step_is_seen():
    (run,) = train([config(steps=1, warmup=0, lr=1e6)])
    assert (run.outcome, run.measured.error) == ("diverged", None)
    assert run.reason is not None
    assert "validation loss" in run.reason


def test_a_graph_file_with_other_edges_is_another_run(tmp_path):
    file = tmp_path / "graph.txt"
    file.write_text("0 1\n1 2\n")
    first, named = config(graph=str(file), terms=3), config(graph=str(file), terms=3)
    before, floor = first.identity, train([first])[0].floor
    file.write_text("0 1\n1 2\n2 3\n")
    second = config(graph=str(file), terms=3)
    assert second.identity not in (before, first.but(graph="path:4").identity)
    assert train([second])[0].floor != floor
    with pytest.raises(ValueError, match="was edited after this run was begun"):  # a run is what it was called
        train([first])
    assert named.identity == second.identity  # nobody had asked it before
