"""The house keeps its shape: what is light stays light, rooms stay small, names agree."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from iha_theory.cli.main import COMMANDS, GROUP

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = PROJECT["tool"]["importlinter"]["root_packages"]
FOLDERS = sorted({path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")})
LIGHT = """
import contextlib, sys
with contextlib.suppress(SystemExit):
    {}
print(sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    "code", ["import iha_theory", "from iha_theory.cli.main import main; main(['--help'])"], ids=["import", "help"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    printed = subprocess.run([sys.executable, "-c", LIGHT.format(code)], capture_output=True, text=True, check=True)
    assert "'iha_theory'" in printed.stdout
    for heavy in ("torch", "numpy", "scipy", "sympy", "networkx", "matplotlib", "rich"):
        assert f"'{heavy}'" not in printed.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("train", "polynomial", "--certify"),
        ("train", "polynomial", "--attention", "gqa", "--certify", "--out", "x"),
        ("sweep", "no-such-sweep", "--out", "x"),
        ("costs", "--tokens", "0"),
    ],
    ids=" ".join,
)
def test_what_is_refused_at_once_imports_no_torch(words, tmp_path):
    code = LIGHT.format(f"from iha_theory.cli.main import main; print(main({words!r}))")
    own = {"capture_output": True, "text": True, "check": True, "cwd": tmp_path}
    refused, modules = subprocess.run([sys.executable, "-c", code], **own).stdout.splitlines()
    assert refused == "2"
    assert "'torch'" not in modules


def test_the_list_of_commands_is_that_of_the_entry_points():
    declared = PROJECT["project"]["entry-points"][GROUP]
    assert list(declared) == list(COMMANDS)
    assert {entry.name: entry.value for entry in entry_points(group=GROUP)} == declared  # else: install again


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_rooms_are_small(folder):
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= 12
    lengths = {str(m.relative_to(ROOT)): len(m.read_text(encoding="utf-8").splitlines()) for m in modules}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def test_the_import_rules_have_no_exceptions():
    for contract in PROJECT["tool"]["importlinter"]["contracts"]:
        assert not any("ignore" in option for option in contract), contract["name"]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_tests_stand_where_what_they_test_stands():
    """tests/a/b/test_c.py tests something in a/b; its folder is there, or a module of the folder's name."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        room = ROOT / path.parent.relative_to(ROOT / "tests")
        assert room.is_dir(), path


def test_modules_of_tests_have_names_of_their_own():
    """Two of one name cannot be collected together."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) > 100
    assert {name for name in names if names.count(name) > 1} == set()


def test_every_page_is_in_the_contents():
    """In a table of contents of docs/index.md: the documentation does not build otherwise."""
    listed = re.findall(r"^[\w-]+$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in (ROOT / "docs").glob("*.md") if page.stem != "index")
