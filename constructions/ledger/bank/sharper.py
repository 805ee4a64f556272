"""Sharper forms of T5, T13, T6: half as many heads as maps, and tilings that there are not. T19c, T19d, T19e.

Proofs: docs/bounds.md, Theorem 5, and `constructions.filter_bank.unstructured`, `constructions.targets.state_space`,
`constructions.filter_bank.tiled`.
"""

from fractions import Fraction
from itertools import combinations_with_replacement, count, product

import numpy as np
from jaxtyping import Bool

from constructions.checks.operators import exact_gap, exact_operator_gap
from constructions.checks.oracles.filters import exact_target
from constructions.checks.result import least_root
from constructions.filter_bank import tiled, unstructured
from constructions.ledger.cases import FIELD, random_matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement
from constructions.targets.state_space import fir
from iha_theory import exact
from iha_theory.bounds.heads import unstructured_heads
from synthetic import systems

# T19c


def half_make_any(terms: int, factor: int, tokens: int, *, changed: bool = False, fewer: int = 0) -> Finding:
    """Random maps modulo a prime by IHA with d_k = m N, their span's dimension no more than k. changed: the target's
    last map is another one. fewer: heads claimed less.
    """
    maps = [random_matrix(tokens, seed) for seed in range(terms)]
    built = unstructured.bank("iha", maps, 1, factor)
    target = [*maps[:-1], random_matrix(tokens, terms)] if changed else maps
    error = exact_gap(built, target, FIELD)
    rank = min(terms, tokens**2)
    claimed = next(h for h in count(factor) if factor * (2 * h - factor) >= rank) - fewer
    what = f"k = {terms}, d_k = {factor} N, N = {tokens}: {built.heads} heads, {error:g} wrong entries modulo a prime"
    return Finding(error == 0 and built.heads == claimed, what, {"heads": built.heads, "claimed": claimed})


MANY = 10**4


def fewer_are_null(terms: int, factor: int, *, more: int = 0) -> Finding:
    """The heads that almost every bank needs, for N = 10^4, by (4) of docs/bounds.md. more: added to the claim."""
    least = unstructured_heads(terms, MANY, factor * MANY)
    claimed = next(h for h in count(factor) if factor * (2 * h - factor) >= terms) + more
    what = f"k = {terms}, d_k = {factor} N, N = {MANY}: at least {least} heads by counting dimensions"
    return Finding(least == claimed, what, {"least": least, "claimed": claimed})


# T19d

TAPS = 16


def half_make_taps(rank: int, lead: int, *, all_taps: bool = False, late: int = 0) -> Finding:
    """An FIR filter of 16 taps of rank r, `lead` of them 0 at the start, against its taps. all_taps: ceil(sqrt 16)
    claimed. late: taps by which the target lags.
    """
    generator, tokens = np.random.default_rng(rank), TAPS + 2
    mix = generator.integers(0, systems.PRIME, (TAPS, rank))
    mix[:lead] = 0
    basis = generator.integers(0, 2**20, (rank, 4, 4))
    taps = [exact.matrix(tap, FIELD) for tap in np.einsum("tr,rij->tij", mix.astype(object), basis.astype(object))]
    built = fir("iha", [tap.to_list() for tap in taps], tokens, FIELD)
    shifted = [exact.zeros((4, 4), FIELD)] * late + taps
    error = exact_operator_gap(
        built, exact_target([*shifted, *[exact.zeros((4, 4), FIELD)] * tokens][:tokens], tokens), FIELD
    )
    claimed = least_root(TAPS) if all_taps else min(least_root(TAPS), next(h for h in count(1) if 2 * h - 1 >= rank))
    what = (
        f"k = {TAPS}, r = {rank}, {lead} taps 0 first: {built.heads} IHA heads, {error:g} wrong entries modulo a prime"
    )
    return Finding(error == 0 and built.heads == claimed, what, {"heads": built.heads, "error": error})


# T19e


def joined(double: Bool[np.ndarray, "... s s"]) -> Bool[np.ndarray, "... s s"]:
    """Which rows of a tile are joined by its single cells, and so have the same r_o."""
    single = (~double).astype(np.int64)
    return np.linalg.matrix_power(single @ single.swapaxes(-1, -2), double.shape[-1]) > 0


def tiles_need(side: int, missing: int, *, order: int = 3, most: int = 0) -> Finding:
    """The proof's steps for H = s^2 - m: every tile of s x s with at most m double cells in each row and column is
    joined or has two parts of m x m; there are 4 m - 1 of these, on cycles divisible by 3. Tiles for H = 3.

    order: of v -> 1 / (1 - v). most: double cells beyond m.
    """
    heads, allowed = side**2 - missing, missing + most
    rows = [row for row in product((False, True), repeat=side) if sum(row) <= allowed]
    patterns = np.array(list(combinations_with_replacement(rows, side)))
    patterns = patterns[patterns.sum(1).max(1) <= allowed]
    sizes = [joined(p).sum(-1) for p in (patterns, patterns.swapaxes(1, 2))]
    split = (sizes[0] < side).any(1)
    equal = all((size[split] == missing).all() for size in sizes)
    orbit = [Fraction(2, 7)]
    while len(orbit) <= order:
        orbit.append(1 / (1 - orbit[-1]))
    cyclic = orbit[-1] == orbit[0] and len(set(orbit)) == order
    none = not split.any() or (side == 2 * missing and (4 * missing - 1) % order > 0)
    known = heads not in tiled.OVERLAPPING or (tiled.coverage(tiled.OVERLAPPING[heads], heads) == 1).all()
    what = (
        f"H = {heads}, P = {side}: {int(split.sum())} of {len(patterns)} patterns are not joined; "
        f"tiles are {'impossible' if none else 'not excluded'}"
    )
    holds = bool(
        equal and cyclic and known and none == tiled.impossible(heads) and not (none and heads in tiled.OVERLAPPING)
    )
    return Finding(holds, what, {"impossible": none, "split": int(split.sum()), "patterns": len(patterns)})


STATEMENTS = (
    Statement(
        id="T19c",
        source="docs/bounds.md, Theorem 5",
        place=Place("exact", ("half-heads", "structure"), "docs/bounds.md, Theorem 5, Enough"),
        claim=Claim(
            text="with queries and keys of width m N, ceil((k/m + m)/2) IHA heads (m <= sqrt k) make any k matrices "
            "whose span has an invertible one: ceil((k + 1)/2) for m = 1, ceil(sqrt k) for m = ceil(sqrt k)",
            test=half_make_any,
            cases={"terms": (1, 2, 5, 8, 9), "factor": (1, 2, 3), "tokens": (3,)},
            given=lambda terms, factor, tokens: (factor - 1) ** 2 < terms,
            mutants={"another map": {"changed": True}, "a head less": {"fewer": 1}},
            wider={"terms": range(1, 10), "factor": (1, 2, 3), "tokens": (3, 4)},
        ),
        needed=True,
        least=Claim(
            text="by counting dimensions almost every bank needs as many, for large N",
            test=fewer_are_null,
            cases={"terms": (1, 2, 4, 5, 9, 16), "factor": (1, 2, 3, 4)},
            given=lambda terms, factor: (factor - 1) ** 2 < terms,
            mutants={"one head more": {"more": 1}, "one less": {"more": -1}},
        ),
        note="For m > 1 a grid of m x m blocks must be invertible, for some basis.",
    ),
    Statement(
        id="T19d",
        source="docs/results.md T13",
        place=Place("exact", ("state-space", "half-heads"), "constructions.targets.state_space"),
        claim=Claim(
            text="k taps that span r dimensions take at most min(ceil(sqrt k), ceil((r + 1)/2)) IHA heads, for k = 16, "
            "whether or not a map is invertible",
            test=half_make_taps,
            cases={"rank": (1, 2, 3, 5, 7, 16), "lead": (0, 2)},
            given=lambda rank, lead: rank + lead <= TAPS,
            mutants={"ceil(sqrt k)": {"all_taps": True}, "one tap late": {"late": 1}},
            wider={"rank": range(1, 5), "lead": range(4)},
        ),
        note="At least ceil(sqrt r): so r = 1, 2, 3, 5 are least. No invertible map is needed, since in power series "
        "the one of least order divides the others. The same for state-space models.",
    ),
    Statement(
        id="T19e",
        source="docs/results.md T6",
        place=Place("exact", ("no-tiling",), "constructions.filter_bank.tiled"),
        claim=Claim(
            text="without an output projection no tiles with P = ceil(sqrt H) = s make k = H^2 blocks for H = s^2 - m, "
            "m >= 1, if s > 2 m (8, 15, 23, 24, ...), nor if s = 2 m, unless m = 1 mod 3 (14, 33, ...)",
            test=tiles_need,
            cases={"side": (2, 3, 4, 5), "missing": (1, 2)},
            given=lambda side, missing: side >= 2 * missing,
            mutants={"order 2": {"order": 2}, "a double cell more": {"most": 1}},
        ),
        note="The claim's steps for every pattern of double cells: s = 2 to 5. H = 3 has tiles. H = 13, 21, 22 are "
        "open. Proof: constructions.filter_bank.tiled.",
    ),
)
