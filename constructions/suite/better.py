"""Checks of the constructions with fewer attention maps (docs/results.md T6) and in two layers (T7), and their mutants.

The layer of a check is "iha" or "mha"; its id says which construction. `constructions.suite.fewer_heads` has those with
fewer heads.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sympy import QQ

from constructions.checks.mutants import Subject, of_parameter, shift_block, swap_blocks
from constructions.checks.operators import exact_gap, float64_gap, operations
from constructions.checks.oracles.workspace import slots
from constructions.checks.result import CheckResult, Tier, least_root
from constructions.construction import Construction
from constructions.cpm3.workspace import workspace as shifts
from constructions.filter_bank import reduced, tiled
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import Powers, powers
from constructions.filter_bank.reduced import ReducedBank
from constructions.suite.bank import LARGEST_PRIME, WIDTH
from iha_theory import exact
from iha_theory.attention import TwoLayerAttention
from iha_theory.rounding import ceil_sqrt, gamma
from synthetic.graphs import builtin
from synthetic.tasks.filter_bank import power_blocks, power_blocks_float

TERMS = (4, 9, 16, 25, 36, 49, 64, 100)
"""k of the banks, and N of the workspace."""
FLOAT_TERMS = 25
"""The float64 tier takes the powers of a graph, up to this k."""
GRAPH = "karate"
TOKENS = 16
"""N of the random matrices."""

CLAIMS = {
    "tiled-bank": "IHA with ceil(sqrt k) heads and about sqrt(H) pseudo-heads represents [X, AX, ..., A^(k-1) X]",
    "projected-bank": "so does IHA with ceil(sqrt H) pseudo-heads, which is the least, and an output projection",
    "tiled-workspace": "hard attention with ceil(sqrt N) heads and about sqrt(H) pseudo-heads writes the workspace",
    "two-layer-bank": "two layers of MHA with ceil(sqrt k) heads each represent [X, AX, ..., A^(k-1) X]",
}


def build(name: str, power: Powers, terms: int) -> Construction:
    """The construction of a bank by the name of its claim; A is exact for projected-bank."""
    if name == "projected-bank":
        a: Any = power(1)
        return reduced.bank("iha-tiled", ReducedBank(a, exact.identity(terms, a.domain)), WIDTH)
    return bank({"tiled-bank": "iha-tiled", "two-layer-bank": "mha-two-layer"}[name], power, terms, WIDTH)


def addends(name: str, terms: int) -> np.ndarray:
    """(k,): for each block how often, in absolute value, A^t is an addend."""
    if name == "two-layer-bank":
        return np.ones(terms)
    heads = ceil_sqrt(terms)
    tiles = tiled.tiling(-(-terms // heads), heads, heads)
    return tiled.coverage(tiles, heads, absolute=True).flatten()[:terms]


def every_matrix(name: str, terms: int) -> CheckResult:
    """The bank of every N x N matrix, at a random one modulo a prime (`suite.every_matrix.bank_random`)."""
    field = exact.gf(LARGEST_PRIME)
    a = exact.matrix(np.random.default_rng(terms).integers(0, LARGEST_PRIME, (TOKENS, TOKENS)), field)
    construction = build(name, powers(a), terms)
    error = exact_gap(construction, list(power_blocks(a, terms)), field)
    setting = {
        "graph": f"random over GF({LARGEST_PRIME})",
        "nodes": TOKENS,
        "terms": terms,
        "failure_probability": (terms - 1) / LARGEST_PRIME,
    }
    compared = "operators modulo a prime at a random matrix"
    return _result(name, f"k={terms}", construction, "exact", error, 0.0, setting, compared)


def workspace(tokens: int) -> CheckResult:
    """The workspace of N tokens, over the rationals."""
    construction = shifts("iha-tiled", tokens)
    error = exact_gap(construction, slots(tokens))
    setting = {"n_max": tokens, "terms": tokens}
    compared = "operators over the rationals"
    return _result("tiled-workspace", f"N={tokens}", construction, "exact", error, 0.0, setting, compared)


def float64_measure(name: str, construction: Construction, a: np.ndarray, terms: int) -> tuple[float, float]:
    """Error of the torch layer's operator, and of its outputs for one normal X, and its bound.

    Weights and target are products of up to k - 1 powers; the layer's operations follow (`suite.bank.bank_float64`).
    """
    targets, sizes = (np.stack(list(power_blocks_float(x, terms))) for x in (a, np.abs(a)))
    error = float64_gap(construction, targets, sizes * addends(name, terms)[:, None, None])
    return error, gamma(2 * (terms - 1) * len(a) + operations(construction, len(a)))


def graph_float64(name: str, terms: int) -> CheckResult:
    """A graph's bank in float64."""
    a = builtin(GRAPH).adjacency.astype(np.float64)
    construction = build(name, powers(torch.from_numpy(a)), terms)
    error, bound = float64_measure(name, construction, a, terms)
    setting = {"graph": GRAPH, "nodes": len(a), "terms": terms}
    compared = "operators, entry by entry"
    return _result(name, f"{GRAPH}/k={terms}", construction, "float64", error, bound, setting, compared)


def checks(terms: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """T6 and T7 for one k: banks of every A, the workspace of N = k tokens, and banks of a graph in float64."""
    for name in ("tiled-bank", "projected-bank", "two-layer-bank"):
        yield every_matrix(name, terms)
    yield workspace(terms)
    if not exact_only and terms <= FLOAT_TERMS:
        yield graph_float64("tiled-bank", terms)
        yield graph_float64("two-layer-bank", terms)


def _result(
    name: str,
    label: str,
    construction: Construction,
    tier: Tier,
    error: float,
    bound: float,
    setting: dict[str, Any],
    compared: str,
) -> CheckResult:
    layer = "mha" if name == "two-layer-bank" else "iha"
    maps, terms = construction.layer.attention_maps, setting["terms"]
    costs = {"attention_maps": maps, "maps_per_term": maps / terms, "lower_bound_heads": ceil_sqrt(terms)}
    return CheckResult.of(
        construction,
        f"{name}/{label}",
        layer,
        tier,
        claim=CLAIMS[name],
        error=error,
        bound=bound,
        setting={**setting, **costs, "width": construction.width},
        compared=compared,
        claimed_heads=least_root(terms),
    )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants: tiles that overlap (k = 9), tiles of two sizes (k = 25), two layers."""
    tiled_layers = {"iha": lambda construction: construction.layer}
    two_layers = {
        "first": lambda construction: construction.layer.first,
        "second": lambda construction: construction.layer.second,
    }
    return [
        *_banks("tiled-bank", "random:12", 9, tiled_layers, TILE_DAMAGES),
        *_banks("tiled-bank", "cycle:26", 25, tiled_layers, TILE_DAMAGES),
        *(_workspace(tokens) for tokens in (9, 25)),
        *_banks("two-layer-bank", "random:12", 9, two_layers, {"layers swapped": _swap_layers}),
    ]


def _swap_layers(construction: Construction) -> Construction:
    layer = construction.layer
    assert isinstance(layer, TwoLayerAttention)
    with torch.no_grad():
        first, second = layer.first.q_proj.weight, layer.second.q_proj.weight
        kept = first.clone()
        first.copy_(second)
        second.copy_(kept)
    return construction


TILE_DAMAGES: dict[str, Callable[[Any], Any]] = {
    "a tile with the other sign": of_parameter("collapse", lambda r: r[:, 0].neg_()),
    "a tile counted twice": of_parameter("collapse", lambda r: r[:, 1].mul_(2)),
    "a column of a tile counted twice": of_parameter("alpha_v", lambda w: w[:, 1, 0].mul_(2)),
    "tiles in the wrong rows": of_parameter("collapse", lambda r: r.copy_(r.roll(1, 0))),
    "tiles in the wrong columns": of_parameter("alpha_v", lambda w: w.copy_(w.roll(1, 0))),
    "a pseudo-key left out": of_parameter("alpha_k", lambda k: k[:, 0, 1].zero_()),
}


def _banks(
    name: str, graph: str, terms: int, layers: dict[str, Callable[[Any], Any]], extra: dict[str, Callable[[Any], Any]]
) -> list[Subject]:
    """A bank's subjects, over the rationals and in float64, for each of its layers."""
    adjacency = builtin(graph).adjacency
    a, floats = exact.matrix(adjacency, QQ), adjacency.astype(np.float64)
    blocks = list(power_blocks(a, terms))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(floats), WIDTH)))
    tiers: dict[str, tuple[Powers, Callable[[Construction], tuple[float, float]]]] = {
        "exact": (powers(a), lambda construction: (exact_gap(construction, blocks), 0.0)),
        "float64": (
            powers(torch.from_numpy(floats)),
            lambda construction: float64_measure(name, construction, floats, terms),
        ),
    }
    last = (ceil_sqrt(terms) - 1) * ceil_sqrt(terms)  # the last base query's power

    def built(power: Powers, exponent: Callable[[int], int]) -> Callable[[Any], Construction]:
        return lambda _: build(name, lambda i: power(exponent(i)), terms)

    return [
        Subject(
            f"{name}/{graph}/k={terms}/{label}/{tier}",
            build=lambda power=power: build(name, power, terms),
            error=error,
            outputs=lambda construction: construction(x).detach(),
            layer=layer,
            extra={
                "one wrong power": built(power, lambda i: i + (i == last)),
                "every power but the first too high": built(power, lambda i: i + (i > 0)),
                "two readout blocks swapped": swap_blocks,
                "a readout block shifted by one": shift_block,
                **extra,
            },
        )
        for tier, (power, error) in tiers.items()
        for label, layer in layers.items()
    ]


def _workspace(tokens: int) -> Subject:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, tokens, 1)))
    blocks = slots(tokens)
    return Subject(
        f"tiled-workspace/N={tokens}/iha/exact",
        build=lambda: shifts("iha-tiled", tokens),
        error=lambda construction: (exact_gap(construction, blocks), 0.0),
        outputs=lambda construction: construction(x).detach(),
        layer=lambda construction: construction.layer,
        extra={
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
            **TILE_DAMAGES,
        },
    )
