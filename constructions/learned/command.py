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
from synthetic.tasks.cpm3 import CPM3
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

Of position-only runs on cpm3 with scalar tokens it says whether they pack several tokens into a number
(docs/learning.md):

  numbers     that the layer hands on for each token, r
  difference  least |W d| of two sequences, each number scaled to deviation 1; 1.2 for a number a token at M = 3
  powers      mean distance of log_M of the ratios of weights from whole numbers: 0 for powers of M, .25 for any
  bits        a number needs so that rounding costs at most 1 % of the labels: for the best function of the numbers
              (where all sequences can be gone through: up to 65536), and for the run's own MLP; "more" than 12

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
        raise ValueError(f"{arguments.folder} holds no weights of finished position-only runs on a bank or cpm3{cut}")
    left_out = {r["id"]: reason for r in usable if (reason := report.stale(r)) is not None}
    read = {"records": len(found), "runs": len(usable), "left_out": left_out}
    usable = [r for r in usable if r["id"] not in left_out]
    if not usable:
        raise ValueError(f"nothing in {arguments.folder} can be measured: {'; '.join(left_out.values())}")
    print(
        f"read {len(found)} records in {arguments.folder / records.FILE}: {read['runs']} different runs with weights "
        f"of position-only layers on a bank or cpm3{cut}",
        *(f"left out: {reason}" for reason in left_out.values()),
        sep="\n",
        file=sys.stderr,
    )
    labelled = [(f"{r['attention']} {r['heads']} heads, seed {r['seed']}", r) for r in usable]
    every = [_measure(arguments.folder, record) for record in output.progress(labelled, "learned")]
    measured, counting = [r for r in every if "accuracy" not in r], [r for r in every if "accuracy" in r]
    output.write_json(arguments.json, "learned", {"read": read, "runs": measured, "packing": counting})
    out = output.console(arguments.json)
    if counting:
        out.print(_packing_table(counting))
    if not measured:
        return 0
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
    """Whether there are weights of a layer of ours, whose queries see positions only, on a bank of ours or cpm3."""
    task, options = TASKS.get(record["task"]), record["config"]
    trained = record["outcome"] in ("finished", "stopped") and record["attention"] in KINDS
    weights = folder / "weights" / f"{record['id']}.safetensors"
    bank = task is not None and issubclass(task, BankTask)
    scalar = options.get("embedding") == "scalar" and not (options.get("skip") or options.get("position_values"))
    own = trained and (bank or (task is CPM3 and scalar))
    return own and options.get("mode") != "content" and weights.exists()


def _measure(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """The measures of the trained layer, "learned", and of the same run's initial weights, "start"."""
    from constructions.learned.packing import packing
    from constructions.learned.structure import structure
    from synthetic.tasks.bank_problem import Bank
    from synthetic.tasks.cpm3_problem import Counter, Counting
    from synthetic.training import data, model
    from synthetic.training.config import TrainConfig

    config = TrainConfig.from_json(record["config"], device="cpu")
    config.require_room()
    problem = config.build()
    trained, start = model.load_model(folder, record), model.build(config, problem)
    loaded = data.load(problem, config)
    model.initialise(start, config, problem, loaded.initial)
    both = {"learned": trained, "start": start}
    kept = {
        name: record[name]
        for name in ("id", "config", "content", "attention", "heads", "pseudo_heads", "seed", "error", "floor")
    }
    about = {"task": config.problem.label} | kept
    if isinstance(problem, Bank):
        return about | {n: asdict(structure(own.get_submodule("layer"), problem, config)) for n, own in both.items()}
    assert isinstance(problem, Counting)
    found = {n: packing(own, problem, loaded.test) for n, own in both.items() if isinstance(own, Counter)}
    return about | {"accuracy": record["accuracy"]} | {name: asdict(own) for name, own in found.items()}


def _packing_table(found: Sequence[dict[str, Any]]) -> Any:
    """Of runs on cpm3: medians over the seeds for each layer, head count and setting, but bits of every seed."""
    rows = []
    for (task, attention, heads, pseudo), group in report.points(found).items():
        middle = []
        for name in ("difference", "powers"):
            for when in ("learned", "start"):
                own = [r[when][name] for r in group]
                middle.append("" if None in own else f"{statistics.median(own):.3g}")
        bits = [
            " ".join(sorted(str(r[when][name] or "more") for r in group)) if group[0][when]["carried"] or own else ""
            for when, name, own in (("learned", "bits", 0), ("start", "bits", 0), ("learned", "own_bits", 1))
        ]
        accuracy = f"{statistics.median(r['accuracy'] for r in group):.3f}"
        numbers = str(group[0]["learned"]["numbers"])
        point = (task, attention, str(heads), str(pseudo or ""), str(len(group)))
        rows.append((*point, accuracy, numbers, *middle, *bits))
    names = ("task", "layer", "heads", "P", "seeds", "accuracy", "numbers", "difference", "start", "powers", "start")
    return output.table([(name, i > 1) for i, name in enumerate((*names, "bits", "start", "MLP's bits"))], rows)


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
