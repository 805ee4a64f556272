"""A task and an attention of the user's, in a file outside the packages; and every layer of ours on every task."""

import json
from typing import Any

import pytest
import torch

from iha_theory.attention import KINDS
from iha_theory.bounds.parity import UNBOUNDED
from synthetic.tasks import TASKS
from synthetic.tasks.reasoning.base import Reasoning
from synthetic.training import loop
from synthetic.training.config import TrainConfig

train: Any = loop.train
OURS = [name for name, kind in TASKS.items() if not issubclass(kind, Reasoning)]
"""The others have their own tests (test_frame)."""

MINE = '''
from dataclasses import dataclass

import torch
from torch import nn

from iha_theory.options import option
from synthetic.tasks.task import Measured, Task


class Frame(nn.Module):
    def __init__(self, layer, tokens):
        super().__init__()
        self.layer = layer
        self.register_buffer("positions", torch.eye(tokens)[None], persistent=False)
        self.scale = nn.Linear(1, 1)

    def forward(self, x):
        return self.scale(self.layer(self.positions, self.positions, x))


@dataclass(frozen=True)
class Reverse(Task):
    """Tokens in reverse order."""

    tokens: int = option(4, "tokens N", 1)
    flip: bool = option(True, "whether at all")

    def draw(self, generator, count, split):
        x = generator.standard_normal((count, self.tokens, 1))
        return x, x[:, ::-1].copy() if self.flip else x

    def model(self, make):
        layer = make(self.tokens, self.tokens, 1, content=1, tokens=self.tokens, pattern="softmax", out=1)
        return Frame(layer, self.tokens)

    def loss(self, model, x, y):
        return (model(x) - y).square().mean()

    def measure(self, model, run, validation, test):
        x, y = (torch.from_numpy(array) for array in test)
        return Measured(error=float((run(x).double() - y).square().mean()))


class Mine(nn.Module):
    """Keys are compared with queries, once a head; returns a tuple."""

    def __init__(self, embed_dim, num_heads, vdim=None):
        super().__init__()
        self.maps = nn.Parameter(torch.randn(num_heads, embed_dim, embed_dim))
        self.values = nn.Linear(vdim, num_heads)

    def forward(self, query, key, value):
        weights = torch.einsum("bia,hac,bjc->bhij", query, self.maps, key).softmax(-1)
        return torch.einsum("bhij,bjh->bih", weights, self.values(value)), weights


class Late(Mine):
    def forward(self, query, key, value):
        if query.any():
            raise GeneratorExit("too late")
        return super().forward(query, key, value)


class Broken(Mine):
    def forward(self, query, key, value):
        raise RuntimeError("no such thing")
'''
SMALL = ("--steps", "300", "--eval-size", "64", "--eval-every", "100")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The file in the current directory, by a name of its own."""
    name = f"mine_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    return name


def record(folder):
    (line,) = (folder / "runs.jsonl").read_text().splitlines()
    return json.loads(line)


def test_a_toy_attention_is_trained_on_a_toy_task_by_the_command(call, mine, tmp_path):
    run = ("train", f"{mine}:Reverse", "--attention", f"{mine}:Mine", "--heads", "4", *SMALL)
    code, out, err = call(*run, "--tokens", "5", "--no-flip", "--flip", "--out", "a")
    assert code == 0, err
    assert f"{mine}:Reverse {mine}:Mine, 4 heads, seed 0: finished" in out
    assert "no floor is known" in out
    first = record(tmp_path / "a")
    assert first["floor"] is None
    assert (first["config"]["tokens"], first["config"]["flip"]) == (5, True)
    assert first["error"] < 0.3  # learned: without weights it is 1
    torch.rand(7)  # the global stream does not matter: weights start from the run's seed
    assert call(*run, "--tokens", "5", "--out", "b", "--stop-at", "150")[0] == 0
    assert call(*run, "--tokens", "5", "--out", "b", "--resume")[0] == 0
    assert record(tmp_path / "b")["error"] == first["error"]
    assert call(*run, "--tokens", "5", "--seed", "1", "--out", "c")[0] == 0
    assert record(tmp_path / "c")["error"] != first["error"]


def test_the_json_of_a_run_that_is_left_off(call, mine, tmp_path):
    (tmp_path / f"{mine}.py").write_text(f"print('imported')\n{MINE}")
    run = ("train", f"{mine}:Reverse", "--attention", f"{mine}:Mine", "--steps", "3", "--eval-size", "4")
    code, out, err = call(*run, "--stop-at", "2", "--out", "a", "--json", "-")
    assert code == 0
    assert "imported" in err
    content = json.loads(out)
    assert content["runs"] == []
    assert (content["checkpoint"]["stopped_at"], content["checkpoint"]["steps"]) == (2, 3)


@pytest.mark.parametrize("task", OURS)
@pytest.mark.parametrize("attention", ["Mine", "torch.nn:MultiheadAttention"])
def test_an_own_attention_on_our_tasks(call, mine, tmp_path, task, attention):
    attention = attention if ":" in attention else f"{mine}:{attention}"
    code, out, err = call("train", task, "--attention", attention, "--heads", "3", "--steps", "3", "--out", "a")
    assert code == 0, err
    assert ("no floor is known" in out) == (task != "cpm3")
    assert record(tmp_path / "a")["floor"] is None


@pytest.mark.parametrize("attention", KINDS)
def test_our_attentions_on_an_own_task(call, mine, attention):
    code, out, err = call("train", f"{mine}:Reverse", "--attention", attention, "--steps", "3")
    assert code == 0, err
    assert "no floor is known" in out


def test_help_teaches_what_is_there(call, mine):
    _, out, _ = call("train", "--help")
    assert all(word in out for word in (*TASKS, *KINDS, "MODULE:CLASS"))
    assert all(kind.summary.split(",")[0] in out for kind in TASKS.values())
    for task, attention in ((f"{mine}:Reverse", f"{mine}:Mine"), ("cpm3", "iha"), ("polynomial", "gqa")):
        _, out, _ = call("train", task, "--attention", attention, "--help")
        config = TrainConfig.for_task(task, {"attention": attention})
        flags = {f"--{name.replace('_', '-')}" for name in config.to_json() if name != "task"}
        assert {word for word in out.split() if word in flags} == flags
        assert ("--modulus" in out) == (task == "cpm3")
        assert ("--kv-heads" in out) == (attention in ("iha", "gqa"))
    _, out, _ = call("sweep", "--help")
    assert all(name in out for kind in TASKS.values() for name in kind.sweeps)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("polynomial", "--modulus", "5"), "modulus is an option of cpm3, match3; polynomial has width"),
        (("polynomial", "--attention", "mha", "--init", "random"), "init is an option of iha; mha has heads"),
        (("{}:Reverse", "--attention", "{}:Mine", "--gain", "2"), "Mine has heads"),
        (("{}:Reverse", "--graph", "karate"), "Reverse has tokens, flip"),
        (("{}:Mine",), "is no task"),
        (("{}:Nothing",), "has no attribute 'Nothing'"),
        (("polynomial", "--attention", "{}:Nothing"), "has no attribute 'Nothing'"),
        (("polynomial", "--attention", "{}:Broken"), "with 3 heads: RuntimeError: no such thing"),
        (("polynomial", "--attention", "{}:Late"), "Late: GeneratorExit: too late"),
        (("polynomial", "--attention", "{}:Frame"), "Frame with 3 heads"),
    ],
)
def test_what_does_not_fit_is_one_line(refused, mine, arguments, words):
    assert words in refused("train", *(word.format(mine) for word in arguments))


FEW = {"steps": 4, "eval_size": 16, "batch": 4, "heads": 2}
SIZES = {
    "polynomial": {"graph": "orthogonal:4", "terms": 4},
    "unstructured": {"tokens": 4, "terms": 4},
    "cpm3": {"hidden": 8, "tokens": 4},
    "parity": {"bits": 3},
    "esp": {},
}


@pytest.mark.parametrize("attention", KINDS)
@pytest.mark.parametrize("task", OURS)
def test_every_layer_can_be_trained_on_every_task(task, attention):
    """A few steps, two seeds as one program and the first alone; no error is below its floor."""
    sizes = SIZES.get(task, {"tokens": 4})
    runs = [
        TrainConfig.for_task(task, FEW | sizes | {"attention": attention, "seed": seed, "dtype": "float64"})
        for seed in range(2)
    ]
    together = train(runs)
    (alone,) = train(runs[:1])
    assert together[0].losses == pytest.approx(alone.losses, rel=1e-9)
    assert all(torch.allclose(together[0].weights[name], w, atol=1e-9) for name, w in alone.weights.items())
    for run, found in zip(runs, together, strict=True):
        assert found.outcome == "finished"
        if found.floor is not None:
            assert found.measured.error >= found.floor - found.measured.slack
            exact = task not in ("parity", "esp") and (run.capacity or 0) >= 4
            assert found.floor == pytest.approx(0 if exact else alone.floor)
        assert (found.floor is None) == (task == "cpm3" or (task in ("parity", "esp") and attention in UNBOUNDED))
    assert together[0].losses != together[1].losses


@pytest.mark.parametrize(("attention", "heads"), [("mqa", 2), ("gqa", 2), ("differential", 2), ("talking-heads", 2)])
def test_other_layers_sit_on_the_floor_of_mha(attention, heads):
    options = {"graph": "orthogonal:4", "terms": 3, "eval_size": 16, "batch": 8, "steps": 600}
    (run,) = train([TrainConfig.for_task("polynomial", options | {"attention": attention, "heads": heads})])
    mha = TrainConfig.for_task("polynomial", options | {"attention": "mha", "heads": heads}).build().floor or 0
    assert run.floor == mha > 0.1
    assert mha <= run.measured.error <= 1.02 * mha


def test_content_in_the_queries_has_no_floor_for_two_layers():
    for attention, known in (("two-layer", False), ("talking-heads", True), ("iha", True)):
        run = TrainConfig.for_task("polynomial", {"attention": attention, "mode": "content", "graph": "orthogonal:4"})
        assert (run.build().floor is not None) == known
