"""The file `runs.jsonl` of a folder of runs, one strict JSON line a run. Imports no torch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FILE = "runs.jsonl"
SCHEMA = "iha-theory/run/1"


def read(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records with their line numbers, from 1. A last line that was cut off is left out: its run is trained again.

    Raises:
        ValueError: a line that is no strict JSON object of this schema, or no UTF-8 text.
        OSError: a file that cannot be read.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not UTF-8 text") from error
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), start=1):
        try:
            record = json.loads(line, parse_constant=_no_constant)
            if not isinstance(record, dict):
                raise ValueError("not a JSON object")
            if record.get("schema") != SCHEMA:
                raise ValueError(f"schema {record.get('schema')!r}, accepted is {SCHEMA}")
        except ValueError as error:
            raise ValueError(f"{file}, line {number}: not a record of a run: {error}") from error
        yield number, record


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
