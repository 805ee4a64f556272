"""`iha-theory certify`: claims about trained runs, made from their weights and checked by other code."""

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from constructions.certified.files import checked
from constructions.certified.intervals import number
from iha_theory.cli import output

TOLD = ("run", "config", "capacity", "error", "floor", "excess", "ratio")
"""What --json has of a claim that holds."""

EPILOG = """\
A claim (DIR/certified/ID.json, docs/certified.md) says of one run, with its weights' SHA-256: the error of its exact
operator, a fraction (of softmax attention between two decimals); the floor that theory proves for so many heads,
between two decimals; what is between them. Of a folder of runs (train and sweep with --out) the claims that are not
there are made first, for position-only runs of mha and iha on polynomial, unstructured and workspace. Then every claim
is checked: the operator is computed again from the weights, in integers and by other code, the bank from the task's
definition, and the floor is proved by counting signs of eigenvalues. A claim whose run is below the floor fails: it
would disprove a theorem.

columns:
  floor        the least relative squared error that so many heads allow
  error/floor  of the nearest run, the median and the farthest, to two digits of what is beyond 1; empty where the
               floor is 0
  excess       error - floor: of the nearest run, the median and the farthest

examples:
  iha-theory train polynomial --graph karate --terms 4 --heads 2 --out runs/one --certify
  iha-theory certify runs/one/certified/*.json
  iha-theory sweep polynomial --out runs/p && iha-theory certify runs/p

exit codes: 0 every claim holds, 1 not, 2 bad usage or nothing to check.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "certify",
        description="Exact errors of trained runs against the floor, in files that are checked without training.",
        epilog=EPILOG,
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="a claim, or a folder of runs")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Makes the claims that are missing, checks all and prints."""
    output.prepare_json(arguments.json)
    started = time.monotonic()
    if missing := [path for path in arguments.paths if not path.exists()]:
        raise FileNotFoundError(f"no such claim or folder: {missing[0]}")
    files: list[Path] = []
    left_out: dict[str, str] = {}
    for path in arguments.paths:
        own, reasons = _claims_of(path) if path.is_dir() else ([path], {})
        files += own
        left_out |= reasons
    checks = []
    for file in output.progress([(file.stem, file) for file in files], "check"):
        checks.append((file, *checked(file)))
    holding = [claim for _, claim, reason in checks if reason is None]
    failed = [(file, reason) for file, _, reason in checks if reason is not None]
    told = [
        {"file": str(file), "holds": reason is None, "reason": reason}
        | {name: claim[name] if reason is None else None for name in TOLD}  # what is false may hold anything
        for file, claim, reason in checks
    ]
    output.write_json(arguments.json, "certify", {"claims": told, "left_out": left_out})
    out = output.console(arguments.json)
    if holding:
        out.print(_table(holding))
    for file, reason in failed:
        out.print(f"FAILS {file}: {reason}", soft_wrap=True)
    if left_out:
        some = "1 run has" if len(left_out) == 1 else f"{len(left_out)} runs have"
        out.print(f"{some} no claim: {'; '.join(dict.fromkeys(left_out.values()))}", soft_wrap=True)
    seconds = time.monotonic() - started
    if failed:
        out.print(f"{len(failed)} of {len(checks)} do NOT hold ({seconds:.0f} s)")
        return 1
    what = (
        "1 claim holds: its error and floor"
        if len(checks) == 1
        else f"All {len(checks)} claims hold: errors and floors"
    )
    out.print(f"{what} are proved ({seconds:.0f} s).")
    return 0


def _claims_of(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The claims about the runs of a folder, those that are missing made now; and why others have none."""
    from synthetic.training import records
    from synthetic.training.certified import accepted, claim
    from synthetic.training.config import TrainConfig

    found = records.read(folder)
    left_out, wanted = {}, []
    for record in found:
        if accepted.unfinished(record):
            left_out[record["id"]] = f"the run {record['outcome']}"
        elif reason := accepted.refusal(TrainConfig.from_json(record["config"])):
            left_out[record["id"]] = reason
        else:
            wanted.append(record)
    if not wanted:
        why = "; ".join(dict.fromkeys(left_out.values())) or "it holds no runs"
        raise ValueError(f"no run of {folder} can be certified: {why}")
    missing = [(r["id"], r) for r in wanted if not claim.claim_file(folder, r["id"]).exists()]
    if missing:
        with records.writing(folder):
            for record in output.progress(missing, "certify"):
                claim.write(folder, claim.certify(folder, record))
    return [claim.claim_file(folder, record["id"]) for record in wanted], left_out


def _table(claims: Sequence[Mapping[str, Any]]) -> Any:
    """A line for the runs that differ in their seed only."""
    from synthetic.training import report
    from synthetic.training.config import TrainConfig

    like_records = []
    for claim in claims:
        config = TrainConfig.from_json(claim["config"])
        own = {"attention": config.attention, "heads": config.heads, "pseudo_heads": config.pseudo, "content": {}}
        like_records.append({**claim, **own})
    lines = []
    for (label, layer, heads, pseudo), group in report.points(like_records).items():
        excess = sorted(float(number(claim["excess"][0])) for claim in group)
        ratios = sorted(number(claim["ratio"][0]) for claim in group if claim["ratio"])
        floor = float(number(group[0]["floor"][0]))
        shown = [f"{x:.3g}" for x in _three(excess)]
        beyond = [_ratio(x) for x in _three(ratios)] if ratios else ["", "", ""]
        lines.append([label, layer, str(heads), str(pseudo or ""), str(len(group)), f"{floor:.6g}", *beyond, *shown])
    names = ("target", "layer", "heads", "P", "runs", "floor", "error/floor", "median", "farthest")
    names += ("excess", "median", "farthest")
    return output.table([(name, i > 1) for i, name in enumerate(names)], lines)


def _three(values: Sequence[Any]) -> tuple[Any, Any, Any]:
    """The first, the median and the last of sorted values."""
    return values[0], statistics.median(values), values[-1]


def _ratio(x: Fraction) -> str:
    """A ratio with two digits of what is beyond 1: 1.69, 1.0000013."""
    over = abs(float(x - 1))
    if over >= 1:
        return f"{float(x):.3g}"
    return f"{float(x):.{min(15, 1 - math.floor(math.log10(over)))}f}" if over else "1"
