"""What goes wrong in a command becomes one line and an exit code."""

import os
import sys
from collections.abc import Callable


def exit_code(command: str, run: Callable[[], int]) -> int:
    """The command's exit code: its own; 2 for what it refuses, 130 if it was stopped, 141 if its reader has gone."""
    try:
        return run()
    except BrokenPipeError:  # the reader, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the flush at exit goes
        return 141
    except (ValueError, OSError, OverflowError, MemoryError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"{command}: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{command}: stopped", file=sys.stderr)
        return 130
