"""Records and sweeps: strict files, failures that stop nothing, reruns, processes, a Dask cluster."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from synthetic.training import loop, records, sweep
from synthetic.training.config import TrainConfig
from synthetic.training.model import build, load_model, restore

train: Any = loop.train
configs: Any = sweep.configs
SMALL = {"graph": "orthogonal:4", "terms": 3, "eval_size": 16, "batch": 8, "steps": 20, "attention": "mha", "heads": 2}


def config(**options):
    return TrainConfig.for_task("polynomial", SMALL | options)


def strict(file):
    """The lines of a file of strict JSON."""

    def refuse(token):
        raise AssertionError(token)

    lines = file.read_text().splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_records_are_strict_and_complete(tmp_path):  # cases 20 and 26
    runs = [config(), config(seed=1, lr=1e6), config(attention="iha", pseudo_heads=1)]
    found = sweep.sweep(runs, tmp_path)
    lines = strict(tmp_path / "runs.jsonl")
    assert sorted(lines, key=lambda r: r["id"]) == sorted(found, key=lambda r: r["id"])
    names = "schema task attention heads pseudo_heads seed config outcome reason error floor accuracy"
    names += " baseline_accuracy steps wall_s device versions data_hash"
    for run, record in zip(runs, found, strict=True):
        assert set(names.split()) < set(record)
        assert TrainConfig.from_json(record["config"]) == run
        assert record["schema"] == "iha-theory/run/1"
        assert (record["seed"], record["heads"], record["pseudo_heads"]) == (run.seed, 2, run.pseudo)
        assert len(record["data_hash"]) == 64
        assert record["wall_s"] > 0
    assert [r["outcome"] for r in found] == ["finished", "diverged", "finished"]
    assert found[1]["error"] is None
    assert "loss" in found[1]["reason"]
    assert found[0]["error"] >= found[0]["floor"] > 0
    assert found[0]["accuracy"] is None
    curve = np.genfromtxt(tmp_path / "curves" / f"{found[0]['id']}.csv", delimiter=",", names=True)
    assert curve["step"].tolist() == list(range(1, 21))
    assert np.isfinite(curve["loss"]).all()
    assert np.isfinite(curve["validation"][-1])


def test_an_impossible_point_stops_nothing(tmp_path):  # case 21
    eight = {"graph": "orthogonal:8", "head_dim": 0}
    runs = [config(**eight, heads=heads, seed=seed) for heads in (2, 3, 4) for seed in (0, 1)]
    reports = []
    found = sweep.sweep(runs, tmp_path, report=reports.append)
    assert [r["outcome"] for r in found] == ["finished"] * 2 + ["failed"] * 2 + ["finished"] * 2
    assert "heads 3 do not divide the width 8 of" in found[2]["reason"]
    assert found[2]["steps"] == 0
    assert len(reports) == 3
    reports.clear()
    again = sweep.sweep(runs, tmp_path, report=reports.append)  # only the failed ones
    assert [[r.record.heads for r in results] for results in reports] == [[3, 3]]
    assert again == sweep.sweep(runs, tmp_path)
    assert len(strict(tmp_path / "runs.jsonl")) == 6
    more = [*runs, config(**eight, seed=2)]
    assert len(sweep.sweep(more, tmp_path)) == len(strict(tmp_path / "runs.jsonl")) == 7


def test_whatever_goes_wrong_is_a_failed_run(tmp_path, monkeypatch):
    real = sweep.train

    def broken(runs, **options):
        if any(run.seed == 1 for run in runs):
            raise RuntimeError("out of\nmemory")
        return real(runs, **options)

    monkeypatch.setattr(sweep, "train", broken)
    found = sweep.sweep([config(seed=seed) for seed in range(3)], tmp_path)
    assert [r["outcome"] for r in found] == ["finished", "failed", "finished"]
    assert found[1]["reason"] == "RuntimeError: out of memory"


def test_what_was_cut_off_is_left_out(tmp_path):
    first = sweep.sweep([config()], tmp_path)
    file = tmp_path / "runs.jsonl"
    with file.open("a") as out:
        out.write(file.read_text()[:70])  # half a line
    assert records.read(tmp_path) == first
    sweep.sweep([config(seed=1)], tmp_path)
    assert [r["seed"] for r in strict(file)] == [0, 1]
    file.write_text("{}\n")
    with pytest.raises(ValueError, match="line 1: not a record"):
        records.read(tmp_path)


def test_an_interrupted_sweep_keeps_what_is_done_and_goes_on(tmp_path):
    runs = [config(heads=h, attention=a, checkpoint_every=10) for a, h in (("iha", 5), ("iha", 1), ("mha", 1))]
    whole = sweep.sweep(runs, tmp_path / "whole")

    def stop(results):
        if len(records.read(tmp_path)) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(runs, tmp_path, report=stop)
    assert len(strict(tmp_path / "runs.jsonl")) == 1
    for group in sweep.groups(runs)[1:]:
        train(group, checkpoint_file=sweep.checkpoint_of(group, tmp_path), stop_at=10)
    assert len(list((tmp_path / "checkpoints").glob("*"))) == 2
    resumed = sweep.sweep(runs, tmp_path)
    assert [r["error"] for r in resumed] == [r["error"] for r in whole]
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_change_nothing(tmp_path, jobs):  # case 29
    runs = [config(seed=seed, attention=a) for a in ("mha", "iha") for seed in (0, 1)]
    found = sweep.sweep(runs, tmp_path / "jobs", jobs=jobs)
    alone = [records.result(train([run])[0], 1).record for run in runs]
    assert [r["data_hash"] for r in found] == [r.data_hash for r in alone]
    assert [r["error"] for r in found] == pytest.approx([r.error for r in alone], rel=1e-3)


def test_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        runs = [config(), config(attention="iha")]
        found = sweep.sweep(runs, tmp_path, scheduler=cluster.scheduler_address)
    assert [r["outcome"] for r in found] == ["finished"] * 2
    (alone,) = train([config()])
    assert found[0]["error"] == pytest.approx(alone.measured.error, rel=1e-3)


def test_a_scheduler_that_is_not_there(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(sweep, "ANSWER_WITHIN_S", 0.2)
    with pytest.raises(ValueError, match="no Dask scheduler answers at tcp://127"):
        sweep.sweep([config()], tmp_path, scheduler="tcp://127.0.0.1:1")


LOAD = """
import sys, torch
from pathlib import Path
from synthetic.training.model import load_model
model = load_model(Path(sys.argv[1]), sys.argv[2])
torch.save(model(torch.ones(2, 4, 1)).detach(), sys.argv[3])
"""


def test_weights_in_a_fresh_process(tmp_path):  # case 27
    (record,) = sweep.sweep([config(attention="iha")], tmp_path)
    out = str(tmp_path / "out.pt")
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path), record["id"], out], check=True, env=dict(os.environ))
    (run,) = train([config(attention="iha")])
    model = build(run.config, run.config.build())
    model.load_state_dict(run.weights)
    with torch.no_grad():
        assert torch.allclose(torch.load(out), model(torch.ones(2, 4, 1)), atol=1e-6)


def test_weights_of_another_model_are_refused(tmp_path):  # case 27
    mha, wide = sweep.sweep([config(), config(heads=3)], tmp_path)
    files = [tmp_path / "weights" / f"{record['id']}.safetensors" for record in (mha, wide)]
    for run, file in ((config(attention="iha"), files[0]), (config(), files[1])):
        model = build(run, run.build())
        before = {name: p.clone() for name, p in model.named_parameters()}
        with pytest.raises(ValueError, match="weights of another model"):
            restore(model, file)
        assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    for identity in ("0" * 16, mha["id"][:-1] + "x"):
        with pytest.raises(ValueError, match="no weights"):
            load_model(tmp_path, identity)


def test_named_sweeps():
    for name in sweep.GRIDS:
        runs = configs(name, seeds=range(2))
        assert len({run.identity for run in runs}) == len(runs) > 0
        assert sorted(map(repr, runs)) == sorted(repr(run) for group in sweep.groups(runs) for run in group)
    polynomial = configs("polynomial")
    assert len(polynomial) >= 200
    heads = {(r.attention, r.heads) for r in polynomial if (r.problem.graph, r.problem.terms) == ("orthogonal:16", 9)}
    assert heads == {("mha", h) for h in range(1, 10)} | {("iha", h) for h in range(1, 5)}
    cpm3 = configs("cpm3")
    assert {(r.attention, r.heads) for r in cpm3 if r.steps == 4000 and r.problem.embedding == "scalar"} == heads
    assert {(r.attention, r.heads) for r in cpm3 if r.problem.embedding == "one-hot"} == {("mha", 1)}
    few = configs("workspace", {"attention": "mha", "steps": 7}, heads=[5], seeds=[0])
    assert [(r.attention, r.heads, r.steps, r.seed) for r in few] == [("mha", 5, 7, 0)]
    both = configs("workspace", {"pseudo_heads": 2}, heads=[5], seeds=[0])  # IHA's, and MHA without
    assert [(r.attention, r.pseudo) for r in both] == [("mha", None), ("iha", 2)]
    other = configs("content", {"attention": "talking-heads", "mix": "logits"}, seeds=[0])
    assert [(r.problem.terms, r.heads) for r in other] == [(3, 1), (3, 2), (3, 3), (4, 1), (4, 2), (4, 3), (4, 4)]
    for options, word in (({"attention": "mha", "pseudo_heads": 2}, "of iha"), ({"skip": True}, "of cpm3; workspace")):
        with pytest.raises(ValueError, match=word):
            configs("workspace", options)
    with pytest.raises(ValueError, match="unknown sweep"):
        configs("nothing")


def test_the_same_run_said_in_two_ways_is_made_once():
    runs = configs("parity", heads=[2], seeds=range(1))
    assert len({(run.task, str(run.to_json() | {"pseudo_heads": run.pseudo})) for run in runs}) == len(runs)
