"""What is said of runs: one line a record, records grouped by what differs in their seed only, progress."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def describe(record: Mapping[str, Any]) -> str:
    """A record in one line."""
    heads = f"{record['heads']} heads" + (f", P = {record['pseudo_heads']}" if record["pseudo_heads"] else "")
    parts = [f"{record['task']} {record['attention']}, {heads}, seed {record['seed']}: {record['outcome']}"]
    if record["reason"]:
        parts.append(record["reason"])
    for name in ("error", "floor", "accuracy", "baseline_accuracy"):
        if record[name] is not None:
            parts.append(f"{name.replace('_', ' ')} {record[name]:.5g}")
    return ", ".join(parts) + f" ({record['steps']} steps, {record['wall_s']:.1f} s)"


def points(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int, int | None], list[Any]]:
    """Records that differ in their seed only, by label, layer, H and P; labels tell settings apart."""
    from synthetic.training.config import TrainConfig

    found: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for record in records:
        label = TrainConfig(**record["config"]).label
        found[label, record["attention"], record["heads"], record["pseudo_heads"]].append(record)
    for (label, *rest), group in list(found.items()):
        configs = [record["config"] for record in group]
        varied = [n for n in configs[0] if n != "seed" and any(c[n] != configs[0][n] for c in configs)]
        if varied:
            del found[label, *rest]
        for record in group if varied else ():
            words = [label, *(f"{name}={record['config'][name]}" for name in varied)]
            found[" ".join(words), *rest].append(record)
    return found  # type: ignore[return-value]


class live:
    """Progress on standard error: a bar that says the loss and the floor, or a line now and then without a terminal."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True, highlight=False)
        self._label, self._last = label, -math.inf
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, transient=True) if self._console.is_terminal else None
        self._task: Any = None

    def __enter__(self) -> Callable[[Any], None]:
        if self._bar is not None:
            self._bar.start()
        return self._report

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _report(self, progress: Any) -> None:
        if not progress.losses:
            return
        loss = sum(progress.losses.values()) / len(progress.losses)
        against = "" if progress.floor is None else f", floor {progress.floor:.5f}"
        text = f"{self._label}: batch loss {loss:.5f}{against}"
        if self._bar is not None:
            if self._task is None:
                self._task = self._bar.add_task(text, total=progress.steps)
            self._bar.update(self._task, description=text, completed=progress.step)
        elif time.monotonic() > self._last + 5 or progress.step == progress.steps:
            self._last = time.monotonic()
            self._console.print(f"step {progress.step}/{progress.steps} {text}", soft_wrap=True)
