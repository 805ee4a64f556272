"""What the scaling tables measure: one row is one check at one size, in a process of its own.

`python -m constructions.scaling.rows NAME SIZE` runs a row and prints it as JSON: wall and processor seconds without
the start of Python, the process's peak of resident memory, and what came out.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import torch

from constructions.checks.operators import exact_gap
from constructions.checks.oracles.workspace import slots
from constructions.cpm3.workspace import workspace
from constructions.heads.approximate import ApproximateTask, unit_powers
from constructions.heads.count import HeadCount
from constructions.heads.exact import ExactTask
from constructions.scaling.workspace import index_gap, indexed, sampled_gap
from constructions.suite.every_matrix import bank_random
from iha_theory.bounds.certificates import refusal
from iha_theory.bounds.exact_rank import power_rank
from synthetic.graphs import Graph, normalise

TERMS = 16
"""k of the rows about graphs."""
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
"""Those above 0 that `iha-theory heads` takes if none are given."""
BANK_NODES = 128
"""N of the rows about the bank."""
Outcome = tuple[bool, str]
"""Whether it holds, and what came out."""


def sparse_graph(nodes: int) -> Graph:
    """Three edges a node: a preferential-attachment graph (Barabasi and Albert 1999), seed 0."""
    edges = nx.barabasi_albert_graph(nodes, 3, seed=0)
    return Graph.from_matrix(nx.to_numpy_array(edges).astype(np.int64), name=f"sparse:{nodes}")


def workspace_by_indices(layer: str, tokens: int) -> Outcome:
    """`constructions.scaling.workspace`, all indices, and the hard attention on a sample."""
    given = indexed(layer, tokens)
    wrong, gap = index_gap(given), sampled_gap(given)
    return wrong == gap == 0, f"{given.heads} heads, {wrong} of {tokens**2} entries wrong"


def workspace_as_operator(tokens: int) -> Outcome:
    """IHA's workspace as a layer with matrices, its operator over the rationals."""
    construction = workspace("iha", tokens)
    return exact_gap(construction, slots(tokens)) == 0, f"{construction.heads} heads"


def bank(layer: str, terms: int) -> Outcome:
    """k blocks for N = `BANK_NODES`, modulo a prime at a random matrix."""
    result = bank_random(layer, BANK_NODES, terms)
    return result.holds, f"{result.heads} heads"


def rank(nodes: int) -> Outcome:
    """The exact rank of k powers, and its certificate checked."""
    graph = sparse_graph(nodes)
    found = power_rank(graph.adjacency, TERMS)
    assert found.certificate is not None
    return refusal(found.certificate, graph.adjacency, TERMS) is None, f"rank {found.rank}"


def exact_heads(nodes: int) -> Outcome:
    """All layers at tolerance 0."""
    task = ExactTask(sparse_graph(nodes), TERMS)
    return _said([task.count(layer) for layer in task.layers])


def heads(nodes: int) -> Outcome:
    """All layers at all `TOLERANCES`, numerically."""
    powers = unit_powers(normalise(sparse_graph(nodes), "symmetric"), TERMS)
    measured: list[HeadCount] = []
    tasks = [ApproximateTask(powers, e, measured) for e in TOLERANCES]
    return _said([task.count(layer) for task in tasks for layer in task.layers])


def _said(found: list[HeadCount]) -> Outcome:
    tight = sum(row.achieved == row.lower for row in found)
    return all(row.failure is None for row in found), f"{tight} of {len(found)} bounds achieved"


ROWS: dict[str, Callable[[int], Outcome]] = {
    "workspace/iha": lambda n: workspace_by_indices("iha", n),
    "workspace/iha-tiled": lambda n: workspace_by_indices("iha-tiled", n),
    "workspace/mha": lambda n: workspace_by_indices("mha", n),
    "workspace-operator/iha": workspace_as_operator,
    "bank/iha": lambda k: bank("iha", k),
    "bank/mha": lambda k: bank("mha", k),
    "rank": rank,
    "heads-exact": exact_heads,
    "heads": heads,
}


def measured(name: str, size: int) -> dict[str, Any]:
    """A row, from a new process.

    Raises:
        RuntimeError: the process failed; with its last line.
    """
    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    command = [sys.executable, "-m", __name__, name, str(size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, err = process.communicate()
    except BaseException:  # Ctrl-C: no process is left behind
        process.kill()
        process.wait()
        raise
    if process.returncode:
        raise RuntimeError(f"{name} {size}: {(err.strip().splitlines() or ['it was killed'])[-1]}")
    return json.loads(out)


def _main() -> None:
    import resource

    name, size = sys.argv[1], int(sys.argv[2])
    started, used = time.perf_counter(), time.process_time()
    holds, outcome = ROWS[name](size)
    seconds, cpu = time.perf_counter() - started, time.process_time() - used
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    row = {"name": name, "size": size, "seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}
    print(json.dumps(row | {"holds": holds, "outcome": outcome}))


if __name__ == "__main__":
    _main()
