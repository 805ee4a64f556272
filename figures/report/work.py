"""What the report checks and counts now: statements, capacities, heads for graphs, the picture of heads; plain data."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from constructions import ledger
from constructions.heads import counting
from figures import heads as picture
from iha_theory import capacity
from iha_theory.bounds.beside import parity_of
from iha_theory.cli import output
from iha_theory.processes import Lost, spread
from synthetic import graphs

GRAPHS = ("karate", "les_miserables", "petersen", "cycle:16")
TOLERANCES = (0.0, 1e-1, 1e-2)
LONG = ("claim E12", "claim T14b", "claim P-attention-cost", "claim E3", "claim T14f", "picture bank, 64")
"""Pieces that start first. The graphs do, too."""


@dataclass(frozen=True)
class Wanted:
    """What the report is about.

    Attributes:
        statements: ids of the ledger.
        heads: numbers of heads in the capacity tables.
        graphs: names, families or files.
        directed: whether each line of an edge list is one arc.
        terms: k of the graphs' filter banks.
        tolerances: of the heads for graphs.
        picture: whether the picture of heads is checked anew; else the committed one stands.
    """

    statements: tuple[str, ...] = field(default_factory=lambda: tuple(s.id for s in ledger.statements()))
    heads: tuple[int, ...] = tuple(capacity.HEADS)
    graphs: tuple[str, ...] = GRAPHS
    directed: bool = False
    terms: int = 9
    tolerances: tuple[float, ...] = TOLERANCES
    picture: bool = True


@dataclass
class Found:
    """What came out.

    Attributes:
        claims: `Judgement.to_json` of each statement, in the ledger's order.
        capacities: rows of the capacity table, with "parity", "reached" and "proved" (as proved, or None).
        heads: for each graph what was read, and the rows of `HeadCount.to_json` with "failure".
        points: of the picture of heads.
        seconds: that it took.
    """

    claims: list[dict[str, Any]] = field(default_factory=list)
    capacities: list[dict[str, Any]] = field(default_factory=list)
    heads: list[dict[str, Any]] = field(default_factory=list)
    points: list[picture.Point] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failures(self) -> list[str]:
        """What does not hold, a line each."""
        out = [f"statement {c['id']} is not sound" for c in self.claims if not c["sound"]]
        for row in self.capacities:
            label = f"{row['layer']}, H = {row['heads']}"
            out += [f"capacity of {label}: rank {row['rank']}, bound {row['bound']}"] if not row["reached"] else []
            out += [f"parity by {label}: not as proved"] if row["proved"] is False else []
        for graph in self.heads:
            out += [f"{graph['graph']}, {r['layer']}: {r['failure']}" for r in graph["rows"] if r["failure"]]
        return out + [f"picture of heads: {p.task} {p.size}, {p.layer}" for p in self.points if p.verdict != "holds"]


def gather(wanted: Wanted, jobs: int | None = None) -> Found:
    """Does all of it, and shows progress.

    Args:
        wanted: what.
        jobs: processes; default one for each core. One is this process itself.

    Raises:
        ValueError: an unknown statement or graph, or a graph that cannot be read.
        OSError: a process that was killed twice.
    """
    started = time.monotonic()
    for spec in wanted.graphs:
        graphs.load(spec, wanted.directed)  # what is wrong with a file is said at once
    calls = _calls(wanted)
    done: dict[int, Any] = {}
    with output.bar("report", len(calls), every=10) as show:
        for index, result in _run(calls, jobs or len(os.sched_getaffinity(0))):
            if isinstance(result, Lost):
                raise OSError(f"{calls[index][1]}: {result.reason}")
            done[index] = result
            label = calls[index][1]
            show(label, len(done), f"{len(done)} of {len(calls)}: {label}")
    found = Found()
    for index, (kind, *_) in enumerate(calls):
        getattr(found, kind).extend(done[index])
    places = {name: i for i, name in enumerate(wanted.statements)}
    found.claims.sort(key=lambda claim: places[claim["id"]])
    found.heads.sort(key=lambda graph: wanted.graphs.index(graph["spec"]))
    found.seconds = time.monotonic() - started
    return found


def _calls(wanted: Wanted) -> list[tuple[str, str, Any]]:
    """(field of `Found`, label, argument) of each piece, the long ones first."""
    chosen = ledger.select(wanted.statements) if wanted.statements else []
    calls: list[tuple[str, str, Any]] = [("claims", f"claim {s.id}", s.id) for s in chosen]
    calls += [("capacities", f"capacity {label}", measure) for label, measure in capacity.table(wanted.heads)]
    about = (wanted.directed, wanted.terms, wanted.tolerances)
    calls += [("heads", f"heads of {spec}", (spec, *about)) for spec in wanted.graphs]
    if wanted.picture:
        calls += [("points", f"picture {label}", i) for i, (label, _) in enumerate(picture.steps())]
    return sorted(calls, key=lambda call: call[0] != "heads" and call[1] not in LONG)


def _run(calls: Sequence[tuple[str, str, Any]], jobs: int) -> Iterator[tuple[int, Any]]:
    if jobs == 1:
        return ((i, piece(kind, argument)) for i, (kind, _, argument) in enumerate(calls))
    return spread(piece, [(kind, argument) for kind, _, argument in calls], jobs)


def piece(kind: str, argument: Any) -> list[Any]:
    """The results of one piece, in whatever process; see `_calls`."""
    if kind == "claims":
        return [ledger.judge(*ledger.select([argument])).to_json()]
    if kind == "capacities":
        row = argument()
        bits = parity_of(row)
        proved = None if bits.bits is None else bits.holds
        return [asdict(row) | {"reached": row.reached, "parity": asdict(bits), "proved": proved}]
    if kind == "points":
        return list(picture.steps()[argument][1]())
    spec, directed, terms, tolerances = argument
    graph = graphs.load(spec, directed)
    tasks, settings = counting.tasks_of(counting.Wanted(graph, terms, 1, tolerances, None, counting.layers(None)))
    rows = [task.count(layer) for task in tasks for layer in counting.layers(None) if layer in task.layers]
    about = {"spec": spec, "graph": graph.name, "sentence": graphs.sentence(graph), "terms": terms}
    return [about | {"settings": settings, "rows": [row.to_json() | {"failure": row.failure} for row in rows]}]
