"""Pipes and disks that fail: only the reader of standard output may go in silence (case 35)."""

import os
import socket
import sys
from pathlib import Path

import pytest

from iha_theory.cli.errors import exit_code


def printing():
    print("x" * 10**5)
    return 0


def closed_pipe():
    read, write = os.pipe()
    os.close(read)
    return write


def closed_socket():
    here, there = socket.socketpair()
    there.close()
    return here.detach()


@pytest.mark.parametrize("make", [closed_pipe, closed_socket])
def test_a_reader_that_has_gone_is_no_error(capsys, monkeypatch, make):
    with os.fdopen(make(), "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert exit_code("x", printing) == 141
    assert capsys.readouterr().err == ""


def test_another_pipe_or_a_full_disk_is_said(capsys, monkeypatch, tmp_path):
    with (tmp_path / "out").open("w") as out, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        assert exit_code("x", lambda: os.write(closed_pipe(), b"1")) == 2
    assert capsys.readouterr().err == "x: error: [Errno 32] Broken pipe\n"
    if Path("/dev/full").exists():
        with Path("/dev/full").open("w") as out, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            assert exit_code("x", printing) == 2
        assert capsys.readouterr().err == "x: error: [Errno 28] No space left on device\n"
