"""What terminals show: names as they are, numbers whole (cases 36 and 37)."""

import io
import itertools
import json
import os
import re

import pytest
from rich.table import Table

from iha_theory.cli import output

NUMBERS = [f"{1234567.891 * n:.12g}" for n in range(1, 21)]


def printed(monkeypatch, thing, columns):
    """As on a terminal of so many columns; None: into a pipe."""

    class Stream(io.StringIO):
        def isatty(self):
            return columns is not None

    stream = Stream()
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    if columns is None:
        monkeypatch.setenv("FORCE_COLOR", "1")
    else:
        monkeypatch.setenv("COLUMNS", str(columns))
    output.console().print(thing)
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())  # without colours


def test_standard_output_is_for_the_json_alone(capfd):
    with output.only_json():
        print("printed")
        os.write(1, b"written\n")
        output.write_json("-", "x", {"a": 1})
    out, err = capfd.readouterr()
    assert json.loads(out)["a"] == 1
    assert sorted(err.split()) == ["printed", "written"]
    print("after")
    assert capfd.readouterr().out == "after\n"


@pytest.mark.parametrize("columns", [None, 80, 20, 1])
def test_numbers_are_never_cut(monkeypatch, columns):
    headings = [("name", False), *((f"n{i}", True) for i in range(20))]
    out = printed(monkeypatch, output.table(headings, [["a long name of many words, and one more", *NUMBERS]]), columns)
    assert all(number in out for number in NUMBERS)
    assert "…" not in out
    assert "a long name" in out


@pytest.mark.parametrize("name", ["net[v2].txt", "a[/b]", "[bold]x[/bold]", ":smile:", "[link=x]", "\\[a]"])
def test_names_are_no_markup(monkeypatch, capsys, name):
    table = output.table([(name, False)], [[name]])
    assert isinstance(table, Table)
    assert printed(monkeypatch, table, 80).count(name) == 2
    assert printed(monkeypatch, name, 80) == f"{name}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with output.bar(name, 1) as show:
        show(name, 1)
    assert name in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)


def test_words_wrap_before_the_terminal_breaks_them(monkeypatch):
    text = "a statement of many words " * 10
    out = printed(
        monkeypatch, output.table([("id", False), ("statement", False), ("n", True)], [["T1", text, "9"]]), 60
    )
    assert max(map(len, out.splitlines())) <= 60
    assert " ".join(out.split()).count("words") == 10


def test_without_a_terminal_what_takes_long_says_where_it_is(monkeypatch, capsys):
    clock = itertools.count(step=3)  # every look at it takes three seconds
    monkeypatch.setattr(output.time, "monotonic", lambda: float(next(clock)))
    assert list(output.progress([("a", 1), ("b", 2)], "short")) == [1, 2]
    assert capsys.readouterr().err == ""
    assert list(output.progress([(f"n = {n}", n) for n in range(20)], "long")) == [*range(20)]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("long: ")
    assert lines[0].endswith(" of 20, n = " + lines[0].split()[1])
    assert 2 < len(lines) < 10
