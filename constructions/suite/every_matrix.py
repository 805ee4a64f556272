"""Checks of the polynomial filter bank for all matrices at once, and at large sizes."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sympy import QQ, ring
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.mutants import Subject
from constructions.checks.operators import exact_gap
from constructions.checks.result import CheckResult, heads_by_claim
from constructions.filter_bank.layers import LAYERS, PAPER, bank
from constructions.filter_bank.paper import powers, transpose
from constructions.suite.bank import CLAIMS, LARGEST_PRIME, WIDTH
from iha_theory import exact
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import PositionWeights, to_layer, with_positions
from synthetic.tasks.filter_bank import power_blocks


def symbolic_matrix(size: int) -> DomainMatrix:
    """The N x N matrix whose entries are the variables of a polynomial ring over the rationals."""
    polynomials, *entries = ring([f"a{i}{j}" for i in range(size) for j in range(size)], QQ)
    rows = [entries[i * size : (i + 1) * size] for i in range(size)]
    return DomainMatrix(rows, (size, size), polynomials.to_domain()).to_dense()


def symbolic_error(weights: PositionWeights, blocks: list[DomainMatrix]) -> float:
    """Number of entries in which the operator of symbolic weights differs from [T_0 X, T_1 X, ...]."""
    operator = list(columns(weights))
    if not blocks or len(operator) < WIDTH * len(blocks):
        raise ValueError(f"{len(blocks)} blocks against {len(operator)} output coordinates")
    error = 0.0
    for c, column in enumerate(operator):
        t, b = divmod(c, WIDTH)
        if t < len(blocks):
            error += exact.difference(column, [blocks[t] if i == b else None for i in range(WIDTH)])
    return error


def bank_symbolic(layer: str, size: int, terms: int) -> CheckResult:
    """The bank of every N x N matrix at once: weights and operator as polynomials in the entries of A."""
    a = symbolic_matrix(size)
    weights = LAYERS[layer].weights(powers(a), terms, WIDTH)
    error = symbolic_error(weights, list(power_blocks(a, terms)))
    heads = weights.num_heads
    layer_of_ones = bank(layer, powers(torch.ones(size, size, dtype=torch.float64)), terms, WIDTH)
    return CheckResult(
        id=f"bank-every-matrix/N={size}/k={terms}/{layer}/exact",
        claim=CLAIMS[layer] + ", for every A",
        layer=layer,
        heads=heads,
        pseudo_heads=1 if weights.mixing is None else heads,
        parameters=layer_of_ones.parameters,
        tier="exact",
        error=error,
        bound=0.0,
        setting={"graph": f"symbolic {size}x{size}", "nodes": size, "terms": terms, "width": WIDTH},
        compared="operators as polynomials in the entries of A",
        claimed_heads=heads_by_claim(layer, terms),
    )


def bank_random(layer: str, size: int, terms: int, seed: int = 0) -> CheckResult:
    """The bank of every N x N matrix, tested at a uniform random matrix over GF(p).

    The entries of the difference are polynomials in those of A of degree at most k - 1; one that is not the zero
    polynomial (modulo p) vanishes at a uniform random point with probability at most (k - 1) / p (Schwartz, Zippel).
    """
    prime, field = LARGEST_PRIME, exact.gf(LARGEST_PRIME)
    a = exact.matrix(np.random.default_rng(seed).integers(0, prime, (size, size)), field)
    construction = bank(layer, powers(a), terms, WIDTH)
    return CheckResult.of(
        construction,
        f"bank-random-matrix/N={size}/k={terms}",
        layer,
        "exact",
        claim=CLAIMS[layer] + ", for every A",
        error=exact_gap(construction, list(power_blocks(a, terms)), field),
        bound=0.0,
        setting={
            "graph": f"random over GF({prime})",
            "nodes": size,
            "terms": terms,
            "width": WIDTH,
            "seed": seed,
            "failure_probability": (terms - 1) / prime,
        },
        compared="operators modulo a prime at a random matrix",
        claimed_heads=heads_by_claim(layer, terms),
    )


def checks() -> Iterator[CheckResult]:
    """For all A at once."""
    for layer in PAPER:
        for size in (2, 3):
            for terms in (4, 5, 9):
                yield bank_symbolic(layer, size, terms)
        yield bank_random(layer, 16, 25)


def large_checks() -> Iterator[CheckResult]:
    """N = 128, k = 64: 8 IHA heads against 64 MHA heads."""
    for layer in PAPER:
        yield bank_random(layer, 128, 64)


def subjects() -> list[Subject]:
    """The check for all A at once, to be tested by mutants."""
    return [_symbolic_subject(layer) for layer in PAPER]


def _symbolic_subject(layer: str, size: int = 2, terms: int = 5) -> Subject:
    """The check for all A; a mutant's function is that of the torch layer at one integer matrix A."""
    a = symbolic_matrix(size)
    power, blocks = powers(a), list(power_blocks(a, terms))
    half = a.domain.convert(QQ(1, 2))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, size, WIDTH)))

    def at_integers(m: Any) -> DomainMatrix:
        return exact.matrix(np.array([[p(2, -1, 3, 1) for p in row] for row in m.to_list()], dtype=object), QQ)

    def outputs(weights: PositionWeights) -> Tensor:
        inputs = with_positions(x)
        blocks = {name: tuple(map(at_integers, getattr(weights, name))) for name in ("query", "key")}
        return to_layer(replace(weights, **blocks))(inputs, inputs, inputs)[..., : WIDTH * terms].detach()

    def change(name: str, at: int, by: Callable[[Any], Any]) -> Callable[[PositionWeights], PositionWeights]:
        def make(weights: PositionWeights) -> PositionWeights:
            parts = list(getattr(weights, name))
            parts[at] = by(parts[at])
            return replace(weights, **{name: tuple(parts)})

        return make

    def entry(m: DomainMatrix) -> DomainMatrix:
        rows = m.to_list()
        rows[0][1] += half
        return DomainMatrix(rows, m.shape, a.domain).to_dense()

    def wrong_power(weights: PositionWeights) -> PositionWeights:
        return LAYERS[layer].weights(lambda i: power(i + 1) if i else power(i), terms, WIDTH)

    return Subject(
        f"bank-every-matrix/N={size}/k={terms}/{layer}/exact",
        build=lambda: LAYERS[layer].weights(powers(a), terms, WIDTH),
        copy=lambda weights: weights,
        error=lambda weights: (symbolic_error(weights, blocks), 0.0),
        outputs=outputs,
        layer=None,
        extra={
            "one query entry off by 0.5": change("query", 1, entry),
            "one key entry off by 0.5": change("key", 1, entry),
            "queries transposed": change("query", 1, transpose),
            "wrong powers": wrong_power,
            "values scaled by 2": change("value", 0, lambda v: 2 * v),
            "first head's values dropped": change("value", 0, lambda v: 0 * v),
            "values' coordinates swapped": change("value", 0, lambda v: v[::-1]),
        },
    )
