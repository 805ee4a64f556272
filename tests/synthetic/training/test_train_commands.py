"""`iha-theory train`, `sweep` and `bench` as a user calls them."""

import json

import pytest

from synthetic.tasks.cpm3 import INITS
from synthetic.training.config import TrainConfig

SMALL = ("--graph", "orthogonal:4", "--terms", "3", "--eval-size", "16", "--batch", "8", "--steps", "20")
ONE = ("train", "polynomial", *SMALL, "--attention", "mha", "--heads", "2")


def lines(folder):
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def test_train_shows_the_loss_against_the_floor_and_the_result(call, tmp_path):
    code, out, err = call(*ONE, "--json", str(tmp_path / "r.json"))
    (record,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    assert code == 0
    assert "loss" in err
    assert f"floor of the error {record['floor']:.5f}" in err
    assert f"error {record['error']:.5g}" in out
    assert record["seed"] == 0
    assert list(tmp_path.iterdir()) == [tmp_path / "r.json"]


def test_train_stops_and_resumes(call, refused, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert call(*ONE, "--out", str(whole))[0] == 0
    code, out, _ = call(*ONE, "--out", str(parts), "--stop-at", "7")
    assert code == 0
    assert "step 7 of 20" in out
    assert not (parts / "runs.jsonl").exists()
    assert call(*ONE, "--out", str(parts), "--resume")[0] == 0
    (a,), (b,) = lines(whole), lines(parts)
    assert a["error"] == b["error"]
    for kind in ("curves/{}.csv", "weights/{}.safetensors"):
        name = kind.format(a["id"])
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert "holds this run already" in refused(*ONE, "--out", whole)
    assert "no checkpoint" in refused(*ONE, "--out", whole, "--seed", "5", "--resume")


def test_a_diverged_run_fails_the_command(call, tmp_path):  # case 20
    code, out, _ = call(*ONE, "--lr", "1e6", "--out", str(tmp_path))
    assert code == 1
    assert "diverged" in out
    assert lines(tmp_path)[0]["outcome"] == "diverged"


def test_options_from_a_file_and_the_command_line(call, tmp_path):  # case 26
    file = tmp_path / "c.json"
    file.write_text(json.dumps({"heads": 3, "seed": 4, "steps": 5, "amp": True}))
    arguments = ("train", "polynomial", "--config", str(file), "--graph", "orthogonal:4", "--attention", "mha")
    code, _, _ = call(*arguments, "--seed", "0", "--no-amp", "--terms", "4", "--out", str(tmp_path / "o"))
    (record,) = lines(tmp_path / "o")
    assert code == 0
    assert (record["heads"], record["seed"], record["steps"]) == (3, 0, 5)
    assert record["config"]["amp"] is False
    assert record["config"]["lr"] == 0.03


@pytest.mark.parametrize(
    ("content", "word"),
    [('{"head": 3}', "unknown option 'head'"), ('{"steps": "3"}', "integer"), ("[1]", "object"), ("{", "not JSON")],
)
def test_bad_config_files_are_one_line(refused, tmp_path, content, word):
    (tmp_path / "c.json").write_text(content)
    for command in (("train", "polynomial"), ("sweep", "polynomial", "--out", str(tmp_path / "o"))):
        assert word in refused(*command, "--config", tmp_path / "c.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "sorting"),
        ("train", "polynomial", "--layers-deep", "3"),
        ("train", "polynomial", "--modulus", "5"),
        ("train", "polynomial", "--attention", "mha", "--noise", "0.2"),
        ("train", "polynomial", "--attention", "rnn"),
        ("train", "nowhere:Task"),
        ("sweep", "workspace", "--out", "x", "--modulus", "5"),
        ("sweep", "workspace", "--out", "x", "--attention", "mha", "--pseudo-heads", "2"),
        ("train", "polynomial", "--head", "3"),
        ("train", "polynomial", "--heads", "2.5"),
        ("train", "polynomial", "--steps", "0"),
        ("train", "polynomial", "--graph", "nowhere"),
        ("train", "polynomial", "--device", "cuda:63"),
        ("train", "polynomial", "--device", "tpu"),
        ("train", "polynomial", "--stop-at", "5"),
        ("train", "polynomial", "--resume"),
        ("train", "workspace", "--mode", "content"),
        ("sweep", "sorting", "--out", "x"),
        ("sweep", "polynomial"),
        ("sweep", "polynomial", "--out", "x", "--seeds", "0"),
        ("sweep", "polynomial", "--out", "x", "--heads", "0"),
        ("sweep", "polynomial", "--out", "x", "--seed", "0"),
        ("sweep", "relations", "--out", "x", "--value-dim", "2"),
        ("sweep", "polynomial", "--out", "x", "--device", "cuda:63"),
        ("bench", "layers-of-cake"),
        ("bench", "sweep", "--repeats", "0"),
    ],
)
def test_bad_usage_is_one_line(refused, monkeypatch, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    refused(*arguments)
    assert not list(tmp_path.iterdir())


def test_sweep_table_and_rerun(call, tmp_path):
    arguments = ("sweep", "workspace", "--tokens", "4", "--steps", "10", "--eval-size", "16", "--jobs", "1")
    arguments += ("--seeds", "2", "--heads", "1", "2", "--out", str(tmp_path))
    code, out, _ = call(*arguments)
    assert code == 0
    rows = {tuple(line.split()[1:3]): line.split() for line in out.splitlines() if line.startswith("N=4")}
    assert set(rows) == {("mha", "1"), ("mha", "2"), ("iha", "1"), ("iha", "2")}
    assert rows["mha", "1"][3] == "2/2"
    assert float(rows["mha", "1"][5]) == 0.75
    before = (tmp_path / "runs.jsonl").read_bytes()
    again, out_again, _ = call(*arguments, "--json", str(tmp_path / "s.json"))
    assert (again, out_again) == (0, out)
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    assert len(json.loads((tmp_path / "s.json").read_text())["runs"]) == 8


def test_a_sweep_table_tells_settings_apart(call, tmp_path):
    arguments = ("sweep", "cpm3-init", "--tokens", "3", "--steps", "2", "--hidden", "4", "--batch", "4")
    code, out, _ = call(*arguments, "--eval-size", "4", "--seeds", "1", "--jobs", "1", "--out", str(tmp_path))
    assert code == 0
    rows = [line for line in out.splitlines() if "1/1" in line]
    assert len(rows) == len(INITS)
    for word in ("init=mha", "gain=1.0", "circulant=False", "activation=relu"):
        assert sum(word in row for row in rows) == 1


def test_a_failed_point_fails_the_sweep(call, tmp_path):  # case 21
    arguments = ("sweep", "workspace", "--tokens", "8", "--head-dim", "0", "--steps", "5", "--eval-size", "16")
    arguments += ("--attention", "mha", "--heads", "2", "3", "--seeds", "1", "--jobs", "1")
    code, out, err = call(*arguments, "--out", tmp_path)
    assert code == 1
    assert "1 of 2 runs will fail: heads 3 do not divide the width 8" in err
    assert "FAILED" in out
    assert "heads 3 do not divide the width 8" in out
    assert {r["heads"]: r["outcome"] for r in lines(tmp_path)} == {2: "finished", 3: "failed"}


def test_a_sweep_of_impossible_points_is_refused_before_it_starts(refused, tmp_path):
    said = refused("sweep", "relations", "--attention", "mha", "--heads", "3", "--out", tmp_path / "x")
    assert "no run of the sweep can be made: heads 3 do not divide the width 64 of the layer's input" in said
    assert "head_dim" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("how", ["option", "file"])
def test_what_changes_nothing_is_refused(refused, call, tmp_path, how):
    (tmp_path / "c.json").write_text('{"value_dim": 2}')
    words = ("--value-dim", "2") if how == "option" else ("--config", tmp_path / "c.json")
    said = refused("train", "relations", "--attention", "gated", *words)
    assert "value_dim changes nothing on relations" in said
    assert "--value-dim" not in call("train", "relations", "--attention", "gated", "--help")[1]
    assert "--value-dim" in call("train", "polynomial", "--attention", "gated", "--help")[1]
    run = TrainConfig.for_task("relations", {"attention": "gated"})
    assert TrainConfig.from_json(run.to_json() | {"value_dim": 3}).layer.value_dim == 3  # of older records
    assert run.but(seed=1).layer == run.layer


def test_bench(call, tmp_path):
    arguments = ("bench", "sweep", "--repeats", "1", "--steps", "2", "--seeds", "2", "--json", str(tmp_path / "b.json"))
    code, out, _ = call(*arguments)
    found = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    assert code == 0
    assert "times faster" in out
    for benchmark in found:
        assert benchmark.keys() == {"name", "ratio", "median_s", "n"}
        assert benchmark["ratio"] > 0


def test_what_was_read_of_a_graph_is_said(call, tmp_path):
    (tmp_path / "g.txt").write_text("a b 0.5\nb c 1\n")
    options = ("--terms", 2, "--heads", 2, "--steps", 2, "--batch", 2, "--eval-size", 4, "--json", "-")
    code, out, err = call("train", "polynomial", "--graph", tmp_path / "g.txt", *options)
    assert code == 0
    assert "g.txt: 3 nodes, 2 edges, undirected, weights fractions 1/2 to 1, 1 component, no self-loops" in err
    assert json.loads(out)["graphs"][0]["weights"] == {"kind": "fractions", "least": "1/2", "greatest": 1}
