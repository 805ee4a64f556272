"""Checks of CPM-3 by packed numbers: the counts against the task, with as few heads as the bits say."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from constructions.checks.mutants import Subject, in_place
from constructions.checks.result import CheckResult, heads_by_claim
from constructions.construction import count
from constructions.cpm3.packing import LAYERS, PackedNetwork, network
from synthetic.tasks.count_pairs import CountPairs

CASES = ((17, 4, 2), (26, 4, 53), (27, 4, 53), (34, 3, 53), (64, 5, 24), (256, 4, 53))
"""(N, M, p), in each of which the packed numbers are as few as the bits allow."""
COEFFICIENT = 11
SAMPLES = 6

CLAIM = (
    "CPM-3 from positions only, numbers of p bits, the own token beside: K = ceil((N - 1) / floor(p / log2 M)) heads "
    "of MHA and ceil(sqrt K) of IHA"
)


def checks(tokens: int, modulus: int, bits: int) -> Iterator[CheckResult]:
    """Both layers on zeros, on the largest tokens and on random ones; heads against the bound (N - 1) log2(M) / p."""
    needed = math.ceil((tokens - 1) * math.log2(modulus) / bits)
    for layer in LAYERS:
        net = network(layer, tokens, modulus, COEFFICIENT, bits)
        yield CheckResult(
            id=f"cpm3-packed/N={tokens}/M={modulus}/p={bits}/{layer}/exact",
            claim=CLAIM,
            layer=layer,
            heads=net.attention.heads,
            pseudo_heads=net.attention.pseudo_heads,
            parameters=count(net.module),
            tier="exact",
            error=error(net, tokens, modulus),
            bound=0.0,
            setting={
                "n_max": tokens,
                "modulus": modulus,
                "coefficient": COEFFICIENT,
                "bits": bits,
                "largest_number": net.largest,
                "lower_bound_heads": heads_by_claim(layer, needed),
            },
            compared=f"counts of {SAMPLES} sequences, as integers",
            claimed_heads=heads_by_claim(layer, math.ceil((tokens - 1) / math.floor(bits / math.log2(modulus)))),
        )


def error(net: PackedNetwork, tokens: int, modulus: int) -> float:
    """The largest difference between the network's counts and the task's."""
    x = sequences(tokens, modulus)
    return float((net(x) - torch.from_numpy(CountPairs(modulus, COEFFICIENT).target(x.numpy()))).abs().max())


def sequences(tokens: int, modulus: int) -> Tensor:
    """(batch, N)."""
    x = np.random.default_rng(tokens).integers(0, modulus, (SAMPLES, tokens))
    x[0], x[1] = 0, modulus - 1
    return torch.from_numpy(x)


def subjects() -> list[Subject]:
    """The checks to be tested by mutants: two digits in a number, and one left over."""
    return [_subject(layer, 6, 3, 4) for layer in LAYERS]


def _subject(layer: str, tokens: int, modulus: int, bits: int) -> Subject:
    return Subject(
        f"cpm3-packed/N={tokens}/M={modulus}/p={bits}/{layer}/exact",
        build=lambda: network(layer, tokens, modulus, COEFFICIENT, bits),
        error=lambda net: (error(net, tokens, modulus), 0.0),
        outputs=lambda net: net(sequences(tokens, modulus)).double(),
        layer=lambda net: net.attention.layer,
        extra={
            "a digit's step one later": in_place(lambda net: net.digits.places[1][0].bias[0].sub_(1)),
            "the digit not taken off": in_place(lambda net: net.digits.places[1][2].weight.zero_()),
            "residues 0 and 1 exchanged": in_place(
                lambda net: net.digits.one_hot.weight.copy_(net.digits.one_hot.weight.flip(0))
            ),
            "own token's residue wrong": in_place(lambda net: net.own.places[0][0].bias.sub_(1)),
            "G + 1": lambda net: replace(net, count=network(layer, tokens, modulus, COEFFICIENT + 1, bits).count),
        },
    )
