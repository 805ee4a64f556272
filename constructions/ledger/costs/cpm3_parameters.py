"""Parameters for CPM-3: what the paper counts, against `numel()` of the networks that are built (App. B.3)."""

from functools import cache, partial
from typing import Any

import numpy as np
import torch

from constructions.construction import count
from constructions.cpm3 import workspace as cpm3
from constructions.cpm3.build import build
from constructions.cpm3.mlp import PairCount
from constructions.cpm3.workspace import CountPairsNetwork
from constructions.ledger.costs.parameters import compare, iha_printed
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory.costs.crossovers import fewer
from iha_theory.rounding import ceil_sqrt

BUILT = 12
"""CPM-3 networks up to this size are built where a range of sizes is compared."""


@cache
def _network(layer: str, tokens: int) -> CountPairsNetwork:
    return cpm3.network(build("cpm3", layer, tokens, 1, tokens), modulus=5, coefficient=11)  # they change no size


def _network_count(layer: str, tokens: int, part: str) -> int:
    network = _network(layer, tokens)
    return count(network.attention.layer) + (count(network.mlp) if part == "total" else 0)


def cpm3_iha_attention(tokens: int, **constants: int) -> Finding:
    """2 (N^2 + N) H + (N + 1) H^2 + 4 H^3: the bank's, with N terms of width 1. constants: `iha_printed`'s."""
    printed = iha_printed(tokens, 1, tokens, **constants)
    return compare(printed, _network_count("iha", tokens, "attention"), f"N = {tokens}")


def cpm3_mha(
    tokens: int, *, values_power: int = 1, inputs: int = 1, slots: int = 0, different: bool = False
) -> Finding:
    """2 N^2 (N + 1) + N (N + 1) + N^2 (N + 1).

    values_power: of N in N (N + 1). inputs: beside the positions. slots: spare ones in the workspace. different: hidden
    units for pairs with j1 != j2 only.
    """
    attention = (2 * tokens**2 + tokens**values_power) * (tokens + inputs)
    total = attention + (tokens + slots) * _pairs(tokens, different) + tokens**2
    return compare(total, _network_count("mha", tokens, "total"), f"N = {tokens}")


def _pairs(tokens: int, different: bool) -> int:
    return tokens * (tokens - 1) if different else tokens**2


def cpm3_saving(part: str, sizes: tuple[int, int], layer: str = "iha") -> Finding:
    """Fewer parameters at every N in a range, ends included; up to N = 12 counted, beyond by the closed forms."""
    first, last = sizes
    for n in range(first, min(last, BUILT) + 1):
        ours, theirs = (_network_count(name, n, part) for name in (layer, "mha"))
        if ours >= theirs:
            what = f"N = {n}, {part}: IHA has {ours} parameters, MHA {theirs}"
            return Finding(False, what, {"iha": ours, "mha": theirs})
    grid = np.arange(float(max(first, BUILT + 1)), last + 1)
    worse = grid[~fewer("parameters", layer, grid, 1, grid, part == "total")]
    if len(worse):
        return Finding(False, f"N = {int(worse[0])}, {part}: IHA has no fewer parameters", {"tokens": int(worse[0])})
    return Finding(True, f"{part}: IHA has fewer parameters at every N from {first} to {last}")


def mlp_count(layer: str, tokens: int, *, width: str = "own", slots: int = 0, different: bool = False) -> Finding:
    """N^2 (W + 1) parameters, with W = N for MHA and H^2 for IHA; and what the hidden units find at x = 0.

    width: "tokens" for W = N. slots: spare ones in MHA's workspace. different: N (N - 1) units, for j1 != j2.
    """
    mlp = _network(layer, tokens).mlp
    assert isinstance(mlp, PairCount)
    own = ceil_sqrt(tokens) ** 2 if layer == "iha" and width == "own" else tokens
    units = _pairs(tokens, different)
    claimed, counted = (own + slots * (layer == "mha")) * units + tokens**2, count(mlp)
    workspace = torch.zeros(1, mlp.pairs.in_features, dtype=torch.float64)
    hidden = torch.relu(1 - mlp.pairs(workspace).remainder(mlp.modulus)).view(tokens, tokens)
    found = int((hidden.sum() - different * hidden.trace()).item())
    what = (
        f"N = {tokens}: {claimed} {'printed' if different else 'claimed'}, {counted} built; on x = 0, where all "
        f"{tokens**2} ordered pairs count, the {'N (N - 1)' if different else 'N^2'} = {units} units "
        f"{'with j1 != j2 ' if different else ''}find {found}"
    )
    return Finding(claimed == counted and found == tokens**2, what, {"printed": claimed, "counted": counted})


def total_bound(counts: str, largest: int, constant: int = 37, twice_exponent: int = 5) -> Finding:
    """IHA's total <= 37 N^2.5 + N^2 (N - 1) + N^2 at every N up to the largest.

    The excess t over N^2 (N - 1) + N^2 is an integer, exact in int64 below N = 2^20; t <= c N^2.5 if t <= 0 or
    t^2 <= c^2 N^5, compared in float64, and again in integers where that is close.
    """
    n = np.arange(1, largest + 1)
    h = ceil_sqrt(n)
    mlp = h**2 * n * (n - 1) + n**2 if counts == "printed" else n**2 * (h**2 + 1)
    excess = 2 * (n**2 + n) * h + (n + 1) * h**2 + 4 * h**3 + mlp - n**2 * (n - 1) - n**2
    squares = excess.astype(np.float64) ** 2, constant**2 * n.astype(np.float64) ** twice_exponent
    above = (excess > 0) & (squares[0] > squares[1])
    for i in np.flatnonzero(abs(squares[0] - squares[1]) <= 1e-13 * squares[1]):
        above[i] = excess[i] > 0 and int(excess[i]) ** 2 > constant**2 * int(n[i]) ** twice_exponent
    ratio = excess / n**2.5
    worst = int(ratio.argmax())
    values: dict[str, Any] = {"least_constant": float(ratio[worst]), "attained_at": int(n[worst])}
    if above.any():
        first = int(n[above][0])
        what = f"{counts} count: N = {first} has {int(excess[first - 1])} beyond N^2 (N - 1) + N^2"
        return Finding(False, what, values | {"tokens": first})
    what = f"{counts} count, every N to {largest}: the least constant is {ratio[worst]:.2f}, at N = {n[worst]}"
    return Finding(True, what, values)


_TOKENS = (1, 2, 3, 4, 5, 9, 10, 16, 17)
_RANGES = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 12), (13, 1000), (1001, 10**6))
_WIDER_RANGES = tuple((n, n + 100) for n in range(6, 3000))

STATEMENTS = (
    Statement(
        id="E2",
        source="App. B.3",
        place=Place("exact", ("cpm3-network",)),
        claim=Claim(
            text="the MHA network for CPM-3 has 2N^3 + N^3 parameters in attention and (N+1)N(N-1) + N^2 in the MLP",
            test=partial(cpm3_mha, values_power=2, inputs=0, slots=1, different=True),
            cases={"tokens": _TOKENS},
            mends={"the built layer's": {"values_power": 1, "inputs": 1, "slots": 0, "different": False}},
        ),
        repaired=Claim(
            text="the MHA network for CPM-3 has 2N^2 (N+1) parameters in queries and keys, N (N+1) in values, N^2 "
            "(N+1) in the MLP",
            test=cpm3_mha,
            cases={"tokens": _TOKENS},
            mutants={
                "values N^2 (N+1)": {"values_power": 2},
                "no content": {"inputs": 0},
                "a spare slot": {"slots": 1},
                "pairs with j1 != j2": {"different": True},
            },
            wider={"tokens": range(1, 33)},
        ),
        note="The printed total is 4N^3 + N^2 - N, the right one 3N^3 + 4N^2 + N; they are equal for no N, since"
        " N^2 - 3N - 2 has no integer root. Each value projection is one column of N + 1 rows, e_1. What that leaves of"
        " the saving: P-cpm3-savings.",
    ),
    Statement(
        id="E11",
        source="App. B.3",
        place=Place("exact", ("cost",)),
        claim=Claim(
            text="the IHA network for CPM-3 has at most 37 N^2.5 + N^2 (N-1) + N^2 parameters, by the paper's count "
            "and by the right one",
            test=total_bound,
            cases={"counts": ("printed", "built"), "largest": (1, 2, 10, 1000, 10**6)},
            mutants={
                "constant 12": {"constant": 12},
                "N^2 for N^2.5": {"twice_exponent": 4},
                "N^1.5 for N^2.5": {"twice_exponent": 3},
            },
            wider={"counts": ("printed", "built"), "largest": range(1, 10**5)},
        ),
        note="With s = sqrt N and H <= s + 1 the excess is at most 2(s^4 + s^2)(s+1) + (s^2+1)(s+1)^2 + 4(s+1)^3 +"
        " s^4 (2s+2) = 4s^5 + 5s^4 + 8s^3 + 16s^2 + 14s + 5, which is below 5s^5 for s >= 1000, so the bound holds"
        " beyond 10^6 too. 37 is far from least. N^3 from the MLP dominates the bound, and MHA's total too: the ratio"
        " of the totals tends to 1/3, where that of the attention parameters tends to 0.",
    ),
    Statement(
        id="P-cpm3-parameters-iha",
        source="App. B.3",
        place=Place("exact", ("workspace",)),
        claim=Claim(
            text="IHA's attention for CPM-3, H = ceil(sqrt N), has 2(N^2+N)H + (N+1)H^2 + 4H^3 parameters",
            test=cpm3_iha_attention,
            cases={"tokens": _TOKENS},
            mutants={"values of width 1": {"values_power": 1}, "no collapse": {"mixing": 3}},
            wider={"tokens": range(1, 33)},
        ),
    ),
    Statement(
        id="P-cpm3-mlp-parameters",
        source="App. B.3",
        place=Place("exact", ("pair-count",)),
        claim=Claim(
            text="the MLP that enumerates the pairs of CPM-3 has H^2 N(N-1) + N^2 parameters (IHA), (N+1)N(N-1) + N^2 "
            "(MHA)",
            test=partial(mlp_count, slots=1, different=True),
            cases={"tokens": _TOKENS, "layer": ("iha", "mha")},
            mends={"all pairs, no spare slot": {"slots": 0, "different": False}},
        ),
        repaired=Claim(
            text="the MLP that enumerates the pairs has N^2 (W+1) parameters, W the width of the workspace: H^2 for "
            "IHA, N for MHA",
            test=mlp_count,
            cases={"tokens": _TOKENS, "layer": ("iha", "mha")},
            mutants={
                "pairs with j1 != j2": {"different": True},
                "W = N for IHA": {"width": "tokens"},
                "W = N + 1 for MHA": {"slots": 1},
            },
            wider={"layer": ("iha", "mha"), "tokens": range(1, 33)},
        ),
        note="j1 = j2 is allowed, so there are N^2 ordered pairs and hidden units, not N(N-1); N^2 output weights are"
        " counted. At N = 1 the printed count leaves no first-layer weight, so the MLP would not depend on its input,"
        " though the count does: M divides (G + 2) x or not. For IHA the MLP may leave out the padding, then W = N.",
    ),
    Statement(
        id="P-cpm3-savings",
        source="Sec. 4.3, App. B.3",
        place=Place("exact", ("workspace", "pair-count")),
        claim=Claim(
            text="IHA has fewer parameters for CPM-3 than MHA, in attention and in total",
            test=cpm3_saving,
            cases={"sizes": _RANGES, "part": ("attention", "total")},
            mutants={"the MHA itself": {"layer": "mha"}},
            wider={"part": ("attention", "total"), "sizes": _WIDER_RANGES},
        ),
        assumption=Assumption("N = 4 or N >= 6", lambda part, sizes: sizes[0] == sizes[1] == 4 or sizes[0] >= 6),
        note="By the right counts. Attention 2N^3 + 3N^2 + N for MHA, about 2N^2.5 for IHA; the MLP adds N^3 and more"
        " to both, IHA's H^2 >= N columns at least as much as MHA's.",
    ),
)
