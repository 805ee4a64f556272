"""`iha-theory train`: one training run."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from iha_theory.cli import output
from synthetic.training.options import add_options, read_config
from synthetic.training.report import describe, live

EPILOG = """\
tasks:
  polynomial    [X, AX, ..., A^(k-1) X] of a graph, linear attention
  workspace     x_n, x_(n+1), ..., the N cyclic shifts, softmax attention
  unstructured  k random matrices instead of powers, linear attention
  cpm3          counting pairs modulo M from labels, softmax attention and an MLP (docs/learning.md)

The error is the relative squared error of the trained layer's exact operator, and the floor the least that theory
allows to so many heads. With --out the record is added to DIR/runs.jsonl, with curves and weights beside it. A run is
the same, to the bit on one machine, whether it goes through or is stopped with --stop-at and continued with --resume.

examples:
  iha-theory train polynomial --attention mha --heads 5
  iha-theory train workspace --heads 4 --seed 1 --out runs/one
  iha-theory train cpm3 --heads 3
  iha-theory train cpm3 --attention mha --heads 1 --embedding one-hot
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "train",
        description="Trains a model around one attention layer on sampled data.",
        epilog=EPILOG,
    )
    parser.add_argument("task", metavar="TASK", help="polynomial, workspace, unstructured or cpm3")
    parser.add_argument("--config", metavar="FILE", help="options as a JSON object; options given here come on top")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the record, curves and weights")
    parser.add_argument(
        "--stop-at", metavar="STEP", type=int, help="leave off after this step, with a checkpoint in DIR"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in DIR")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Trains and prints what came out."""
    from synthetic.training import records
    from synthetic.training.config import TrainConfig
    from synthetic.training.loop import train

    config = TrainConfig.for_task(arguments.task, read_config(arguments.config) | arguments.train_options)
    if (arguments.stop_at is not None or arguments.resume) and arguments.out is None:
        raise ValueError("--stop-at and --resume need --out DIR, where the checkpoint is")
    if arguments.stop_at is not None and arguments.stop_at < 1:
        raise ValueError(f"--stop-at takes a step of at least 1, got {arguments.stop_at}")
    output.prepare_json(arguments.json)
    checkpoint = None
    if arguments.out is not None:
        if any(record["id"] == config.identity for record in records.read(arguments.out)):
            raise ValueError(f"{arguments.out} holds this run already: choose another folder or seed")
        checkpoint = arguments.out / "checkpoints" / f"{config.identity}-1.safetensors"
        if arguments.resume and not checkpoint.exists():
            raise ValueError(f"no checkpoint of this run in {arguments.out}: it is made by the same options")
        if not arguments.resume:
            checkpoint.unlink(missing_ok=True)
    with live(config.label) as report:
        (trained,) = train([config], checkpoint_file=checkpoint, stop_at=arguments.stop_at, report=report)
    out = output.console(arguments.json)
    if trained.outcome is None:
        out.print(f"stopped at step {len(trained.losses)} of {config.steps}; --resume continues", soft_wrap=True)
        return 0
    result = records.result(trained, 1)
    if arguments.out is not None:
        records.write(arguments.out, [result])
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    record = dataclasses.asdict(result.record)
    output.write_json(arguments.json, "train", {"runs": [record]})
    out.print(describe(record), soft_wrap=True)
    return 0 if record["outcome"] in ("finished", "stopped") else 1
