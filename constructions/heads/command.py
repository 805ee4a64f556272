"""`iha-theory heads`: how many heads a graph's filter bank needs, with certificates, and weights that do it."""

import argparse
from typing import Any

from iha_theory.cli import output
from iha_theory.memory import require_room

DEFAULT_TOLERANCES = (0.0, 1e-1, 1e-2, 1e-4, 1e-8)
LEAST_TOLERANCE = 1e-12

EPILOG = f"""\
layers:
  mha            multi-head attention: one attention map a head
  iha            interleaved head attention as in the paper: P = H pseudo-heads
  iha-tiled      with about sqrt H pseudo-heads: the same heads, far fewer attention maps (docs/results.md T6)
  iha-wide       the same with queries and keys of width H N; at tolerances above 0 only, where it reaches the bound
  mha-two-layer  two layers of MHA with so many heads each (docs/results.md T7)

columns:
  lower       heads that any weights need, for the attention named below the table (docs/bounds.md). At tolerance 0
              exact, with a certificate that was verified; above, numerical: from singular values in float64
  achieved    heads of weights that were loaded into a layer of this package, whose operator was then measured;
              above tolerance 0 once for all tolerances that it meets with no more heads than "lower"
  maps        attention maps of N x N: the attention cost in units of N^2
  parameters  counted, for content of width D
  error       at tolerance 0 the largest of an entry, in exact arithmetic; for large graphs, and weights that float64
              cannot hold, in float64 and relative to the sizes of an entry's addends. Above, |difference| / |target|

settings:
  Tolerance 0 is about [X, AX, ..., A^(k-1) X] of the matrix as given, or as --normalise says. Weights count as they are
  written (0.1 is one tenth), row-normalised ones are fractions; those of --normalise symmetric are rounded to float64.
  Tolerances above 0 are about the powers scaled to Frobenius norm 1: of the symmetric-normalised matrix if the graph is
  undirected and no weight is negative, else of the matrix as given; or as --normalise says. The error is the root mean
  square one for content with independent entries of mean 0 and variance 1. The least is {LEAST_TOLERANCE:g}.
  Files of weights: see constructions.heads.files.

large graphs:
  Up to 256 nodes the layers are read exactly (tolerance 0) or run on all basis contents (above). Beyond that operators
  are read from the layers' weights in float64, all of them above tolerance 0, on 16 random contents at 0; the layers
  themselves run on 32 random queries and keys and have to do what was read. Ranks and certificates are exact for all.

time:
  Grows as N^2 to N^3, and with k: docs/profile.md. Weights take most of the memory: up to two numbers for each head and
  pair of nodes, 2.3 GB for 16 heads and 3,000 nodes.

examples:
  iha-theory heads karate --terms 9
  iha-theory heads my.graphml --terms 16 --tolerance 0.1 0.01 --json heads.json
  iha-theory heads petersen --terms 9 --layer iha-tiled --tolerance 0 --weights petersen.safetensors
  iha-theory heads petersen --terms 9 --check-weights petersen.safetensors

exit codes: 0 the certificate is right and all weights do what they should, 1 not, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "heads",
        description="Lower bounds on the heads for [X, AX, ..., A^(k-1) X], exactly (certified) and at tolerances, "
        "beside the heads\nof weights that are loaded into layers and measured.",
        epilog=EPILOG,
    )
    defaults = " ".join(f"{e:g}" for e in DEFAULT_TOLERANCES)
    parser.add_argument("graph", metavar="GRAPH", help="built-in name or family, or a file")
    parser.add_argument("--terms", type=int, required=True, metavar="K", help="number of blocks k")
    parser.add_argument(
        "--tolerance", nargs="+", type=float, metavar="E", help=f"relative errors, 0 for exact; default {defaults}"
    )
    parser.add_argument("--layer", nargs="+", metavar="LAYER", help="only these layers; default all")
    parser.add_argument("--width", type=int, metavar="D", help="content width of the weights; default 1")
    parser.add_argument("--directed", action="store_true", help="each line of an edge list is one arc u -> v")
    parser.add_argument("--normalise", choices=("none", "row", "symmetric"), help="default: see settings below")
    parser.add_argument("--weights", metavar="FILE", help="write the weights of the smallest tolerance (safetensors)")
    parser.add_argument("--check-weights", metavar="FILE", help="verify the weights in such a file, nothing else")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Counts heads, or checks a file of weights."""
    from constructions.heads import check, counting
    from synthetic.graphs import load

    terms, tolerances = arguments.terms, arguments.tolerance or DEFAULT_TOLERANCES
    if terms < 1:
        raise ValueError(f"--terms takes an integer of at least 1, got {terms}")
    graph = load(arguments.graph, directed=arguments.directed)
    require_room("--terms", terms, lambda k: 8 * k * len(graph.nodes) ** 2)
    if arguments.check_weights is not None:
        others = ("tolerance", "layer", "width", "weights")
        if any(getattr(arguments, name) is not None for name in others):
            raise ValueError(f"--check-weights takes these from the file: leave out --{', --'.join(others)}")
        return check.check(arguments.check_weights, graph, terms, arguments.normalise, arguments.json)
    for e in tolerances:
        if not (e == 0 or LEAST_TOLERANCE <= e < 1):
            raise ValueError(f"--tolerance takes 0 (exact) or numbers from {LEAST_TOLERANCE:g} to below 1, got {e:g}")
    width = 1 if arguments.width is None else arguments.width
    if width < 1:
        raise ValueError(f"--width takes an integer of at least 1, got {width}")
    require_room("--width", width, lambda d: 8 * d * terms * len(graph.nodes))
    wanted = counting.Wanted(
        graph, terms, width, tuple(dict.fromkeys(tolerances)), arguments.normalise, counting.layers(arguments.layer)
    )
    return counting.count(wanted, arguments.weights, arguments.json)
