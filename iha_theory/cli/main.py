"""The parser of `iha-theory`: lists every command, loads the one that was typed."""

import argparse
import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any, NoReturn

from iha_theory import __version__
from iha_theory.cli import errors

GROUP = "iha_theory.commands"
COMMANDS = {
    "verify": "run the construction checks",
    "claims": "say of every statement of the paper, and of ours, whether it holds",
    "heads": "count the heads that a graph's filter bank needs, and write weights that do it",
    "capacity": "measure what attention layers can do at most, against the proved bounds",
    "costs": "parameters, FLOPs and caches, MHA against IHA, and what a capacity costs",
    "train": "train one model, against the floor that theory predicts",
    "sweep": "train a grid of models: heads by seeds",
    "certify": "exact errors of trained runs, checked without training",
    "learned": "compare trained layers with the constructions",
    "figures": "draw the pictures: head counts, error floors, learning, spectra, costs",
    "report": "all of it as one page of HTML: verdicts, the graph of the theory, capacities, pictures",
    "bench": "measure speed as ratios",
}
"""What --help lists without loading anything."""

# Idle threads must not spin: on busy machines that doubles run times. Read when torch starts, which is later than this.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and no abbreviated options."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        self.typed: str | None = None
        """The command that was typed, whose help an error of this parser points to."""
        self.prepare: Callable[[list[str]], None] | None = None
        """Called with the words to parse, before they are: to add the options that depend on what was typed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse, after `prepare`."""
        if self.prepare is not None:
            try:
                self.prepare(list(args))
            except (ValueError, OSError) as error:
                self.error(str(error))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Prints what is wrong and what is accepted in one line, and exits with 2."""
        prog = self.prog if self.typed is None else f"{self.prog} {self.typed}"
        self.exit(2, f"{prog}: error: {' '.join(message.split())} (see {prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    with contextlib.ExitStack() as stack:
        if "--json=-" in argv or ("--json", "-") in itertools.pairwise(argv):
            from iha_theory.cli import output

            stack.enter_context(output.only_json())
        arguments = parse(argv)

        def run() -> int:
            with stack:
                return arguments.run(arguments)

        return errors.exit_code(f"iha-theory {arguments.command}", run)


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments of a command line, with the function that runs them at `run`; imports no command but this one."""
    parser = Parser(
        prog="iha-theory",
        description="Checks the theory of Interleaved Head Attention (IHA) against multi-head attention (MHA).",
        epilog="Start with: iha-theory verify",
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)
    typed = next((word for word in argv if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        if name == typed:
            parser.typed = name
            (entry,) = entry_points(group=GROUP, name=name)
            entry.load().add_parser(commands)
        else:
            commands.add_parser(name, help=text)
    return parser.parse_args(argv)
