"""`bench data` compares equal labels, and says if they are not."""

import json

import numpy as np

from synthetic.tasks.count_pairs import CountPairs
from synthetic.training.speed import labels


def test_sizes_are_measured_and_equal():
    row = labels.times(5, 3, 4, 2)
    assert row["equal"]
    assert row["n"] == 2
    assert row["tokens_per_s"] > 0
    assert row["times_definition"] > 0


def test_the_table(call, tmp_path, monkeypatch):
    monkeypatch.setattr(labels, "SIZES", ((5, 3, 4), (6, 31, 2)))
    code, out, _ = call("bench", "data", "--repeats", "2", "--json", str(tmp_path / "d.json"))
    assert code == 0
    assert len(json.loads((tmp_path / "d.json").read_text())["data"]) == 2
    assert "N=6 M=31" in out


def test_wrong_labels_fail_the_command(call, monkeypatch):
    monkeypatch.setattr(labels, "SIZES", ((5, 3, 4),))
    monkeypatch.setattr(CountPairs, "target", lambda _, x: np.zeros_like(x))
    code, out, _ = call("bench", "data", "--repeats", "2")
    assert code == 1
    assert "DIFFER" in out
