"""The `iha-theory` command. The only place in `iha_theory` that imports from the packages above it.

- `main` (here): the parser; errors of one line; exit codes 0 (all holds), 1 (something does not), 2 (bad usage).
- `verify`: the construction checks and their mutants.
- `claims`: the ledger of statements.
- `heads`: lower bounds and achieved heads for a graph, and files of weights.
- `capacity`: measured operator ranks against their bounds.
- `costs`: parameters and FLOPs, formula and counted.
- `figures`: pictures of results.
- `train`, `sweep`: one training run; a grid of them. `learned`: trained layers beside the constructions.
- `bench`: speed as ratios.
- `output`: strict JSON, tables, progress.

A command is a module with `add_parser(commands)` and a function that takes the parsed arguments and returns an exit
code.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from iha_theory import __version__
from iha_theory.cli import bench, capacity, claims, costs, figures, heads, learned, sweep, train, verify

COMMANDS = (verify, claims, heads, capacity, costs, train, sweep, learned, figures, bench)

# Idle threads must not spin: on busy machines that doubles run times. Read when torch starts, which is later than this.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Prints what is wrong and what is accepted in one line, and exits with 2."""
        self.exit(2, f"{self.prog}: error: {' '.join(message.split())} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    parser = Parser(
        prog="iha-theory",
        description="Checks the theory of Interleaved Head Attention (IHA) against multi-head attention (MHA).",
        epilog="Start with: iha-theory verify",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    for command in COMMANDS:
        command.add_parser(commands)
    arguments = parser.parse_args(argv)
    try:
        return arguments.run(arguments)
    except BrokenPipeError:  # the reader, such as head, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # where the flush at exit goes
        return 141
    except (ValueError, OSError, OverflowError, MemoryError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        print(f"iha-theory {arguments.command}: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"iha-theory {arguments.command}: stopped", file=sys.stderr)
        return 130
