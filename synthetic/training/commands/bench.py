"""`iha-theory bench`: speed as ratios on this machine."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from iha_theory.cli import output

if TYPE_CHECKING:
    from rich.console import Console

EPILOG = """\
names:
  layer   forward and backward pass of causal IHA, B = 2, D = 256, float32, by virtual and by token causality, against
          the floor (torch's bare kernel on all virtual tokens, and four projections), a plain IHA with a mask of all
          pairs, and MHA; the last size with a window of N/8 and without. Peak memory is a pass's own, beyond
          parameters and inputs, in a new process. "of product": the bare kernel's FLOP/s, without what causality
          forbids, over those of a matrix product
  hybrid  five layers, forward and backward, N = 2048, D = 256: MHA and IHA with windows in four and a global one
          (App. C), against MHA with all layers global, in time and in FLOPs
  decode  the next token of causal layers that keep 1,024 to 16,384 tokens, D = 256, float32: MHA and grouped-query
          attention with 4 heads, IHA with 4 heads of rank 16 in three ways, wider MHAs (iha-theory costs --help).
          "limit": the least that a matrix product's FLOP/s and a copy's bytes/s leave, over MHA's
  data    labels of CPM-3 in batches, by one thread, in its processor time, against the triple loop of the definition
  sweep   training runs as one batched program against the same runs one by one, with one thread
  verify  how far exact checks reach: the workspace up to 4096 tokens, the bank up to 1024 blocks; each check in a new
          process, its time and peak memory, and the exponents by which they grow
  rank    the same for exact ranks, and for all layers of `heads`, of sparse graphs up to 3000 nodes, k = 16

The ways run alternately in one process, so that what else the machine does hits all. A ratio is the median over the
repeats of one way's time over another's in the same repeat.

examples:
  iha-theory bench layer --json layer.json
  iha-theory bench layer --device cuda
  iha-theory bench sweep --repeats 9 --json bench.json
  iha-theory bench verify rank --json scaling.json      minutes

exit codes: 0, or 1 if a check of verify or rank does not hold; 2 bad usage.
"""

GRID = {"mha": range(1, 10), "iha": range(1, 5)}
"""Layers and heads of the runs: nine blocks of a 16 x 16 matrix, as in `iha-theory sweep polynomial`."""


NAMES = ("layer", "hybrid", "sweep", "decode", "data")
"""Measured if none are named."""
GROUP = "iha_theory.benchmarks"
"""Entry points of further ones, by name: functions of what was found so far and of the console, True if all holds."""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "bench",
        description="Measures speed as ratios on this machine.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; default all but verify and rank")
    parser.add_argument("--repeats", metavar="N", type=int, help="of each way; default 9, 3 for hybrid and sweep")
    parser.add_argument("--steps", metavar="N", type=int, default=200, help="sweep: of each run; default 200")
    parser.add_argument("--seeds", metavar="N", type=int, default=8, help="sweep: runs; default 8")
    parser.add_argument(
        "--device", metavar="DEVICE", default="cpu", help="layer, decode: cpu, cuda or cuda:1; default cpu"
    )
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures."""
    more = {entry.name: entry for entry in entry_points(group=GROUP)}
    unknown = [name for name in arguments.names if name not in (*NAMES, *more)]
    if unknown:
        raise ValueError(f"unknown benchmark {unknown[0]!r}: accepted are {', '.join((*NAMES, *more))}")
    for name in ("repeats", "steps", "seeds"):
        given = getattr(arguments, name)
        if given is not None and given < 1:
            raise ValueError(f"--{name} takes an integer of at least 1, got {given}")
    names = arguments.names or NAMES
    found: dict[str, Any] = {}
    with output.kept(arguments.json, "bench", lambda: found):
        return _measure(names, arguments, output.console(arguments.json), found)


def _measure(names: Sequence[str], arguments: argparse.Namespace, console: "Console", found: dict[str, Any]) -> int:
    """Fills `found`, benchmark by benchmark, and prints the tables."""
    if "layer" in names:
        found |= _layer(arguments.repeats or 9, arguments.device)
        columns = ("size", "way", "median ms", "over the first", "over MHA", "peak MiB", "of product", "n")
        rows = [
            (
                *(b["size"], b["way"], f"{1e3 * b['median_s']:.1f}", f"{b['over_first']:.2f}"),
                "" if b["over_mha"] is None else f"{b['over_mha']:.2f}",
                "" if b["peak_bytes"] is None else f"{b['peak_bytes'] / 2**20:.1f}",
                "" if b["share"] is None else f"{b['share']:.2f}",
                str(b["n"]),
            )
            for b in found["layers"]
        ]
        console.print(output.table([(name, i > 1) for i, name in enumerate(columns)], rows))
        product, copy = (x / 1e9 for x in found["peaks"].values())
        console.print(f"matrix product {product:.0f} GFLOP/s, copy {copy:.0f} GB/s")
        console.print(", ".join(f"{name} {value}" for name, value in found["environment"].items()))
    if "hybrid" in names:
        found["schedules"] = _hybrid(arguments.repeats or 3)
        columns = ("way", "median s", "over mha", "FLOPs over mha", "n")
        rows = [
            (s["way"], f"{s['median_s']:.3f}", f"{s['ratio']:.2f}", f"{s['flops_ratio']:.2f}", str(s["n"]))
            for s in found["schedules"]
        ]
        console.print(output.table([(name, i > 0) for i, name in enumerate(columns)], rows))
    if "sweep" in names:
        found["benchmarks"] = _sweep(arguments.steps, arguments.seeds, arguments.repeats or 3)
        rows = [(b["name"], f"{b['ratio']:.2f}", f"{b['median_s']:.3f}", str(b["n"])) for b in found["benchmarks"]]
        columns = ("benchmark", "times faster", "median s", "n")
        console.print(output.table([(name, i > 0) for i, name in enumerate(columns)], rows))
    if "decode" in names:
        from synthetic.training.speed import decoding

        decoding.run(arguments.repeats or 9, arguments.device, console, found)
    holds = True
    if "data" in names:
        from synthetic.training.speed import labels

        holds = labels.run(arguments.repeats or 9, console, found) == 0
    for entry in entry_points(group=GROUP):
        if entry.name in names:
            holds = entry.load()(found, console) and holds
    return 0 if holds else 1


def _layer(rounds: int, device: str) -> dict[str, Any]:
    """Time and memory of all ways at all sizes."""
    from iha_theory.speed import measure, ways
    from synthetic.training.program import find_device

    device = str(find_device(device))
    layers, peaks = [], measure.peaks(device)
    for size in (*ways.SIZES, ways.WINDOW):
        seconds = measure.alternated(ways.ways(size, device), rounds, device)
        first = next(iter(seconds))
        for name, own in seconds.items():
            layers.append(
                {
                    "size": str(size),
                    "way": name,
                    "median_s": statistics.median(own),
                    "least_s": min(own),
                    "over_first": _ratio(own, seconds[first]),
                    "over_mha": _ratio(own, seconds["mha"]) if "mha" in seconds else None,
                    "peak_bytes": measure.peak_memory(name, size, device),
                    "share": ways.kernel_flops(size) / min(own) / peaks["product_flops_per_s"]
                    if name == "kernel"
                    else None,
                    "n": rounds,
                }
            )
    return {"layers": layers, "peaks": peaks, "environment": measure.environment(device)}


def _hybrid(rounds: int) -> list[dict[str, Any]]:
    """Time and FLOPs of each schedule over those of MHA with all layers global."""
    from iha_theory.speed import measure
    from iha_theory.speed.schedule import BASE, Schedule

    size = Schedule()
    seconds = measure.alternated(size.passes(), rounds)
    return [
        {
            "way": name,
            "window": size.ways[name][1],
            "median_s": statistics.median(own),
            "ratio": _ratio(own, seconds[BASE]),
            "flops_ratio": size.flops(name) / size.flops(BASE),
            "n": rounds,
        }
        for name, own in seconds.items()
    ]


def _ratio(own: list[float], other: list[float]) -> float:
    """Median over the rounds."""
    return statistics.median(a / b for a, b in zip(own, other, strict=True))


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
