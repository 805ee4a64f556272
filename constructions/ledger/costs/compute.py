"""Attention's compute: what heads, pseudo-heads and windows cost, by counted FLOPs and pairs (Sec. 4, App. C)."""

from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
import torch

from constructions.cpm3.build import build
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.masks import allowed_pairs
from iha_theory.attention.patterns import attend
from iha_theory.costs.counted import flops, flops_of
from iha_theory.costs.crossovers import never_less
from iha_theory.costs.formulas import cost
from iha_theory.rounding import ceil_sqrt


@cache
def _map_flops(layer: str, tokens: int, width: int, terms: int) -> int:
    """FLOPs of forming the maps and applying them, in the bank's layer as built."""
    construction = build("bank", layer, tokens, width, terms)
    attention = construction.layer
    rows = tokens * construction.pseudo_heads
    shapes = [
        (1, attention.num_heads, rows, w) for w in (attention.head_dim, attention.head_dim, attention.value_head_dim)
    ]
    return flops_of(partial(attend, pattern="linear", scale=1.0), *shapes)


def _map_ratio(layer: str, tokens: int, width: int, terms: int) -> tuple[int, int, Fraction]:
    ours, theirs = (_map_flops(name, tokens, width, terms) for name in (layer, "mha"))
    return ours, theirs, Fraction(ours, theirs)


def fewer_heads_cost_less(tokens: int, width: int, terms: int, *, layer: str = "iha") -> Finding:
    """The attention of ceil(sqrt k) heads takes no more FLOPs than that of MHA's k. layer: "mha" for MHA heads."""
    heads = ceil_sqrt(terms)
    ours, theirs = (
        _map_flops(layer, tokens, width, terms if layer == "iha" else heads),
        _map_flops("mha", tokens, width, terms),
    )
    maps = heads**3 if layer == "iha" else heads
    what = (
        f"k = {terms}, N = {tokens}, d = {width}: {heads} heads take {ours} FLOPs in {maps} maps, "
        f"MHA's {terms} heads {theirs} in {terms} maps: {ours / theirs:.2f} times"
    )
    return Finding(ours <= theirs, what, {"iha": ours, "mha": theirs})


def tiled_cost(
    tokens: int, width: int, terms: int, layer: str = "iha-tiled", factor: tuple[int, int] = (8, 3)
) -> Finding:
    """In units of (N + dH) / (N + d): T6's attention FLOPs at most 8/3, the paper's at least sqrt k times MHA's."""
    ours, theirs, ratio = _map_ratio(layer, tokens, width, terms)
    unit = Fraction(tokens + width * ceil_sqrt(terms), tokens + width)
    paper = _map_ratio("iha", tokens, width, terms)[2] / unit
    maps = cost("maps", layer, tokens, width, terms)
    what = (
        f"k = {terms}, N = {tokens}, d = {width}: {maps} maps, {maps / terms:.2f} times MHA's; {float(ratio):.2f} times"
        " the FLOPs"
    )
    holds = ratio <= Fraction(*factor) * unit and paper**2 >= terms
    return Finding(holds, what, {"maps": maps, "iha": ours, "mha": theirs, "paper": float(paper)})


def paper_saves_no_flops(
    limit: int, layer: str = "iha", quantity: str = "flops", factor: tuple[int, int] = (8, 3)
) -> Finding:
    """The whole layer: proved for all N, d, k by `never_less`; maps of the tiled IHA compared up to a limit."""
    proved = never_less(quantity, layer)
    terms = np.arange(1.0, limit + 1)
    ratio = cost("maps", "iha-tiled", 1, 1, terms) / terms
    k = int(ratio.argmax()) + 1
    what = (
        f"the paper's IHA never has fewer FLOPs than MHA, for any N, d, k{'' if proved else ': NOT proved'}; the maps"
        f" of the tiled one are between {ratio.min():.3f} and {ratio.max():.3f} (k = {k}) times MHA's, k up to"
        f" {limit}"
    )
    tight = bool((ratio >= 1).all()) and Fraction(cost("maps", "iha-tiled", 1, 1, k), k) <= Fraction(*factor)
    return Finding(proved and tight, what, {"largest_ratio": float(ratio.max()), "attained_at": k})


def quadratic_part(
    heads: int, pseudo_heads: int, head_dim: int, collapse: Any, pseudo_power: int = 2, dim_power: int = 1
) -> Finding:
    """The coefficient of N^2 in a layer's FLOPs is 4 P^2 d a head: half the second difference of the counted FLOPs."""
    layer = InterleavedHeadAttention(
        heads * head_dim, heads, num_pseudo_heads=pseudo_heads, collapse=collapse, device="meta"
    )
    counts = [flops(layer, *[(1, n, layer.embed_dim)] * 3) for n in (4, 5, 6, 7)]
    second = [counts[i] - 2 * counts[i + 1] + counts[i + 2] for i in (0, 1)]
    expected = 4 * heads * pseudo_heads**pseudo_power * head_dim**dim_power
    what = (
        f"H = {heads}, P = {pseudo_heads}, d = {head_dim}, {collapse} collapse: {second[0] // 2} N^2 counted, of all"
        f" heads; 4 H P^2 d = {4 * heads * pseudo_heads**2 * head_dim}"
    )
    return Finding(second == [2 * expected] * 2, what, {"coefficient": second[0] // 2})


def schedule(
    counted: str,
    pseudo_heads: int,
    tokens: int,
    share: tuple[int, int] = (3, 5),
    window_factor: int = 2,
    window_power: int = 2,
) -> Finding:
    """Four IHA layers with window N / (2 P^2) and one global MHA layer, over five global MHA layers, in pairs.

    `counted` says how a global layer counts: "causal", its pairs (i, j <= i), or "square", all N^2. Edge effects: up to
    1/(10 P^2) + 1/(5 N).
    """
    window = tokens // (window_factor * pseudo_heads**window_power)
    local = pseudo_heads**2 * _pairs(tokens, window)
    whole = tokens**2 if counted == "square" else _pairs(tokens, None)
    ratio = Fraction(4 * local + whole, 5 * whole)
    edges = Fraction(1, 10 * pseudo_heads**2) + Fraction(1, 5 * tokens)
    what = (
        f"P = {pseudo_heads}, N = {tokens}, window {window}, global layers counted as {counted}: {local} pairs in a"
        f" window layer, {whole} in a global one, {float(ratio):.4f} of the cost of global MHA"
    )
    return Finding(
        abs(ratio - Fraction(*share)) <= edges, what, {"local": local, "global": whole, "ratio": float(ratio)}
    )


def schedule_counted_alike(pseudo_heads: int, tokens: int, share: int = 1) -> Finding:
    """Counted as pairs (i, j <= i) in both kinds of layer: 1 - 1/(5 P^2), up to 1/N."""
    window = tokens // (2 * pseudo_heads**2)
    local, whole = pseudo_heads**2 * _pairs(tokens, window), _pairs(tokens, None)
    ratio = Fraction(4 * local + whole, 5 * whole)
    expected = 1 - Fraction(share, 5 * pseudo_heads**2)
    what = f"P = {pseudo_heads}, N = {tokens}, window {window}: {float(ratio):.4f}, expected {float(expected):.4f}"
    return Finding(abs(ratio - expected) <= Fraction(1, tokens), what, {"ratio": float(ratio)})


@cache
def _pairs(tokens: int, window: int | None) -> int:
    """Causal pairs of tokens that may attend, in the window or at all, from the mask that the layers use."""
    allowed = allowed_pairs(
        None,
        is_causal=True,
        window=window,
        batch=1,
        queries=tokens,
        keys=tokens,
        device=torch.device("cpu"),
    )
    assert allowed is not None
    return int(allowed.sum())


def _whole_window(pseudo_heads: int, tokens: int, **_: object) -> bool:
    return tokens % (2 * pseudo_heads**2) == 0


_BANKS = {"tokens": (1, 2, 6), "width": (1, 2), "terms": (1, 2, 3, 4, 5, 7, 9, 10, 16, 17, 36, 64)}
_TOKENS = (2, 4, 6, 8, 16, 32, 64, 128, 512)

STATEMENTS = (
    Statement(
        id="E12",
        source="Sec. 4 (what the head counts suggest)",
        place=Place("exact", ("cost", "bank-tiled", "bank-iha"), "constructions.filter_bank.tiled"),
        claim=Claim(
            text="fewer heads are less compute: the attention of IHA's ceil(sqrt k) heads takes no more FLOPs than "
            "that of MHA's k, k >= 2",
            test=fewer_heads_cost_less,
            cases=_BANKS,
            given=lambda tokens, width, terms: terms >= 2,
            mends={"one map a head": {"layer": "mha"}},
        ),
        repaired=Claim(
            text="with P about sqrt H (T6) IHA's attention takes at most 8/3 (N + dH) / (N + d) times the FLOPs of "
            "MHA's; with the paper's P = H at least sqrt k (N + dH) / (N + d) times",
            test=tiled_cost,
            cases=_BANKS,
            mutants={"P = H": {"layer": "iha"}, "at most twice": {"factor": (2, 1)}},
            wider={"tokens": range(1, 9), "width": range(1, 5), "terms": range(1, 200)},
        ),
        note="H P^2 maps of N x N, with values of width dH in a head; T6 has the fewest maps. See T-compute for the "
        "whole layer.",
    ),
    Statement(
        id="T-compute",
        source="iha_theory.costs.crossovers, docs/results.md T6",
        place=Place("exact", ("cost", "bank-tiled", "capacity")),
        claim=Claim(
            text="for no N, d, k has the paper's IHA for the bank fewer FLOPs than MHA; the tiled IHA (T6) forms "
            "between 1 and 8/3 times MHA's attention maps",
            test=paper_saves_no_flops,
            cases={"limit": (1, 10, 1000, 10**6)},
            mutants={
                "parameters": {"quantity": "parameters"},
                "two-layer MHA": {"layer": "mha-two-layer"},
                "at most twice": {"factor": (2, 1)},
            },
        ),
        note="FLOPs of the whole layer, projections and mixing included. The leading term of the difference at k = "
        "H^2 is 2H(H-1)(H-2) N^3. Maps: H P^2 >= k (T6); with s = floor(sqrt H), P <= s + 2 and k > (H-1)^2, "
        "so H P^2 / k <= s^2 (s+2)^2 / (s^2-1)^2, which falls with s and is below 8/3 from s = 4 on; all "
        "smaller H are tried.",
    ),
    Statement(
        id="P-attention-cost",
        source="Sec. 4, App. C",
        place=Place("exact", ("cost",)),
        claim=Claim(
            text="IHA's attention costs O(P^2 N^2 d) a head: the term in N^2 of a head's FLOPs is 4 P^2 N^2 d",
            test=quadratic_part,
            cases={
                "heads": (1, 2, 3),
                "pseudo_heads": (1, 2, 3),
                "head_dim": (1, 4),
                "collapse": ("global", "per_head"),
            },
            mutants={"P for P^2": {"pseudo_power": 1}, "d^2 for d": {"dim_power": 2}},
            wider={
                "heads": range(1, 9),
                "pseudo_heads": range(1, 9),
                "head_dim": range(1, 17),
                "collapse": ("global", "per_head"),
            },
        ),
        note="FLOPs are two for a multiplication and an addition. Projections, mixing and collapse are linear in N. The"
        " P^2 maps cost as much under a mask: the layers compute masked entries.",
    ),
    Statement(
        id="P-schedule",
        source="App. C",
        place=Place("exact", ("cost",)),
        claim=Claim(
            text="four IHA layers with a window of N / (2P^2) tokens and one global MHA layer cost 3/5 of five global "
            "MHA layers, up to edge effects",
            test=schedule,
            cases={"pseudo_heads": (1, 2, 4, 8), "tokens": _TOKENS, "counted": ("causal", "square")},
            mutants={
                "1/2 for 3/5": {"share": (1, 2)},
                "window N / P^2": {"window_factor": 1},
                "window N / (2P)": {"window_power": 1},
            },
            given=_whole_window,
            wider={"counted": ("square",), "pseudo_heads": (1, 2, 3, 4), "tokens": range(288, 1200, 288)},
        ),
        assumption=Assumption(
            "the global layers are counted as all N^2 pairs, masked ones included, the window layers by theirs alone",
            lambda counted, pseudo_heads, tokens: counted == "square",
        ),
        repaired=Claim(
            text="with causal pairs counted alike in both kinds of layer the schedule costs 1 - 1/(5P^2) of global "
            "MHA, up to 1/N",
            test=schedule_counted_alike,
            cases={"pseudo_heads": (1, 2, 4, 8), "tokens": _TOKENS},
            mutants={"no edge effect": {"share": 0}, "3/5": {"share": 2}},
            given=_whole_window,
            wider={"pseudo_heads": (1, 2, 3, 4), "tokens": range(288, 1200, 288)},
        ),
        note="So the schedule matches the FLOPs of global MHA, as it is meant to, and does not save two fifths. A "
        "window layer has P^2 (N W - W(W-1)/2) = N^2/2 - N^2/(8P^2) + N/4 causal pairs with W = N/(2P^2); a "
        "global layer N(N+1)/2, or N^2 counted in full. Counted in full the cost is 3/5 - 1/(10P^2) + 1/(5N); "
        "it tends to exactly 3/5 only as P grows too, or if every query is counted with W keys. Projections "
        "and mixing are left out.",
    ),
)
