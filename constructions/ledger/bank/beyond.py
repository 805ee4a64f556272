"""Constructions beyond the paper's: fewer attention maps, two layers, convolutions, state-space models.

T6, T7, T12, T13 of docs/results.md. All is exact, over the rationals or modulo a prime. Constructions and proofs:
constructions.filter_bank.tiled, two_layer, convolution, state_space.
"""

from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import torch
from sympy import QQ

from constructions.checks.bounds import certificate_of, certified, lower_bound
from constructions.checks.operators import exact_gap, exact_operator_gap
from constructions.checks.oracles import filters
from constructions.checks.oracles.convolution import conv2d, exact_target, operator_array, responses
from constructions.checks.result import least_root
from constructions.construction import Construction, blocks
from constructions.filter_bank import reduced, tiled
from constructions.filter_bank.layers import PAPER, bank
from constructions.filter_bank.paper import powers
from constructions.filter_bank.reduced import ReducedBank
from constructions.filter_bank.two_layer import to_two_layers, weights
from constructions.ledger.bank.bounds import measured
from constructions.ledger.cases import FIELD, matrix, random_matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement
from constructions.targets.convolution import Padding, convolution
from constructions.targets.state_space import rational_filter, transfer
from iha_theory import exact
from iha_theory.attention import TwoLayerAttention
from iha_theory.operators.weights import to_layer
from synthetic import systems
from synthetic.systems import StateSpace
from synthetic.tasks.filter_bank import power_blocks

# T6

SIZE = 4
RATIOS = {16: 1.0, 36: 1.5, 64: 2.0, 100: 1.6}
"""Attention maps over k, as claimed for these k."""


def tiles_make_bank(terms: int, seed: int, *, side: int = 2, trimmed: int = 0) -> Finding:
    """Tiled IHA against a random matrix's powers, its P against the least with ceil(H/P)^2 <= H, and its maps.

    side: exponent in that rule. trimmed: rows and columns that every tile loses.
    """
    a, heads = random_matrix(SIZE, seed), least_root(terms)
    given = tiled.weights(powers(a), terms, 1)
    if trimmed:
        tiles = tiled.tiling(-(-terms // heads), heads, heads)
        cut = tuple(tiled.Tile(*(x[: max(1, len(x) - trimmed)] for x in (t.rows, t.columns))) for t in tiles)
        given = replace(given, mixing=tiled.mixing(cut, heads))
    layer = Construction("ledger/tiled", "T6", to_layer(given), blocks("{}", terms), 1)
    error = exact_gap(layer, list(power_blocks(a, terms)), FIELD)
    pseudo, maps = layer.pseudo_heads, layer.layer.attention_maps
    rule = next(p for p in count(1) if (-(-heads // p)) ** side <= heads)
    what = (
        f"k = {terms}: {layer.heads} heads, {pseudo} pseudo-heads (the rule says {rule}), {error:g} wrong entries "
        f"modulo a prime; {maps} attention maps, {maps / terms:.3g} k, where P = H forms {heads**3 / terms:.3g} k"
    )
    cheap = maps == heads * pseudo**2 and maps / terms == RATIOS.get(terms, maps / terms)
    holds = error == 0 and layer.heads == heads and pseudo <= rule and cheap
    return Finding(holds, what, {"heads": heads, "pseudo_heads": pseudo, "maps": maps, "error": error})


def fewer_pseudo_heads_cannot(heads: int, *, more: int = 0) -> Finding:
    """With P = ceil(sqrt H) - 1 the measured rank is at most H P^2 < H^2 = k; with ceil(sqrt H) a layer is the bank.

    The latter has an output projection. more: pseudo-heads added to the former.
    """
    least, terms = least_root(heads), heads**2
    pseudo = least - 1 + more
    ranks = [row.rank for row in measured(f"iha, P = {pseudo}", heads) if row.collapse == "global"] if pseudo else [0]
    a = random_matrix(SIZE, heads)
    layer = reduced.bank("iha-tiled", ReducedBank(a, exact.identity(terms, FIELD)), 1)
    error = exact_gap(layer, list(power_blocks(a, terms)), FIELD)
    what = (
        f"H = {heads}, k = {terms}: rank {max(ranks)} at most with {pseudo} pseudo-heads; {layer.pseudo_heads} make "
        f"the bank with {error:g} wrong entries modulo a prime"
    )
    holds = max(ranks) <= heads * pseudo**2 < terms and error == 0 and layer.pseudo_heads == least
    return Finding(holds, what, {"rank": max(ranks), "pseudo_heads": pseudo, "achieved": layer.pseudo_heads})


# T7


def two_layers_make_bank(graph: str, terms: int, *, stride: int = 0, fewer: int = 0, copies: int = 2) -> Finding:
    """Two layers of MHA with ceil(sqrt k) heads each against the bank, and their query and key weights against IHA's.

    stride: the outer powers are A^{h (H + stride)}. fewer: heads less. copies: how many times IHA's weights.
    """
    a, heads = matrix(graph), max(1, least_root(terms) - fewer)
    power = powers(a)
    outer, inner = [power(h * (heads + stride)) for h in range(heads)], [power(m) for m in range(heads)]
    made = min(terms, heads**2)
    readout = blocks("A^{} X", made)
    layer = Construction("ledger/two-layer", "T7", to_two_layers(*weights(outer, inner, 1)), readout, 1)
    error = exact_gap(layer, list(power_blocks(a, made)))
    sizes = [_query_key(module) for module in (layer.layer, bank("iha", power, terms, 1).layer)]
    what = (
        f"{graph}, k = {terms}: two layers of {layer.heads} heads make {made} blocks with exact error {error:g}; query "
        f"and key weights {sizes[0]}, IHA's {sizes[1]}"
    )
    holds = error == 0 and made == terms and layer.heads == heads and sizes[0] == copies * sizes[1]
    return Finding(holds, what, {"heads": layer.heads, "error": error, "weights": sizes})


def _query_key(module: Any) -> int:
    parts = (module.first, module.second) if isinstance(module, TwoLayerAttention) else (module,)
    return sum(p.q_proj.weight.numel() + p.k_proj.weight.numel() for p in parts)


def two_layers_need_root(terms: int, *, more: int = 0) -> Finding:
    """With ceil(sqrt k) - 1 heads each the measured rank of two layers is below k. more: heads added."""
    heads = least_root(terms) - 1 + more
    ranks = [row.rank for row in measured("two-layer", heads)] if heads else [0]
    what = f"k = {terms}: two layers of {heads} heads have rank {max(ranks)}"
    return Finding(max(ranks) < terms, what, {"heads": heads, "ranks": ranks})


# T12


def layer_is_convolution(size: int, padding: str, layer: str, seed: int, *, flipped: bool = False) -> Finding:
    """K x K convolution layers against torch's conv2d, over the rationals. flipped: the kernel turned round."""
    kernel, grid = _kernel(size, seed), (size, size + 1)
    given = kernel.flip(2, 3) if flipped else kernel
    built = convolution(layer, given, grid, padding)  # type: ignore[arg-type]
    error = exact_operator_gap(built, exact_target(_conv_array(kernel, grid, padding)))
    claimed = {"mha": size**2, "iha": size}[layer]
    what = f"K = {size}, {padding} padding: {built.heads} {layer.upper()} heads, exact error {error:g} against conv2d"
    return Finding(error == 0 and built.heads == claimed, what, {"heads": built.heads, "error": error})


def convolution_needs(size: int, padding: str, layer: str, seed: int, *, more: int = 0) -> Finding:
    """The certified rank of conv2d's operator against the heads claimed. more: heads beyond those."""
    grid = (size, size + 1)
    centre = (size // 2) * grid[1] + size // 2
    array = _conv_array(_kernel(size, seed), grid, padding)
    lower = lower_bound(layer, certified(responses(array, centre)))
    claimed = {"mha": size**2, "iha": size}[layer] + more
    what = f"K = {size}, {padding} padding: at least {lower} {layer.upper()} heads by a certificate"
    return Finding(lower == claimed, what, {"lower": lower})


def _kernel(size: int, seed: int) -> torch.Tensor:
    """Small integers, (D, d, K, K) with d = 2 and d D >= K^2: as many independent taps as there can be."""
    shape = (-(-(size**2) // 2), 2, size, size)
    return torch.from_numpy(np.random.default_rng(seed).integers(-9, 10, shape)).double()


def _conv_array(kernel: torch.Tensor, grid: tuple[int, int], padding: str) -> np.ndarray:
    known: Padding = "circular" if padding == "circular" else "zero"
    return operator_array(conv2d(kernel, grid, known), grid[0] * grid[1], kernel.shape[1])


# T13

TOKENS = 12


def layer_is_state_space(
    order: int, feedthrough: bool, layer: str, seed: int, *, sign: int = 1, late: int = 0
) -> Finding:
    """State-space layers against the impulse response by recursion, for a random model modulo a prime, N = 12.

    sign: of the coefficients of chi~. late: taps by which the target lags.
    """
    model = systems.integers(order, seed, FIELD, feedthrough=feedthrough)
    given = transfer(model)
    head, *rest = given.denominator
    given = replace(given, denominator=(head, *(FIELD(sign) * c for c in rest)))
    built = rational_filter(layer, given, TOKENS)
    taps = systems.impulse_response(model, TOKENS)
    taps = [exact.zeros(taps[0].shape, FIELD)] * late + taps[: TOKENS - late]
    error = exact_operator_gap(built, filters.exact_target(taps, TOKENS), FIELD)
    claimed = _state_space_heads(order, feedthrough, layer)
    what = (
        f"order {order}{', feedthrough' if feedthrough else ''}: {built.heads} {layer.upper()} heads, {error:g} wrong "
        f"entries modulo a prime against the recursion over {TOKENS} tokens"
    )
    return Finding(error == 0 and built.heads == claimed, what, {"heads": built.heads, "error": error})


def state_space_needs(order: int, feedthrough: bool, layer: str, seed: int, *, more: int = 0) -> Finding:
    """The certified rank of a random integer model against the heads claimed. more: heads beyond those."""
    model: StateSpace = systems.integers(order, seed, QQ, feedthrough=feedthrough)
    lower = lower_bound(layer, certificate_of(model, TOKENS))
    what = f"order {order}{', feedthrough' if feedthrough else ''}: at least {lower} {layer.upper()} heads, certified"
    return Finding(lower == _state_space_heads(order, feedthrough, layer) + more, what, {"lower": lower})


def _state_space_heads(order: int, feedthrough: bool, layer: str) -> int:
    terms = order + feedthrough
    return terms if layer == "mha" else least_root(terms)


LAYERS = PAPER

STATEMENTS = (
    Statement(
        id="T6",
        source="docs/results.md T6",
        place=Place("numerical", ("bank-tiled", "bank-reduced", "capacity"), "constructions.filter_bank.tiled"),
        claim=Claim(
            text="IHA with H = ceil(sqrt k) heads makes the bank with the least P for which ceil(H/P)^2 <= H: 1, 1.5, "
            "2, 1.6 times k attention maps for k = 16, 36, 64, 100, where P = H forms 4, 6, 8, 10 times k",
            test=tiles_make_bank,
            cases={"terms": (1, 2, 4, 5, 9, 16, 36, 49, 64, 100), "seed": (0,)},
            mutants={"ceil(H/P) <= H": {"side": 1}, "tiles smaller by one": {"trimmed": 1}},
            wider={"terms": range(1, 50), "seed": range(1000)},
        ),
        needed=True,
        least=Claim(
            text="H heads make no k = H^2 independent blocks with fewer than ceil(sqrt H) pseudo-heads, that is with "
            "fewer than k attention maps; with an output projection that many are enough",
            test=fewer_pseudo_heads_cannot,
            cases={"heads": (1, 2, 3, 4, 5)},
            mutants={"one pseudo-head more": {"more": 1}},
        ),
        note="A layer of rank r forms at least r attention maps, H P^2 >= r (T1), so P >= sqrt H for r = H^2. With "
        "an output projection P = ceil(sqrt H) is reached for every H; without one it is for H = 3 and 7, "
        "where the rule's P is larger, but not by tiles for all H (constructions.filter_bank.tiled).",
    ),
    Statement(
        id="T7",
        source="docs/results.md T7",
        place=Place("numerical", ("bank-two-layer", "capacity"), "constructions.filter_bank.two_layer"),
        claim=Claim(
            text="two layers of MHA with ceil(sqrt k) heads each make the bank, with twice IHA's query and key weights",
            test=two_layers_make_bank,
            cases={"graph": ("path:3", "random:4", "petersen"), "terms": (1, 2, 4, 5, 9, 10)},
            mutants={"A^(h(H-1))": {"stride": -1}, "a head less": {"fewer": 1}, "as many weights": {"copies": 1}},
            wider={"graph": tuple(f"random:{n}:{s}" for n in range(1, 6) for s in range(9)), "terms": range(1, 13)},
        ),
        needed=True,
        least=Claim(
            text="two layers with fewer heads each have a rank below k",
            test=two_layers_need_root,
            cases={"terms": (1, 2, 4, 5, 9, 10, 16)},
            mutants={"one head more": {"more": 1}},
        ),
        note="The rank of a generic pair of layers is measured; that none exceeds H^2 is T1.",
    ),
    Statement(
        id="T12",
        source="docs/results.md T12",
        place=Place("exact", ("convolution", "head-bound"), "constructions.targets.convolution"),
        claim=Claim(
            text="any K x K convolution is a layer of MHA with K^2 heads and of IHA with K",
            test=layer_is_convolution,
            cases={"size": (1, 3, 5), "padding": ("circular", "zero"), "layer": LAYERS, "seed": (0,)},
            mutants={"kernel flipped": {"flipped": True}},
            wider={"size": (1, 3), "padding": ("circular", "zero"), "layer": LAYERS, "seed": range(1000)},
        ),
        needed=True,
        least=Claim(
            text="with independent taps (d D >= K^2, K at most the grid's sides) no position-only layer has fewer",
            test=convolution_needs,
            cases={"size": (1, 3, 5), "padding": ("circular", "zero"), "layer": LAYERS, "seed": (0,)},
            mutants={"one head more": {"more": 1}},
            wider={"size": (1, 3), "padding": ("circular", "zero"), "layer": LAYERS, "seed": range(1000)},
        ),
        note="MHA's side is Cordonnier, Loukas, Jaggi (2020). With d = D = 1 the whole convolution is one operator.",
    ),
    Statement(
        id="T13",
        source="docs/results.md T13",
        place=Place("exact", ("state-space", "head-bound"), "constructions.targets.state_space"),
        claim=Claim(
            text="a linear state-space model of order n (n + 1 for n with feedthrough) is a layer of MHA with n heads "
            "and of IHA with ceil(sqrt n)",
            test=layer_is_state_space,
            cases={"order": (1, 2, 4, 5, 9), "feedthrough": (False, True), "layer": LAYERS, "seed": (0,)},
            mutants={"chi~ with signs changed": {"sign": -1}, "one token late": {"late": 1}},
            wider={"order": range(1, 7), "feedthrough": (False, True), "layer": LAYERS, "seed": range(1000)},
        ),
        needed=True,
        least=Claim(
            text="a generic model, n <= d D, has rank n (with feedthrough n + 1), so no position-only layer has fewer",
            test=state_space_needs,
            cases={"order": (1, 2, 4, 5), "feedthrough": (False, True), "layer": LAYERS, "seed": (0,)},
            mutants={"one head more": {"more": 1}},
        ),
        note="MHA's side is arXiv 2512.15115. Models whose taps C A^j B span only r dimensions need at least r and "
        "ceil(sqrt r) heads.",
    ),
)
