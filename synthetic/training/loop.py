"""The training loop: a program from its start or its checkpoint to its end, with evaluations and checkpoints."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from synthetic.training import checkpoint
from synthetic.training.config import TrainConfig
from synthetic.training.program import Program, Run

CHUNK = 50
"""Steps whose data are made at once, and after which losses are looked at."""
KEPT_S = 20.0
"""Seconds after which there is a checkpoint, however few the steps: no more is lost by a stop."""


@dataclass(frozen=True)
class Progress:
    """Where a program stands: steps done, and the loss of each run that still trains (mean over the last steps)."""

    step: int
    steps: int
    losses: dict[int, float]
    floor: float | None


def train(
    configs: Sequence[TrainConfig],
    *,
    checkpoint_file: Path | None = None,
    stop_at: int | None = None,
    report: Callable[[Progress], Any] | None = None,
) -> list[Run]:
    """Trains runs together, continuing from the checkpoint if there is one.

    Args:
        configs: the runs; `joint` must be the same for all.
        checkpoint_file: where to save every `checkpoint_every` steps, and every `KEPT_S`; the last one stays, for the
            caller to remove once the runs are kept.
        stop_at: leave off after so many steps, with a checkpoint; the runs that have not ended have outcome None.
        report: called after every chunk.

    Returns:
        The runs, in order.

    Raises:
        ValueError: as `Program`; a checkpoint of other runs.
    """
    program = Program(configs)
    if checkpoint_file is not None and checkpoint_file.exists():
        checkpoint.load(program, checkpoint_file)
    config = program.config
    end = config.steps if stop_at is None else min(stop_at, config.steps)
    kept = time.monotonic()
    while program.step < end and program.alive:
        marks = [config.eval_every, *([config.checkpoint_every] if checkpoint_file else [])]
        program.advance(min([program.step + CHUNK, end] + [(program.step // mark + 1) * mark for mark in marks]))
        if report is not None:
            recent = {i: float(np.mean(program.runs[i].losses[-CHUNK:])) for i in program.alive}
            report(Progress(program.step, config.steps, recent, program.problem.floor))
        if program.alive and (program.step % config.eval_every == 0 or program.step == config.steps):
            program.evaluate()
        due = program.step % config.checkpoint_every == 0 or time.monotonic() > kept + KEPT_S
        if checkpoint_file and due and program.step < config.steps:
            checkpoint.save(program, checkpoint_file)
            kept = time.monotonic()
    if program.step >= config.steps:
        program.finish()
    if checkpoint_file is not None and program.alive:
        checkpoint.save(program, checkpoint_file)
    return program.runs
