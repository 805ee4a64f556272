"""Calls in other processes: results, errors, processes that die, and none that stays."""

import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from iha_theory.processes import Lost, spread

HERE = str(Path(__file__).parent)


@pytest.fixture(autouse=True)
def calls(monkeypatch):
    """Functions for other processes, in a module that these find and that imports little."""
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module("calls")


def test_a_call_costs_its_process_and_no_other_call(calls, tmp_path):
    kinds = [0, signal.SIGKILL, 0, -signal.SIGTERM, 0, 0]
    found = dict(spread(calls.die_once, [(tmp_path, i, how) for i, how in enumerate(kinds)], 2))
    lost = found.pop(3)
    assert "SIGTERM" in lost.reason
    assert {i: square for i, (square, _) in found.items()} == {i: i * i for i in (0, 1, 2, 4, 5)}
    assert os.getpid() not in {process for _, process in found.values()}
    for _, process in found.values():
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
    assert dict(spread(calls.leave, [()], 1)) == {0: Lost("its process ended with exit code 3")}


@pytest.mark.parametrize("error", [ValueError("as it was"), KeyError("x")])
def test_what_a_call_raises_is_raised_here(calls, error):
    with pytest.raises(type(error)) as caught:
        list(spread(calls.fail, [(error,), (error,)], 2))
    assert str(caught.value) == str(error)
    with pytest.raises(Exception, match=r"pickle|local object"):
        list(spread(calls.fail, [(lambda: None,)], 1))


PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
sys.path.insert(0, {here!r})
from iha_theory.processes import spread
from calls import wait
for _ in spread(wait, [("{folder}",)] * 2, 2): pass
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_no_process_outlives_the_one_that_started_it(tmp_path, how):
    code = PARENT.format(here=HERE, folder=tmp_path)
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as parent:
        end = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        parent.send_signal(how)
        parent.wait(60)
    for file in tmp_path.iterdir():
        stat = Path("/proc", file.name, "stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX":
            assert time.monotonic() < end
            time.sleep(0.02)
