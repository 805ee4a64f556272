"""`iha-theory figures` as a user calls it."""

import json
import os
import subprocess
import sys

import pytest

from synthetic.tasks.task import Grid, Sweep
from synthetic.training import sweep


@pytest.fixture
def runs(record, write):
    """A folder with a run of each kind of picture."""
    write([record(heads=1), record(attention="mha", heads=2)], "p")
    return write([record("cpm3", accuracy=0.9, heads=2)], "c")


def test_json_names_all_files(call, tmp_path, runs):
    out = tmp_path / "new" / "folder"
    code, printed, _ = call("figures", "floors", "frontier", "costs", "--from", runs, "--out", out, "--json", "-")
    assert code == 0
    content = json.loads(printed)
    assert content["schema"] == "iha-theory/figures/1"
    assert [entry["name"] for entry in content["figures"]] == ["floors", "frontier", "costs"]
    for entry in content["figures"]:
        assert entry["files"] == [str(out / f"{entry['name']}.{kind}") for kind in ("svg", "png")]
        assert str(out / f"{entry['name']}.csv") in entry["data_files"]
    files = {str(file) for file in out.iterdir()}
    assert files == {file for entry in content["figures"] for file in (*entry["files"], *entry["data_files"])}


def test_headless_with_nothing_writable_but_the_output(tmp_path, runs):
    """Case 28: no display, another backend asked for, no home, no place for settings, no output folder."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    environment |= {"MPLBACKEND": "TkAgg", "HOME": "/proc/nowhere", "MPLCONFIGDIR": "/proc/nowhere"}
    environment |= {"XDG_CONFIG_HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}
    command = [sys.executable, "-m", "iha_theory.cli", "figures", "floors", "costs", "--from", runs, "--out", "a/b"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for name in ("floors", "costs"):
        assert (tmp_path / "a" / "b" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / "a" / "b" / f"{name}.svg").read_text()


def test_without_names_pictures_without_runs_are_left_out(call, tmp_path, record, write, monkeypatch):
    monkeypatch.setattr("figures.command.NAMES", ("floors", "frontier"))
    folder = write([record(heads=1)])
    code, out, err = call("figures", "--from", folder, "--out", tmp_path / "out")
    assert (code, "floors.svg" in out, "frontier" in out) == (0, True, False)
    assert "frontier: left out" in err


def test_failed_runs_are_said(call, tmp_path, record, write):
    folder = write([record(heads=1), record(heads=1, seed=1, outcome="failed", error=0.1)])
    code, printed, _ = call("figures", "floors", "--from", folder, "--out", tmp_path / "out")
    assert code == 1
    assert "FAILS: 1" in printed


def test_from_nothing_trains_what_is_missing(call, tmp_path, monkeypatch):
    quick = {"steps": 2, "eval_size": 4}
    grid = Grid(quick | {"graph": "cycle:4", "terms": 3}, {"mha": (1, 2), "iha": (2,)})
    shifts = Grid(quick | {"tokens": 4}, {"iha": (2,)})
    tiny = dict.fromkeys(sweep.GRIDS, ("polynomial", Sweep("", (grid,)))) | {
        "workspace": ("workspace", Sweep("", (shifts,)))
    }
    monkeypatch.setattr(sweep, "GRIDS", tiny)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    for _ in range(2):
        code, _, err = call("figures", "floors", "--out", tmp_path)
        assert code == 0, err
    lines = (tmp_path / "runs" / "polynomial" / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 3 * 8  # the second time trained nothing
    assert (tmp_path / "floors.svg").exists()


@pytest.mark.parametrize(
    "content",
    [
        '{"checks": 5}',
        '{"checks": [5]}',
        '{"checks": [{}]}',
        '{"checks": [{"id": 5}]}',
        '{"checks": [{"id": "bank/karate/k=2/mha/exact", "tier": "exact", "layer": "mha", "heads": -9, '
        '"verdict": "holds", "setting": {"terms": 2}}]}',
        "[" * 10**5,
    ],
)
def test_checks_that_verify_never_writes_are_one_line(refused, tmp_path, content):
    (tmp_path / "c.json").write_text(content)
    refused("figures", "heads", "--checks", tmp_path / "c.json", "--out", tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing"], "accepted are heads, bits, floors, frontier, spectra, costs"),
        (["floors", "--from", "nowhere"], "no runs.jsonl in nowhere or below: run iha-theory sweep"),
        (["costs", "--from", "nowhere"], "--from is for floors and frontier"),
        (["costs", "--checks", "nowhere"], "--checks is for heads"),
        (["heads", "--checks", "broken.json"], "broken.json is not the output of iha-theory verify"),
        (["costs", "--out", "broken.json"], "a folder is needed"),
        (["floors", "--from", "damaged"], "damaged/runs.jsonl, line 1: not a record of a run"),
        (["--unknown"], "unrecognized arguments"),
    ],
)
def test_bad_usage_is_one_line(refused, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "runs.jsonl").write_text('{"schema": "iha-theory/run/1"\n')
    assert reason in refused("figures", *arguments)
