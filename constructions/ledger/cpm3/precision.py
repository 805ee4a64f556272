"""Temperatures and number formats: T9 and T10."""

import math

import numpy as np
import torch

from constructions.cpm3 import compact, precision
from constructions.cpm3.mlp import PairCount
from constructions.cpm3.temperature import hardest, rounds_exactly, soften, workspace_error
from constructions.cpm3.workspace import workspace
from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.count_pairs import CountPairs

JUST = 1e-6
"""Just above and just below a temperature b: b +- 1e-6 (1 + b)."""
WINDOW = 300
"""So many tokens below the predicted limit are tried: all of them in bfloat16."""
SEQUENCES = 20
"""So many are counted; the first two hold 0 only and the largest token only."""
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def finite_temperature(
    layer: str, tokens: int, spread: int, *, others_off: int = 0, twice_off: int = 0, factor: float = 1.0
) -> Finding:
    """The workspace's error against (N - 1) D / (e^b + N - 1), and rounding just above and below the least b."""
    others = tokens - 1 + others_off
    least = math.log(others * (2 * spread - 1 + twice_off))
    hard = workspace(layer, tokens)
    x = torch.cat((hardest(tokens, spread), _sequences(tokens, spread)))
    ratios = []
    for b in (0.0, 1.0, least + 1.0):
        bound = factor * others * spread / (math.exp(b) + others)
        ratios.append(workspace_error(soften(hard, b), x) / bound)
    cold, warm = (rounds_exactly(soften(hard, least + step), x) for step in _steps(least))
    attained = all(abs(ratio - 1) < 1e-9 for ratio in ratios)
    what = (
        f"error over bound {min(ratios):.9f} to {max(ratios):.9f}; just above b = {least:.6f} rounding is "
        f"{_exact(cold)}, just below {_exact(warm)}"
    )
    return Finding(
        attained and cold and not warm, f"{layer}, N = {tokens}, D = {spread}: {what}", {"b": least, "ratios": ratios}
    )


def tokens_in(dtype: str, layer: str, tokens: int, *, bits_off: int = 0, factor_off: int = 0) -> Finding:
    """The first token that the workspace copies wrong in a number format, against the prediction."""
    bits = precision.significand_bits(DTYPES[dtype]) + bits_off
    largest = precision.largest_token((1 if layer == "mha" else ceil_sqrt(tokens)) + factor_off, bits)
    seen = range(max(0, largest - WINDOW), largest + 2)
    wrong = precision.first_wrong_token(workspace(layer, tokens), DTYPES[dtype], seen)
    what = f"tokens up to {largest} should be exact; the first one that is not, of those up to {seen[-1]}, is {wrong}"
    return Finding(
        wrong == largest + 1, f"{layer} in {dtype}, N = {tokens}: {what}", {"largest": largest, "wrong": wrong}
    )


def in_range(dtype: str, layer: str, tokens: int) -> bool:
    """H <= 2^((p-1)/2), and H 2^p is no overflow, which excludes H = 32 in float16 only."""
    heads, bits = ceil_sqrt(tokens), precision.significand_bits(DTYPES[dtype])
    return layer == "mha" or (2 * heads**2 <= 2**bits and heads * 2**bits <= torch.finfo(DTYPES[dtype]).max)


@torch.no_grad()
def counts_in(
    dtype: str, tokens: int | None, modulus: int, coefficient: int, *, more: int = 0, bounded: bool = True
) -> Finding:
    """Whether the MLP counts right in a number format, on workspaces of N slots with the largest tokens among others.

    tokens: N; None for floor(2^(p/2)), where it also must go wrong for some N beyond (M = 1, where all pairs count).
    more: added to that N. bounded: keep to (2 + G mod M) max x <= 2^p, and not only to x <= 2^p.
    """
    bits = precision.significand_bits(DTYPES[dtype])
    slots = precision.largest_tokens_counted(bits) + more if tokens is None else tokens
    highest = 2**bits // (2 + coefficient % modulus if bounded else 1)
    generator = torch.Generator().manual_seed(slots)
    x = torch.randint(max(0, highest - 2 * modulus), highest + 1, (SEQUENCES, slots), generator=generator)
    x[0], x[1] = 0, highest
    mlp = PairCount(list(range(slots)), slots, modulus, coefficient).to(DTYPES[dtype])
    counts = mlp(x.to(DTYPES[dtype])).double().numpy()
    right = CountPairs(modulus, coefficient).target(x.numpy())[:, 0]
    wrong = np.flatnonzero(counts != right)
    what = f"{dtype}, N = {slots}, M = {modulus}, G = {coefficient}, tokens up to {highest}: "
    what += f"{len(wrong)} of {len(x)} are counted wrong"
    if len(wrong) and slots < 9:
        what += f"; {x[wrong[0]].tolist()} is counted as {counts[wrong[0]]:g}, not {right[wrong[0]]}"
    goes_wrong = True
    if tokens is None:
        first = next(n for n in range(slots, 2 * slots) if not precision.holds(n**2, bits))
        all_pairs = PairCount(list(range(first)), first, 1, 0).to(DTYPES[dtype])
        beyond = float(all_pairs(torch.zeros(1, first, dtype=DTYPES[dtype])))
        goes_wrong = beyond != first**2
        what += f"; {first}^2 = {first**2} for M = 1 comes out as {beyond:g}"
    return Finding(not len(wrong) and goes_wrong, what, {"tokens": slots, "highest": highest, "wrong": len(wrong)})


def compact_keys(
    layer: str, tokens: int, spread: int, *, power: int = 2, turned: int = 0, colder: float = 1.0, coordinates: int = 2
) -> Finding:
    """The workspace by two coordinates a key: hard, softmax just above and below the least b, b's growth, sizes."""
    built = compact.compact_workspace(layer, tokens)
    if turned:
        with torch.no_grad():
            query = built.layer.q_proj.weight[:, 1:]
            query.copy_(query.roll(turned, 1))
    x = torch.cat((hardest(tokens, spread), _sequences(tokens, spread)))
    error = 0.0 if layer == "iha-ties" else workspace_error(built, x)
    least = colder * compact.least_inverse_temperature(layer, tokens, spread)
    cold, warm = (rounds_exactly(soften(built, least + step), x) for step in _steps(least))
    n = compact.keys_on_circle(layer, tokens)
    growth = least / n**power / compact.temperature_constant(spread)
    heads = tokens if layer == "mha" else ceil_sqrt(tokens)
    bases = int(torch.linalg.matrix_rank(built.layer.q_proj.weight.unflatten(0, (built.heads, -1)).flatten(1)))
    sized = built.heads == heads and built.layer.head_dim == coordinates and bases <= 2
    sized = sized and built.parameters == compact.parameters(layer, tokens)
    hard = "not run (ties)" if layer == "iha-ties" else f"off by {error:g}"
    what = (
        f"hard attention is {hard}; just above b = {least:.6g} rounding is {_exact(cold)}, just below "
        f"{_exact(warm)}; b over its limit {growth:.4f}; {bases} base queries, {built.parameters} parameters"
    )
    return Finding(
        error == 0 and cold and not warm and abs(growth - 1) <= 10 / n**2 and sized,
        f"{layer}, N = {tokens}, D = {spread}: {what}",
        {"error": error, "b": least, "growth": growth, "parameters": built.parameters, "heads": built.heads},
    )


def _sequences(tokens: int, spread: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randint(0, spread + 1, (20, tokens), generator=generator)


def _steps(least: float) -> tuple[float, float]:
    return JUST * (1 + least), -JUST * (1 + least)


def _exact(is_exact: bool) -> str:
    return "exact" if is_exact else "not exact"


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="T9",
        source="docs/results.md T9",
        place=Place("numerical", ("temperature",), "constructions.cpm3.temperature"),
        claim=Claim(
            "at softmax logits b and 0 the workspace's largest error is (N - 1) D / (e^b + N - 1), D the spread "
            "of the tokens; rounding is exact for all integers, D >= 1, if and only if b > log((N - 1)(2 D - 1))",
            finite_temperature,
            cases={"layer": ("mha", "iha"), "tokens": (2, 3, 5, 9, 17), "spread": (1, 2, 7)},
            mutants={
                "N for N - 1": {"others_off": 1},
                "2 D for 2 D - 1": {"twice_off": 1},
                "half the error": {"factor": 0.5},
            },
            wider={"layer": ("mha", "iha"), "tokens": range(2, 27), "spread": range(1, 40)},
        ),
        note="D = max x - min x, N >= 2; MHA and IHA alike. MHA has one match a row; IHA has H among N H virtual "
        "keys, and values with a factor H: the same number comes out. The bound is attained, so the b is the "
        "least one. Proof: constructions.cpm3.temperature.",
    ),
    Statement(
        id="T9-tokens",
        source="docs/results.md T9",
        place=Place("exact", ("precision",), "constructions.cpm3.precision"),
        claim=Claim(
            "with a significand of p bits hard attention writes the workspace exactly for tokens up to 2^p by MHA, and "
            "by IHA, H <= 2^((p-1)/2), H 2^p in range, below the first x for which H x takes more than p bits",
            tokens_in,
            cases={"dtype": tuple(DTYPES), "layer": ("mha", "iha"), "tokens": (1, 4, 9, 17)},
            given=in_range,
            mutants={"a bit more": {"bits_off": 1}, "a bit less": {"bits_off": -1}, "values H + 1": {"factor_off": 1}},
            wider={"dtype": tuple(DTYPES), "layer": ("mha", "iha"), "tokens": range(1, 27)},
        ),
        note="For IHA that is 2^p if H is a power of two, never less than 2^p / H; N plays no other part. float32: "
        "16,777,216 by MHA, 5,592,406 by IHA with 3 heads; bfloat16: 256 and 86. More heads can do better by "
        "luck: with 17 heads in bfloat16, 17 x is not held for x = 17, but its copy rounds back. Proof: "
        "constructions.cpm3.precision.",
    ),
    Statement(
        id="T9-counts",
        source="docs/results.md T9",
        place=Place("exact", ("precision",), "constructions.cpm3.precision"),
        claim=Claim(
            "with a significand of p bits the MLP of CPM-3 counts right for N^2 <= 2^p tokens x >= 0 with "
            "(2 + G mod M) max x <= 2^p, and not all counts for larger N (N = 16 in bfloat16, 45 in float16)",
            counts_in,
            cases={
                "dtype": ("bfloat16", "float16"),
                "tokens": (1, 2, 3, 8, None),
                "modulus": (1, 2, 3, 17),
                "coefficient": (0, 15, 16),
            },
            mutants={"a few tokens more": {"more": 2}, "x <= 2^p": {"bounded": False}},
            wider={
                "dtype": ("bfloat16", "float16"),
                "tokens": range(1, 17),
                "modulus": range(1, 100),
                "coefficient": range(-100, 100),
            },
        ),
        note="float32: 4096, by the same proof in constructions.cpm3.precision; its N^2 hidden units are too many "
        "to build.",
    ),
    Statement(
        id="T10",
        source="docs/results.md T10",
        place=Place("numerical", ("compact-keys", "temperature"), "constructions.cpm3.compact"),
        claim=Claim(
            "keys of two coordinates, on a circle of n places, write the workspace for N >= 3: N heads of MHA (n = N), "
            "ceil(sqrt N) of IHA (n = N H), by softmax also with the paper's ties (n = N); the least b grows as n^2",
            compact_keys,
            cases={"layer": tuple(compact.WEIGHTS), "tokens": (3, 4, 5, 9, 16, 25), "spread": (1, 3)},
            mutants={
                "b grows like n": {"power": 1},
                "queries one place on": {"turned": 1},
                "b a thousandth less": {"colder": 0.999},
            },
            wider={"layer": tuple(compact.WEIGHTS), "tokens": range(3, 33), "spread": range(1, 6)},
        ),
        note="Base queries span two dimensions. Softmax rounds exactly above the b at which the weights of other "
        "tokens are 1/(2 D - 1) of the right one's, and not below; b / n^2 tends to a constant, with a "
        "relative difference of at most 10/n^2 (for N = 2 it may be more). "
        "Logits that are equal on paper are not in floating point, so "
        "IHA's ties do not survive hard attention: its virtual keys get places of their own, for which b grows "
        "like N^3 (N^2 with ties and softmax). Queries and keys shrink to 2 coordinates a head, and the "
        "attention parameters of MHA are then at most 5 times IHA's, no longer about sqrt N times. Proof: "
        "constructions.cpm3.compact.",
    ),
)
