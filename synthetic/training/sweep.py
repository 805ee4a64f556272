"""Grids of runs: which there are, and how they are trained over seeds, processes and machines.

Runs that differ in their seed, and MHA's heads, are one batched program (`program`); joblib spreads programs over
processes, or over the workers of a Dask cluster. Only the process that started the sweep writes results. Workers write
checkpoints into the folder; a cluster needs a shared one to continue from them.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed, parallel_config

from iha_theory.bounds.heads import least_heads
from synthetic.training import records
from synthetic.training.config import TrainConfig
from synthetic.training.loop import train
from synthetic.training.program import joint
from synthetic.training.records import Result

SEEDS = 8
ANSWER_WITHIN_S = 10.0


@dataclass(frozen=True)
class Grid:
    """Runs of one task: options, and the head counts of each layer."""

    task: str
    options: Mapping[str, Any]
    heads: Mapping[str, Sequence[int]]


def _up_to(capacity: int) -> dict[str, Sequence[int]]:
    """1 .. r heads of MHA and 1 .. ceil(sqrt r) + 1 of IHA."""
    return {"mha": range(1, capacity + 1), "iha": range(1, least_heads("iha", capacity) + 2)}


KARATE = {"graph": "karate", "normalise": "symmetric", "unit_norm": True, "terms": 9, "steps": 4000}
"""Its powers are nearly dependent, so that the last of them take more steps."""

CONTENT = {"mode": "content", "graph": "orthogonal:8", "lr": 0.01, "steps": 2000, "eval_size": 2**14}
"""Where the error is estimated from the test set, a large one."""

INITS: tuple[dict[str, Any], ...] = (
    {},
    {"init": "random-keys"},
    {"init": "identity"},
    {"init": "mha"},
    {"gain": 1.0},
    {"circulant": False},
    {"activation": "relu"},
)
"""One change of cpm3's defaults each: what learning depends on (docs/learning.md)."""

GRIDS: dict[str, tuple[Grid, ...]] = {
    "polynomial": (
        Grid("polynomial", {"terms": 9}, _up_to(9)),
        Grid("polynomial", {"terms": 16}, _up_to(16)),
        Grid("polynomial", KARATE, _up_to(9)),
    ),
    "workspace": (Grid("workspace", {}, _up_to(16)),),
    "unstructured": (Grid("unstructured", {}, {"mha": range(1, 10), "iha": range(1, 7)}),),
    "content": (
        Grid("polynomial", CONTENT | {"terms": 3, "width": 2}, {"mha": (1, 2, 3)}),
        Grid("polynomial", CONTENT | {"terms": 4}, {"mha": (1, 2, 3, 4), "iha": (1, 2)}),
    ),
    "cpm3": (
        *(Grid("cpm3", {"steps": steps}, {"mha": range(1, 10), "iha": range(1, 5)}) for steps in (1000, 4000)),
        Grid("cpm3", {"embedding": "one-hot", "lr": 0.01, "steps": 2000}, {"mha": (1,)}),
    ),
    "cpm3-init": tuple(Grid("cpm3", {"steps": 2000} | changed, {"iha": (3,)}) for changed in INITS),
    "cpm3-large": (Grid("cpm3", {"tokens": 16, "hidden": 128}, {"mha": (4, 8, 12, 16), "iha": (3, 4)}),),
}
"""The named sweeps."""


def configs(
    name: str,
    options: Mapping[str, Any] | None = None,
    heads: Sequence[int] | None = None,
    seeds: Sequence[int] = range(SEEDS),
) -> list[TrainConfig]:
    """The runs of a named sweep.

    Args:
        name: one of GRIDS.
        options: options of `TrainConfig` that replace those of the grid. `attention` keeps that layer only.
        heads: head counts instead of the grid's.
        seeds: the seeds.

    Raises:
        ValueError: an unknown name or option, or a value that is not accepted.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown sweep {name!r}: accepted are {', '.join(GRIDS)}")
    options = dict(options or {})
    for own in ("heads", "seed"):
        if own in options:
            raise ValueError(f"{own} is no option of a sweep, which goes over several: --heads and --seeds say which")
    only = options.pop("attention", None)
    runs = []
    for grid in GRIDS[name]:
        for attention, counts in grid.heads.items():
            if only not in (None, attention):
                continue
            for count in counts if heads is None else heads:
                point = dict(grid.options) | options | {"attention": attention, "heads": count}
                if attention == "mha":
                    point.pop("pseudo_heads", None)
                runs += [TrainConfig.for_task(grid.task, point | {"seed": seed}) for seed in seeds]
    return list(dict.fromkeys(runs))


def groups(runs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    """The runs, those together that may train as one program; programs that take longest first."""
    found: dict[TrainConfig, list[TrainConfig]] = {}
    for run in runs:
        found.setdefault(joint(run), []).append(run)
    return sorted(found.values(), key=lambda group: -max(map(_cost, group)) * len(group))


def _cost(config: TrainConfig) -> int:
    """What orders programs by their time: attention maps times steps."""
    return config.heads * (config.pseudo or 1) ** 2 * config.steps


def sweep(
    runs: Sequence[TrainConfig],
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    report: Callable[[Sequence[Result]], Any] | None = None,
) -> list[dict[str, Any]]:
    """Trains the runs that the folder does not hold yet; those that failed before are tried again.

    A run that cannot be made or breaks down becomes a record with outcome "failed" and its reason; the others go on.
    What is finished is on disk at once, and stays there when the sweep is interrupted.

    Args:
        runs: the runs.
        folder: where the records are.
        jobs: processes.
        scheduler: address of a Dask scheduler, whose workers are then used instead of processes.
        report: called with the results of each program as they come.

    Returns:
        The records of all these runs, in their order.

    Raises:
        ValueError: a scheduler that does not answer, or no Dask (extra `cluster`).
    """
    wanted = {run.identity for run in runs}
    failed = [  # one with an error is below its floor: that is kept
        r["id"] for r in records.read(folder) if r["outcome"] == "failed" and r["error"] is None and r["id"] in wanted
    ]
    if failed:
        records.forget(folder, failed)
    known = {record["id"] for record in records.read(folder)}
    todo = groups(run for run in runs if run.identity not in known)
    calls = [delayed(train_group)(group, folder.absolute()) for group in todo]
    with _backend(scheduler):
        n_jobs = jobs if scheduler is None else -1
        parallel: Any = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for results in parallel(calls):
            records.write(folder, results)
            ids = [result.record.id for result in results]
            for names in (ids, *([name] for name in ids)):  # not before the runs are kept
                _checkpoint(names, folder).unlink(missing_ok=True)
            if report is not None:
                report(results)
    by_id = {record["id"]: record for record in records.read(folder)}
    return [by_id[run.identity] for run in runs]


def checkpoint_of(group: Sequence[TrainConfig], folder: Path) -> Path:
    """Where a program of a sweep keeps its checkpoint."""
    return _checkpoint([config.identity for config in group], folder)


def _checkpoint(ids: Sequence[str], folder: Path) -> Path:
    return folder / "checkpoints" / f"{hashlib.sha256(''.join(ids).encode()).hexdigest()[:16]}.safetensors"


def train_group(group: Sequence[TrainConfig], folder: Path) -> list[Result]:
    """Trains one program; what goes wrong becomes results that say so."""
    file = checkpoint_of(group, folder)
    try:
        return [records.result(run, len(group)) for run in train(group, checkpoint_file=file)]
    except Exception as error:  # whatever it is, the other runs go on
        if len(group) > 1:
            return [found for config in group for found in train_group([config], folder)]
        reason = " ".join(f"{error}".split()) or "no message"
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        return [records.failure(config, kind + reason) for config in group]


@contextlib.contextmanager
def _backend(scheduler: str | None) -> Iterator[None]:
    """Processes of one thread each (small programs gain nothing from more), or the workers of a Dask cluster."""
    if scheduler is None:
        with parallel_config("loky", inner_max_num_threads=1):
            yield
        return
    try:
        from dask.distributed import Client
    except ImportError:
        raise ValueError("a Dask scheduler needs the packages of the extra cluster: dask and distributed") from None
    try:
        client = Client(scheduler, timeout=ANSWER_WITHIN_S)
    except (OSError, TimeoutError) as error:
        raise ValueError(f"no Dask scheduler answers at {scheduler}") from error
    with client, parallel_config("dask"):
        yield
