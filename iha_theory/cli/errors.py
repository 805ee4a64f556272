"""What goes wrong in a command becomes one line and an exit code."""

import contextlib
import os
import select
import sys
from collections.abc import Callable


def exit_code(command: str, run: Callable[[], int]) -> int:
    """The command's exit code: its own; 2 for what it refuses, 130 if it was stopped, 141 if its reader has gone."""
    try:
        code = run()
        if sys.stdout is not None:  # closed by the caller
            sys.stdout.flush()
        return code
    except (ValueError, OSError, OverflowError, MemoryError) as error:
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            return _silent()
        message = " ".join(str(error).split()) or type(error).__name__
        _say(f"{command}: error: {message}")
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError:  # such as a full disk: that was the error
            _silent()
        return 2
    except KeyboardInterrupt:
        _say(f"{command}: stopped")
        return 130


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads standard error
        print(line, file=sys.stderr)


def _reader_is_gone() -> bool:
    """Whether standard output is a pipe that nobody reads any more, such as head when it has enough."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or no file
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        return bool(watched.poll(0))
    return False


def _silent() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the flush at exit goes
    return 141
