"""`iha-theory learned`: what the trained layers of a sweep are, beside the constructions."""

import argparse
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from iha_theory.attention import KINDS
from iha_theory.cli import output
from synthetic.tasks import TASKS
from synthetic.tasks.bank import BankTask
from synthetic.training import report

SLACK = 1e-4
"""Degrees: rounding of an angle."""

EPILOG = """\
Reads the trained weights of position-only runs on a bank (those of `train` and `sweep` with --out) and compares them
with the powers of A, up to the changes of weights that leave the function as it is (docs/learned.md):

  angle       largest principal angle, in degrees, between the span of the layer's maps and that of the bank, or the
              bank's leading singular vectors where the layer has fewer maps; allowed: the most that its error allows,
              a theorem, which every run is checked against
  commutator  how far the products Q K^T are from commuting with A, 0 to 2
  fit         relative distance of IHA's H^2 = k products to the paper's A^(aH) A^b; 0 if they are the same
  degrees     of the polynomials u_m, v_n with Q_m K_n^T = u_m(A) v_n(A), and the seeds where they are clear; the
              paper's are (H^2 - H, H - 1)

A run whose graph's file was edited or removed since is named and left out. Medians over the
seeds; "start" is the same for the initial weights, as a control.

example:
  iha-theory sweep polynomial --attention iha --heads 3 --out runs/p && iha-theory learned runs/p

exit codes: 0 every angle is within what the error allows, 1 not, 2 bad usage or no such runs.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "learned",
        description="Says whether training found the construction: its span, its products, its factors.",
        epilog=EPILOG,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="folder of records and weights")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures every run and prints medians."""
    from synthetic.training import records

    output.prepare_json(arguments.json)
    found, cut = records.read(arguments.folder), report.cut_off([arguments.folder / records.FILE])
    usable = report.unique([r for r in found if _usable(arguments.folder, r)])
    if not usable:
        raise ValueError(f"{arguments.folder} holds no weights of finished position-only runs on a bank{cut}")
    left_out = {r["id"]: reason for r in usable if (reason := report.stale(r)) is not None}
    read = {"records": len(found), "runs": len(usable), "left_out": left_out}
    usable = [r for r in usable if r["id"] not in left_out]
    if not usable:
        raise ValueError(f"nothing in {arguments.folder} can be measured: {'; '.join(left_out.values())}")
    print(
        f"read {len(found)} records in {arguments.folder / records.FILE}: {read['runs']} different runs with weights "
        f"of position-only layers on a bank{cut}",
        *(f"left out: {reason}" for reason in left_out.values()),
        sep="\n",
        file=sys.stderr,
    )
    labelled = [(f"{r['attention']} {r['heads']} heads, seed {r['seed']}", r) for r in usable]
    measured = [_measure(arguments.folder, record) for record in output.progress(labelled, "learned")]
    output.write_json(arguments.json, "learned", {"read": read, "runs": measured})
    out = output.console(arguments.json)
    out.print(_table(measured))
    bad = [r for r in measured if r["learned"]["gap"]["angle"] > r["learned"]["gap"]["allowed"] + SLACK]
    for r in bad:
        out.print(
            f"BEYOND THE THEOREM {r['task']} {r['attention']} {r['heads']} heads, seed {r['seed']}: {r['learned']}"
        )
    empty = sum(r["learned"]["gap"]["allowed"] >= 90 - SLACK for r in measured)
    says = f"; {empty} of them may be anything, the error being too large" if empty else ""
    says += f"; {len(left_out)} runs left out, whose data are gone" if left_out else ""
    within = len(measured) - len(bad)
    out.print(f"{within} of {len(measured)} angles are within what the error allows{says}", soft_wrap=True)
    return 1 if bad else 0


def _usable(folder: Path, record: dict[str, Any]) -> bool:
    """Whether there are weights of a layer of ours, whose queries see positions only, on a bank of ours."""
    task = TASKS.get(record["task"])
    trained = record["outcome"] in ("finished", "stopped") and record["attention"] in KINDS
    weights = folder / "weights" / f"{record['id']}.safetensors"
    own = trained and task is not None and issubclass(task, BankTask)
    return own and record["config"].get("mode") != "content" and weights.exists()


def _measure(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    from constructions.learned.structure import structure
    from synthetic.tasks.bank_problem import Bank
    from synthetic.training import data, model
    from synthetic.training.config import TrainConfig

    config = TrainConfig.from_json(record["config"], device="cpu")
    config.require_room()
    problem = config.build()
    assert isinstance(problem, Bank)
    trained, start = model.load_model(folder, record["id"]), model.build(config, problem)
    model.initialise(start, config, problem, data.load(problem, config).initial)
    found = {
        name: asdict(structure(own.get_submodule("layer"), problem, config))
        for name, own in (("learned", trained), ("start", start))
    }
    kept = {
        name: record[name]
        for name in ("id", "config", "content", "attention", "heads", "pseudo_heads", "seed", "error", "floor")
    }
    return {"task": config.problem.label} | kept | found


def _table(found: Sequence[dict[str, Any]]) -> Any:
    """Medians over the seeds for each task, layer, head count and setting."""
    rows = []
    for (task, attention, heads, pseudo), group in report.points(found).items():
        values = [
            [r["error"] for r in group],
            [r["learned"]["gap"]["angle"] for r in group],
            [r["learned"]["gap"]["allowed"] for r in group],
            [r["start"]["gap"]["angle"] for r in group],
            *([r[when][name] for r in group] for name in ("commutator", "fit") for when in ("learned", "start")),
        ]
        middle = ["" if v[0] is None else f"{statistics.median(v):.3g}" for v in values]
        degrees = Counter(tuple(d) for r in group if (d := r["learned"]["degrees"]) is not None)
        middle.append(", ".join(f"({a},{b}) {count}x" for (a, b), count in sorted(degrees.items())))
        rows.append((task, attention, str(heads), str(pseudo or ""), str(len(group)), *middle))
    names = ("task", "layer", "heads", "P", "seeds", "error", "angle", "allowed", "start", "commutator", "start")
    return output.table([(name, i > 1) for i, name in enumerate((*names, "fit", "start", "degrees"))], rows)
