"""A script of this folder as an executed notebook beside it.

    uv run --with nbformat --with nbclient --with ipykernel python examples/notebook.py examples/measure_layers.py

The script's docstring becomes a text; what two blank lines part becomes a cell. A test says when a notebook is stale.
"""

import ast
import sys
from pathlib import Path


def cells(source: str) -> list[str]:
    """The text, and the code of each cell."""
    docstring = ast.parse(source).body[0]
    code = "\n".join(source.splitlines()[docstring.end_lineno :])
    return [ast.get_docstring(ast.parse(source)) or "", *(part.strip("\n") for part in code.split("\n\n\n"))]


def main(file: Path) -> None:
    """Writes and executes it; what a machine, a time or chance would put in is left out."""
    import nbclient  # pyright: ignore[reportMissingImports]
    from nbformat import v4, write  # pyright: ignore[reportMissingImports]

    text, *code = cells(file.read_text(encoding="utf-8"))
    notebook = v4.new_notebook(cells=[v4.new_markdown_cell(text), *map(v4.new_code_cell, code)])
    nbclient.NotebookClient(notebook, record_timing=False).execute()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    write(notebook, file.with_suffix(".ipynb"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
