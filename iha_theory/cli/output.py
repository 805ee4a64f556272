"""What commands write: strict JSON, tables, progress."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from iha_theory import __version__
from iha_theory.places import replace, try_file

Item = TypeVar("Item")
WRAPS_AT = 24
"""Columns of text are at least so wide before they wrap."""
QUIET_S = 10.0
"""Seconds that `progress` says nothing, without a terminal."""
_held: list[list[str]] = []
JSON_HELP = "write the results as JSON to FILE, or to standard output for -"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """For `errors.exit_code`, which knows whose pipe it is."""
        raise BrokenPipeError("a pipe that it writes to is closed")

    def print(self, *objects: Any, **options: Any) -> None:
        """A table is at least as wide as its columns ask (see `table`): a narrow terminal breaks the lines itself."""
        tables = [thing for thing in objects if isinstance(thing, Table)]
        for wide in tables:
            least = Measurement.get(self, self.options.update(max_width=sys.maxsize), wide).minimum
            wide.width = least if least > self.width else None
        options.setdefault("crop", not tables)
        super().print(*objects, **options)


def console(json_target: str | None = None) -> Console:
    """Where tables go: standard output, or standard error when that is taken by JSON. Never wraps when piped."""
    stream = sys.stderr if json_target == "-" else sys.stdout
    if stream is None:  # closed by the caller
        return Console(quiet=True)
    return _Console(file=stream, width=None if stream.isatty() else 160, highlight=False, markup=False, emoji=False)


@contextmanager
def only_json() -> Iterator[None]:
    """Standard output gets what `write_json` writes in the block, when that ends, and nothing else.

    What the user's code prints, to the file descriptor too, goes to standard error.
    """
    real = sys.stdout
    if real is None:  # closed by the caller
        yield
        return
    real.flush()
    kept, texts = os.dup(1), []
    _held.append(texts)
    try:
        os.dup2(2 if sys.stderr is not None else os.open(os.devnull, os.O_WRONLY), 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _held.pop()
        real.flush()  # what was printed past sys.stdout
        os.dup2(kept, 1)
        os.close(kept)
        real.write("".join(texts))


def prepare_json(target: str | None) -> None:
    """Makes sure that the JSON can be written, before any work is done.

    Raises:
        OSError: the file cannot be opened for writing.
    """
    if target is not None and target != "-":
        try_file(target)


def write_json(target: str | None, command: str, fields: Mapping[str, Any]) -> None:
    """Writes {"schema", "version", ...fields} as strict JSON (no NaN) to a file, at once, to stdout, or nowhere."""
    if target is None:
        return
    content = {"schema": f"iha-theory/{command}/1", "version": __version__, **fields}
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    if target != "-":
        replace(Path(target), text.encode())
    elif _held:
        _held[-1].append(text)
    elif sys.stdout is not None:
        sys.stdout.write(text)


@contextmanager
def kept(target: str | None, command: str, fields: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Writes the JSON at the end of the block, also when it is stopped: the field "complete" says which.

    Args:
        target: as for `write_json`.
        command: as for `write_json`.
        fields: what there is to write by then.

    Raises:
        OSError: as `prepare_json`, before the block.
    """
    prepare_json(target)
    complete = False
    try:
        yield
        complete = True
    finally:
        write_json(target, command, {"complete": complete, **fields()})


@contextmanager
def bar(text: str, total: int, every: int | float = 0) -> Iterator[Callable[..., None]]:
    """A progress bar on standard error, as a function show(text, done, line).

    Args:
        text: what it says at first.
        total: what `done` is of.
        every: without a terminal there is no bar, but the `line`, if given, no sooner than so many seconds after the
            last one, and at the end.
    """
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    shown = -math.inf
    console = Console(stderr=True, highlight=False)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=total)

        def show(text: str, done: int, line: str | None = None) -> None:
            nonlocal shown
            progress.update(task, description=text, completed=done)
            late = done == total or time.monotonic() > shown + every
            if line is not None and late and not console.is_terminal:
                shown = time.monotonic()
                print(line, file=sys.stderr)

        yield show


def progress(items: Sequence[tuple[str, Item]], description: str) -> Iterator[Item]:
    """The items of (label, item) pairs, with a bar that names the current one; without a terminal lines that do.

    There is no line before `QUIET_S`, nor sooner than that after another.
    """
    begun = time.monotonic()
    with bar(description, len(items), every=QUIET_S) as show:
        for done, (label, item) in enumerate(items):
            late = time.monotonic() > begun + QUIET_S
            show(f"{description}: {label}", done, f"{description}: {done} of {len(items)}, {label}" if late else None)
            yield item
        show(description, len(items))


def table(headings: Iterable[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; headings are (text, right-aligned).

    Where the terminal is too narrow long left-aligned cells wrap. Right-aligned ones hold numbers, which are never cut.
    """
    out = Table(box=None, pad_edge=False, header_style="bold")
    cells = [*rows]
    for i, (text, right) in enumerate(headings):
        widest = max(map(len, (text, *(row[i] for row in cells))))
        if right:
            out.add_column(text, justify="right", no_wrap=True, min_width=widest)
        else:
            out.add_column(text, overflow="fold", min_width=min(widest, WRAPS_AT))
    for row in cells:
        out.add_row(*row)
    return out
