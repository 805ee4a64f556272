"""What all reasoning tasks share: splits, padding, the model, the protocol, baselines."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from iha_theory.attention import KINDS
from synthetic.tasks import TASKS
from synthetic.tasks.reasoning import frame
from synthetic.tasks.reasoning.base import Reasoning, places
from synthetic.training import data, model, records, report, sweep
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train

SMALL: dict[str, dict[str, Any]] = {
    "relations": {"smallest": 2, "largest": 3},
    "quotient": {"smallest": 2, "largest": 3},
    "match3": {"smallest": 3, "largest": 5, "modulus": 7, "most_kinds": 4},
    "composition": {"smallest": 3, "largest": 6},
    "retrieval": {"length": 10, "keys": 3, "key_symbols": 5, "value_symbols": 4, "distractors": 3},
    "hops": {"length": 6, "letters": 3, "most_hops": 2},
}
"""Options of each task."""
QUICK = {"width": 8, "mlp": 8, "heads": 2, "batch": 4, "train_size": 32, "eval_size": 24, "steps": 3, "eval_every": 2}


def config(task: str, **options: Any) -> Any:
    """A run of a few steps."""
    return TrainConfig.for_task(task, SMALL[task] | QUICK | options)


def made(run, seed=0) -> Any:
    """The model of a run with its initial weights."""
    problem = run.build()
    own = model.build(run, problem)
    model.initialise(own, run, problem, torch.Generator().manual_seed(seed))
    return own.eval()


@pytest.mark.parametrize("task", SMALL)
def test_splits_share_no_sample(task):
    run = config(task, train_size=200, eval_size=60)
    own = data.load(run.build(), run)
    canonical = TASKS[task].of(SMALL[task]).canonical
    sets = [{tuple(row) for row in canonical(x)} for x, _ in (own.train.take(200), own.validation, own.test)]
    assert not any(a & b for a, b in itertools.combinations(sets, 2))


@dataclass(frozen=True)
class Leaking(Reasoning):
    """Pairs of bits: a hash that looks at the second channel too puts a pair into several splits."""

    tokens = 2
    channels = (2, 50)

    def examples(self, generator, count):
        x = np.stack((generator.integers(2, size=(count, 2)), generator.integers(50, size=(count, 2))), axis=-1)
        return x, x[..., 0]

    def canonical(self, x):
        return x[..., 0]


def test_a_planted_leak_is_caught(monkeypatch):
    run, task = config("relations"), Leaking()
    with pytest.raises(ValueError, match="no sample passes"):  # four sequences are too few for three splits
        data.load(frame.Answers(task), run)
    monkeypatch.setattr(frame, "split_of", lambda x: np.arange(len(x)) % 3)
    with pytest.raises(ValueError, match="samples that are in two of training, validation and test"):
        data.load(frame.Answers(task), run)


@pytest.mark.parametrize("task", SMALL)
def test_the_data_are_those_of_the_seed_for_every_attention(task):
    hashes = [
        [data.load(run.build(), run).digest for run in (config(task, seed=s, attention=a) for a in ("mha", "iha"))]
        for s in (0, 1)
    ]
    assert hashes[0][0] == hashes[0][1] != hashes[1][0] == hashes[1][1]


@pytest.mark.parametrize("attention", KINDS)
def test_padding_is_seen_by_nobody(attention):
    run = config("relations", attention=attention, layers=2, dtype="float64")
    own, problem = made(run), run.build()
    generator = np.random.default_rng(0)
    x, y = (torch.from_numpy(array) for array in TASKS["relations"].of(SMALL["relations"]).examples(generator, 12))
    short = (x[:, 4:, 0] < 0).all(1)
    assert 0 < short.sum() < 12
    cut = own(x[short][:, :4])
    assert torch.allclose(own(x[short])[:, :4], cut, rtol=1e-12, atol=1e-12)
    other = x.clone()
    other[..., 1][x[..., 0] < 0] = 0  # what stands at padding
    assert torch.equal(problem.loss(own, other, y), problem.loss(own, x, y))
    changed = y.clone()
    changed[y >= 0] = 1 - changed[y >= 0]
    assert problem.loss(own, x, changed) != problem.loss(own, x, y)


BARE: dict[str, Any] = {"norm": "none", "mlp": 0, "layers": 2}
TOGETHER = [
    *(("relations", {"attention": name, "bias": True}) for name in KINDS),
    *((task, {"attention": "iha", "pseudo_heads": 1} | BARE) for task in SMALL),
]


@pytest.mark.parametrize(("task", "options"), TOGETHER)
def test_seeds_together_are_each_alone(task, options):
    runs = [config(task, **options, dtype="float64", seed=seed) for seed in (0, 1)]
    together = train(runs)
    for run, other in zip(runs, together, strict=True):
        (alone,) = train([run])
        assert np.allclose(alone.losses, other.losses, rtol=1e-9)
        assert np.allclose(alone.validations, other.validations, rtol=1e-9)
        assert alone.measured.accuracy == other.measured.accuracy
        assert alone.measured.baselines == other.measured.baselines


def test_what_is_recorded(tmp_path):
    (run,) = train([config("relations", attention="mha")])
    records.write(tmp_path, [records.result(run, 1)])
    (record,) = records.read(tmp_path)
    width = 8
    embeddings, readout, norms = (2 + 9) * width, width + 1, 4 * width
    assert record["parameters"] == embeddings + readout + norms + 4 * width**2 + width + 2 * 8 * width + 8 + width
    products = 4 * width**2 + 2 * 8 * width + width  # of each token, in projections, MLP and readout
    assert record["flops"] == 2 * (9 * products + 2 * 9**2 * width)
    assert record["baselines"].keys() == {"own token", "degrees"}
    assert record["parts"].keys() == {"m=2", "m=3"}
    assert f"by degrees alone {record['baselines']['degrees']:.5g}" in report.describe(record)


def test_the_weights_of_the_best_validation_loss_are_kept():
    run = config("relations", attention="mha", lr=0.5, steps=12, patience=100)
    (found,) = train([run])
    losses = [loss for _, loss in found.validations]
    assert min(losses) < losses[-1]
    own, problem = model.build(run, run.build()), run.build()
    own.load_state_dict(found.weights, strict=False)
    x, y = (torch.from_numpy(array) for array in data.load(problem, run).validation)
    assert float(problem.loss(own.eval(), x, y).detach()) == pytest.approx(min(losses), rel=1e-4)


def test_the_best_guess_is_the_commonest_label_of_a_feature():
    known, labels = np.array([[0, 0, 0, 2, 2, 2]]), np.array([[1, 1, 0, 0, -1, 2]])
    assert frame.best_guess(known, labels, np.array([[0, 2, 1, 3]])).tolist() == [[1, 0, 0, 0]]


def test_places():
    assert places(2, 3).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_a_layer_of_the_users_has_no_mask():
    (run,) = train([config("relations", attention="torch.nn:MultiheadAttention", smallest=3)])
    assert run.outcome == "finished"
    with pytest.raises(ValueError, match="takes no mask"):
        train([config("relations", attention="torch.nn:MultiheadAttention")])
    with pytest.raises(ValueError, match="bias is for layers of ours"):
        train([config("relations", attention="torch.nn:MultiheadAttention", bias=True)])


def test_parameters_of_the_paper():
    """App. D as quoted in public: 206,849 for MHA and 208,513 for IHA, with 64 positions (m to 8, three hops)."""
    runs = {run.attention: run for run in sweep.configs("relations", preset="paper") if run.problem.hops == 3}

    def count(run):
        return sum(p.numel() for p in model.build(run, run.build()).parameters())

    assert {name: count(runs[name]) for name in ("mha", "iha")} == {"mha": 206_849, "iha": 208_513}


PRESETS = [(name, preset) for name, (_, own) in sweep.GRIDS.items() for preset in own.presets]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_presets_are_made_of_runs_that_can_be_built(name, preset):
    for run in sweep.configs(name, preset=preset, seeds=[0]):
        with torch.device("meta"):
            run.build().model(run.layer.make)


def test_the_papers_preset_starts_on_a_cpu_and_resumes(tmp_path):
    less = {"train_size": 64, "eval_size": 16, "batch": 4, "smallest": 3, "largest": 4, "eval_every": 2}
    less |= {"steps": 4, "checkpoint_every": 2, "hops": 3}
    runs = sweep.configs("relations", less, preset="paper")
    run = next(run for run in runs if run.attention == "iha")
    whole = train([run])[0]
    file = sweep.checkpoint_of([run], tmp_path)
    file.parent.mkdir()
    (first,) = train([run], checkpoint_file=file, stop_at=2)
    assert first.outcome is None
    (second,) = sweep.sweep([run], tmp_path)
    assert second["steps"] == 4
    assert second["accuracy"] == whole.measured.accuracy
    assert records.read(tmp_path)[0]["data_hash"] == whole.digest


def test_the_defaults_train(call, tmp_path):
    code, out, err = call("train", "composition", "--steps", "1", "--eval-size", "64", "--train-size", "64")
    assert code == 0, err
    assert "composition iha, 4 heads, P = 4" in out
    assert "by zeros alone" in out


def test_presets_on_the_command_line(call, refused, tmp_path):
    assert "it has no presets" in refused("sweep", "cpm3", "--out", tmp_path, "--preset", "paper")
    found = refused("sweep", "relations", "--out", tmp_path, "--preset", "best")
    assert "accepted are cpu, others, tuned, paper, strassen" in found
    code, out, _ = call("sweep", "--help")
    assert code == 0
    assert "--preset strassen: " in out
