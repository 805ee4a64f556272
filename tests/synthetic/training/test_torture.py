"""Sweeps that are killed at random moments, parents and workers, and begun again: nothing is lost, doubled or changed.

`IHA_TORTURE=20` in the environment kills twenty times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from synthetic.training import records, sweep

MOMENTS = int(os.environ.get("IHA_TORTURE", "2"))
VICTIMS = [(who, how) for how in (signal.SIGKILL, signal.SIGTERM) for who in ("worker", "parent")]
OPTIONS = {"tokens": 4, "steps": 150, "eval_size": 16, "batch": 8, "checkpoint_every": 20, "eval_every": 50}
COMMAND = [sys.executable, "-m", "iha_theory.cli", "sweep", "workspace", "--seeds", "2", "--heads", "1", "2"]
COMMAND += [word for name, value in OPTIONS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
GONE_WITHIN_S = 20


def parents():
    """The parent of each process that runs."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
        except OSError:  # it ended just now
            continue
        if state not in "ZX":
            found[int(file.parent.name)] = int(parent)
    return found


def workers(parent):
    return {process for process, own in parents().items() if own == parent}


def wait_until(condition, seconds=GONE_WITHIN_S):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def files(folder):
    """The content of the files of a folder, and its records without their times, in an order of their own."""
    found = {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
    found.pop(".writer")
    lines = map(json.loads, found.pop("runs.jsonl").splitlines())
    return found, sorted((line | {"wall_s": 0} for line in lines), key=lambda line: line["id"])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_killed_sweeps_end_as_others_do(tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")  # of this test, if it fails
    chance = random.Random(seed)
    runs = sweep.configs("workspace", OPTIONS, heads=(1, 2), seeds=range(2))
    sweep.sweep(runs, tmp_path / "whole")
    kills, number = [VICTIMS[i % len(VICTIMS)] for i in range(MOMENTS)], 0
    while kills:
        folder, number = tmp_path / str(number), number + 1
        with subprocess.Popen([*COMMAND, "--out", folder, "--jobs", "2"], stderr=subprocess.DEVNULL) as parent:
            wait_until(lambda parent=parent: len(workers(parent.pid)) == 2 or parent.poll() is not None, 120)
            own = workers(parent.pid)
            with pytest.raises(BlockingIOError, match=f"in use by process {parent.pid} .*sweep workspace"):
                sweep.sweep(runs, folder)  # two at once
            while kills and parent.poll() is None:
                time.sleep(chance.uniform(0, 3))
                own |= workers(parent.pid)
                who, how = kills[0]
                victims = [parent.pid] if who == "parent" else sorted(workers(parent.pid))
                if victims and parent.poll() is None:
                    os.kill(chance.choice(victims), how)
                    kills.pop(0)
                if who == "parent":
                    parent.wait(GONE_WITHIN_S)
            parent.wait(120)
            wait_until(lambda own=own: not own & parents().keys())
        sweep.sweep(runs, folder)
        assert files(folder) == files(tmp_path / "whole")
        assert {record["id"] for record in records.read(folder)} == {run.identity for run in runs}
