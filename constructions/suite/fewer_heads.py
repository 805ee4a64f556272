"""Checks of the constructions with fewer heads than terms, exactly (docs/results.md T2) or within a tolerance (T4).

The layer of a check is "iha" or "mha"; its id says which construction.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import lcm
from typing import Any

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.checks.mutants import Subject, shift_block, swap_blocks
from constructions.checks.operators import exact_gap, float64_gap, frobenius_error, operations, settled
from constructions.checks.oracles.powers import unit_powers
from constructions.checks.result import CheckResult, Tier, heads_by_claim
from constructions.construction import Construction
from constructions.filter_bank import approximate, reduced
from constructions.filter_bank.approximate import UnitPowers
from constructions.filter_bank.layers import EXACT, LAYERS
from constructions.filter_bank.reduced import ReducedBank
from constructions.suite.bank import WIDTH, largest_difference
from iha_theory import exact
from iha_theory.bounds.heads import least_heads, least_rank, spectrum
from iha_theory.rounding import gamma
from synthetic.graphs import builtin, normalise
from synthetic.tasks.filter_bank import power_blocks, power_blocks_float

CASES = (
    ("petersen", "none", 9),
    ("petersen", "row", 9),
    ("complete:12", "none", 9),
    ("cycle:16", "none", 16),
    ("diagonal:12", "none", 12),
)
"""Matrices, how they are normalised, and k; diagonal:12 is diag(1, ..., 12)."""
DAMAGED: tuple[tuple[Tier, str, str, int], ...] = (("exact", "cycle:8", "none", 9), ("float64", "petersen", "row", 9))
"""For mutants: 8 independent powers, which take H = 3 where tiles overlap, and rational coefficients."""
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
GRAPH, GRAPH_TERMS = "karate", 16
"""For the tolerances: symmetric-normalised."""

LABELS = {"mha": "reduced", "iha": "reduced", "iha-tiled": "reduced-tiled", "mha-two-layer": "reduced-two-layer"}
CLAIMS = {
    "mha": "MHA with as many heads as there are independent powers represents the filter bank",
    "iha": "IHA with ceil(sqrt r) heads represents the filter bank of r independent powers",
    "iha-tiled": "so does IHA with ceil(sqrt r) heads and at most ceil(sqrt H) pseudo-heads",
    "mha-two-layer": "two layers of MHA with ceil(sqrt r) heads each represent the bank of r independent powers",
}
WITHIN = {
    "mha": "MHA with the least heads is within a relative error of the bank of unit-norm powers",
    "iha": "IHA with the least heads is within a relative error of the bank of unit-norm powers",
}


def matrix(graph: str, normalisation: str) -> DomainMatrix:
    """A of one of `CASES` over the rationals; row sums divide without rounding."""
    if graph.startswith("diagonal:"):
        return exact.matrix(np.diag(np.arange(1, int(graph.split(":")[1]) + 1)), QQ)
    a = exact.matrix(builtin(graph).adjacency, QQ)
    if normalisation == "none":
        return a
    rows = [[x / sum(row) for x in row] for row in a.to_list()]
    return DomainMatrix(rows, a.shape, QQ).to_dense()


def exact_measure(layer: str, given: ReducedBank) -> tuple[Construction, float, str]:
    """The construction, its exact error, and how it was found.

    Over the rationals where float64 holds every weight. Otherwise modulo primes: with q and g the common denominators
    of A and c, g q^{k-1} times the entries of sum_s c[t,s] A^s - A^t are integers of sizes at most
    g (r max |c| + 1) (q max(1, |A|_inf))^{k-1}. What is 0 modulo primes of a larger product is 0. The primes that
    divide q g are left out; their product is at most q g.
    """

    def build(prime: int | None) -> tuple[Construction, list[DomainMatrix]]:
        own = given if prime is None else given.residues(prime)
        return reduced.bank(layer, own, WIDTH), list(power_blocks(own.matrix, own.terms))

    def primes() -> list[int]:
        q, g = (lcm(*(int(x.denominator) for x in m.to_list_flat())) for m in (given.matrix, given.coefficients))
        largest = max(abs(x) for x in given.coefficients.to_list_flat()) * given.rank + 1
        factor = g * (int(largest.numerator) // int(largest.denominator) + 1)
        size = factor * largest_difference(given.matrix, given.terms)
        return [p for p in exact.primes_beyond(size * q * g) if (q * g) % p]

    construction, error, count = settled(build, primes)
    compared = f"modulo {count} primes, hence over the rationals" if count else "over the rationals"
    return construction, error, f"operators {compared}"


def float64_measure(construction: Construction, given: ReducedBank) -> tuple[float, float]:
    """Error and bound of rounded weights.

    The addends behind block t are c[t,s] A^s with three rounded weights and the layer's operations, and the target's
    entries with (k - 1) N operations; errors are relative to sum_s |c[t,s]| |A|^s + |A|^t, rounded once more.
    """
    a, c = (exact.nearest_float64(m).numpy() for m in (given.matrix, given.coefficients))
    targets, sizes = (np.stack(list(power_blocks_float(x, given.terms))) for x in (a, np.abs(a)))
    majorants = np.einsum("ts,sij->tij", np.abs(c), sizes[: given.rank]) + sizes
    steps = operations(construction, len(a)) + 2 * given.terms * len(a) + given.rank + 5
    return float64_gap(construction, targets, majorants), gamma(steps)


def checks(graph: str, normalisation: str, terms: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """The bank of one of `CASES` by the least heads of each layer."""
    a = matrix(graph, normalisation)
    given, independent = reduced.reduce(a, terms), independent_powers(a, terms)
    name = graph if normalisation == "none" else f"{graph} ({normalisation})"
    for layer in EXACT:
        setting = {"graph": name, "nodes": given.matrix.shape[0], "terms": terms, "independent_powers": given.rank}
        setting["lower_bound_heads"] = least_heads(LAYERS[layer].kind, given.rank)
        label = f"{LABELS[layer]}/{name}/k={terms}"
        construction, error, compared = exact_measure(layer, given)
        common = {"claim": CLAIMS[layer], "setting": setting, "claimed_heads": heads_by_claim(layer, independent)}
        yield _result(label, layer, construction, "exact", error=error, bound=0.0, compared=compared, **common)
        if not exact_only:
            construction = reduced.bank(layer, given, WIDTH, rounded=True)
            error, bound = float64_measure(construction, given)
            compared = "operators, entry by entry"
            yield _result(label, layer, construction, "float64", error=error, bound=bound, compared=compared, **common)


def independent_powers(a: DomainMatrix, terms: int) -> int:
    """dim span{I, A, ..., A^{k-1}}."""
    rows = [block.to_list_flat() for block in power_blocks(a, terms)]
    return DomainMatrix(rows, (terms, len(rows[0])), QQ).rank()


def tolerance_checks() -> Iterator[CheckResult]:
    """Heads at a tolerance: MHA and IHA within it as operators, with the least heads."""
    a, bank = tolerance_case()
    values = spectrum(bank)
    for tolerance in TOLERANCES:
        rank = least_rank(values, tolerance)
        for layer in WITHIN:
            construction = UnitPowers(a, len(bank)).within(layer, tolerance)
            error = frobenius_error(construction, bank)
            setting = {
                "graph": f"{GRAPH} (symmetric)",
                "nodes": len(a),
                "terms": len(bank),
                "tolerance": tolerance,
                "floor": approximate.floor(values, rank),
                "lower_bound_heads": least_heads(LAYERS[layer].kind, rank),
            }
            yield _result(
                f"within/{GRAPH}/{tolerance:g}",
                layer,
                construction,
                "float64",
                claim=WITHIN[layer],
                error=error,
                bound=tolerance,
                setting=setting,
                compared="operators, in Frobenius norm",
                claimed_heads=heads_by_claim(layer, rank),
            )


def tolerance_case() -> tuple[torch.Tensor, torch.Tensor]:
    """A and the bank of its unit-norm powers."""
    a = torch.tensor(normalise(builtin(GRAPH), "symmetric").adjacency)
    return a, unit_powers(a, GRAPH_TERMS)


def _result(
    label: str, layer: str, construction: Construction, tier: Tier, *, setting: dict[str, Any], **fields: Any
) -> CheckResult:
    costs = {"attention_maps": construction.layer.attention_maps, "width": construction.width}
    kind = "iha" if LAYERS[layer].kind == "iha" else "mha"
    return CheckResult.of(construction, label, kind, tier, setting=setting | costs, **fields)


def subjects() -> list[Subject]:
    """The checks to be tested by mutants: a bank with rational coefficients by each layer, and a tolerance."""
    return [_reduced(layer, *case) for layer in EXACT for case in DAMAGED] + [_within(layer) for layer in WITHIN]


def _layer(name: str) -> Callable[[Any], Any]:
    return lambda c: c.layer.second if name == "mha-two-layer" else c.layer


def _reduced(layer: str, tier: Tier, graph: str, normalisation: str, terms: int) -> Subject:
    a = matrix(graph, normalisation)
    given, blocks = reduced.reduce(a, terms), list(power_blocks(a, terms))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, a.shape[0], WIDTH)))

    def build(reduction: ReducedBank) -> Construction:
        return reduced.bank(layer, reduction, WIDTH, rounded=tier == "float64")

    def changed(t: int, s: int) -> Callable[[Any], Construction]:
        rows = given.coefficients.to_list()
        rows[t][s] += 1
        return lambda _: build(replace(given, coefficients=exact.matrix(np.array(rows, dtype=object), QQ)))

    def output_row(construction: Construction) -> Construction:
        with torch.no_grad():
            _layer(layer)(construction).out_proj.weight[-1] *= 2
        return construction

    measures: dict[Tier, Callable[[Construction], tuple[float, float]]] = {
        "exact": lambda construction: (exact_gap(construction, blocks), 0.0),
        "float64": lambda construction: float64_measure(construction, given),
    }
    return Subject(
        f"reduced-{layer}/{graph} ({normalisation})/k={terms}/{tier}",
        build=lambda: build(reduced.reduce(a, terms)),
        error=measures[tier],
        outputs=lambda construction: construction(x).detach(),
        layer=_layer(layer),
        extra={
            "a coefficient of the last power off by one": changed(terms - 1, 0),
            "a coefficient of the first power off by one": changed(0, 1),
            "a row of the output projection doubled": output_row,
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
        },
    )


def _within(layer: str) -> Subject:
    a, bank = tolerance_case()
    tolerance = TOLERANCES[-1]
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(a), 1)))
    return Subject(
        f"within/{GRAPH}/{tolerance:g}/{layer}/float64",
        build=lambda: UnitPowers(a, len(bank)).within(layer, tolerance),
        error=lambda construction: (frobenius_error(construction, bank), tolerance),
        outputs=lambda construction: construction(x).detach(),
        layer=lambda construction: construction.layer,
        extra={
            "the powers of another matrix": lambda _: UnitPowers(a.tril(), len(bank)).within(layer, tolerance),
            "one head less": lambda c: approximate.truncated_mha(bank, c.heads - 1),
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
        },
    )
