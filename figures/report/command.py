"""`iha-theory report`: one page of HTML with all of it."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from iha_theory.cli import output
from iha_theory.places import replace, try_file

EPILOG = """\
The page needs nothing but itself: no network, no JavaScript to be read, and it can be printed. It has
  what the project shows in a minute, each line with the verdicts behind it
  the pictures: heads against task size (checked now), trained errors on their floors, learning, spectra, costs
  the graph of the theory: every definition, theorem, construction and statement, what each uses, how it is checked,
  where its proof stands, and of statements the verdict, the evidence and the smallest counterexample
  the ledger, with filters; both capacity tables; heads for some graphs, and for yours
  the proofs themselves, in a checkout of the project; versions
Verdicts, capacities and heads are computed as you ask. Runs are read from DIR with --from; without it the pictures of
trained runs are the committed ones, which are in a checkout of the project only.

examples:
  iha-theory report --out report.html                           a minute or two on two cores
  iha-theory report --out report.html --graph my.graphml --terms 9
  iha-theory report --out report.html --from runs               with the runs.jsonl below runs/

exit codes: 0 all that the page shows holds, 1 not (it is written, and says so), 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "report",
        description="Checks everything, and writes one self-contained page of HTML about it.",
        epilog=EPILOG,
    )
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="the page")
    parser.add_argument("--graph", metavar="GRAPH", nargs="+", default=[], help="heads for these too: names or files")
    parser.add_argument("--directed", action="store_true", help="each line of an edge list is one arc u -> v")
    parser.add_argument("--terms", type=int, metavar="K", default=9, help="blocks k for the graphs; default 9")
    parser.add_argument("--from", dest="runs", metavar="DIR", type=Path, help="folder with runs.jsonl files to show")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes; default one for each core")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Checks, draws and writes."""
    if arguments.terms < 1:
        raise ValueError(f"--terms takes an integer of at least 1, got {arguments.terms}")
    if arguments.jobs is not None and arguments.jobs < 1:
        raise ValueError(f"--jobs takes an integer of at least 1, got {arguments.jobs}")
    try_file(arguments.out)

    from constructions.ledger import graph
    from figures import records
    from figures.report import page, pictures, work

    runs, read = [], ""
    if arguments.runs is not None:
        runs, counts, cut = records.read_counted(arguments.runs)
        read = f"{counts['records']} records in {counts['files']} files, {counts['runs']} different runs{cut}"
    graphs = tuple(dict.fromkeys((*work.GRAPHS, *arguments.graph)))
    wanted = work.Wanted(graphs=graphs, directed=arguments.directed, terms=arguments.terms)
    found = work.gather(wanted, arguments.jobs)
    root = Path(__file__).parents[2]
    docs = root / "docs" if (root / "docs" / "bounds.md").is_file() else None
    with tempfile.TemporaryDirectory() as folder:
        shown = pictures.gather(docs, found.points, runs, Path(folder))
    text = page.render(found, graph.theory(), shown, pictures.summary(runs), docs and docs.parent, read)
    replace(arguments.out, text.encode())
    out = output.console()
    for line in found.failures:
        out.print(f"FAILS {line}", soft_wrap=True)
    size = len(text) / 2**20
    out.print(f"wrote {arguments.out} ({size:.1f} MiB), checked in {found.seconds:.0f} s", soft_wrap=True)
    return 1 if found.failures else 0
