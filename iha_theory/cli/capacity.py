"""`iha-theory capacity`: measured operator rank beside its bound."""

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from iha_theory import options
from iha_theory.cli import output

if TYPE_CHECKING:  # torch takes seconds to import: only when measuring
    from iha_theory.capacity import Capacity

WIDTH_PER_HEAD = 8

EPILOG = f"""\
The operator Schmidt rank of layer(positions, positions, X) is the least number of terms S X B that make it up: how many
different attention maps the content X can be mixed by. The bounds are proved in iha_theory.capacity.capacity_bound:
  mha, mqa, gqa, talking-heads, differential   H
  iha, global collapse                         min(H^2, H P^2)
  iha, per-head collapse                       min(H^2, H P)
  two-layer                                    H^2
  simplicial                                   H d_v, here d_v = 4
and measured with random parameters. The gap is the last singular value that counts over the first that does not.

your own layer:
  MODULE:NAME is looked up from the current directory too. A class is called as NAME(embed_dim, num_heads), with
  embed_dim = {WIDTH_PER_HEAD} H; any other callable as NAME(num_heads), and has to make a torch module with an
  attribute embed_dim. The module is called as layer(query, key, value), with its weights as they start or as your
  function sets them. Its rank is compared with MHA's bound H. More than H is no failure: the layer does more than any
  MHA with H heads. Less can be a matter of its starting weights.

examples:
  iha-theory capacity                                        the whole table, under a minute
  iha-theory capacity --heads 4 8 --json capacity.json
  iha-theory capacity --layer torch.nn:MultiheadAttention
  iha-theory capacity --layer my_layers:MyAttention --heads 2 4

exit codes: 0 every rank is its bound (--layer: every rank is clear), 1 not, 2 bad usage, or a layer that is not linear
in its value at fixed query and key.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "capacity",
        description="Measures the operator Schmidt rank of attention layers and compares it with its upper bound.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--layer", metavar="MODULE:NAME", help="measure this layer, such as torch.nn:MultiheadAttention"
    )
    parser.add_argument("--heads", nargs="+", type=int, metavar="N", help="numbers of heads; default 1 to 6")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures the table, or one layer."""
    from iha_theory import capacity

    heads = list(dict.fromkeys(arguments.heads or capacity.HEADS))
    if min(heads) < 1:
        raise ValueError(f"--heads takes integers of at least 1, got {min(heads)}")
    steps = list(capacity.table(heads) if arguments.layer is None else _custom(arguments.layer, heads))
    rows: list[Any] = []
    started = time.monotonic()
    with output.kept(arguments.json, "capacity", lambda: {"capacities": [asdict(row) for row in rows]}):
        for step in output.progress(steps, "capacity"):
            rows.append(step())
    out = output.console(arguments.json)
    out.print(_table(rows, heads, "bound" if arguments.layer is None else "MHA"))
    seconds = time.monotonic() - started
    unclear = [row for row in rows if not row.clear]
    for row in unclear:
        out.print(f"UNCLEAR {_label(row)}: the gap {row.gap:.2g} is too small to tell its rank", soft_wrap=True)
    if arguments.layer is not None:
        out.print(_verdict(arguments.layer, rows, seconds), soft_wrap=True)
        return 1 if unclear else 0
    failed = [row for row in rows if not row.reached]
    for row in failed:
        out.print(f"FAILS {_label(row)}: rank {row.rank}, bound {row.bound}, gap {row.gap:.2g}", soft_wrap=True)
    gap = min(row.gap for row in rows)
    out.print(
        f"{len(failed)} of {len(rows)} ranks are NOT their bound ({seconds:.0f} s)"
        if failed
        else f"All {len(rows)} measured ranks are their bounds; the smallest gap is {gap:.1e} ({seconds:.0f} s).",
        soft_wrap=True,
    )
    return 1 if failed else 0


def _custom(name: str, heads: list[int]) -> "Iterator[tuple[str, Callable[[], Capacity]]]":
    target = _load(name)
    for h in heads:
        yield f"{name} H = {h}", partial(_measure, name, target, h)


def _load(name: str) -> Callable[..., Any]:
    """The class or function that MODULE:NAME names."""
    from torch import nn

    target = options.load(name, "--layer")
    if not callable(target) or (isinstance(target, type) and not issubclass(target, nn.Module)):
        raise ValueError(f"{name} is neither a class of torch modules nor a function that makes one")
    return target


def _measure(name: str, target: Callable[..., Any], heads: int) -> "Capacity":
    """The rank of the user's layer. What its code raises becomes one line."""
    import torch

    from iha_theory import capacity

    arguments = (WIDTH_PER_HEAD * heads, heads) if isinstance(target, type) else (heads,)
    call = f"{name.partition(':')[2]}({', '.join(map(str, arguments))})"
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(capacity.SEED)
            module = target(*arguments)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"gives {type(module).__name__}, not a torch module")
        if isinstance(target, type) and not hasattr(module, "embed_dim"):
            return capacity.measure_module(name, module, heads, embed_dim=arguments[0])
        return capacity.measure_module(name, module, heads)
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{call}: {kind}{error}") from error


def _label(row: "Capacity") -> str:
    parts = [row.layer, row.collapse, row.pattern, f"H = {row.heads}"]
    return " ".join(part for part in parts if part) + (f", P = {row.pseudo_heads}" if row.pseudo_heads else "")


def _table(rows: "list[Capacity]", heads: list[int], bound: str) -> Any:
    """One line a layer, collapse, P and pattern: the rank for each H, with the bound, so called, where it differs."""
    lines: dict[tuple[str, str, str, str], dict[int, Any]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.pseudo_heads or 0):
        pseudo = str(row.pseudo_heads or "")
        lines[row.layer, row.collapse or "", pseudo, row.pattern or ""][row.heads] = row

    def cell(row: "Capacity | None") -> str:
        if row is None:
            return ""
        return str(row.rank) if row.rank == row.bound else f"{row.rank} ({bound} {row.bound})"

    names = ("layer", "collapse", "P", "pattern", *(f"H={h}" for h in heads), "gap")
    return output.table(
        [(name, i == 2 or i > 3) for i, name in enumerate(names)],
        [
            (*key, *(cell(by.get(h)) for h in heads), f"{min(row.gap for row in by.values()):.0e}")
            for key, by in lines.items()
        ],
    )


def _verdict(name: str, rows: "list[Capacity]", seconds: float) -> str:
    """The summary line for a layer of the user's."""
    ranks = ", ".join(str(row.rank) for row in rows)
    heads = ", ".join(str(row.heads) for row in rows)
    beyond = [str(row.heads) for row in rows if row.rank > row.bound]
    below = [str(row.heads) for row in rows if row.rank < row.bound]
    if beyond:
        what = f"more than any MHA with as many heads at H = {', '.join(beyond)}"
    elif below:
        what = f"less than MHA's H with these weights at H = {', '.join(below)}"
    else:
        what = "MHA's bound H, reached"
    return f"{name} has rank {ranks} for H = {heads}: {what} ({seconds:.0f} s)."
