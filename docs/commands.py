"""Makes docs/commands.md, what `--help` of every command prints: `uv run python docs/commands.py`."""

import contextlib
import io
import os
from pathlib import Path

from iha_theory.cli.main import COMMANDS, main

PAGE = Path(__file__).with_suffix(".md")
COLUMNS = "100"
"""How wide a terminal the texts are broken for."""


def page() -> str:
    """The page."""
    sections = [f"## {title}\n\n```text\n{text}\n```\n" for title, text in map(_section, ("", *COMMANDS))]
    intro = "What `--help` prints, made by `uv run python docs/commands.py`; a test says when it is stale."
    return "\n".join(["# Commands\n", f"{intro}\n", *sections])


def _section(name: str) -> tuple[str, str]:
    printed = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([*name.split(), "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return f"iha-theory {name}".strip(), printed.getvalue().rstrip()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
