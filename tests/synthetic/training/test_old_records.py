"""Records from when every run listed the options of all tasks: six runs, and the weights of one, in `old_format`."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from synthetic.training import records
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train

OLD = Path(__file__).parent / "old_format"
MHA = "bd0ed922fd97a1f1"


def test_a_run_has_its_own_options_only_and_those_are_kept():
    for record in records.read(OLD):
        config = TrainConfig.from_json(record["config"])
        content = config.to_json()
        assert {name: record["config"].get(name, content[name]) for name in content} == content
        assert ("modulus" in content) == (record["task"] == "cpm3")
        assert config.pseudo == record["pseudo_heads"]
        assert config.build().floor == pytest.approx(record["floor"], abs=1e-12)


def test_the_old_run_again_is_the_same():
    (record,) = (r for r in records.read(OLD) if r["id"] == MHA)
    (run,) = train([TrainConfig.from_json(record["config"])])
    assert run.digest == record["data_hash"]
    old = load_file(OLD / "weights" / f"{MHA}.safetensors")
    assert old.keys() == run.weights.keys()
    if record["versions"]["torch"] == torch.__version__:  # another version may round otherwise
        for name, weight in old.items():
            assert torch.allclose(weight, run.weights[name], rtol=1e-4, atol=1e-6)


def test_the_commands_read_them(call, tmp_path):
    code, out, err = call("learned", OLD)
    assert code == 0, err
    assert "1 of 1 angles are within what the error allows" in out
    code, out, err = call("figures", "floors", "frontier", "--from", OLD, "--out", tmp_path)
    assert code == 0, err
    rows = (tmp_path / "floors.csv").read_text().splitlines()
    assert len(rows) == 1 + 5


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"attention": None}, "and in its config None"),
        ({"attention": "mla"}, "and in its config 'mla'"),
        ({"learning_rate": 1}, "unknown option 'learning_rate'"),
        ({"heads": 0}, "and in its config 0"),
    ],
)
def test_what_no_run_could_be_is_refused_with_a_sentence(refused, tmp_path, change, reason):
    record = json.loads((OLD / "runs.jsonl").read_text().splitlines()[0])
    record["config"] |= change
    (tmp_path / "runs.jsonl").write_text(json.dumps(record) + "\n")
    shutil.copytree(OLD / "weights", tmp_path / "weights")
    assert reason in refused("figures", "floors", "--from", tmp_path, "--out", tmp_path / "out")
