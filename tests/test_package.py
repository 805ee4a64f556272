"""The package as a user gets it: what is in the wheel, types in a strict project, the citation."""

import json
import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import constructions
import iha_theory

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("iha_theory", "synthetic", "constructions", "figures")
USER = Path(__file__).with_name("strict_user.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")  # a developer's
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def test_the_wheel_holds_the_packages_with_their_types_and_nothing_else(wheel):
    names = set(wheel.namelist())
    modules = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    typed = {f"{package}/py.typed" for package in PACKAGES}
    page = {f"figures/report/templates/{path.name}" for path in (ROOT / "figures/report/templates").iterdir()}
    assert modules | typed | page == {name for name in names if ".dist-info/" not in name}


def test_what_the_wheel_says_of_itself(wheel):
    (file,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = Parser().parsestr(wheel.read(file).decode())
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    (licence,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))
    assert wheel.read(licence).decode() == (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_citation_agrees():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {PROJECT['version']}\n" in citation
    assert f"\nlicense: {PROJECT['license']}\n" in citation
    assert PROJECT["urls"]["Paper"] in citation


def diagnostics(folder, wheel, code):
    """What pyright says of a user's file in a strict project, the wheel being installed beside what it needs."""
    (folder / "user.py").write_text(code, encoding="utf-8")
    installed = folder / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    wheel.extractall(installed)
    (installed / "others.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "venvPath": str(folder), "venv": "venv", "exclude": ["venv"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", folder]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [(d["range"]["start"]["line"], d["rule"]) for d in json.loads(found)["generalDiagnostics"]]


def test_types_in_a_strict_project(wheel, tmp_path):
    """All is well typed, and what is not is found: the last line takes an integer for a layer."""
    pytest.importorskip("pyright")  # a developer's
    code = USER.read_text(encoding="utf-8")
    wrong = "InterleavedHeadAttention.from_mha(7, num_pseudo_heads=2)\n"
    found = diagnostics(tmp_path, wheel, code + wrong)
    assert found == [(code.count("\n"), "reportArgumentType")]


def test_the_typed_example_runs_and_has_every_public_name():
    code = USER.read_text(encoding="utf-8")
    names = {*iha_theory.__all__, *constructions.__all__}
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()
    runpy.run_path(str(USER), run_name="__main__")
