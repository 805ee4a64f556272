"""Time in alternation, and peak memory in a process of its own."""

import gc
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from iha_theory.speed.ways import Size, way

PEAK = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")
WARM_UP = 192
"""Virtual tokens of the pass before: enough to go the way that many take (`iha_theory.attention.patterns.DENSE`)."""


def alternated(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    device: str = "cpu",
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each way in each round. All ways run in each round, so that what else the machine does hits them all.

    A first round, which also warms up, does not count. `time.thread_time` as the clock is for what one thread does.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for i in range(-1, rounds):
        for name, run in ways.items():
            _wait(device)
            started = clock()
            run()
            _wait(device)
            if i >= 0:
                seconds[name].append(clock() - started)
    return seconds


def peaks(device: str = "cpu", rounds: int = 9) -> dict[str, float]:
    """What the machine does at most: FLOP/s of a float32 matrix product, bytes/s read and written by a copy."""
    a, b = torch.randn(2, 1024, 1024, device=device)
    source, target = torch.empty(2, 2**24, device=device)
    source.zero_()
    found = alternated({"product": lambda: torch.mm(a, b), "copy": lambda: target.copy_(source)}, rounds, device)
    return {
        "product_flops_per_s": 2 * len(a) ** 3 / min(found["product"]),
        "copy_bytes_per_s": 2 * source.nbytes / min(found["copy"]),
    }


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def peak_memory(name: str, size: Size, device: str = "cpu") -> int | None:
    """Bytes that a forward and backward pass takes at most, above the process with its parameters and inputs.

    Measured in a new process, where no earlier pass has left memory behind: resident memory on the CPU, and allocated
    memory on a GPU. None where the system does not tell (only Linux does).
    """
    if device == "cpu" and not RESET.exists():
        return None
    command = [sys.executable, "-m", __name__, name, device, *(str(n or 0) for n in vars(size).values())]
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


def _own_peak(run: Callable[[], None], small: Callable[[], None], device: str) -> int:
    small()  # loads what is loaded once
    gc.collect()
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        _wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    RESET.write_text("5")  # the peak is now what is resident
    before = _kilobytes("VmHWM")
    run()
    return 1024 * (_kilobytes("VmHWM") - before)


def _kilobytes(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", PEAK.read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


def environment(device: str) -> dict[str, Any]:
    """What the numbers hang on: versions, threads, processor."""
    return {
        "iha_theory": version("iha-theory"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "blas": "mkl" if torch.backends.mkl.is_available() else "other",
        "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(device),
        "machine": platform.machine(),
    }


def _main() -> None:
    name, device, *numbers = sys.argv[1:]
    tokens, heads, pseudo, window = (int(n) for n in numbers)
    size = Size(tokens, heads, pseudo, window or None)
    small = Size(-(-WARM_UP // pseudo), heads, pseudo, 8 if window else None)
    print(_own_peak(way(name, size, device), way(name, small, device), device))


if __name__ == "__main__":
    _main()
