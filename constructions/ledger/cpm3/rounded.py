"""CPM-3 with positions only and rounded numbers: how many bits they need (T15d), and of tables (T15e).

Proofs: docs/cpm3.md, Theorem 6.
"""

from itertools import combinations, product
from math import ceil, log2

import numpy as np
import torch
from jaxtyping import Int

from constructions.cpm3 import rounded
from constructions.ledger.cases import sequences
from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory import blueprint
from synthetic.tasks.count_pairs import CountPairs

# T15d


def own_token(modulus: int, coefficient: int) -> int:
    """The t of Theorem 6 that tells a middle from its ends."""
    g = coefficient % modulus
    if modulus == 3 and g:
        return 1
    if 2 * g + 1 == modulus:
        return g
    return {modulus - 1: 2, modulus - 2: 1}.get(g, 0) if g else 0


def pinned(modulus: int, coefficient: int, others: int) -> int:
    """How many of the other tokens are 1 in all the sequences of Theorem 6."""
    return others // 3 if modulus == 3 and coefficient % 3 else 0


def class_of(modulus: int, coefficient: int, others: int) -> Int[np.ndarray, "sequences n"]:
    """The sequences of Theorem 6 no two of which may have the same numbers: 0 and 2, behind some that are 1."""
    ones = pinned(modulus, coefficient, others)
    return np.array([(1,) * ones + z for z in product((0, 2), repeat=others - ones)])


def too_few_rounded(
    modulus: int, coefficient: int, others: int, seed: int, *, room: int = 0, monotone: bool = True
) -> Finding:
    """Random numbers, rounded at random steps to as many values as are too few: two that they confuse.

    room: values more. monotone: whether the rounding does not decrease.
    """
    generator = np.random.default_rng((modulus, others, seed))
    z, numbers = class_of(modulus, coefficient, others), int(generator.integers(1, 4))
    values = next(v for v in range(1, len(z) + 1) if (v + 1) ** numbers >= len(z)) + room
    w = generator.standard_normal((others, numbers))
    steps = np.sort(generator.standard_normal((numbers, values - 1)) * others**0.5, axis=1)

    def rounded_off(x: np.ndarray) -> tuple[int, ...]:
        reached = [int(np.searchsorted(s, y)) for s, y in zip(steps, x @ w, strict=True)]
        return tuple(reached if monotone else (np.array(reached) * 7919 + (10 * x @ w).astype(int)) % values)

    t = own_token(modulus, coefficient)
    what = f"M = {modulus}, G = {coefficient}, n = {others}: {numbers} numbers of {values} values"
    seen: dict[tuple[int, ...], np.ndarray] = {}
    for x in z:
        other = seen.setdefault(rounded_off(x), x)
        if other is not x:
            break
    else:
        return Finding(False, f"{what} tell all {len(z)} sequences apart")
    middle = (x + other) // 2
    triple = [(t, *map(int, y)) for y in (x, middle, other)]
    counts = [sum((y[0] + coefficient * a + b) % modulus == 0 for a in y for b in y) for y in triple]
    first, second = next(((i, j) for i, j in combinations(range(3), 2) if counts[i] != counts[j]), (0, 2))
    same = rounded_off(middle) == rounded_off(x)
    what += f", {values**numbers} of {len(z)} needed, are the same for {triple[first]} and {triple[second]}, whose "
    what += f"counts are {counts[first]} and {counts[second]}"
    return Finding(same and counts[first] != counts[second], what, {"counts": counts})


@blueprint.theorem(
    "rounded-bits",
    "numbers rounded by monotone rules to p bits: r p >= N - 1, as a middle counts otherwise than its ends",
    uses=("cpm3", "position-only"),
    check="exact",
    proof="docs/cpm3.md, Theorem 6",
)
def middle_shows(
    modulus: int, coefficient: int, others: int, *, own: int | None = None, ones: int | None = None
) -> Finding:
    """Each two sequences of the class and their middle, by their histograms: three counts that are not all the same.

    own: the own token, if another one. ones: how many are 1, if another number.
    """
    t = own_token(modulus, coefficient) if own is None else own
    pinned_ones = pinned(modulus, coefficient, others) if ones is None else ones
    free, triples = others - pinned_ones, []
    for zeros, twos, up in product(range(free), range(free), range(free + 1)):
        down = free - zeros - twos - up  # tokens that are 2 in one and 0 in the other; up: 0 and 2
        if down >= 0 < up + down:
            triples += [
                [zeros + up, pinned_ones, twos + down],
                [zeros, pinned_ones + up + down, twos],
                [zeros + down, pinned_ones, twos + up],
            ]
    x = np.array([[t, *np.repeat([0, 1, 2], h)] for h in triples])
    counts = CountPairs(modulus, coefficient).target(x)[:, 0].reshape(-1, 3)
    hidden = np.flatnonzero((counts == counts[:, :1]).all(1))
    what = f"M = {modulus}, G = {coefficient}, n = {others}: {len(hidden)} of {len(counts)} middles count as both ends"
    return Finding(not len(hidden), what, {"hidden": len(hidden)})


# T15e


def rounded_numbers_count(
    modulus: int, coefficient: int, tokens: int, *, late: int = 0, more: int = 0, dropped: int = 0
) -> Finding:
    """Counts from numbers of 2 g + 4 values. late: by which tokens are. more: added to G. dropped: numbers left out."""
    net = rounded.network(tokens, modulus, coefficient + more)
    g, x = coefficient % modulus, torch.from_numpy(sequences(modulus, tokens) % modulus)
    with torch.no_grad():
        net.attention.layer.k_proj.weight[: dropped * net.attention.layer.head_dim] = 0
    numbers = net.numbers((x + late) % modulus)
    wrong = int((net.counts(numbers, x).numpy() != CountPairs(modulus, coefficient).target(x.numpy())).any(1).sum())
    r, bits = net.attention.heads, ceil(log2(2 * g + 4))
    most = {0: tokens - 1, 1: (tokens - 1) * (tokens + 2) // 2}.get(g, tokens**2 - 1)
    fits = int(numbers.min()) >= 0 and int(numbers.max()) < 2**bits and r <= most
    exactly = (tokens - 1) * log2(modulus)
    what = f"M = {modulus}, G = {coefficient}, N = {tokens}: {r} rounded numbers of {bits} bits, {r * bits} bits in all"
    what += f" (numbers that are not rounded: {exactly:.3g}); {wrong} of {len(x)} sequences wrong"
    return Finding(not wrong and fits, what, {"bits": r * bits, "not_rounded": exactly, "wrong": wrong})


# T15f


def window(modulus: int, coefficient: int) -> tuple[int, int]:
    """s and L: the longest residues s .. s + L, whose pairs and own terms all meet Theorem 7; L = 0 if none do.

    For a prime M and G not 0 nor -2.
    """
    g, best = coefficient % modulus, (0, 0)
    shift, turn = (1 + g) ** 2 % modulus, 2 * (1 + g) * pow(g, -1, modulus) % modulus
    for length in range(1, modulus):
        if any(
            (g * a + b) % modulus == 0 for a, b in product(range(-length, length + 1), repeat=2) if (a, b) != (0, 0)
        ):
            return best
        for s in range(modulus - length):
            inside = range(s, s + length + 1)
            if not any(m * w % modulus in inside for m in (shift, turn) for w in inside):
                best = (s, length)
                break
        else:
            return best
    return best


@blueprint.theorem(
    "rounded-tables",
    "rounded numbers that do not use the own token take about N log2 M bits again, or half of them",
    uses=("cpm3", "position-only"),
    check="exact",
    proof="docs/cpm3.md, Theorem 7",
)
def tables_tell(
    modulus: int, coefficient: int, others: int, *, own: int | None = None, zeros: int | None = None
) -> Finding:
    """Every two sequences of the class of Theorem 7 and their middle: some own token has not the same count for all.

    own: the only own token that is tried. zeros: how many tokens are 0, if another number.
    """
    g = coefficient % modulus
    pinned_zeros, values = 0, range(0, modulus, 2)
    if g == 1:
        pinned_zeros = others - (others // 2 - 1) if zeros is None else zeros
    elif g:
        start, length = window(modulus, coefficient)
        values = range(start, start + length + 1, 2)
    z = np.array([(0,) * pinned_zeros + free for free in product(values, repeat=others - pinned_zeros)])
    tokens = np.arange(modulus) if own is None else np.array([own])

    def tables(x: np.ndarray) -> np.ndarray:
        given = np.concatenate([np.insert(x, 0, t, axis=1) for t in tokens])
        return CountPairs(modulus, coefficient).target(given)[:, 0].reshape(len(tokens), -1)

    first, second = np.triu_indices(len(z), 1)
    ends, middles = tables(z), tables((z[first] + z[second]) // 2)
    hidden = int(((ends[:, first] == middles) & (ends[:, second] == middles)).all(0).sum())
    bits = (others - pinned_zeros) * log2(len(values))
    what = f"M = {modulus}, G = {coefficient}, n = {others}: {len(z)} sequences, {bits:.3g} bits of "
    what += f"{others * log2(modulus):.3g}"
    return Finding(
        not hidden and len(z) > 1,
        f"{what}; {hidden} of {len(first)} middles have the tables of both ends",
        {"bits": bits},
    )


def _has_window(modulus: int, coefficient: int, others: int) -> bool:
    """Whether Theorem 7 says something: what is enough sequences, and few enough to go through."""
    g = coefficient % modulus
    if g == 0:
        return ceil(modulus / 2) ** others <= MOST
    if g == 1:
        return modulus % 2 == 1 and others > 3 and (modulus // 2 + 1) ** (others // 2 - 1) <= MOST
    prime = all(modulus % d for d in range(2, modulus))
    return prime and g != modulus - 2 and others < 4 and window(modulus, coefficient)[1] >= 2


MOST = 100
"""Sequences whose pairs are all gone through."""

STATEMENTS = (
    Statement(
        id="T15d",
        source="docs/cpm3.md, Theorem 6",
        place=Place("exact", ("rounded-bits",)),
        claim=Claim(
            text="with positions only and numbers rounded by monotone rules to p bits, r p >= N - 1 for M >= 3 "
            "(ceil(2 (N - 1) / 3) if M = 3 and M does not divide G): a middle counts otherwise than its ends",
            test=middle_shows,
            cases={"modulus": range(3, 9), "coefficient": range(8), "others": (1, 2, 3, 6)},
            given=lambda modulus, coefficient, **_: coefficient < modulus,
            mutants={"own token 3": {"own": 3}, "no token pinned": {"ones": 0}},
            wider={"modulus": range(3, 14), "coefficient": range(14), "others": range(1, 9)},
        ),
        needed=True,
        least=Claim(
            text="random numbers, rounded at random steps to fewer bits than that, are the same for two sequences of "
            "different counts, one of them the middle of two others",
            test=too_few_rounded,
            cases={"modulus": (3, 4, 5, 8), "coefficient": (0, 1, 2, 7), "others": (2, 3, 5, 6), "seed": (0, 1, 2)},
            mutants={"10^4 values more": {"room": 10**4}, "not monotone": {"monotone": False}},
            wider={"modulus": range(3, 9), "coefficient": range(9), "others": range(2, 7), "seed": range(100)},
        ),
        note="Of the sequences of 0 and 2 (and (N - 1) / 3 times 1, for M = 3) no two may have the same rounded "
        "numbers: these would be those of their middle too. Here for all pairs of histograms. The rule may depend on "
        "the own token.",
    ),
    Statement(
        id="T15e",
        source="docs/cpm3.md, Theorem 6",
        place=Place("exact", ("rounded-numbers",)),
        claim=Claim(
            text="no log2 M comes into T15d: for every M, N - 1 rounded numbers of 2 bits count for G = 0, and "
            "(N - 1)(N + 2) / 2 of 3 bits for G = 1; numbers that are not rounded take (N - 1) log2 M bits",
            test=rounded_numbers_count,
            cases={"modulus": (3, 5, 128), "coefficient": (0, 1, 2, -1), "tokens": (2, 3, 5)},
            mutants={"tokens one late": {"late": 1}, "G + 1": {"more": 1}, "a number less": {"dropped": 1}},
            wider={"modulus": range(2, 200), "coefficient": range(-2, 4), "tokens": range(2, 7)},
        ),
        note="One number for each pair, from queries and keys of positions, rounded to where it stands among the "
        "multiples of M: 2 (G mod M) + 4 values. Weights: constructions.cpm3.rounded.",
    ),
    Statement(
        id="T15f",
        source="docs/cpm3.md, Theorem 7",
        place=Place("exact", ("rounded-tables",)),
        claim=Claim(
            text="if rounded numbers do not use the own token, log2 M comes back: (N - 1) log2 ceil(M / 2) for G = 0, "
            "(floor((N - 1) / 2) - 1) log2((M + 1) / 2) for G = 1 and odd M; about half for most G and prime M",
            test=tables_tell,
            cases={"modulus": (3, 4, 5, 7, 29), "coefficient": (0, 1, 5), "others": (2, 3, 6, 8)},
            given=_has_window,
            mutants={"own token 0 only": {"own": 0}, "no token pinned": {"zeros": 0}},
            wider={"modulus": range(3, 30), "coefficient": range(12), "others": range(2, 9)},
        ),
        note="Then a cell has one table of counts over own tokens, and the table tells the histogram. Here all pairs "
        "of sequences of the class, with their middle.",
    ),
)
