"""`iha-theory train`: one training run."""

import argparse
import contextlib
import dataclasses
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from iha_theory.attention import KINDS
from iha_theory.cli import output
from iha_theory.options import users_code
from synthetic.tasks import TASKS
from synthetic.training import report
from synthetic.training.certified import accepted
from synthetic.training.config import TrainConfig
from synthetic.training.options import add_run, read_config

CHECKERS = "iha_theory.checkers"
"""Entry points of what checks claims: a function of the file, with its answer why it does not hold, or None."""

EPILOG = """\
What is printed of polynomial, unstructured and workspace: the error, the relative squared error of the trained layer's
exact operator (with --mode content an estimate from samples), and the floor, the least that theory allows to so many
heads. Of parity and esp: the share of all inputs with a wrong sign, and its floor where one is known. Of the others:
the accuracy, the share of right labels on the test set; baseline accuracy, that of always guessing the commonest label;
"by X alone", of the best guess from the feature X; the accuracy on parts of the test set. With --out the record goes to
DIR/runs.jsonl, with curves and weights beside it. A run is the same, to the bit on one machine, whether it goes through
or is stopped with --stop-at and continued with --resume.

certified runs:
  --certify adds DIR/certified/ID.json: the run's weights by their SHA-256, their exact error, a fraction, and the floor
  as a rigorous interval. It is for position-only runs of mha and iha on polynomial and unstructured (linear attention)
  and workspace (softmax: the error is an interval too). It is checked at once by other code, as iha-theory certify does
  again without training.

your own:
  TASK and --attention take MODULE:CLASS too, looked up from the current directory. A task is a subclass of
  synthetic.tasks.task.Task, which says how to write one. A layer is called as torch.nn.MultiheadAttention is, and made
  as CLASS(embed_dim, num_heads), with kdim= and vdim= where it accepts them; it may return a tuple, starts as it makes
  itself, has a linear map behind it to the width that the task needs, and no floor is known for it.

examples:
  iha-theory train polynomial --help
  iha-theory train polynomial --attention mha --heads 5
  iha-theory train polynomial --graph karate --terms 4 --heads 2 --out runs/one --certify
  iha-theory train workspace --attention talking-heads --heads 4 --seed 1 --out runs/one
  iha-theory train cpm3 --attention mha --heads 1 --embedding one-hot
  iha-theory train parity --bits 3 --attention mha --heads 3
  iha-theory train polynomial --attention torch.nn:MultiheadAttention --heads 4
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    tasks = "\n".join(f"  {name:<13} {kind.summary}" for name, kind in TASKS.items())
    parser = commands.add_parser(
        "train",
        description="Trains a model around one attention layer on sampled data.",
        epilog=f"tasks (train TASK --help has the options of each):\n{tasks}\n\n"
        f"attentions (with --attention NAME, of each):\n  {', '.join(KINDS)}\n\n{EPILOG}",
    )
    parser.add_argument("task", metavar="TASK", help="one of the tasks below, or MODULE:CLASS of your own")
    parser.add_argument("--out", metavar="DIR", type=Path, help="folder of the record, curves and weights")
    parser.add_argument(
        "--stop-at", metavar="STEP", type=int, help="leave off after this step, with a checkpoint in DIR"
    )
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in DIR")
    parser.add_argument(
        "--certify", action="store_true", help="write a claim that can be checked without training to DIR"
    )
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    add_run(parser, lambda task, attention: (task, (attention or "iha",)))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Trains and prints what came out."""
    if arguments.certify and arguments.out is None:
        raise ValueError("--certify needs --out DIR, where the weights are")
    config = TrainConfig.for_task(arguments.task, read_config(arguments.config) | arguments.train_options)
    if (arguments.stop_at is not None or arguments.resume) and arguments.out is None:
        raise ValueError("--stop-at and --resume need --out DIR, where the checkpoint is")
    if arguments.stop_at is not None and arguments.stop_at < 1:
        raise ValueError(f"--stop-at takes a step of at least 1, got {arguments.stop_at}")
    if arguments.certify and (reason := accepted.refusal(config)):
        raise ValueError(f"--certify: {reason}")
    output.prepare_json(arguments.json)
    if arguments.out is None:
        return _train(arguments, config)
    from synthetic.training import records

    with records.writing(arguments.out):
        return _train(arguments, config)


def _train(arguments: argparse.Namespace, config: TrainConfig) -> int:
    from synthetic.training import records
    from synthetic.training.loop import train

    checkpoint = None
    if arguments.out is not None:
        if any(record["id"] == config.identity for record in records.read(arguments.out)):
            raise ValueError(f"{arguments.out} holds this run already: choose another folder or seed")
        checkpoint = arguments.out / "checkpoints" / f"{config.identity}-1.safetensors"
        if arguments.resume and not checkpoint.exists():
            raise ValueError(f"no checkpoint of this run in {arguments.out}: it is made by the same options")
        if not arguments.resume:
            checkpoint.unlink(missing_ok=True)
    label = config.problem.label
    own = [path for path in (config.task, config.attention) if ":" in path]
    code = users_code(" with ".join(own)) if own else contextlib.nullcontext()
    with code, output.bar(label, config.steps, every=5) as bar:
        says = report.progress(bar, label)
        (trained,) = train([config], checkpoint_file=checkpoint, stop_at=arguments.stop_at, report=says)
    graphs = report.graphs([config])
    out = output.console(arguments.json)
    if trained.outcome is None:
        kept = {"stopped_at": len(trained.losses), "steps": config.steps, "id": config.identity}
        output.write_json(arguments.json, "train", {**graphs, "runs": [], "checkpoint": kept})
        out.print(f"stopped at step {len(trained.losses)} of {config.steps}; --resume continues", soft_wrap=True)
        return 0
    result = records.result(trained, 1)
    if arguments.out is not None:
        records.write(arguments.out, [result])
        if checkpoint is not None:
            checkpoint.unlink(missing_ok=True)
    record = dataclasses.asdict(result.record)
    ended = record["outcome"] in ("finished", "stopped")
    fields, said = {**graphs, "runs": [record]}, report.describe(record)
    if arguments.certify and arguments.out is not None:
        claims, told, holds = _certified(arguments.out, record)
        fields, said, ended = fields | claims, f"{said}\n{told}", ended and holds
    output.write_json(arguments.json, "train", fields)
    out.print(said, soft_wrap=True)
    return 0 if ended else 1


def _certified(folder: Path, record: dict[str, Any]) -> tuple[dict[str, Any], str, bool]:
    """Writes the claim about a run and has it checked: the JSON's fields, what is said, and whether it holds."""
    from synthetic.training.certified import claim

    if reason := accepted.unfinished(record):
        return {}, f"not certified: {reason}", True
    try:
        made = claim.certify(folder, record)
    except ValueError as error:  # the run is kept all the same
        return {}, f"not certified: {error}", False
    file = claim.write(folder, made)
    checkers = entry_points(group=CHECKERS)
    refused = [why for checker in checkers if (why := checker.load()(file)) is not None]
    said = f"certified: {claim.describe(made)}"
    if refused:
        said += f"\nFAILS its check: {refused[0]}"
    else:
        said += f"; {'checked by other code; again' if checkers else 'check it'} with: iha-theory certify {file}"
    fields = {"file": str(file), "holds": not refused if checkers else None} | claim.digest(made)
    return {"claims": [fields]}, said, not refused and not claim.below(made)
