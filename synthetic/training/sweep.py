"""Grids of runs: which there are, and how they are trained over seeds, processes and machines.

Runs that differ in their seed, and MHA's heads, are one batched program (`program`); programs are spread over
processes, or over the workers of a Dask cluster. Only the process that started the sweep writes results. Workers write
checkpoints into the folder; a cluster needs a shared one to continue from them.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from iha_theory.processes import Lost, spread
from synthetic.tasks import TASKS
from synthetic.tasks.task import Sweep
from synthetic.training import records
from synthetic.training.config import TrainConfig, refused
from synthetic.training.loop import train
from synthetic.training.program import joint
from synthetic.training.records import Result

CPU = "cpu"
"""The preset that a sweep with presets takes unless said otherwise."""
MOST_RUNS = 10**5
ANSWER_WITHIN_S = 10.0


GRIDS: dict[str, tuple[str, Sweep]] = {
    name: (task, sweep) for task, kind in TASKS.items() for name, sweep in kind.sweeps.items()
}
"""The named sweeps, each with its task."""


def configs(
    name: str,
    options: Mapping[str, Any] | None = None,
    heads: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    preset: str | None = None,
) -> list[TrainConfig]:
    """The runs of a named sweep.

    Args:
        name: one of GRIDS.
        options: options of `TrainConfig.for_task` that replace those of the grid; one of a layer is for the runs with
            that layer. `attention` is one layer for all: where the sweep has it, its grids alone, and otherwise every
            grid with the head counts of its first layer.
        heads: head counts instead of the grid's.
        seeds: the seeds; default 0, 1, ..., as many as the sweep says.
        preset: other grids of a sweep that has some.

    Raises:
        ValueError: an unknown name, preset or option, an option that no run of the sweep has, or a value that is not
            accepted.
    """
    if name not in GRIDS:
        raise ValueError(f"unknown sweep {name!r}: accepted are {', '.join(GRIDS)}")
    task, found = GRIDS[name]
    found = preset_of(name, found, preset)
    seeds = range(found.seeds) if seeds is None else seeds
    options = dict(options or {})
    for own in ("heads", "seed"):
        if own in options:
            raise ValueError(f"{own} is no option of a sweep, which goes over several: --heads and --seeds say which")
    only = options.pop("attention", None)
    points = [(grid, layer, counts) for grid in found.grids for layer, counts in grid.heads.items()]
    if only is not None:
        points = [point for point in points if point[1] == only] or [
            (grid, only, next(iter(grid.heads.values()))) for grid in found.grids
        ]
    for own in options:
        reasons = [refused(own, task, layer) for _, layer, _ in points]
        if all(reasons):
            raise ValueError(reasons[0])
    counted = sum(len(counts if heads is None else heads) for _, _, counts in points) * len(seeds)
    if counted > MOST_RUNS:
        raise ValueError(f"{counted} runs: a sweep has at most {MOST_RUNS}, with fewer --seeds or --heads")
    runs = []
    for grid, layer, counts in points:
        own = {n: v for n, v in options.items() if not refused(n, task, layer)}
        for count in counts if heads is None else heads:
            point = dict(grid.options) | own | {"attention": layer, "heads": count}
            runs += [TrainConfig.for_task(task, point | {"seed": seed}) for seed in seeds]
    return list({json.dumps(run.to_json() | {"pseudo_heads": run.pseudo}): run for run in reversed(runs)}.values())[
        ::-1
    ]


def preset_of(name: str, found: Sweep, preset: str | None) -> Sweep:
    """The grids of a sweep's preset; None and "cpu" are its own.

    Raises:
        ValueError: a preset that it lacks.
    """
    accepted = {CPU: found, **found.presets} if found.presets else {}
    if preset is not None and preset not in accepted:
        has = f"accepted are {', '.join(accepted)}" if accepted else "it has no presets"
        raise ValueError(f"unknown preset {preset!r} of the sweep {name}: {has}")
    return found if preset is None else accepted[preset]


def groups(runs: Iterable[TrainConfig]) -> list[list[TrainConfig]]:
    """The runs, those together that may train as one program; programs that take longest first."""
    found: dict[TrainConfig, list[TrainConfig]] = {}
    for run in runs:
        found.setdefault(joint(run), []).append(run)
    return sorted(found.values(), key=lambda group: -max(map(_cost, group)) * len(group))


def _cost(config: TrainConfig) -> int:
    """What orders programs by their time: attention maps times steps."""
    return config.heads * (config.pseudo or 1) ** 2 * config.steps


def impossible(runs: Iterable[TrainConfig]) -> dict[TrainConfig, str]:
    """The runs that cannot be made, such as those with 3 heads and a width of 64, with the reason; trains nothing.

    Raises:
        ValueError: as `TrainConfig.require_room`.
    """
    runs = list(runs)
    reasons = dict.fromkeys((replace(run, seed=0) for run in runs), "")
    for kind in reasons:
        kind.require_room()
    for kind in reasons:
        try:
            kind.build().model(kind.layer.make)
        except Exception as error:  # of the user's code too
            reasons[kind] = _reason(error)
    return {run: reason for run in runs if (reason := reasons[replace(run, seed=0)])}


def sweep(
    runs: Sequence[TrainConfig],
    folder: Path,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    begun: Callable[[int], Any] | None = None,
    report: Callable[[Sequence[Result]], Any] | None = None,
) -> list[dict[str, Any]]:
    """Trains the runs that the folder does not hold yet; those that failed before are tried again.

    A run that cannot be made or breaks down becomes a record with outcome "failed" and its reason, and so do those of a
    program whose process was killed, and again when it went on in another; the others go on. What is finished is on
    disk at once, and stays there when the sweep is interrupted or killed.

    Args:
        runs: the runs.
        folder: where the records are.
        jobs: processes.
        scheduler: address of a Dask scheduler, whose workers are then used instead of processes.
        begun: called with the number of runs that are left to train.
        report: called with the results of each program as they come.

    Returns:
        The records of all these runs, in their order.

    Raises:
        ValueError: a scheduler that does not answer, or no Dask (extra `cluster`).
        OSError: a folder that cannot be written, or that another process writes.
    """
    for kind in {replace(run, seed=0) for run in runs}:
        kind.require_room()
    with records.writing(folder):
        return _sweep(runs, folder, jobs, scheduler, begun, report)


def _sweep(
    runs: Sequence[TrainConfig],
    folder: Path,
    jobs: int,
    scheduler: str | None,
    begun: Callable[[int], Any] | None,
    report: Callable[[Sequence[Result]], Any] | None,
) -> list[dict[str, Any]]:
    wanted = {run.identity for run in runs}
    failed = [  # one with an error is below its floor: that is kept
        r["id"] for r in records.read(folder) if r["outcome"] == "failed" and r["error"] is None and r["id"] in wanted
    ]
    if failed:
        records.forget(folder, failed)
    known = {record["id"] for record in records.read(folder)}
    todo = groups(run for run in runs if run.identity not in known)
    if begun is not None:
        begun(sum(map(len, todo)))
    for index, found in _spread([(group, folder.absolute()) for group in todo], jobs, scheduler):
        results = [records.failure(run, found.reason) for run in todo[index]] if isinstance(found, Lost) else found
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
    except (Exception, SystemExit, GeneratorExit) as error:  # whatever it is, the other runs go on
        if len(group) > 1:
            return [found for config in group for found in train_group([config], folder)]
        return [records.failure(config, _reason(error)) for config in group]


def _reason(error: BaseException) -> str:
    """In one line."""
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return kind + (" ".join(f"{error}".split()) or "no message")


def _spread(calls: Sequence[tuple[Any, ...]], jobs: int, scheduler: str | None) -> Iterator[tuple[int, Any]]:
    """The index and the results of each program: here, in processes, or by the workers of a Dask cluster."""
    if scheduler is not None:
        yield from _dask(calls, scheduler)
    elif min(jobs, len(calls)) > 1:
        yield from spread(train_group, calls, jobs)
    else:
        yield from ((index, train_group(*call)) for index, call in enumerate(calls))


def _dask(calls: Sequence[tuple[Any, ...]], scheduler: str) -> Iterator[tuple[int, Any]]:
    try:
        from dask.distributed import Client, KilledWorker, as_completed
    except ImportError:
        raise ValueError("a Dask scheduler needs the packages of the extra cluster: dask and distributed") from None
    try:
        client = Client(scheduler, timeout=ANSWER_WITHIN_S)
    except (OSError, TimeoutError) as error:
        raise ValueError(f"no Dask scheduler answers at {scheduler}") from error
    with client:
        indices = {client.submit(train_group, *call, pure=False): index for index, call in enumerate(calls)}
        for future in as_completed(indices):
            try:
                yield indices[future], future.result()
            except KilledWorker as error:
                yield indices[future], Lost(" ".join(str(error).split()))
