"""Checks of the polynomial filter bank: on one graph, for all matrices at once, and at large sizes."""

from collections.abc import Callable, Iterator
from math import lcm

import numpy as np
import torch
from sympy import QQ, ring
from sympy.polys.matrices import DomainMatrix

from constructions.checks import CheckResult, exact_error, float64_error, gamma, layer_operations
from constructions.construction import Construction
from constructions.polynomial import WEIGHTS, Powers, bank, powers
from constructions.suite.mutants import Subject, shift_block, swap_blocks
from iha_theory import exact
from iha_theory.position_only import columns
from synthetic.graphs import Graph, builtin
from synthetic.polynomial import power_blocks, power_blocks_float

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
    try:
        construction, error = _evaluated(layer, a, terms)
        compared = "operators over the rationals"
    except OverflowError:
        primes = list(exact.primes_beyond(largest_difference(a, terms)))
        cases = [_evaluated(layer, exact.residues(a, prime), terms) for prime in primes]
        construction, error = cases[0][0], sum(wrong for _, wrong in cases)
        compared = f"operators modulo {len(primes)} primes, hence over the integers"
    return _result(construction, layer, graph, terms, "exact", error, 0.0, compared)


def bank_float64(layer: str, graph: Graph, terms: int) -> CheckResult:
    """The bank of a graph by running the torch layer in float64.

    The bound is gamma_n for the longest chain of operations behind an entry: weights and target are products of up to k
    - 1 powers (N each); then projections (N + d each), mixing (H each), scores (N), values (N P) and collapse (H P).

    Raises:
        ValueError: powers of A that overflow float64.
    """
    a = graph.adjacency.astype(np.float64)
    majorants = np.stack(list(power_blocks_float(np.abs(a), terms)))
    if not np.isfinite(majorants).all():
        raise ValueError(f"A^{terms - 1} of {graph.name} overflows float64: normalise, or check exactly only")
    construction = bank(layer, powers(torch.from_numpy(a)), terms, WIDTH)
    error = float64_error(construction, np.stack(list(power_blocks_float(a, terms))), majorants)
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


def bank_symbolic(layer: str, size: int, terms: int) -> CheckResult:
    """The bank of every N x N matrix at once: weights and operator as polynomials in the entries of A."""
    names = [f"a{i}{j}" for i in range(size) for j in range(size)]
    polynomials, *entries = ring(names, QQ)
    domain = polynomials.to_domain()
    rows = [entries[i * size : (i + 1) * size] for i in range(size)]
    a = DomainMatrix(rows, (size, size), domain).to_dense()
    weights = WEIGHTS[layer](powers(a), terms, WIDTH)
    blocks = list(power_blocks(a, terms))
    error = 0.0
    for c, column in enumerate(columns(weights)):
        t, b = divmod(c, WIDTH)
        if t < terms:
            error += exact.difference(column, [blocks[t] if i == b else None for i in range(WIDTH)])
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
    )


def bank_random(layer: str, size: int, terms: int, seed: int = 0) -> CheckResult:
    """The bank of every N x N matrix, tested at a uniform random matrix over GF(p).

    The entries of the difference are polynomials in those of A of degree at most k - 1; one that is not the zero
    polynomial (modulo p) vanishes at a uniform random point with probability at most (k - 1) / p (Schwartz, Zippel).
    """
    prime = LARGEST_PRIME
    entries = np.random.default_rng(seed).integers(0, prime, (size, size))
    construction, error = _evaluated(layer, exact.matrix(entries, exact.gf(prime)), terms)
    return CheckResult(
        id=f"bank-random-matrix/N={size}/k={terms}/{layer}/exact",
        claim=CLAIMS[layer] + ", for every A",
        layer=layer,
        heads=construction.heads,
        pseudo_heads=construction.pseudo_heads,
        parameters=construction.parameters,
        tier="exact",
        error=error,
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
    )


def largest_difference(a: DomainMatrix, terms: int) -> int:
    """2 (q max(1, |A|_inf))^(k-1), at least: see `bank_exact`."""
    rows = [[abs(x) for x in row] for row in a.to_list()]
    q = lcm(*(int(x.denominator) for row in rows for x in row))
    norm = max(sum(row, QQ(0)) for row in rows) * q
    return 2 * max(q, int(norm.numerator) // int(norm.denominator) + 1) ** (terms - 1)


def _operations(construction: Construction, terms: int) -> int:
    tokens = construction.layer.embed_dim - construction.width
    return 2 * (terms - 1) * tokens + layer_operations(construction.layer, tokens)


def graph_checks(graph: Graph, terms: int, exact_only: bool) -> Iterator[CheckResult]:
    """MHA and IHA on one graph, at both tiers."""
    for layer in WEIGHTS:
        yield bank_exact(layer, graph, terms)
        if not exact_only:
            yield bank_float64(layer, graph, terms)


def every_matrix_checks() -> Iterator[CheckResult]:
    """For all A at once."""
    for layer in WEIGHTS:
        for size in (2, 3):
            for terms in (4, 5, 9):
                yield bank_symbolic(layer, size, terms)
        yield bank_random(layer, 16, 25)


def large_checks() -> Iterator[CheckResult]:
    """N = 128, k = 64: 8 IHA heads against 64 MHA heads."""
    for layer in WEIGHTS:
        yield bank_random(layer, 128, 64)


def _evaluated(layer: str, a: DomainMatrix, terms: int) -> tuple[Construction, float]:
    construction = bank(layer, powers(a), terms, WIDTH)
    return construction, exact_error(construction, list(power_blocks(a, terms)), a.domain)


def _result(
    construction: Construction,
    layer: str,
    graph: Graph,
    terms: int,
    tier: str,
    error: float,
    bound: float,
    compared: str,
) -> CheckResult:
    return CheckResult(
        id=f"bank/{graph.name}/k={terms}/{layer}/{tier}",
        claim=CLAIMS[layer],
        layer=layer,
        heads=construction.heads,
        pseudo_heads=construction.pseudo_heads,
        parameters=construction.parameters,
        tier=tier,  # type: ignore[arg-type]
        error=error,
        bound=bound,
        setting={"graph": graph.name, "nodes": len(graph.nodes), "terms": terms, "width": WIDTH},
        compared=compared,
    )


def subjects() -> list[Subject]:
    """The bank's checks, to be tested by mutants: directed, undirected and weighted, MHA and IHA, at each tier."""
    cases = (("karate", 9), ("cycle:16", 16), ("random:12", 9))
    return [s for name, terms in cases for layer in WEIGHTS for s in _subjects(name, terms, layer)]


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
        "build": lambda: bank(layer, power, terms, WIDTH),
        "outputs": lambda construction: construction(x).detach(),
        "layer": lambda construction: construction.layer,
        "extra": {
            "one wrong power": wrong_power,
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
        },
    }
    tiers: dict[str, Callable[[Construction], tuple[float, float]]] = {
        "exact": lambda c: (exact_error(c, blocks), 0.0),
        "modular": lambda c: (exact_error(c, modular, exact.gf(LARGEST_PRIME)), 0.0),
        "float64": lambda c: (float64_error(c, targets, majorants), gamma(_operations(c, terms))),
    }
    return [Subject(f"bank/{name}/k={terms}/{layer}/{tier}", error=error, **common) for tier, error in tiers.items()]
