"""`iha-theory capacity`: operator rank and bits of parity, measured beside their bounds."""

import argparse
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from iha_theory import options
from iha_theory.cli import output
from iha_theory.memory import require_room

if TYPE_CHECKING:  # torch takes seconds to import: only when measuring
    from iha_theory.bounds.parity import ParityCapacity
    from iha_theory.capacity import Capacity

    Both = tuple[Capacity, ParityCapacity]

WIDTH_PER_HEAD = 8
PARITY_BITS = 9
"""`iha_theory.bounds.parity.MOST_BITS`, whose import takes seconds."""

EPILOG = f"""\
The operator Schmidt rank of layer(positions, positions, X) is the least number of terms S X B that make it up: how many
different attention maps the content X can be mixed by. The bounds are proved in iha_theory.capacity.capacity_bound:
  mha, mqa, gqa, mla, talking-heads, differential,
  composable, multi-token, gated-headwise, gated-linear,
  forgetting                                   H
  iha, global collapse                         min(H^2, H P^2)
  iha, per-head collapse                       min(H^2, H P)
  two-layer                                    H^2
  tensor-product                               H R_V, here R_V = 2
  simplicial, strassen, gated                  H d_v, here d_v = 4
  each, on content of width d                  H d d_v
and measured with random parameters. The gap is the last singular value that counts over the first that does not.

The bits of parity are the most bits whose parity one layer computes, content anywhere (docs/parity.md). As many as
softmax rows, whatever the widths and weights, if the output is read linearly at one query token, with no MLP and no
norm with constants behind it, and tokens see at most one bit each, the query token none (with a bit on it: one more):
  mha, mqa, gqa, mla, tensor-product, talking-heads,
  composable, gated, gated-headwise                    H
  differential, simplicial, strassen                   2 H
  multi-token                                          H c_k, here c_k = 2
  iha                                                  H P
  two-layer, gated-linear, forgetting                  any number
  the linear pattern             1; simplicial, strassen, two-layer, multi-token 2
Measured up to {PARITY_BITS} bits: with random parameters and a fitted read-out every sign is right, and on one bit more
the sum over all inputs that must be 0 by the proof is 0 to rounding (of torch's layer it is not computed). In brackets:
how many bits were reached. Two layers, and gates between tokens, reach any number with weights and tokens made for it,
random ones only so many; multi-token attention needs several tokens for a bit. "open": neither bound is proved. What
each layer is, the proofs and what it means: docs/attentions.md.

your own layer:
  MODULE:NAME is looked up from the current directory too. A class is called as NAME(embed_dim, num_heads), with
  embed_dim = {WIDTH_PER_HEAD} H; any other callable as NAME(num_heads), and has to make a torch module with an
  attribute embed_dim. The module is called as layer(query, key, value), with its weights as they start or as your
  function sets them. Its rank is compared with MHA's bound H. More than H is no failure: the layer does more than any
  MHA with H heads. Less can be a matter of its starting weights. The bits of parity are those that its weights, as
  layer(X, X, X), compute with a fitted read-out, by more than its rounding, which is measured: other weights, or
  arithmetic above float32, may do more; none where it cannot be called so.

examples:
  iha-theory capacity                                        the whole table, under a minute
  iha-theory capacity --heads 4 8 --json capacity.json
  iha-theory capacity --heads 4 --width 1 --value-dim 1      narrow content: 4 for every IHA of 4 heads
  iha-theory capacity --layer torch.nn:MultiheadAttention
  iha-theory capacity --layer my_layers:MyAttention --heads 2 4

exit codes: 0 every rank and every proved parity is its bound (--layer: every rank is clear), 1 not, 2 bad usage, or a
layer that is not linear in its value at fixed query and key.
"""


def add_parser(commands: Any) -> None:
    """Adds the command to a parser's subcommands."""
    parser = commands.add_parser(
        "capacity",
        description="Measures the operator Schmidt rank of attention layers, and of how many bits they compute the\n"
        "parity, and compares both with their upper bounds.",
        epilog=EPILOG,
    )
    parser.add_argument(
        "--layer", metavar="MODULE:NAME", help="measure this layer, such as torch.nn:MultiheadAttention"
    )
    parser.add_argument("--heads", nargs="+", type=int, metavar="N", help="numbers of heads; default 1 to 6")
    parser.add_argument("--width", type=int, metavar="D", help="width d of the content; default max(4, H)")
    parser.add_argument("--value-dim", type=int, metavar="D", help="width d_v of a head's values; default 4")
    parser.add_argument("--json", metavar="FILE", help=output.JSON_HELP)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measures the table, or one layer."""
    if arguments.heads and min(arguments.heads) < 1:
        raise ValueError(f"--heads takes integers of at least 1, got {min(arguments.heads)}")
    from iha_theory import capacity

    heads = list(dict.fromkeys(arguments.heads or capacity.HEADS))
    sizes = {name: n for name in ("width", "value_dim") if (n := getattr(arguments, name)) is not None}
    for name, n in sizes.items():
        option = f"--{name.replace('_', '-')}"
        if arguments.layer is not None:
            raise ValueError(f"{option} is for the table: a layer of your own has widths of its own")
        if n < 1:
            raise ValueError(f"{option} takes an integer of at least 1, got {n}")
        require_room(option, n, lambda d: 8 * max(heads) * d * max(20, 3 * max(heads), d) ** 2)
    power = 4 if arguments.layer is None else 2  # the realigned operator; the layer's weights
    require_room("--heads", max(heads), lambda h: 8 * h**power)
    steps = list(_ours(heads, sizes) if arguments.layer is None else _custom(arguments.layer, heads))
    found: list[Both] = []
    started = time.monotonic()

    def fields() -> dict[str, Any]:
        return {"capacities": [asdict(row) | {"parity": asdict(parity)} for row, parity in found]}

    with output.kept(arguments.json, "capacity", fields):
        for step in output.progress(steps, "capacity"):
            found.append(step())
    rows = [row for row, _ in found]
    out = output.console(arguments.json)
    bound = "bound" if arguments.layer is None else "MHA"
    out.print("Operator Schmidt rank")
    out.print(_table(found, heads, lambda row, _: f"{row.rank}" + f" ({bound} {row.bound})" * (row.rank != row.bound)))
    out.print("Bits of parity")
    out.print(_table(found, heads, lambda _, parity: _bits(parity, arguments.layer is None), gap=False))
    seconds = time.monotonic() - started
    if arguments.layer is None and (without := [h for h in heads if not capacity.between(h)]):
        at = ", ".join(map(str, without))
        out.print(
            f"gqa is left out at H = {at}: it has no number of groups between mqa's 1 and mha's H", soft_wrap=True
        )
    unclear = [row for row in rows if not row.clear]
    for row in unclear:
        out.print(f"UNCLEAR {_label(row)}: the gap {row.gap:.2g} is too small to tell its rank", soft_wrap=True)
    if arguments.layer is not None:
        out.print(_verdict(arguments.layer, rows, seconds), soft_wrap=True)
        return 1 if unclear else 0
    failed = [row for row in rows if not row.reached]
    for row in failed:
        out.print(f"FAILS {_label(row)}: rank {row.rank}, bound {row.bound}, gap {row.gap:.2g}", soft_wrap=True)
    made = sum(parity.made and parity.reached != parity.bits for _, parity in found)
    proved = [(row, parity) for row, parity in found if parity.bits is not None]
    wrong = [(row, parity) for row, parity in proved if not parity.holds]
    for row, parity in wrong:
        out.print(f"FAILS {_label(row)}: parity of {parity.reached} bits, {parity}", soft_wrap=True)
    sums = sum(parity.sum is not None for _, parity in proved)
    out.print(
        f"{len(wrong)} of {len(proved)} parities are NOT as proved"
        if wrong
        else f"All {len(proved)} layers with a proved bound reach it, up to {PARITY_BITS} bits"
        + f", {made} with tokens made for it" * (made > 0)
        + f"; on one more {sums} sums are 0. Not counted: {len(found) - len(proved)} that some weights take to any "
        "number.",
        soft_wrap=True,
    )
    gap = min(row.gap for row in rows)
    out.print(
        f"{len(failed)} of {len(rows)} ranks are NOT their bound ({seconds:.0f} s)"
        if failed
        else f"All {len(rows)} measured ranks are their bounds; the smallest gap is {gap:.1e} ({seconds:.0f} s).",
        soft_wrap=True,
    )
    return 1 if failed or wrong else 0


def _ours(heads: list[int], sizes: dict[str, int]) -> "Iterator[tuple[str, Callable[[], Both]]]":
    from iha_theory import capacity
    from iha_theory.bounds.beside import parity_of

    def both(measure: "Callable[[], Capacity]") -> "Both":
        row = measure()
        return row, parity_of(row)

    for label, measure in capacity.table(heads, **sizes):
        yield label, partial(both, measure)


def _custom(name: str, heads: list[int]) -> "Iterator[tuple[str, Callable[[], Both]]]":
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


def _measure(name: str, target: Callable[..., Any], heads: int) -> "Both":
    """The rank and the parity of the user's layer. What its code raises, or exits with, becomes one line."""
    import torch

    from iha_theory import capacity
    from iha_theory.bounds.parity import ParityCapacity, bits_reached

    arguments = (WIDTH_PER_HEAD * heads, heads) if isinstance(target, type) else (heads,)
    call = f"{name.partition(':')[2]}({', '.join(map(str, arguments))})"
    with options.users_code(call):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(capacity.SEED)
            module = target(*arguments)
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"gives {type(module).__name__}, not a torch module")
        told = isinstance(target, type) and not hasattr(module, "embed_dim")
        width = arguments[0] if told else getattr(module, "embed_dim", None)
        row = capacity.measure_module(name, module, heads, embed_dim=width)
    assert isinstance(width, int)
    reached = None
    with contextlib.suppress(ValueError), options.users_code(call):  # a layer whose key or value has another width, say
        reached = bits_reached(module, width)
    return row, ParityCapacity(None, reached)


def _bits(parity: "ParityCapacity", ours: bool) -> str:
    """Proved, and in brackets what was reached where that is not the same; of a user's layer what was reached."""
    if parity.bits is None and not parity.unbounded and ours:
        return f"open ({parity.reached})"
    if parity.bits is None and not parity.unbounded:
        return "" if parity.reached is None else f"{parity.reached}" + "+" * (parity.reached == PARITY_BITS)
    return f"{parity.bits or 'any'}" + f" ({parity.reached})" * (parity.reached != parity.bits)


def _label(row: "Capacity") -> str:
    parts = [row.layer, row.collapse, row.pattern, f"H = {row.heads}"]
    return " ".join(part for part in parts if part) + (f", P = {row.pseudo_heads}" if row.pseudo_heads else "")


def _table(found: "list[Both]", heads: list[int], cell: "Callable[[Any, Any], str]", gap: bool = True) -> Any:
    """One line a layer, collapse, P and pattern: a cell for each H, and the smallest gap."""
    lines: dict[tuple[str, str, str, str], dict[int, Both]] = defaultdict(dict)
    for row, parity in sorted(found, key=lambda both: both[0].pseudo_heads or 0):
        pseudo = str(row.pseudo_heads or "")
        lines[row.layer, row.collapse or "", pseudo, row.pattern or ""][row.heads] = row, parity
    names = ("layer", "collapse", "P", "pattern", *(f"H={h}" for h in heads), *["gap"] * gap)
    return output.table(
        [(name, i == 2 or i > 3) for i, name in enumerate(names)],
        [
            (
                *key,
                *(cell(*by[h]) if h in by else "" for h in heads),
                *[f"{min(row.gap for row, _ in by.values()):.0e}"] * gap,
            )
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
