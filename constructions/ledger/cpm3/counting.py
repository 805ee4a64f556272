"""How an MLP counts pairs, and whether it takes a workspace: E10 and T8."""

from functools import cache
from itertools import count, product, takewhile
from math import gcd
from operator import mul

import numpy as np
import torch

from constructions.construction import Construction
from constructions.construction import count as parameters
from constructions.cpm3.histogram import HistogramCount, HistogramNetwork, histogram_parameters, histogram_units
from constructions.cpm3.histogram import network as histogram_network
from constructions.cpm3.mlp import (
    PairCount,
    ReluPairCount,
    folds,
    largest_sum,
    least_knots,
    relu_pair_count_units,
    tents,
)
from constructions.cpm3.workspace import CountPairsNetwork, workspace
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory.attention.patterns import Pattern
from synthetic.tasks.count_pairs import CountPairs, all_sequences

EXHAUSTIVE = 3_000
"""All M^N sequences are run where there are at most this many, and otherwise `SAMPLES` random ones."""
SAMPLES = 8

MOD = "ReLU(1 - (z mod M))"
RELU = "ReLU"


def one_unit_a_pair(
    activation: str, tokens: int, modulus: int, coefficient: int, *, coefficient_off: int = 0, modulus_off: int = 0
) -> Finding:
    """Whether one hidden unit for each pair of slots counts the pairs.

    With mod M in the activation: the built MLP against the task. With ReLU: whether for each pair a function of one
    knot tests z = 0 mod M for all the z that the pair has.
    """
    if activation == MOD:
        a = _attention(tokens)
        mlp = PairCount([b.start for b in a.readout], tokens, modulus + modulus_off, coefficient + coefficient_off)
        wrong, seen = _wrong(CountPairsNetwork(a, mlp), tokens, modulus, coefficient)
        what = f"{tokens**2} units of {MOD} count {seen - wrong} of {seen} sequences right"
        return Finding(wrong == 0, f"N = {tokens}, M = {modulus}, G = {coefficient}: {what}", {"wrong": wrong})
    knots, z = max(
        (_knots(form, modulus) for form in _forms(tokens, coefficient % modulus)), key=lambda found: found[0]
    )
    what = f"1[{z} = 0 mod {modulus}] takes {knots} ReLU units in a hidden layer, at least"
    return Finding(knots <= 1, f"N = {tokens}, M = {modulus}, G = {coefficient}: {what}", {"knots": knots})


def _forms(tokens: int, g: int) -> set[tuple[int, ...]]:
    """The coefficients of z = x_0 + g x_s + x_t for all pairs of slots, without zeros, in any order of the tokens."""
    forms = set()
    for s, t in product(range(min(tokens, 3)), repeat=2):
        z = [1, 0, 0]
        z[s] += g
        z[t] += 1
        forms.add(tuple(sorted(c for c in z if c)))
    return forms


def _knots(form: tuple[int, ...], modulus: int) -> tuple[int, str]:
    """The least knots of a function of z that tests z = 0 mod M for residues, and z in words.

    On the longest run of multiples of the coefficients' greatest divisor that z reaches from 0.
    """
    step = gcd(*form)
    reached = {sum(map(mul, form, x)) // step for x in product(range(modulus), repeat=len(form))}
    run = takewhile(reached.__contains__, count(0))
    words = " + ".join(f"{'' if c == 1 else c} {'xyz'[i]}".strip() for i, c in enumerate(form))
    return least_knots([int(z * step % modulus == 0) for z in run]), words


def relu_count(
    deep: bool,
    tokens: int,
    modulus: int,
    coefficient: int,
    *,
    multiples_missing: int = 0,
    units_off: int = 0,
    coefficient_off: int = 0,
) -> Finding:
    """The MLP of ReLU units against the task; its units against the closed form, and against the least for M >= 4."""
    a = _attention(tokens)
    mlp = ReluPairCount([b.start for b in a.readout], tokens, modulus, coefficient + coefficient_off, deep=deep)
    top = largest_sum(modulus, coefficient, modulus - 1)
    if multiples_missing:
        mlp.test = (folds if deep else tents)(max(modulus, 2), max(top - multiples_missing * modulus, 1))
    wrong, seen = _wrong(CountPairsNetwork(a, mlp), tokens, modulus, coefficient)
    units = relu_pair_count_units(tokens, modulus, coefficient, modulus - 1, deep=deep) + units_off
    least = tokens**2 * least_knots([int(z % modulus == 0) for z in range(top + 1)])
    is_least = deep or modulus < 4 or units == least
    form = "folds" if deep else "tents"
    what = f"{mlp.hidden_units} ReLUs ({form}; {units} by the formula) count {seen - wrong} of {seen} sequences right"
    return Finding(
        wrong == 0 and mlp.hidden_units == units and is_least,
        f"N = {tokens}, M = {modulus}, G = {coefficient}: {what}",
        {"wrong": wrong, "sequences": seen, "units": mlp.hidden_units, "least_of_one_layer": least},
    )


def one_head(
    pattern: Pattern,
    tokens: int,
    modulus: int,
    coefficient: int,
    *,
    squares_missing: int = 0,
    units_off: int = 0,
    coefficient_off: int = 0,
) -> Finding:
    """The histogram network against the task; its heads, units and parameters."""
    net = histogram_network(tokens, modulus, coefficient + coefficient_off, pattern)
    if squares_missing:
        factor = 1 if pattern == "linear" else tokens
        mlp = HistogramCount(max(1, tokens - squares_missing), modulus, coefficient, factor)
        net = HistogramNetwork(net.attention, mlp, modulus, tokens)
    wrong, seen = _wrong(net, tokens, modulus, coefficient)
    units = histogram_units(tokens, modulus) + units_off
    sized = squares_missing > 0 or (
        net.mlp.hidden_units == units and parameters(net.module) == histogram_parameters(tokens, modulus)
    )
    what = (
        f"{net.attention.num_heads} head of {pattern} attention and {net.mlp.hidden_units} ReLUs "
        f"({units} by the formula) count {seen - wrong} of {seen} sequences right"
    )
    return Finding(
        wrong == 0 and sized and net.attention.num_heads == 1,
        f"N = {tokens}, M = {modulus}, G = {coefficient}: {what}",
        {"wrong": wrong, "sequences": seen, "heads": net.attention.num_heads, "units": net.mlp.hidden_units},
    )


@cache
def _attention(tokens: int) -> Construction:
    return workspace("mha", tokens)


def _wrong(net: CountPairsNetwork | HistogramNetwork, tokens: int, modulus: int, coefficient: int) -> tuple[int, int]:
    """On how many sequences the counts are wrong, and how many there were."""
    if modulus**tokens <= EXHAUSTIVE:
        x = np.concatenate(list(all_sequences(modulus, tokens)))
    else:
        x = np.random.default_rng((tokens, modulus)).integers(0, modulus, (SAMPLES, tokens))
        x[0], x[1] = 0, modulus - 1
    counts = net(torch.from_numpy(x)).numpy()
    return int((counts != CountPairs(modulus, coefficient).target(x)).any(1).sum()), len(x)


STATEMENTS: tuple[Statement, ...] = (
    Statement(
        id="E10",
        source="App. B.3",
        place=Place("exact", ("pair-count", "relu-pair-count"), "constructions.cpm3.mlp"),
        claim=Claim(
            "an MLP with one hidden unit for each pair of slots counts the pairs, by N^2 activations of z = x_0 "
            "+ G x_s + x_t",
            one_unit_a_pair,
            cases={
                "tokens": (1, 2, 3, 4),
                "modulus": (1, 2, 3, 5),
                "coefficient": (5, 8, 11),
                "activation": (MOD, RELU),
            },
            given=lambda activation, tokens, modulus, coefficient: coefficient > 2 * modulus,
            mutants={"G + 1 in the weights": {"coefficient_off": 1}, "mod M + 1": {"modulus_off": 1}},
            wider={"activation": (MOD,), "tokens": range(1, 6), "modulus": range(1, 6), "coefficient": range(3, 30)},
        ),
        assumption=Assumption(
            f"the activation is {MOD}, as App. B.3 has it: no ReLU takes remainders",
            lambda activation, tokens, modulus, coefficient: activation == MOD,
        ),
        repaired=Claim(
            "ReLUs count the pairs, M >= 3, in a layer of N^2 (3 floor(Z/M) + 1 - max(0, 2 - Z mod M)), Z = (2 + "
            "G mod M)(M - 1); or in p + 1 layers of N^2 (2p + 2) in all, p = ceil(log2(ceil(Z/M)))",
            relu_count,
            cases={
                "deep": (False, True),
                "tokens": (1, 2, 3, 16),
                "modulus": (1, 2, 3, 4, 5, 7),
                "coefficient": (-2, 5, 16),
            },
            mutants={
                "a multiple of M left out": {"multiples_missing": 1},
                "a unit less": {"units_off": -1},
                "G + 1 in the weights": {"coefficient_off": 1},
            },
            wider={
                "deep": (False, True),
                "tokens": range(1, 7),
                "modulus": range(1, 12),
                "coefficient": range(-30, 31),
            },
        ),
        note="The paper says which activation it takes, so its MLP counts right; but it is no ReLU MLP, and the "
        "number of hidden units is not that of one. One layer takes N^2 Z units for M = 2 and N^2 for M = 1, p "
        "+ 1 layers 2 N^2 for M = 1. The count of one layer is the least for M >= 4 if each pair is tested by "
        "itself. Proofs: constructions.cpm3.mlp.",
    ),
    Statement(
        id="T8",
        source="docs/results.md T8",
        place=Place("exact", ("histogram",), "constructions.cpm3.histogram"),
        claim=Claim(
            "one MHA head of uniform attention and a ReLU MLP solve CPM-3 for every N and M: N_max heads against "
            "sqrt(N_max) is about the workspace of scalars, not about the task",
            one_head,
            cases={
                "pattern": ("linear", "softmax", "hard"),
                "tokens": (1, 2, 3, 5, 9, 64),
                "modulus": (1, 2, 3, 5),
                "coefficient": (-2, 8, 11),
            },
            mutants={
                "squares up to N - 2 only": {"squares_missing": 2},
                "a unit less": {"units_off": -1},
                "G + 1 in the weights": {"coefficient_off": 1},
            },
            wider={
                "pattern": ("linear", "softmax", "hard"),
                "tokens": range(1, 49),
                "modulus": range(1, 9),
                "coefficient": range(-30, 31),
            },
        ),
        note="The MLP has M(M+1)/2 (1 + floor(N/2)) + 2M ReLUs and reads the token's one-hot residue, by the "
        "residual connection, beside the head's output. Linear attention gives the histogram itself, and every "
        "number in the MLP is then exact; softmax gives it to rounding, and the outputs rounded to integers "
        "are exact within the proven bound. Proof: constructions.cpm3.histogram.",
    ),
)
