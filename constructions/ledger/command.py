"""`iha-theory claims`: the ledger of statements."""

import argparse
import time
from pathlib import Path
from typing import Any

from iha_theory.cli import output

EPILOG = """\
ids:
  E1 ... E13  statements of the paper that need an assumption or a repair
  P-...       the paper's other statements
  T1 ... T20  this project's own (docs/results.md)

verdicts, each computed now from checks that could have failed:
  holds                     no counterexample among the cases, and a lower bound where a count is said to be needed
  holds-under-assumptions   there are counterexamples, all outside the assumption that is named
  construction-only         the construction is right; nobody has a lower bound, or a smaller one exists
  does-not-hold-as-printed  the smallest counterexample is shown, and a repaired form is checked in its place

examples:
  iha-theory claims                          all of them, in about half a minute
  iha-theory claims E1 T14                   a page for each
  iha-theory claims --list                   ids and statements; checks nothing
  iha-theory claims --json claims.json
  iha-theory claims --update docs/ledger.md README.md
                                             makes the table and the README's digest anew

exit codes: 0 every verdict is sound (what is ours holds; what does not hold of the paper's is repaired by a form that
does), 1 not, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "claims",
        description="Checks every statement of the paper's theory, and gives each a verdict with its evidence.",
        epilog=EPILOG,
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="which statements; default all")
    parser.add_argument("--list", action="store_true", help="list the statements without checking them")
    parser.add_argument("--pages", action="store_true", help="a page for each statement (default if ids are given)")
    parser.add_argument(
        "--update", metavar="FILE", type=Path, nargs="+", help="make the table or digest of statements in these anew"
    )
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Judges the statements."""
    from constructions import ledger
    from constructions.ledger import page

    chosen = ledger.select(arguments.ids)
    out = output.console(arguments.json)
    if arguments.list:
        if arguments.json or arguments.update or arguments.pages:
            raise ValueError("--list checks nothing: leave out --json, --pages and --update")
        out.print(output.table([("id", False), ("statement", False)], [(s.id, s.claim.text) for s in chosen]))
        return 0
    if arguments.update is not None:
        if arguments.ids:
            raise ValueError("--update makes the whole table: leave the ids out")
        for file in arguments.update:
            page.updated(file.read_text(encoding="utf-8"), [])  # a file without marks is refused here
    judgements: list[ledger.Judgement] = []
    started = time.monotonic()
    with output.kept(arguments.json, "claims", lambda: {"claims": [j.to_json() for j in judgements]}):
        for statement in output.progress([(s.id, s) for s in chosen], "claims"):
            judgements.append(ledger.judge(statement))
    if arguments.ids or arguments.pages:
        out.print("\n\n".join(page.page(j) for j in judgements) + "\n", soft_wrap=True)
    else:
        out.print(_table(judgements))
    for file in arguments.update or ():
        changed = page.update(file, judgements)
        out.print(f"{file}: {'made anew' if changed else 'was up to date'}", soft_wrap=True)
    unsound = [j.statement.id for j in judgements if not j.sound]
    for name in unsound:
        out.print(f"NOT SOUND {name}: see iha-theory claims {name}", soft_wrap=True)
    out.print(_summary(judgements, time.monotonic() - started), soft_wrap=True)
    return 1 if unsound else 0


def _table(judgements: list[Any]) -> Any:
    from constructions.ledger.page import VERDICTS

    rows = [(j.statement.id, VERDICTS[j.verdict], j.statement.claim.text) for j in judgements]
    return output.table([("id", False), ("verdict", False), ("statement", False)], rows)


def _summary(judgements: list[Any], seconds: float) -> str:
    from constructions.ledger.page import counts

    cases = sum(len(e.findings) for j in judgements for e in j.evidence)
    return f"{len(judgements)} statements, {cases} cases: {counts(judgements)} ({seconds:.0f} s)."
