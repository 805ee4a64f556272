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
from constructions.checks.operators import exact_gap, float64_gap, frobenius_error, operations
from constructions.checks.result import CheckResult, Tier
from constructions.construction import Construction
from constructions.filter_bank import approximate, reduced
from constructions.filter_bank.reduced import ReducedBank
from constructions.suite.bank import WIDTH, largest_difference
from iha_theory import exact
from iha_theory.bounds.heads import least_heads, least_rank, spectrum
from iha_theory.capacity import Kind
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
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
GRAPH, GRAPH_TERMS = "karate", 16
"""For the tolerances: symmetric-normalised."""

LABELS = {"mha": "reduced", "iha": "reduced", "iha-tiled": "reduced-tiled", "mha-two-layer": "reduced-two-layer"}
KINDS: dict[str, Kind] = {"mha": "mha", "iha": "iha", "iha-tiled": "iha", "mha-two-layer": "two-layer"}
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
    try:
        construction = reduced.bank(layer, given, WIDTH)
        error = exact_gap(construction, list(power_blocks(given.matrix, given.terms)))
        return construction, error, "operators over the rationals"
    except OverflowError:
        pass
    q, g = (lcm(*(int(x.denominator) for x in m.to_list_flat())) for m in (given.matrix, given.coefficients))
    largest = max(abs(x) for x in given.coefficients.to_list_flat()) * given.rank + 1
    size = g * (int(largest.numerator) // int(largest.denominator) + 1) * largest_difference(given.matrix, given.terms)
    primes = [p for p in exact.primes_beyond(size * q * g) if (q * g) % p]
    cases = [modular(layer, given.residues(p)) for p in primes]
    return cases[0][0], sum(e for _, e in cases), f"operators modulo {len(primes)} primes, hence over the rationals"


def modular(layer: str, given: ReducedBank) -> tuple[Construction, float]:
    """The construction of a bank over its own field, and the number of wrong entries."""
    construction = reduced.bank(layer, given, WIDTH)
    return construction, exact_gap(construction, list(power_blocks(given.matrix, given.terms)), given.matrix.domain)


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
    given = reduced.reduce(matrix(graph, normalisation), terms)
    name = graph if normalisation == "none" else f"{graph} ({normalisation})"
    for layer in reduced.LAYERS:
        setting = {"graph": name, "nodes": given.matrix.shape[0], "terms": terms, "independent_powers": given.rank}
        setting["lower_bound_heads"] = least_heads(KINDS[layer], given.rank)
        label = f"{LABELS[layer]}/{name}/k={terms}"
        construction, error, compared = exact_measure(layer, given)
        yield _result(label, CLAIMS[layer], layer, construction, "exact", error, 0.0, setting, compared)
        if not exact_only:
            construction = reduced.bank(layer, given, WIDTH, rounded=True)
            error, bound = float64_measure(construction, given)
            compared = "operators, entry by entry"
            yield _result(label, CLAIMS[layer], layer, construction, "float64", error, bound, setting, compared)


def tolerance_checks() -> Iterator[CheckResult]:
    """Heads at a tolerance: MHA and IHA within it as operators, with the least heads."""
    a, bank = tolerance_case()
    values = spectrum(bank)
    for tolerance in TOLERANCES:
        rank = least_rank(values, tolerance)
        for layer in WITHIN:
            construction = approximate.within(layer, a, len(bank), tolerance)
            error = frobenius_error(construction, bank)
            setting = {
                "graph": f"{GRAPH} (symmetric)",
                "nodes": len(a),
                "terms": len(bank),
                "tolerance": tolerance,
                "floor": approximate.floor(values, rank),
                "lower_bound_heads": least_heads(KINDS[layer], rank),
            }
            label = f"within/{GRAPH}/{tolerance:g}"
            compared = "operators, in Frobenius norm"
            yield _result(label, WITHIN[layer], layer, construction, "float64", error, tolerance, setting, compared)


def tolerance_case() -> tuple[torch.Tensor, torch.Tensor]:
    """A and the bank of its unit-norm powers."""
    a = torch.tensor(normalise(builtin(GRAPH), "symmetric").adjacency)
    return a, approximate.unit_powers(a, GRAPH_TERMS)


def _result(
    label: str,
    claim: str,
    layer: str,
    construction: Construction,
    tier: Tier,
    error: float,
    bound: float,
    setting: dict[str, Any],
    compared: str,
) -> CheckResult:
    kind = "iha" if KINDS[layer] == "iha" else "mha"
    return CheckResult.of(
        construction,
        id=f"{label}/{kind}/{tier}",
        claim=claim,
        layer=kind,
        tier=tier,
        error=error,
        bound=bound,
        setting={**setting, "attention_maps": construction.layer.attention_maps, "width": construction.width},
        compared=compared,
    )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants: a bank with rational coefficients by each layer, and a tolerance."""
    return [s for layer in reduced.LAYERS for s in _reduced(layer)] + [_within(layer) for layer in WITHIN]


def _layer(name: str) -> Callable[[Any], Any]:
    return lambda c: c.layer.second if name == "mha-two-layer" else c.layer


def _reduced(layer: str) -> list[Subject]:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, 10, WIDTH)))

    def output_row(construction: Construction) -> Construction:
        with torch.no_grad():
            _layer(layer)(construction).out_proj.weight[-1] *= 2
        return construction

    out = []
    for tier, (graph, normalisation, terms) in {"exact": CASES[0], "float64": CASES[1]}.items():
        given = reduced.reduce(matrix(graph, normalisation), terms)
        blocks = list(power_blocks(given.matrix, terms))

        def build(given: ReducedBank = given, rounded: bool = tier == "float64") -> Construction:
            return reduced.bank(layer, given, WIDTH, rounded=rounded)

        def exactly(construction: Construction, blocks: list[DomainMatrix] = blocks) -> tuple[float, float]:
            return exact_gap(construction, blocks), 0.0

        def by_running(construction: Construction, given: ReducedBank = given) -> tuple[float, float]:
            return float64_measure(construction, given)

        def changed(
            t: int, s: int, given: ReducedBank = given, build: Callable[[ReducedBank], Construction] = build
        ) -> Callable[[Any], Construction]:
            rows = given.coefficients.to_list()
            rows[t][s] += 1
            return lambda _: build(replace(given, coefficients=exact.matrix(np.array(rows, dtype=object), QQ)))

        subject = Subject(
            f"reduced-{layer}/{graph} ({normalisation})/k={terms}/{tier}",
            build=build,
            error=exactly if tier == "exact" else by_running,
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
        out.append(subject)
    return out


def _within(layer: str) -> Subject:
    a, bank = tolerance_case()
    tolerance = TOLERANCES[-1]
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(a), 1)))
    return Subject(
        f"within/{GRAPH}/{tolerance:g}/{layer}/float64",
        build=lambda: approximate.within(layer, a, len(bank), tolerance),
        error=lambda construction: (frobenius_error(construction, bank), tolerance),
        outputs=lambda construction: construction(x).detach(),
        layer=lambda construction: construction.layer,
        extra={
            "the powers of another matrix": lambda _: approximate.within(layer, a.tril(), len(bank), tolerance),
            "one head less": lambda c: approximate.truncated_mha(bank, c.heads - 1),
            "two readout blocks swapped": swap_blocks,
            "a readout block shifted by one": shift_block,
        },
    )
