"""Calls spread over processes of one thread each, none of which outlives this one.

A process (`serve`) reads pickled calls from standard input and writes what they return to standard output. It ends when
its standard input does, however this process ended, on Linux also in the middle of a long call of C code.
"""

import contextlib
import ctypes
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

TRIES = 2
"""Processes that a call may cost."""
PATIENCE_S = 5
PR_SET_PDEATHSIG = 1
START = "import sys; sys.path[:] = {path!r}; from iha_theory.processes import serve; serve()"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True)
class Lost:
    """Instead of the result of a call whose process died, and died again when the call was made again.

    Attributes:
        reason: how it died.
    """

    reason: str


def spread(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, Any]]:
    """The index and the result of each call, as they come; `Lost` for a call that cost `TRIES` processes.

    Args:
        function: of a module; it and what it takes, returns and raises are pickled.
        calls: the arguments of each call, started in this order.
        jobs: how many processes, at most.

    Raises:
        Exception: what a call raises; the other calls are then given up.
    """
    todo: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, bool, Any]] = queue.SimpleQueue()
    for index in range(len(calls)):
        todo.put((index, 1))
    processes: set[subprocess.Popen[bytes]] = set()
    stopped = threading.Event()

    def work() -> None:
        process = None
        while not stopped.is_set():
            try:
                index, tried = todo.get_nowait()
            except queue.Empty:
                break
            try:
                if process is None:
                    processes.add(process := _start())
                    if stopped.is_set():  # too late for the others' end
                        break
                done.put((index, *_call(process, (function, calls[index]))))
            except (EOFError, BrokenPipeError, pickle.UnpicklingError):
                assert process is not None
                with contextlib.suppress(subprocess.TimeoutExpired):  # it is about to end by itself
                    process.wait(PATIENCE_S)
                _end(process)
                processes.discard(process)
                reason, process = _fate(process.returncode), None
                if tried < TRIES:
                    todo.put((index, tried + 1))
                else:
                    done.put((index, True, Lost(reason)))
            except Exception as error:  # such as one that cannot be pickled
                done.put((index, False, error))
        if process is not None:
            _end(process)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(min(jobs, len(calls)))]
    try:
        for thread in threads:
            thread.start()
        for _ in calls:
            index, good, value = done.get()
            if not good:
                raise value
            yield index, value
    finally:
        stopped.set()
        for process in list(processes):
            process.kill()
        for thread in threads:
            thread.join()


def _start() -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", START.format(path=sys.path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | ONE_THREAD)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    with contextlib.suppress(OSError):  # what it did not read
        process.communicate()


def _call(process: "subprocess.Popen[bytes]", call: Any) -> tuple[bool, Any]:
    """Whether the call returned, and what it returned or raised."""
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(pickle.dumps(call), process.stdin)
    process.stdin.flush()
    return pickle.load(process.stdout)


def _fate(status: int) -> str:
    if status >= 0:
        return f"its process ended with exit code {status}"
    return f"its process was killed ({signal.Signals(-status).name}), for instance for lack of memory"


def serve() -> None:
    """What a process does: calls one after another, until standard input ends. What they print is for people."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    with contextlib.suppress(OSError, AttributeError):  # another system than Linux
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def listen() -> None:
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                calls.put(pickle.load(sys.stdin.buffer))
        os._exit(0)

    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)
        threading.Thread(target=listen, daemon=True).start()
        while True:
            answer: tuple[bool, Any]
            try:
                function, arguments = pickle.loads(calls.get())
                answer = True, function(*arguments)
            except SystemExit as error:
                os._exit(error.code if isinstance(error.code, int) else 1)
            except Exception as error:
                answer = False, error
            try:
                content = pickle.dumps(answer)
            except Exception as error:
                content = pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))
            results.write(content)
            results.flush()
