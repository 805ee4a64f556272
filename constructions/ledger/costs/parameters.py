"""Parameters: what the paper counts, against `numel()` of the layers that are built (Sec. 4, App. B.2)."""

from functools import cache, partial
from typing import Any

from constructions.construction import count
from constructions.cpm3.build import build
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.rounding import ceil_sqrt


@cache
def _bank_count(layer: str, tokens: int, width: int, terms: int) -> int:
    return count(build("bank", layer, tokens, width, terms).layer)


def compare(printed: int, counted: int, what: str) -> Finding:
    """Whether a count is the printed one."""
    relation = "=" if printed == counted else "is not"
    return Finding(printed == counted, f"{what}: {printed} {relation} {counted} counted", {"counted": counted})


def bank_parameters(tokens: int, width: int, terms: int, *, layer: str, **constants: int) -> Finding:
    """`mha_printed` or `iha_printed`, with its constants."""
    printed = {"mha": mha_printed, "iha": iha_printed}[layer](tokens, width, terms, **constants)
    return compare(printed, _bank_count(layer, tokens, width, terms), f"N = {tokens}, d = {width}, k = {terms}")


def mha_printed(tokens: int, width: int, terms: int, *, queries_and_keys: int = 2, values: int = 1) -> int:
    """2 N (N + d) k + d (N + d) k."""
    return (queries_and_keys * tokens + values * width) * (tokens + width) * terms


def iha_printed(tokens: int, width: int, terms: int, *, values_power: int = 2, mixing: int = 4) -> int:
    """2 N (N + d) H + d (N + d) H^2 + 4 H^3, H = ceil(sqrt k)."""
    h, inputs = ceil_sqrt(terms), tokens + width
    return 2 * tokens * inputs * h + width * inputs * h**values_power + mixing * h**3


def bank_saving(tokens: int, width: int, terms: int, blocks: int = 1) -> Finding:
    """Fewer parameters by IHA; `blocks` > 1 lets the IHA make that many times as many blocks."""
    theirs = _bank_count("mha", tokens, width, terms)
    ours = _bank_count("iha", tokens, width, blocks * terms)
    what = f"N = {tokens}, d = {width}, k = {terms}: IHA has {ours} parameters, MHA {theirs}"
    return Finding(ours < theirs, what, {"iha": ours, "mha": theirs})


def _extra(collapse: Any, heads: int, pseudo_heads: int) -> int:
    iha = InterleavedHeadAttention(2 * heads, heads, num_pseudo_heads=pseudo_heads, collapse=collapse)
    return count(iha) - count(MultiHeadAttention(2 * heads, heads))


def mixing_count(
    collapse: str, heads: int, pseudo_heads: int, *, alphas: int = 3, power: int = 2, own_power: int = 2
) -> Finding:
    """3 H^2 P more parameters than MHA in the alphas, and H^2 P in the collapse: 4 H^2 P.

    alphas: in place of 3. power: of H in both. own_power: of H in a per-head collapse.
    """
    counted = _extra(collapse, heads, pseudo_heads)
    folded = heads ** (power if collapse == "global" else min(power, own_power))
    claimed = alphas * heads**power * pseudo_heads + folded * pseudo_heads
    return compare(claimed, counted, f"{collapse} collapse, H = {heads}, P = {pseudo_heads}, more than MHA")


_BANKS = {"tokens": (1, 2, 5), "width": (1, 2, 3), "terms": (1, 2, 3, 4, 5, 9, 10)}
_WIDER_BANKS = {"tokens": range(1, 13), "width": range(1, 6), "terms": range(1, 40)}
_MIXINGS = {"heads": (1, 2, 3, 5), "pseudo_heads": (1, 2, 4), "collapse": ("global", "per_head")}
_WIDER_MIXINGS = {"collapse": ("global", "per_head"), "heads": range(1, 17), "pseudo_heads": range(1, 9)}

STATEMENTS = (
    *(
        Statement(
            id=f"P-bank-parameters-{layer}",
            source="Sec. 4.2, App. B.2",
            place=Place("exact", (f"bank-{layer}",)),
            claim=Claim(
                text=text,
                test=partial(bank_parameters, layer=layer),
                cases=_BANKS,
                mutants=mutants,
                wider=_WIDER_BANKS,
            ),
        )
        for layer, text, mutants in (
            (
                "mha",
                "MHA with k heads for the filter bank has 2N(N+d)k + d(N+d)k parameters",
                {"queries only": {"queries_and_keys": 1}, "no values": {"values": 0}},
            ),
            (
                "iha",
                "IHA for the filter bank, H = P = ceil(sqrt k), has 2N(N+d)H + d(N+d)H^2 + 4H^3 parameters",
                {"values of width d": {"values_power": 1}, "no collapse": {"mixing": 3}},
            ),
        )
    ),
    Statement(
        id="P-savings",
        source="Sec. 4.2, App. B.2",
        place=Place("exact", ("bank-mha", "bank-iha")),
        claim=Claim(
            text="IHA for the filter bank has fewer parameters than MHA",
            test=bank_saving,
            cases={"tokens": (1, 2, 5, 7, 12), "width": (1, 2, 3, 6), "terms": (1, 2, 3, 5, 7, 10, 12, 50)},
            mutants={"four times the blocks": {"blocks": 4}},
            wider=_WIDER_BANKS,
        ),
        assumption=Assumption(
            "N >= 7, 3 <= k <= N, 2d <= N",
            lambda tokens, width, terms: tokens >= 7 and 3 <= terms <= tokens and 2 * width <= tokens,
        ),
        note="The difference is (N+d)(2N(k-H) - d(H^2-k)) - 4H^3. For k = 1 and 2 it is negative for every N and d."
        " For k = 3 and 4 it is at least (N+d)(2N-d) - 32 >= 1.5 N^2 - 32 if d <= N/2. For H >= 3, k - H >= (H-1)(H-2)"
        " and H^2 - k <= 2(H-1), so with d <= N/2 it is at least (N+1) N (H-1)(2H-5) - 4H^3, which is positive for"
        " N >= max(7, (H-1)^2 + 1). Without k <= N the mixing wins in the end: with N fixed, 4H^3 outgrows k N (2N+1)."
        " `iha-theory costs` says from which k to which.",
    ),
    Statement(
        id="P-mixing-parameters",
        source="Sec. 4, Algorithm 1 and Definition 3",
        place=Place("exact", ("mha", "iha")),
        claim=Claim(
            text="IHA has 4H^2 P parameters more than MHA",
            test=mixing_count,
            cases=_MIXINGS,
            mutants={"3 H^2 P": {"alphas": 2}, "4 H P": {"power": 1}},
            wider=_WIDER_MIXINGS,
        ),
        assumption=Assumption(
            "the global collapse of Definition 3 (H x HP), or one head",
            lambda collapse, heads, pseudo_heads: collapse == "global" or heads == 1,
        ),
        repaired=Claim(
            text="IHA has 3H^2 P parameters more in the alphas, and H^2 P in a global or HP in a per-head collapse",
            test=partial(mixing_count, own_power=1),
            cases=_MIXINGS,
            mutants={"H^2 P for both": {"own_power": 2}},
            wider=_WIDER_MIXINGS,
        ),
        note="Algorithm 1 collapses each head by itself (H x P), Definition 3 all of them (H x HP).",
    ),
)
