"""`iha-theory figures`: draws pictures from results."""

import argparse
import json
from pathlib import Path
from typing import Any

from iha_theory.cli import output

EPILOG = """\
names:
  heads   head counts of MHA and IHA against task size (default: all pictures)

examples:
  iha-theory figures                              runs the checks it needs, writes figures-out/heads.svg and .png
  iha-theory verify --json out.json && iha-theory figures heads --checks out.json --out pictures
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "figures",
        help="draw the head-count scaling pictures",
        description="Draws pictures as SVG and PNG from the checks' results.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which pictures; default all")
    parser.add_argument("--checks", metavar="FILE", help="results of `verify --json FILE`; default: run the checks now")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("figures-out"), help="default: figures-out")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Draws."""
    from figures import heads

    unknown = [name for name in arguments.names if name != "heads"]
    if unknown:
        raise ValueError(f"unknown picture {unknown[0]!r}: accepted is heads")
    output.prepare_json(arguments.json)
    files = heads.draw(_read(arguments.checks) if arguments.checks else _compute(), arguments.out)
    out = output.console(arguments.json)
    for file in files:
        out.print(f"wrote {file}", soft_wrap=True)
    data = [arguments.checks] if arguments.checks else []
    entry = {"name": "heads", "files": [str(file) for file in files], "data_files": data}
    output.write_json(arguments.json, "figures", {"figures": [entry]})
    return 0


def _read(path: str) -> list[dict[str, Any]]:
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return content["checks"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the output of iha-theory verify --json") from error


def _compute() -> list[dict[str, Any]]:
    from constructions import suite
    from synthetic.graphs import builtin

    steps = suite.steps(("bank",), graphs=[builtin("karate")], terms=range(1, 26), exact_only=True)
    steps += suite.steps(("cpm3",), tasks=[(3, 8)])
    return [r.to_json() for step in output.progress([(s.label, s) for s in steps], "checks") for r in step.run()]
