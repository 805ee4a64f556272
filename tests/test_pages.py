"""The commands and the code of every page run, in the order of the page, and print what it says.

A block whose first line names a file, such as ```python my_layers.py, is that file in the folder where the page's
commands run. What an HTML comment in the line before says: `long` commands take too long here, so only their arguments
are parsed; `fragment` code is not run.
"""

import contextlib
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from iha_theory.cli.main import COMMANDS, parse

ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
FENCE = re.compile(r"(?:<!-- (long|fragment)\b.*? -->\n)?^```(\w+)(?: (\S+))?\n(.*?)^```", re.DOTALL | re.MULTILINE)
BLOCKS = {page: FENCE.findall(page.read_text(encoding="utf-8")) for page in PAGES}
HERE = {
    "pip install uv && uv run iha-theory verify",  # constructions/suite/test_verify_command runs it
    "pip install uv && uv run pytest",  # this is it
    "uv sync && .ci/run",
    "uv run --extra docs sphinx-build -W docs build/docs",  # .ci/run does
    "uv run --with mutmut mutmut run",
    "uv run --with mutmut mutmut results",
}
"""Commands about this checkout."""
GRAPH = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">
<node id="a"/><node id="b"/><node id="c"/><edge source="a" target="b"/><edge source="b" target="c"/>
</graph></graphml>"""
"""my.graphml: the reader's own."""


def commands(block):
    """(command, expected output) of a console block; a command goes on after a backslash."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", " ").partition("\n")
        for single in [command] if command in HERE else command.split(" && "):
            yield single, output


def name(page):
    return str(page.relative_to(ROOT))


def console(page):
    """The console blocks of a page."""
    return [block for _, kind, _, block in BLOCKS[ROOT / page] if kind == "console"]


def test_the_two_set_up_commands_are_there():
    first = [command for block in console("README.md") for command, _ in commands(block)]
    assert first[:2] == ["pip install uv && uv run iha-theory verify", "pip install uv && uv run pytest"]


LINK = re.compile(r"\]\(([^)\s]+)\)")


def test_the_translation_is_in_step():
    """The same commands with the same output, as many sections, the same links but those to each other."""
    assert console("README.ja.md") == console("README.md")
    english, japanese = ((ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "README.ja.md"))
    assert english.count("\n## ") == japanese.count("\n## ")
    links = [{link for link in LINK.findall(text) if "README" not in link} for text in (english, japanese)]
    assert links[0] == links[1]


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]], ids=name)
def test_a_page(page, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my.graphml").write_text(GRAPH, encoding="utf-8")
    names = {"__name__": "__page__"}
    for mark, kind, file, block in BLOCKS[page]:
        if file:
            (tmp_path / file).write_text(block, encoding="utf-8")
        elif kind == "python" and mark != "fragment":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(block, page.name, "exec"), names)
        elif kind == "console" and page.name != "README.ja.md":  # README.md's
            for command, output in commands(block):
                run(command, output, call, monkeypatch, long=mark == "long")


def run(command, output, call, monkeypatch, *, long):
    """Runs a command of ours in this process; of any other it is checked that what it names is there."""
    words = shlex.split(command)
    if words[:3] == ["uv", "run", "python"]:
        monkeypatch.setattr(sys, "argv", words[3:])
        example = runpy.run_path(str(ROOT / words[3]), run_name="__page__" if long else "__main__")
        assert callable(example["main"])
        return
    if words[:3] == ["uv", "run", "iha-theory"]:
        if long:
            assert callable(parse(words[3:]).run)
            return
        code, printed, err = call(*words[3:])
        assert code == 0, f"{command}: {err}"
        lines = printed.splitlines()
        assert len(lines) >= len(output.splitlines()), command
        for expected, line in zip(output.splitlines(), lines, strict=False):
            assert shows(expected, line, trained=words[3] in TRAINED), f"{command}: {line} is not {expected}"
    elif words[:3] == ["uv", "run", "pytest"] or words[0].startswith(".ci/"):
        assert all((ROOT / word).exists() for word in words if "/" in word), command
    else:
        assert command in HERE, f"{command}: how is it tested?"


TRAINED = ("train", "certify")
"""Commands whose decimals depend on how a machine rounds."""


def shows(expected, line, *, trained):
    """Whether a line begins as the page says, times aside; of trained runs all of it, decimals within 2 % or 1e-8."""
    expected, line = (re.sub(r"[\d.]+ s\)", "0 s)", text) for text in (expected, line))
    if not trained:
        return line.startswith(expected)
    (told, *others), (found, *own) = (re.split(r"(\d+\.\d+(?:e-\d+)?)", text.rstrip()) for text in (expected, line))
    texts, numbers = ([told, *others[1::2]], [found, *own[1::2]]), (others[::2], own[::2])
    return texts[0] == texts[1] and [*map(float, numbers[0])] == pytest.approx(
        [*map(float, numbers[1])], rel=0.02, abs=1e-8
    )


def test_what_a_page_shows_is_all_of_a_trained_run():
    line = "mha, 2 heads: error 0.4017, floor 0.4 (20 steps, 3.1 s)"
    assert shows("mha, 2 heads: error 0.4018, floor 0.4 (20 steps, 9 s)", line, trained=True)
    for other in (line[:-3], line.replace("0.4 ", "0.5 "), line.replace("20", "21"), line.replace("mha", "iha")):
        assert not shows(other, line, trained=True)
    assert shows("All 3 checks hold (4 s)", "All 3 checks hold (12 s)", trained=False)
    assert shows("task  layer", "task  layer  heads", trained=False)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if not link.startswith(("http", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link


def test_the_findings_are_the_ledgers():
    """Every id of docs/findings.md is a statement, with the verdict that docs/ledger.md has for it."""
    ledger, findings = ((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("ledger.md", "findings.md"))
    verdicts = dict(re.findall(r"^\| (\S+) \| .*? \| ([a-z ]+) \| .*\|$", ledger, flags=re.MULTILINE))
    rows = re.findall(r"^\| .* \| ([a-z ]+) \| .*? ?\| ([EPT]\S+) \|$", findings, flags=re.MULTILINE)
    assert len(rows) == findings.count("\n| ") - 1
    assert {own: verdict for verdict, own in rows} == {own: verdicts.get(own) for _, own in rows}
    named = set(re.findall(r"\bT\d+[a-z]?\b", findings))
    assert named <= set(verdicts)


def test_the_page_of_commands_is_what_help_prints():
    """But for blanks and line breaks, which argparse puts otherwise in other versions of Python."""
    made = runpy.run_path(str(ROOT / "docs" / "commands.py"))
    page = made["PAGE"].read_text(encoding="utf-8")
    assert page.count("\n## ") == page.count("\nusage: ") == 1 + len(COMMANDS)
    assert page.split() == made["page"]().split(), "stale: uv run python docs/commands.py"
