"""`iha-theory certify`: claims about trained runs, made from their weights and checked by other code."""

import argparse
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from constructions.certified.check import refusal
from iha_theory.cli import output

EPILOG = """\
A claim (DIR/certified/ID.json, docs/certified.md) says of one run, with its weights' SHA-256: the error of its exact
operator, a fraction (of softmax attention between two decimals); the floor that theory proves for so many heads,
between two decimals; what is between them. Of a folder of runs (train and sweep with --out) the claims that are not
there are made first, for position-only runs of mha and iha on polynomial, unstructured and workspace. Then every claim
is checked: the operator is computed again from the weights, in integers and by other code, the bank from the task's
definition, and the floor is proved by counting signs of eigenvalues. A claim whose run is below the floor fails: it
would disprove a theorem.

columns:
  floor    the least relative squared error that so many heads allow
  excess   error - floor: of the nearest run, the median, and the farthest one

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
    files: list[Path] = []
    left_out: dict[str, str] = {}
    for path in arguments.paths:
        if path.is_dir():
            own, reasons = _claims_of(path)
            files += own
            left_out |= reasons
        else:
            files.append(path)
    contents = [(file, _read(file)) for file in files]
    checked = []
    for file, claim in output.progress([(file.stem, (file, claim)) for file, claim in contents], "check"):
        checked.append((file, claim, _misnamed(file, claim) or refusal(claim, _weights(file, claim).read_bytes())))
    holding = [claim for _, claim, reason in checked if reason is None]
    failed = [(file, reason) for file, _, reason in checked if reason is not None]
    told = [
        {"file": str(file), "holds": reason is None, "reason": reason}
        | {name: claim.get(name) for name in ("run", "config", "capacity", "error", "floor", "excess", "ratio")}
        for file, claim, reason in checked
    ]
    output.write_json(arguments.json, "certify", {"claims": told, "left_out": left_out})
    out = output.console(arguments.json)
    if holding:
        out.print(_table(holding))
    for file, reason in failed:
        out.print(f"FAILS {file}: {reason}", soft_wrap=True)
    if left_out:
        out.print(f"{len(left_out)} runs have no claim: {'; '.join(dict.fromkeys(left_out.values()))}", soft_wrap=True)
    seconds = time.monotonic() - started
    if failed:
        out.print(f"{len(failed)} of {len(checked)} claims do NOT hold ({seconds:.0f} s)")
        return 1
    out.print(f"All {len(checked)} claims hold: errors and floors are proved ({seconds:.0f} s).")
    return 0


def _weights(file: Path, claim: Mapping[str, Any]) -> Path:
    """The file of the weights: in `weights`, beside the folder of the claim."""
    return file.parent.parent / "weights" / f"{claim.get('run')}.safetensors"


def _misnamed(file: Path, claim: Mapping[str, Any]) -> str | None:
    """Why a claim is not about the run that its name says: the hash of its options; None if it is."""
    from synthetic.training.config import TrainConfig

    if not _weights(file, claim).is_file():
        return f"there are no weights {_weights(file, claim)}"
    try:
        run = TrainConfig.from_json(claim["config"]).identity
    except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
        return f"its options are none of a run: {' '.join(str(error).split())}"
    if not run == claim.get("run") == file.stem or claim.get("weights") != f"weights/{run}.safetensors":
        return f"its options are those of run {run}, and its file and its weights are to be named so"
    return None


def _claims_of(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """The claims about the runs of a folder, those that are missing made now; and why others have none."""
    from synthetic.training import records
    from synthetic.training.certified import claim
    from synthetic.training.config import TrainConfig

    found = records.read(folder)
    left_out, wanted = {}, []
    for record in found:
        if claim.unfinished(record):
            left_out[record["id"]] = f"the run {record['outcome']}"
        elif reason := claim.refusal(TrainConfig.from_json(record["config"])):
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


def _read(file: Path) -> dict[str, Any]:
    """A claim's file, as it is.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a file that holds no JSON object.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no such claim or folder: {file}")
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is no claim: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} is no claim: it holds no JSON object")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


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
        excess = sorted(float(Fraction(claim["excess"][0])) for claim in group)
        floor = float(Fraction(group[0]["floor"][0]))
        shown = [f"{x:.3g}" for x in (excess[0], statistics.median(excess), excess[-1])]
        lines.append([label, layer, str(heads), str(pseudo or ""), str(len(group)), f"{floor:.6g}", *shown])
    names = ("target", "layer", "heads", "P", "runs", "floor", "excess", "median", "farthest")
    return output.table([(name, i > 1) for i, name in enumerate(names)], lines)
