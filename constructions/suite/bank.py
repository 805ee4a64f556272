"""Checks of the polynomial filter bank on one graph."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import lcm

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.checks.mutants import Subject, shift_block, swap_blocks
from constructions.checks.operators import exact_gap, float64_gap, operations, settled
from constructions.checks.result import CheckResult, Tier, heads_by_claim
from constructions.construction import Construction
from constructions.filter_bank.layers import PAPER, bank
from constructions.filter_bank.paper import Powers, powers
from iha_theory import exact
from iha_theory.rounding import gamma
from synthetic.graphs import Graph, builtin
from synthetic.tasks.filter_bank import power_blocks, power_blocks_float

WIDTH = 2
"""Content width of the checks: with 2, coordinates that leak into each other are seen."""
LARGEST_PRIME = next(exact.primes_beyond(1))

CLAIMS = {
    "mha": "MHA with k heads represents [X, AX, ..., A^(k-1) X]",
    "iha": "IHA with ceil(sqrt k) heads and as many pseudo-heads represents [X, AX, ..., A^(k-1) X]",
}


def bank_exact(layer: str, graph: Graph, terms: int) -> CheckResult:
    """The bank of a graph, exactly.

    Over the rationals where float64 holds every weight. Otherwise modulo primes: the construction is a polynomial map
    of A with integer coefficients, so it can be loaded, read and evaluated with residues. With q the common denominator
    of A's entries, entry by entry q^t times (block t minus A^t) is an integer of size at most 2 (q |A|_inf)^t for t <
    k; if it is 0 modulo primes whose product is larger than that, it is 0.
    """
    a = exact.matrix(graph.adjacency, QQ)

    def build(prime: int | None) -> tuple[Construction, list[DomainMatrix]]:
        own = a if prime is None else exact.residues(a, prime)
        return bank(layer, powers(own), terms, WIDTH), list(power_blocks(own, terms))

    bound, avoided = largest_difference(a, terms), exact.denominator(a)
    construction, error, primes = settled(build, lambda: list(exact.primes_beyond(bound, avoided)))
    compared = f"modulo {primes} primes, hence over the integers" if primes else "over the rationals"
    compared = f"operators {compared}"
    return _result(construction, layer, graph, terms, "exact", error, 0.0, compared)


def bank_float64(layer: str, graph: Graph, terms: int) -> CheckResult:
    """The bank of a graph by running the torch layer in float64.

    The bound is gamma_n for the longest chain of operations behind an entry: weights and target are products of up to k
    - 1 powers (N each); then projections (N + d each), mixing (H each), scores (N), values (N P) and collapse (H P).

    Raises:
        ValueError: see `out_of_range`.
    """
    if reason := out_of_range(graph, terms):
        raise ValueError(f"{graph.name}, k = {terms}: {reason}; it can be checked exactly only")
    a = graph.adjacency.astype(np.float64)
    majorants = np.stack(list(power_blocks_float(np.abs(a), terms)))
    construction = bank(layer, powers(torch.from_numpy(a)), terms, WIDTH)
    error = float64_gap(construction, np.stack(list(power_blocks_float(a, terms))), majorants)
    return _result(
        construction,
        layer,
        graph,
        terms,
        "float64",
        error,
        gamma(_operations(construction, terms)),
        "operators, entry by entry",
    )


def out_of_range(graph: Graph, terms: int) -> str | None:
    """Why float64 cannot run the bank of a graph within a relative bound; None if it can. Fractions are rounded."""
    try:
        a = graph.adjacency.astype(np.float64)
        if any(isinstance(x, int) and x != float(x) for x in graph.adjacency.ravel().tolist()):
            return "a weight is not a float64"
        if ((a == 0) != (graph.adjacency == 0)).any():
            return "a weight underflows float64"
        list(power_blocks_float(np.abs(a), terms))
    except (OverflowError, ValueError):
        return "its powers overflow float64"
    smallest = np.abs(a[a != 0]).min(initial=1)
    return "its powers may underflow float64" if (terms - 1) * -math.log10(smallest) > 290 else None


def largest_difference(a: DomainMatrix, terms: int) -> int:
    """2 (q max(1, |A|_inf))^(k-1), at least: see `bank_exact`."""
    rows = [[abs(x) for x in row] for row in a.to_list()]
    q = lcm(*(int(x.denominator) for row in rows for x in row))
    norm = max(sum(row, QQ(0)) for row in rows) * q
    return 2 * max(q, int(norm.numerator) // int(norm.denominator) + 1) ** (terms - 1)


def _operations(construction: Construction, terms: int) -> int:
    tokens = construction.layer.embed_dim - construction.width
    return 2 * (terms - 1) * tokens + operations(construction, tokens)


def graph_checks(graph: Graph, terms: int, exact_only: bool) -> Iterator[CheckResult]:
    """MHA and IHA on one graph, at both tiers; only exactly where float64 does not reach (see `out_of_range`)."""
    reason = None if exact_only else out_of_range(graph, terms)
    for layer in PAPER:
        result = bank_exact(layer, graph, terms)
        yield result if reason is None else replace(result, compared=f"{result.compared}; only exactly, as {reason}")
        if not exact_only and reason is None:
            yield bank_float64(layer, graph, terms)


def _result(
    construction: Construction,
    layer: str,
    graph: Graph,
    terms: int,
    tier: Tier,
    error: float,
    bound: float,
    compared: str,
) -> CheckResult:
    return CheckResult.of(
        construction,
        f"bank/{graph.name}/k={terms}",
        layer,
        tier,
        claim=CLAIMS[layer],
        error=error,
        bound=bound,
        setting={"graph": graph.name, "nodes": len(graph.nodes), "terms": terms, "width": WIDTH},
        compared=compared,
        claimed_heads=heads_by_claim(layer, terms),
    )


def subjects() -> list[Subject]:
    """The bank's checks, to be tested by mutants: directed, undirected and weighted, MHA and IHA, at each tier."""
    cases = (("karate", 9), ("cycle:16", 16), ("random:12", 9))
    return [s for name, terms in cases for layer in PAPER for s in _subjects(name, terms, layer)]


def _subjects(name: str, terms: int, layer: str) -> list[Subject]:
    adjacency = builtin(name).adjacency
    a = exact.matrix(adjacency, QQ)
    floats = adjacency.astype(np.float64)
    blocks = list(power_blocks(a, terms))
    modular = list(power_blocks(exact.residues(a, LARGEST_PRIME), terms))
    targets, majorants = (np.stack(list(power_blocks_float(x, terms))) for x in (floats, np.abs(floats)))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(floats), WIDTH)))
    power = powers(a)

    def wrong_power(construction: Construction) -> Construction:
        used = (construction.heads - 1) * construction.pseudo_heads  # the last base query's power
        wrong: Powers = lambda i: power(i + 1) if i == used else power(i)  # noqa: E731
        return bank(layer, wrong, terms, WIDTH)

    common = {
        "build": lambda: bank(layer, powers(a), terms, WIDTH),
        "outputs": lambda construction: construction(x).detach(),
        "layer": lambda construction: construction.layer,
        "extra": {
            "one wrong power": wrong_power,
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
        },
    }
    tiers: dict[str, Callable[[Construction], tuple[float, float]]] = {
        "exact": lambda c: (exact_gap(c, blocks), 0.0),
        "modular": lambda c: (exact_gap(c, modular, exact.gf(LARGEST_PRIME)), 0.0),
        "float64": lambda c: (float64_gap(c, targets, majorants), gamma(_operations(c, terms))),
    }
    return [Subject(f"bank/{name}/k={terms}/{layer}/{tier}", error=error, **common) for tier, error in tiers.items()]
