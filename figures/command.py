"""`iha-theory figures`: draws pictures from checks, records and formulas."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iha_theory.cli import output
from iha_theory.places import try_folder

if TYPE_CHECKING:  # matplotlib and torch take seconds to import: only when drawing
    from figures.records import Run
    from figures.style import Picture

REASONING = ("relations", "quotient", "match3", "composition", "retrieval", "hops")
NAMES = ("heads", "bits", "floors", "frontier", "spectra", "costs", *REASONING)
SWEEPS = {
    "floors": ("polynomial", "content", "workspace", "unstructured"),
    "frontier": ("cpm3",),
    **{name: (name,) for name in REASONING},
}
"""The sweeps behind a picture of trained runs, which it trains if there are none."""
FIELDS = {"id": str, "tier": str, "layer": str, "heads": int, "verdict": str, "setting": dict}
"""Of a check, what the picture of heads reads."""

EPILOG = """\
names:
  heads      heads against task size: constructions that are checked exactly, on the exact lower bounds
  bits       heads of CPM-3 against bits per number: packed constructions, checked, on the proved bound
  floors     trained error against heads, every seed, with the floor that theory sets; of parity and esp too, if given
  frontier   learning CPM-3: accuracy of every seed and success rate against heads, for each number of steps
  spectra    singular values of the filter banks of real graphs, and heads for an error
  costs      parameters, FLOPs and attention maps of the constructions against k, with crossovers
  relations, quotient, match3, composition, retrieval, hops
             accuracy on the task of that name: every seed of every attention, with the simple guesses

Each becomes NAME.svg, NAME.png and NAME.csv, the numbers that it shows; floors and frontier have medians and spreads
in NAME-summary.csv too. The same data gives the same files, byte for byte.

examples:
  iha-theory figures --from runs                      all that the runs.jsonl below runs/ have runs of, and the others
  iha-theory figures                                  six from nothing: trains the sweeps into figures-out/runs
  iha-theory figures heads spectra costs --out docs   nothing to train: under a minute
  iha-theory verify --json out.json && iha-theory figures heads --checks out.json

exit codes: 0 all is drawn and holds, 1 a check or a run behind a picture failed (it says so), 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "figures",
        description="Draws pictures as SVG and PNG, with the data of each as CSV.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="which pictures; default the first six, with --from all that have runs",
    )
    parser.add_argument(
        "--from", dest="runs", metavar="DIR", type=Path, help="folder with runs.jsonl files; default: train now"
    )
    parser.add_argument("--checks", metavar="FILE", help="heads: results of `verify --json FILE`; default: check now")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("figures-out"), help="default: figures-out")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Draws; runs come first, so that what is wrong with them is said at once."""
    names = list(dict.fromkeys(arguments.names)) or [n for n in NAMES if arguments.runs or n not in REASONING]
    for name in names:
        if name not in NAMES:
            raise ValueError(f"unknown picture {name!r}: accepted are {', '.join(NAMES)}")
    trained = [name for name in names if name in SWEEPS]
    for option, value, users in (("--from", arguments.runs, list(SWEEPS)), ("--checks", arguments.checks, ["heads"])):
        if value is not None and not set(users) & set(names):
            raise ValueError(f"{option} is for {' and '.join(users)}: leave it out, or name one of them")
    try_folder(arguments.out)
    output.prepare_json(arguments.json)
    checks = None if arguments.checks is None else _read(arguments.checks)
    runs, read = _runs(trained, arguments) if trained else ([], {})
    if not arguments.names and arguments.runs is not None:
        for name in [name for name in trained if not any(run.task in _shown(name) for run in runs)]:
            print(f"{name}: left out, {arguments.runs} has no run of {' or '.join(_shown(name))}", file=sys.stderr)
            names.remove(name)
            trained.remove(name)
    failed = sum(run.outcome == "failed" and run.task in _shown(name) for name in trained for run in runs)
    pictures: dict[str, Picture] = {}
    for name in sorted(names, key=lambda name: name not in SWEEPS):
        pictures[name], wrong = _draw(name, arguments, runs, checks)
        failed += wrong
    out = output.console(arguments.json)
    for name in names:
        for file in (*pictures[name].files, *pictures[name].data_files):
            out.print(f"wrote {file}", soft_wrap=True)
        if missing := pictures[name].missing:
            out.print(f"{name}: the font has no {' '.join(missing)}, drawn as boxes", soft_wrap=True)
    if failed:
        out.print(f"FAILS: {failed} checks or runs behind these pictures", soft_wrap=True)
    entries = [
        {"name": name, "files": [*map(str, pictures[name].files)], "data_files": [*map(str, pictures[name].data_files)]}
        for name in names
    ]
    output.write_json(arguments.json, "figures", {**read, "figures": entries})
    return 1 if failed else 0


def _shown(name: str) -> tuple[str, ...]:
    """The tasks that a picture of trained runs shows."""
    from figures import floors

    return floors.TASKS if name == "floors" else SWEEPS[name]


def _draw(
    name: str, arguments: argparse.Namespace, runs: "Sequence[Run]", checks: list[dict[str, Any]] | None
) -> "tuple[Picture, int]":
    """The picture, and how many checks behind it fail."""
    folder = arguments.out
    if name == "floors":
        from figures import floors

        return floors.draw(runs, folder), 0
    if name == "frontier":
        from figures import frontier

        return frontier.draw(runs, folder), 0
    if name in REASONING:
        from figures import reasoning, records

        return reasoning.draw(name, runs, folder, records.curves(arguments.runs or folder / "runs")), 0
    if name == "spectra":
        from figures import spectra

        return spectra.draw(list(_done(spectra.steps(), "spectra")), folder), 0
    if name == "costs":
        from figures import costs

        return costs.draw(costs.compute(), folder), 0
    if name == "bits":
        from figures import bits

        found = [point for points in _done(bits.steps(), "bits") for point in points]
        return bits.draw(found, folder), sum(point.verdict == "fails" for point in found)
    from figures import heads

    points = [point for found in _done(heads.steps(checks), "heads") for point in found]
    return heads.draw(points, folder), sum(point.verdict == "fails" for point in points)


def _done(steps: Sequence[tuple[str, Callable[[], Any]]], description: str) -> Any:
    return (step() for step in output.progress(steps, description))


def _read(path: str) -> list[dict[str, Any]]:
    """The checks in a file of `verify --json`."""
    try:
        checks = json.loads(Path(path).read_text(encoding="utf-8"))["checks"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the output of iha-theory verify --json") from error
    for check in checks if isinstance(checks, list) else [checks]:
        wrong = not isinstance(check, dict) or any(type(check.get(own)) is not kind for own, kind in FIELDS.items())
        if wrong or check["heads"] < 1 or check["verdict"] not in ("holds", "fails"):
            raise ValueError(f"{path} is not the output of iha-theory verify --json: {str(check)[:60]} is no check")
    return checks


def _runs(names: Sequence[str], arguments: argparse.Namespace) -> "tuple[list[Run], dict[str, Any]]":
    """The runs of the folder given, or of the sweeps behind these pictures, which train what is missing.

    With them what was read, as JSON fields; it is said on standard error too.
    """
    from figures import records

    if arguments.runs is None:
        _train(names, arguments.out / "runs")
    runs, counts, cut = records.read_counted(arguments.runs or arguments.out / "runs")
    print(
        f"read {counts['records']} records in {counts['files']} files: "
        f"{counts['runs']} different runs on our tasks{cut}",
        file=sys.stderr,
    )
    return runs, {"read": counts}


def _train(names: Sequence[str], out: Path) -> None:
    from synthetic.training import report
    from synthetic.training.sweep import configs, sweep

    for name in (name for picture in names for name in SWEEPS[picture]):
        wanted = configs(name)
        with output.bar(f"sweep {name}", len(wanted)) as bar:
            jobs = len(os.sched_getaffinity(0))
            sweep(wanted, out / name, jobs=jobs, report=report.counted(bar, len(wanted)))
