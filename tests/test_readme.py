"""The README's commands and code run, and print what it says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def commands():
    """(command, expected output) of every console block."""
    for block in CONSOLE:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def test_the_two_set_up_commands_are_there():
    assert [command for command, _ in commands()][:2] == [
        "pip install uv && uv run iha-theory verify",
        "pip install uv && uv run pytest",
    ]


@pytest.mark.parametrize(("command", "output"), list(commands())[2:])
def test_commands(call, command, output, tmp_path, monkeypatch):
    """All but the two first: constructions/suite/test_verify_command runs verify, and this is pytest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
        '<node id="a"/><node id="b"/><node id="c"/><edge source="a" target="b"/><edge source="b" target="c"/>'
        "</graph></graphml>"
    )
    code, printed, err = call(*command.removeprefix("uv run iha-theory ").split())
    assert code == 0, err
    for expected, line in zip(output.splitlines(), printed.splitlines(), strict=False):
        assert re.sub(r"\(\d+ s\)", "(0 s)", line).startswith(expected)


@pytest.mark.parametrize("page", [ROOT / "README.md", *(ROOT / "docs").glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for link in links:
        if not link.startswith(("http", "#")):
            assert (page.parent / link.partition("#")[0]).exists(), link


@pytest.mark.parametrize("code", PYTHON)
def test_code(code):
    exec(compile(code, "README.md", "exec"), {})
