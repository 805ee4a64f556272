"""`iha-theory bench`: speed as ratios on this machine."""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from iha_theory.cli import output

EPILOG = """\
names:
  sweep   training runs as one batched program against the same runs one by one

Both ways run alternately in one process with one thread, so that what else the machine does hits both. The ratio is
the median over the repeats of the slow way's time over the fast way's; median_s is the fast way's time.

examples:
  iha-theory bench sweep
  iha-theory bench sweep --repeats 9 --json bench.json
"""

GRID = {"mha": range(1, 10), "iha": range(1, 5)}
"""Layers and heads of the runs: nine blocks of a 16 x 16 matrix, as in `iha-theory sweep polynomial`."""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "bench",
        description="Measures speed as ratios on this machine.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; default all")
    parser.add_argument("--repeats", metavar="N", type=int, default=3, help="of each way; default 3")
    parser.add_argument("--steps", metavar="N", type=int, default=200, help="of each run; default 200")
    parser.add_argument("--seeds", metavar="N", type=int, default=8, help="runs; default 8")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures."""
    unknown = [name for name in arguments.names if name != "sweep"]
    if unknown:
        raise ValueError(f"unknown benchmark {unknown[0]!r}: accepted is sweep")
    for name in ("repeats", "steps", "seeds"):
        if getattr(arguments, name) < 1:
            raise ValueError(f"--{name} takes an integer of at least 1, got {getattr(arguments, name)}")
    output.prepare_json(arguments.json)
    found = _sweep(arguments.steps, arguments.seeds, arguments.repeats)
    output.write_json(arguments.json, "bench", {"benchmarks": found})
    rows = [(b["name"], f"{b['ratio']:.2f}", f"{b['median_s']:.3f}", str(b["n"])) for b in found]
    names = ("benchmark", "times faster", "median s", "n")
    output.console(arguments.json).print(output.table([(name, i > 0) for i, name in enumerate(names)], rows))
    return 0


def _sweep(steps: int, seeds: int, repeats: int) -> list[dict[str, Any]]:
    """The runs of each layer, and all, as the sweep's programs against one by one."""
    import torch

    from synthetic.training import sweep
    from synthetic.training.loop import train

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    times: dict[str, list[tuple[float, float]]] = {}
    try:
        for repeat in range(-1, repeats):  # the first round, which also warms up, does not count
            for attention, heads in GRID.items():
                options = {"attention": attention, "steps": steps if repeat >= 0 else 1, "terms": 9}
                options |= {"graph": "orthogonal:16", "normalise": "none"}
                runs = sweep.configs("polynomial", options, heads, range(seeds))
                slow = _seconds(lambda runs=runs: [train([run]) for run in runs])
                fast = _seconds(lambda runs=runs: [train(group) for group in sweep.groups(runs)])
                times.setdefault(f"sweep/{attention}", []).append((slow, fast))
    finally:
        torch.set_num_threads(threads)
    pairs = {name: rounds[1:] for name, rounds in times.items()}
    whole = [tuple(map(sum, zip(*both, strict=True))) for both in zip(*pairs.values(), strict=True)]
    return [
        {
            "name": name,
            "ratio": statistics.median(slow / fast for slow, fast in rounds),
            "median_s": statistics.median(fast for _, fast in rounds),
            "n": repeats,
        }
        for name, rounds in [*pairs.items(), ("sweep", whole)]
    ]


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
