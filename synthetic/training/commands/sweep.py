"""`iha-theory sweep`: a grid of training runs."""

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iha_theory.cli import output
from synthetic.tasks import TASKS
from synthetic.training import report
from synthetic.training.options import add_run, read_config

EPILOG = """\
Runs that differ in their seed only train as one batched program; programs go over processes, or over the workers of a
Dask cluster. Finished runs are on disk at once; a rerun leaves them out and tries failed ones again. One command at a
time writes a folder; whatever was killed, the same command again goes on. A graph in a file counts by what it holds:
edited, it is another run.

examples:
  iha-theory sweep polynomial --out runs/p
  iha-theory sweep workspace --out runs/w --attention iha --heads 2 3 --seeds 3
  iha-theory sweep cpm3 --out runs/c --steps 5000 --dask tcp://scheduler:8786

the table:
  finished: runs that ended as they should, of all; error, accuracy: medians over them; ratio: error over floor;
  baseline: accuracy of always guessing the commonest label; guess: of the best of the simple guesses that a task has.

exit codes: 0 every run finished (or stopped early as asked), 1 some failed or diverged, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    sweeps = {name: (task, sweep) for task, kind in TASKS.items() for name, sweep in kind.sweeps.items()}
    lines = []
    for name, (_, sweep) in sweeps.items():
        lines.append(f"  {name:<13} {sweep.summary}")
        lines += [f"{'':<16}--preset {preset}: {own.summary}" for preset, own in sweep.presets.items()]
    listed = "\n".join(lines)
    parser = commands.add_parser(
        "sweep",
        description="Trains a named grid of runs and compares the errors with the floor that theory predicts.",
        epilog=f"sweeps (sweep NAME --help has the options of each):\n{listed}\n\n{EPILOG}",
    )

    def offered(name: str | None, attention: str | None) -> tuple[str | None, Sequence[str]]:
        if name not in sweeps:
            return None, () if attention is None else (attention,)
        task, found = sweeps[name]
        grids = [grid for own in (found, *found.presets.values()) for grid in own.grids]
        own = dict.fromkeys(layer for grid in grids for layer in grid.heads)
        return task, tuple(own) if attention is None else (attention,)

    parser.add_argument("name", metavar="NAME", help="one of the sweeps below")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder of the records")
    parser.add_argument("--heads", metavar="H", nargs="+", type=int, help="head counts instead of the sweep's")
    parser.add_argument(
        "--preset", metavar="NAME", help="other grids of sweeps with presets: cpu (default), paper, ..."
    )
    parser.add_argument("--seeds", metavar="N", type=int, help="seeds 0 .. N-1; default 8, with presets theirs")
    parser.add_argument("--jobs", metavar="N", type=int, help="processes; default: the CPU's cores, 1 on a GPU")
    parser.add_argument("--dask", metavar="ADDRESS", help="Dask scheduler whose workers train (extra `cluster`)")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    add_run(parser, offered, "heads", "seed")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Trains what is not there yet and prints all."""
    for name in ("seeds", "jobs"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            raise ValueError(f"--{name} takes an integer of at least 1, got {value}")
    known = [name for kind in TASKS.values() for name in kind.sweeps]
    if arguments.name not in known:  # before torch is imported
        raise ValueError(f"unknown sweep {arguments.name!r}: accepted are {', '.join(known)}")
    options = read_config(arguments.config) | arguments.train_options
    from synthetic.training import records, sweep
    from synthetic.training.program import find_device

    seeds = None if arguments.seeds is None else range(arguments.seeds)
    runs = sweep.configs(arguments.name, options, arguments.heads, seeds, arguments.preset)
    if not runs:
        raise ValueError(f"the sweep {arguments.name} has no such runs")
    device = find_device(runs[0].device)
    if bad := sweep.impossible(runs):
        reason = next(iter(bad.values()))
        if len(bad) == len(runs):
            raise ValueError(f"no run of the sweep can be made: {reason}")
        print(f"iha-theory sweep: {len(bad)} of {len(runs)} runs will fail: {reason}", file=sys.stderr)
    output.prepare_json(arguments.json)
    jobs = arguments.jobs or (1 if device.type == "cuda" else len(os.sched_getaffinity(0)))
    try:
        with output.bar("sweep", len(runs)) as bar:

            def begun(left: int) -> None:
                bar("sweep", 0, f"sweep: {left} of {len(runs)} runs to train, a line here when some are done")

            done = report.counted(bar, len(runs))
            found = sweep.sweep(runs, arguments.out, jobs=jobs, scheduler=arguments.dask, begun=begun, report=done)
    except KeyboardInterrupt:
        wanted = {run.identity for run in runs}
        kept = sum(record["id"] in wanted for record in records.read(arguments.out))
        print(
            f"iha-theory sweep: stopped, {kept} of {len(runs)} runs are done and in {arguments.out}; "
            "the same command again goes on, with the others from their last checkpoints",
            file=sys.stderr,
        )
        return 130
    try:
        graphs = report.graphs(runs)
    except (ValueError, OSError):  # the runs that needed it have failed, and say so
        graphs = {}
    output.write_json(arguments.json, "sweep", {**graphs, "runs": found})
    out = output.console(arguments.json)
    out.print(_table(found))
    failed = [record for record in found if record["outcome"] in ("failed", "diverged")]
    for record in failed:
        out.print(f"{record['outcome'].upper()} {report.describe(record)}", soft_wrap=True)
    out.print(f"{len(found) - len(failed)} of {len(found)} runs finished; records in {arguments.out}", soft_wrap=True)
    return 1 if failed else 0


def _table(records: Sequence[dict[str, Any]]) -> Any:
    """Median over the seeds for each layer, head count and setting."""
    rows = []
    for (label, attention, heads, pseudo), group in report.points(records).items():
        good = [r for r in group if r["outcome"] in ("finished", "stopped")]
        middle = {
            name: statistics.median(values) if (values := [r[name] for r in good if r[name] is not None]) else None
            for name in ("error", "floor", "accuracy", "baseline_accuracy")
        }
        error, floor = middle["error"], middle["floor"]
        ratio = f"{error / floor:.4f}" if error is not None and floor is not None and floor > 1e-12 else ""
        guesses = [max(r["baselines"].values()) for r in good if r["baselines"]]
        middle["guess"] = statistics.median(guesses) if guesses else None
        texts = ["" if v is None else f"{v:.4g}" for v in middle.values()]
        counts = (str(heads), str(pseudo or ""), f"{len(good)}/{len(group)}")
        rows.append((label, attention, *counts, *texts[:2], ratio, *texts[2:]))
    names = (
        "task",
        "layer",
        "heads",
        "P",
        "finished",
        "median error",
        "floor",
        "ratio",
        "median accuracy",
        "baseline",
        "guess",
    )
    return output.table([(name, i > 1) for i, name in enumerate(names)], rows)
