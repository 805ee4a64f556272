"""`iha-theory verify`: runs the construction checks."""

import argparse
import os
import sys
import time
from collections import defaultdict
from typing import Any

from iha_theory.cli import output
from iha_theory.memory import require_room

LEAST_NODES = 10
"""Of the built-in graphs that are checked."""

EPILOG = """\
names:
  bank        [X, AX, ..., A^(k-1) X] by MHA with k heads and by IHA with ceil(sqrt k)
  cpm3        counting pairs with x_i + G x_j + x_l = 0 mod M, by N_max and ceil(sqrt N_max) heads; and by one or two
              heads of MHA with content in the keys, and with many tokens packed into one number
  causal      the bank of a lower-triangular matrix, and CPM-3 over the tokens so far, under the causal mask
  better      the bank with fewer attention maps, by tiles; two layers of MHA; fewer heads where powers are dependent
  inclusion   every MHA is an IHA
  strictness  some IHA is no MHA
  convolution any K x K convolution by K^2 MHA heads and K IHA heads, with certified lower bounds
  ssm         linear state-space models and FIR filters of order n by n and ceil(sqrt n) heads, the same
  parity      of k bits at a query token, by softmax with content anywhere: k MHA heads, ceil(sqrt k) IHA heads; and
              parity-more: 1000 layers of 1, 4 and 9 rows with random weights, none of which does one bit more (20 of
              9 rows where this is not all that is checked)
  relations   paths of 2 and 3 steps on m points by two heads that see content, and m heads that count them
  a graph     the bank on that graph only: karate, les_miserables, florentine, davis, petersen, or a family
              such as cycle:16 or random:20

  a file      the bank on the graph in it, as with --graph
  Families: cycle:N and path:N (directed), ring:N, complete:N, star:N, grid:RxC, hypercube:D, gnp:N:p, regular:N:d,
  random:N (directed, weights -3..3). karate, les_miserables, florentine and davis have weights 0 and 1.

files:
  Edge list, one edge 'u v [weight]' a line: tabs, semicolons, commas or blanks between, the same in the whole file, and
  as many columns on every line. Lines that start with # or % are comments; a first line 'source target weight' is a
  header; "..." holds any label; a line with one label is a node without edges. Undirected, or arcs with --directed.
  GraphML and Matrix Market say their direction themselves; an .npz holds one matrix. Repeated edges add up, so an
  undirected list has each edge once. Weights are what is written: 0.1 is one tenth, 1/3 a third. What was read is said
  in a line; what does not fit is refused with its line.

the table:
  A row is one setting of a check and holds several: both layers, both tiers, for cpm3 all pairs (M, G). Empty: not run.
  "exact" is no rounding; --json says what was compared, and with which failure probability where it was a random case.

examples:
  iha-theory verify                                  everything, about a minute on a busy machine
  iha-theory verify karate --terms 9                 3 IHA heads against 9 MHA heads
  iha-theory verify --graph my.graphml --terms 9 16  your own graph: edge list, GraphML, Matrix Market, .npz
  iha-theory verify cpm3 --n-max 9 --modulus 5 --coefficient 11
  iha-theory verify --mutants                        damaged constructions, which every check must catch

exit codes: 0 every check holds (every mutant that changes the function is caught), 1 not, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "verify",
        description="Loads explicit weights into real attention layers and compares their operators with independent\n"
        "answers: exactly (over the rationals, or modulo primes), and in float64 within a derived bound.",
        epilog=EPILOG,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to check; default everything")
    parser.add_argument(
        "--graph", action="append", default=[], metavar="GRAPH", help="check the bank on this built-in graph or file"
    )
    parser.add_argument("--directed", action="store_true", help="each line of an edge list is one arc u -> v")
    parser.add_argument("--normalise", choices=("none", "row", "symmetric"), default="none", help="default: none")
    parser.add_argument("--terms", nargs="+", type=int, metavar="K", help="bank: number of blocks k, several allowed")
    parser.add_argument("--n-max", nargs="+", type=int, metavar="N", help="cpm3: sequence lengths; default 1 to 26")
    parser.add_argument("--modulus", type=int, metavar="M", help="cpm3: with --coefficient, one task")
    parser.add_argument("--coefficient", type=int, metavar="G", help="cpm3: any integer")
    parser.add_argument("--exact-only", action="store_true", help="leave out the float64 tier")
    parser.add_argument(
        "--mutants", action="store_true", help="damage small constructions and what builds them; the checks must notice"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="J",
        default=len(os.sched_getaffinity(0)),
        help="processes, at most; default the number of cores",
    )
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the checks, or the mutants."""
    if arguments.jobs < 1:
        raise ValueError(f"--jobs takes an integer of at least 1, got {arguments.jobs}")
    if arguments.mutants:
        return _mutants(arguments)
    options, steps, graphs = _plan(arguments)
    results: list[Any] = []
    started = time.monotonic()
    with output.kept(arguments.json, "verify", lambda: graphs | {"checks": [result.to_json() for result in results]}):
        _run("steps", options, arguments.jobs, steps, results)
    failed = [result for result in results if not result.holds]
    out = output.console(arguments.json)
    out.print(_table(results))
    for result in failed:
        out.print(f"FAILS {result.id}: error {result.error:.3g}, bound {result.bound:.3g}")
    out.print(_summary(results, failed, time.monotonic() - started), soft_wrap=True)
    return 1 if failed else 0


def _run(made: str, options: dict[str, Any], jobs: int, work: list[Any], results: list[Any]) -> None:
    """Puts the results of `constructions.suite.run` into the list, in the order of the work, also when stopped."""
    from constructions import suite

    found: dict[int, list[Any]] = {}
    text = "mutants" if made == "mutants" else "verify"
    try:
        with output.bar(text, len(work)) as show:
            for i, part in suite.run(made, options, jobs, work):
                found[i] = part
                show(f"{text}: {work[i].label}", len(found))
    finally:
        results.extend(result for i in sorted(found) for result in found[i])


def _plan(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[Any], dict[str, Any]]:
    """What makes the steps, the steps, and what was read of graphs that were given, as JSON fields."""
    from constructions import suite
    from synthetic.graphs import fields, load, normalise, sentence

    groups = [name for name in arguments.names if name in suite.GROUPS]
    specs = [name for name in arguments.names if name not in suite.GROUPS]
    specs = list(dict.fromkeys(specs + arguments.graph))
    given = [load(spec, directed=arguments.directed) for spec in specs]
    graphs = [normalise(graph, arguments.normalise) for graph in given]
    if not groups and not graphs:
        groups = list(suite.GROUPS)
    if graphs and "bank" not in groups:
        groups.append("bank")
    unused = [
        ("--terms", arguments.terms, "bank" in groups),
        ("--n-max", arguments.n_max, "cpm3" in groups),
        ("--modulus", arguments.modulus, "cpm3" in groups),
        ("--coefficient", arguments.coefficient, "cpm3" in groups),
        ("--directed", arguments.directed or None, bool(graphs)),
        ("--normalise", None if arguments.normalise == "none" else arguments.normalise, bool(graphs)),
    ]
    for option, value, used in unused:
        if value is not None and not used:
            names = "a graph" if option in ("--directed", "--normalise") else "bank" if option == "--terms" else "cpm3"
            raise ValueError(f"{option} is for {names}, which is not checked here: leave it out")
    options: dict[str, Any] = {"groups": groups, "graphs": graphs or None, "exact_only": arguments.exact_only}
    for name, least in (("terms", 1), ("n_max", 1)):
        values = getattr(arguments, name)
        if values is not None:
            if min(values) < least:
                raise ValueError(f"--{name.replace('_', '-')} takes integers of at least {least}, got {min(values)}")
            options[name] = list(dict.fromkeys(values))
    nodes = max((len(graph.nodes) for graph in graphs), default=LEAST_NODES)
    require_room("--terms", max(options.get("terms", [0])), lambda k: 16 * k * nodes**2)
    require_room("--n-max", max(options.get("n_max", [0])), lambda n: 16 * n**3)
    if (arguments.modulus is None) != (arguments.coefficient is None):
        raise ValueError("--modulus and --coefficient go together")
    if arguments.modulus is not None:
        if arguments.modulus < 1:
            raise ValueError(f"--modulus takes an integer of at least 1, got {arguments.modulus}")
        options["tasks"] = [(arguments.modulus, arguments.coefficient)]
    steps = suite.steps(**options)
    if not steps:
        raise ValueError("nothing to check: strictness has no exact tier, leave out --exact-only")
    for graph in given:
        print(sentence(graph), file=sys.stderr)
    read = {"graphs": [{"graph": graph.name} | fields(graph) for graph in given]} if given else {}
    return options, steps, read


def _table(results: list[Any]) -> Any:
    """One line a setting: heads of both layers and the largest error of each tier."""
    rows: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        parts = result.id.split("/")[:-2]
        label = "/".join(parts[:2]) if parts[0] == "cpm3" else "/".join(parts)
        rows[label][result.layer].append(result)
        rows[label][result.tier].append(result)

    def heads(group: list[Any]) -> str:
        return str(group[0].heads) if group else ""

    def errors(group: list[Any]) -> str:
        return f"{max(group, key=lambda r: r.error).error:.2g}" if group else ""

    lines = []
    for label, by in rows.items():
        every = by["mha"] + by["iha"]
        verdict = "holds" if all(r.holds for r in every) else "FAILS"
        lines.append((label, heads(by["mha"]), heads(by["iha"]), errors(by["exact"]), errors(by["float64"]), verdict))
    names = ("check", "MHA heads", "IHA heads", "exact error", "float64 error", "")
    return output.table([(name, 0 < i < 5) for i, name in enumerate(names)], lines)


def _summary(results: list[Any], failed: list[Any], seconds: float) -> str:
    exact = sum(result.tier == "exact" for result in results)
    kinds = f"{exact} exact with error 0, {len(results) - exact} in float64 within their bounds"
    if failed:
        return f"{len(failed)} of {len(results)} checks FAIL ({seconds:.0f} s)"
    return f"All {len(results)} checks hold: {kinds} ({seconds:.0f} s)."


def _mutants(arguments: argparse.Namespace) -> int:
    from constructions import suite

    names = ("graph", "directed", "terms", "n_max", "modulus", "coefficient", "exact_only")
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) not in (None, False, [])]
    given += ["--normalise"] * (arguments.normalise != "none") + ["names"] * bool(arguments.names)
    if given:
        raise ValueError(f"--mutants runs on fixed small cases: leave out {', '.join(given)}")
    results: list[Any] = []

    def lists() -> dict[str, Any]:
        kinds = {"mutants": [r for r in results if r.changes], "unchanged": [r for r in results if not r.changes]}
        return {name: [r.to_json() for r in rs] for name, rs in kinds.items()}

    started = time.monotonic()
    with output.kept(arguments.json, "verify", lists):
        work = suite.mutants()  # takes seconds: may be stopped too
        _run("mutants", {}, arguments.jobs, work, results)
    out = output.console(arguments.json)
    lines = []
    for check in dict.fromkeys(r.check for r in results):
        own = [r for r in results if r.check == check]
        changing = [r for r in own if r.changes]
        caught = sum(r.killed for r in changing)
        lines.append((check, str(len(changing)), str(caught), ", ".join(r.mutant for r in own if not r.changes)))
    names = ("check", "mutants", "caught", "and these change nothing")
    out.print(output.table([(name, i in (1, 2)) for i, name in enumerate(names)], lines))
    changing = [r for r in results if r.changes]
    survivors = [r for r in changing if not r.killed]
    for r in survivors:
        out.print(f"SURVIVES {r.mutant} of {r.check}")
    seconds = time.monotonic() - started
    out.print(
        f"{len(changing) - len(survivors)} of {len(changing)} mutants that change the function are caught;"
        f" {len(results) - len(changing)} more leave it as it is ({seconds:.0f} s).",
        soft_wrap=True,
    )
    return 1 if survivors else 0
