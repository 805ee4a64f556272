"""`iha-theory learned` on the records of real runs."""

import json
from dataclasses import asdict

from synthetic.training import records
from synthetic.training.config import TrainConfig

SMALL = ("--eval-size", "16", "--batch", "8", "--steps", "30")


def test_every_position_only_run_is_measured(call, tmp_path):
    folder, file = tmp_path / "runs", tmp_path / "learned.json"
    runs = (
        ("polynomial", "--attention", "mha", "--heads", "2", "--graph", "orthogonal:4", "--terms", "3"),
        ("polynomial", "--attention", "iha", "--heads", "2", "--graph", "orthogonal:4", "--terms", "3", "--seed", "1"),
        ("polynomial", "--attention", "mha", "--mode", "content", "--graph", "orthogonal:4", "--terms", "3"),
        ("workspace", "--attention", "iha", "--heads", "2", "--tokens", "4"),
        ("unstructured", "--heads", "2", "--tokens", "4", "--terms", "3"),
    )
    for run in runs:
        assert call("train", *run, *SMALL, "--out", str(folder))[0] == 0
    code, out, _ = call("learned", str(folder), "--json", str(file))
    found = json.loads(file.read_text())["runs"]
    assert code == 0
    assert "4 of 4 angles are within what the error allows" in out
    assert [(r["attention"], r["heads"], r["seed"]) for r in found] == [
        ("mha", 2, 0),
        ("iha", 2, 1),
        ("iha", 2, 0),
        ("iha", 2, 0),
    ]
    assert [r["learned"]["commutator"] is None for r in found] == [False, False, True, True]
    for r in found:
        assert 0 <= r["learned"]["gap"]["angle"] <= r["learned"]["gap"]["allowed"] + 1e-4
        assert r["start"] != r["learned"]


def test_a_folder_without_such_runs_is_refused(refused, tmp_path):
    assert "holds no weights of finished position-only runs on a bank" in refused("learned", tmp_path)


def test_what_a_record_says_is_measured_within_memory_and_a_line_cut_off_is_said(call, refused, tmp_path):
    found = records.failure(TrainConfig.for_task("polynomial", {"terms": 10**9}), "")
    line = json.dumps(asdict(found.record) | {"outcome": "finished", "error": 0.5})
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / f"{found.record.id}.safetensors").touch()
    (tmp_path / "runs.jsonl").write_text(line)
    assert "left out, being cut off: the last line of" in refused("learned", tmp_path)
    (tmp_path / "runs.jsonl").write_text(f"{line}\n")
    code, _, err = call("learned", tmp_path)
    assert (code, "terms 1000000000 needs" in err) == (2, True)


def test_settings_are_not_pooled(call, tmp_path):
    for lr in ("0.01", "0.02"):
        run = ("polynomial", "--attention", "mha", "--heads", "2", "--lr", lr, "--terms", "3")
        assert call("train", *run, *SMALL, "--out", str(tmp_path))[0] == 0
    code, out, _ = call("learned", str(tmp_path))
    assert code == 0
    assert "lr=0.01" in out
    assert "lr=0.02" in out
