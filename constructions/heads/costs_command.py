"""`iha-theory costs`: parameters, FLOPs and caches, formula and counted, and where IHA needs fewer."""

import argparse
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from iha_theory.cli import output

if TYPE_CHECKING:  # torch takes seconds to import: only when counting
    from constructions.heads.costs import LayerCost
    from iha_theory.costs.crossovers import Crossover

TASKS = ("bank", "cpm3")
BANK_TOKENS, BANK_TERMS, CPM3_TOKENS = (34,), (4, 9, 16, 25), (4, 9, 16, 25)
PRICE_TOKENS = 1024

EPILOG = """\
layers, each with the explicit weights of the task:
  mha            one layer, k heads (cpm3: N)
  iha            the paper's: H = ceil(sqrt k) heads, P = H pseudo-heads
  iha-tiled      H = ceil(sqrt k) heads, P about sqrt(H)
  mha-two-layer  two layers of MHA, H = ceil(sqrt k) heads each

the table:
  cpm3 has the attention that writes the workspace, and the total with the MLP that counts the N^2 pairs.
  parameters, FLOPs: the formula, then what the built layer has and spends; "paper": its printed parameters.
  FLOPs are the multiplications and additions in products of matrices, of one sequence; masks save none.
  N tokens, d width of the content, k terms, H heads, P pseudo-heads, maps H P^2: tokens by tokens.
  cache: numbers of a token that layers of this shape keep in generation, and, if others, with pseudo-heads kept;
  the formula is compared with a cache that took up tokens. Last: whether formulas and counts are equal.

a capacity's price, with --heads H:
  The least P, and the collapse, with which H heads of IHA have rank R (or R rows of softmax: --of), beside MHA and
  grouped-query attention (gqa) with H heads. IHA may keep base heads and mix their maps ("mixed maps"), form
  pseudo-heads anew, or keep them. MHAs with more heads, as wide: "equal rows", "equal rank", "equal maps" as that IHA,
  or as R asks; "narrow": R heads in the same width.
  H, P, collapse  heads, pseudo-heads, and how IHA reads these out; d: width of a head
  rank            how many linear maps of tokens content can be mixed by (iha-theory capacity --help)
  rows            rows of softmax that a token has over all heads and pseudo-heads: as many bits of parity
  maps            of N x N: H, of IHA H P^2
  parameters      of the layer
  FLOPs           of one token in generation that sees N
  cache           numbers kept of a token; "/ rank", "/ row": for each unit of rank, for each row
  FLOPs / byte    of attention for each byte of a float32 cache that is read
  counted         whether a built layer has these parameters, FLOPs and cache

crossovers:
  Sizes from 1 to 10^6 are all compared, exactly. "Never" is a proof for all sizes where it says so. k may
  be larger than N; in the end the paper's 4 H^3 mixing parameters outgrow the saving.

examples:
  iha-theory costs                                     both tasks, well under a minute
  iha-theory costs --task bank --tokens 128 --width 8 --terms 16 64
  iha-theory costs --task cpm3 --tokens 9 17 --json costs.json
  iha-theory costs --heads 4 --capacity 16
  iha-theory costs --heads 8 --capacity 24 --of rows --embed-dim 1024

exit codes: 0 every formula equals the count, 1 not, 2 bad usage.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "costs",
        description="Parameters, FLOPs and caches of the constructions: closed forms beside what the built torch\n"
        "layers have, spend and keep, the sizes from which on a layer needs fewer than MHA, and what a capacity costs.",
        epilog=EPILOG,
    )
    parser.add_argument("--task", nargs="+", choices=TASKS, help="default: both")
    parser.add_argument("--tokens", nargs="+", type=int, metavar="N", help="default: bank 34, cpm3 4 9 16 25")
    parser.add_argument("--width", type=int, metavar="D", help="bank: the content's width d; default 1")
    parser.add_argument("--terms", nargs="+", type=int, metavar="K", help="bank: blocks k; default 4 9 16 25")
    parser.add_argument("--heads", type=int, metavar="H", help="what a capacity costs with H heads, and nothing else")
    parser.add_argument("--capacity", type=int, metavar="R", help="the capacity; default the most of H heads, H^2")
    parser.add_argument("--of", choices=("rank", "rows"), help="what is to be R; default rank")
    parser.add_argument("--embed-dim", type=int, metavar="D", help="width of the layer; default 64 H")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Counts, compares, and searches the crossovers."""
    price = {name: getattr(arguments, name) for name in ("heads", "capacity", "of", "embed_dim")}
    if arguments.heads is not None:
        return _price(arguments)
    for name, value in price.items():
        if value is not None:
            raise ValueError(f"--{name.replace('_', '-')} goes with --heads: give the number of heads")
    tasks: list[str] = list(dict.fromkeys(arguments.task or TASKS))
    for name in ("tokens", "width", "terms"):
        values = getattr(arguments, name)
        least = min(values) if isinstance(values, list) else values
        if least is not None and least < 1:
            raise ValueError(f"--{name} takes integers of at least 1, got {least}")
        if values is not None and name != "tokens" and "bank" not in tasks:
            raise ValueError(f"--{name} is for the bank: leave it out, or add bank to --task")
    import sympy

    from constructions.cpm3.build import require_buildable
    from constructions.heads.costs import layer_costs
    from iha_theory.costs.formulas import LAYERS, symbolic

    width = 1 if arguments.width is None else arguments.width
    terms = list(dict.fromkeys(arguments.terms or BANK_TERMS))
    bank_tokens = list(dict.fromkeys(arguments.tokens or BANK_TOKENS))
    cpm3_tokens = list(dict.fromkeys(arguments.tokens or CPM3_TOKENS))
    sizes: list[tuple[Any, int, int, int]] = []
    if "bank" in tasks:
        sizes += [("bank", n, width, k) for n in bank_tokens for k in terms]
    if "cpm3" in tasks:
        sizes += [("cpm3", n, 1, n) for n in cpm3_tokens]
    steps = [(f"{task} N = {n}, {layer}", (task, layer, n, d, k)) for task, n, d, k in sizes for layer in LAYERS]
    for _, size in steps:
        require_buildable(*size)
    rows: list[LayerCost] = []
    crossovers: list[Crossover] = []
    formulas = [
        {
            "layer": layer,
            "parameters": str(sympy.factor(sum(s.parameters for s in symbolic(layer)))),
            "flops": str(sympy.factor(sum(s.flops for s in symbolic(layer)))),
        }
        for layer in LAYERS
    ]

    def fields() -> dict[str, Any]:
        found = {"costs": [row.to_json() for row in rows], "crossovers": [asdict(c) for c in crossovers]}
        return {**found, "formulas": formulas}

    started = time.monotonic()
    with output.kept(arguments.json, "costs", fields):
        for size in output.progress(steps, "costs"):
            rows += layer_costs(*size)
        searches = [(f"crossovers of {layer}", layer) for layer in LAYERS if layer != "mha"]
        for layer in output.progress(searches, "costs"):
            crossovers += _crossovers(layer, tasks, bank_tokens, width, terms)
    out = output.console(arguments.json)
    out.print(_table(rows))
    out.print("\nParameters of the attention, H = ceil(sqrt k); for CPM-3 d = 1 and k = N (FLOPs: --json):")
    for formula in formulas:
        out.print(f"  {formula['layer']:14}{formula['parameters']}", soft_wrap=True)
    out.print("\nFewer than one-layer MHA, sizes 1 to 10^6:")
    for c in crossovers:
        out.print(f"  {_sentence(c)}", soft_wrap=True)
    failed = [row for row in rows if not row.agrees]
    for row in failed:
        out.print(
            f"DIFFERS {row.task} {row.layer} {row.part}, N = {row.tokens}, d = {row.width}, k = {row.size}: parameters"
            f" {row.parameters_formula}, counted {row.parameters_counted}; FLOPs {row.flops_formula}, counted"
            f" {row.flops}; cache {row.cache_formula}, counted {row.cache_counted}; of pseudo-heads"
            f" {row.mixed_cache_formula}, counted {row.mixed_cache_counted}",
            soft_wrap=True,
        )
    seconds = time.monotonic() - started
    out.print(
        f"\n{len(failed)} of {len(rows)} rows DIFFER from their formulas ({seconds:.0f} s)"
        if failed
        else f"\nAll {len(rows)} rows have the parameters, FLOPs and cache of their formulas ({seconds:.0f} s).",
        soft_wrap=True,
    )
    return 1 if failed else 0


def _price(arguments: argparse.Namespace) -> int:
    """The table of a capacity's price."""
    for name in ("task", "width", "terms"):
        if getattr(arguments, name) is not None:
            raise ValueError(f"--{name} is for the constructions' costs: leave it out with --heads")
    tokens = arguments.tokens or [PRICE_TOKENS]
    if len(tokens) > 1 or tokens[0] < 1:
        raise ValueError(f"--tokens takes one integer of at least 1 with --heads, got {' '.join(map(str, tokens))}")
    for name in ("heads", "capacity", "embed_dim"):
        if (value := getattr(arguments, name)) is not None and value < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be an integer of at least 1, got {value}")
    from constructions.heads.prices import priced

    heads, of = arguments.heads, arguments.of or "rank"
    capacity = heads**2 if arguments.capacity is None else arguments.capacity
    width = 64 * heads if arguments.embed_dim is None else arguments.embed_dim
    output.prepare_json(arguments.json)
    rows, table = priced(heads, capacity, of, width, tokens[0])
    out = output.console(arguments.json)
    out.print(table)
    if not any(row["layer"].endswith("narrow") for row in rows):
        why = f"its {capacity} heads do not divide the width {width} (--embed-dim)"
        why = f"mha has {of} {capacity} with its {heads} heads" if capacity <= heads else why
        out.print(f'No line "narrow": {why}.', soft_wrap=True)
    wrong = sum(not row["agrees"] for row in rows)
    out.print(
        f"{wrong} of {len(rows)} layers DIFFER from their formulas"
        if wrong
        else f"All {len(rows)} layers have the parameters, FLOPs at {tokens[0]} tokens, and cache of their formulas."
    )
    output.write_json(arguments.json, "costs", {"complete": True, "prices": rows})
    return 1 if wrong else 0


def _crossovers(layer: str, tasks: list[str], tokens: list[int], width: int, terms: list[int]) -> "list[Crossover]":
    """Of one layer: along k for every N, along N for every k, and CPM-3's along N."""
    from iha_theory.costs.crossovers import bank_crossover, cpm3_crossover

    found = []
    for quantity in ("parameters", "flops"):
        if "bank" in tasks:
            found += [bank_crossover(layer, quantity, width=width, tokens=n) for n in tokens]
            found += [bank_crossover(layer, quantity, width=width, terms=k) for k in terms]
        if "cpm3" in tasks:
            found += [cpm3_crossover(layer, quantity, mlp=mlp) for mlp in (False, True)]
    for quantity in ("cache",) if layer == "mha-two-layer" else ("cache", "mixed_cache"):
        if "bank" in tasks:
            found += [bank_crossover(layer, quantity, width=width, tokens=n) for n in tokens]
        if "cpm3" in tasks:
            found.append(cpm3_crossover(layer, quantity, mlp=False))
    return found


def _table(rows: "list[LayerCost]") -> Any:
    names = (
        "task",
        "layer",
        "N",
        "d",
        "k",
        "H",
        "P",
        "maps",
        "parameters",
        "counted",
        "paper",
        "FLOPs",
        "counted",
        "cache",
        "",
    )
    lines = [
        (
            f"{row.task} {row.part}" if row.task == "cpm3" else row.task,
            row.layer,
            *map(str, (row.tokens, row.width, row.size, row.heads, row.pseudo_heads, row.attention_maps)),
            str(row.parameters_formula),
            str(row.parameters_counted),
            "" if row.parameters_paper is None else str(row.parameters_paper),
            str(row.flops_formula),
            str(row.flops),
            f"{row.cache_formula}" + f" or {row.mixed_cache_formula}" * (row.mixed_cache_formula != row.cache_formula),
            "equal" if row.agrees else "DIFFERS",
        )
        for row in rows
    ]
    return output.table([(name, 1 < i < 14) for i, name in enumerate(names)], lines)


def _sentence(c: "Crossover") -> str:
    size = "k" if c.along == "terms" else "N"
    fixed = (
        "" if c.task == "cpm3" else f" d = {c.width}, " + (f"N = {c.tokens}" if c.terms is None else f"k = {c.terms}")
    )
    what = {"flops": "FLOPs", "mixed_cache": "cache of pseudo-heads"}.get(c.quantity, c.quantity)
    part = "" if c.task == "bank" else (" total" if c.mlp else " attention")
    label = f"{c.layer}, {c.task}{part}{fixed}, {what}:"
    if c.first is None:
        return f"{label} never ({'proved for all sizes' if c.proved else f'{size} up to {c.searched}'})"
    gaps = f"first at {size} = {c.first}, " if c.first != c.run_from else ""
    end = "on" if c.run_to == c.searched else f"to {c.run_to}"
    last = f", last at {c.last}" if c.last != c.run_to else ""
    return f"{label} {gaps}from {size} = {c.run_from} {end}{last}"
