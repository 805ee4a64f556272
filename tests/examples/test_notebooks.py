"""The notebooks beside the examples are these scripts, executed."""

import contextlib
import io
import json
import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
cells = runpy.run_path(str(FOLDER / "notebook.py"))["cells"]


def test_there_is_one():
    assert NOTEBOOKS


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_its_script_executed(file):
    script = file.with_suffix(".py")
    found = json.loads(file.read_text(encoding="utf-8"))["cells"]
    assert [cell["cell_type"] for cell in found] == ["markdown"] + ["code"] * (len(found) - 1)
    assert ["".join(cell["source"]) for cell in found] == cells(script.read_text(encoding="utf-8"))
    assert [cell["execution_count"] for cell in found[1:]] == [*range(1, len(found))]
    outputs = [output for cell in found[1:] for output in cell["outputs"]]
    assert {(output["output_type"], output["name"]) for output in outputs} == {("stream", "stdout")}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(script), run_name="__main__")
    assert "".join(line for output in outputs for line in output["text"]) == printed.getvalue()


def test_cells():
    source = '"""A text.\n\nOf two parts.\n"""\n\nimport sys\n\nx = 1\n\n\ndef f():\n    return 1\n'
    assert cells(source) == ["A text.\n\nOf two parts.", "import sys\n\nx = 1", "def f():\n    return 1"]
