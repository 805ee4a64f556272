"""Checks of state-space models and FIR filters against simulations, their lower bounds, and their mutants.

The targets are those of `constructions.checks.oracles.filters`; the lower bounds are on their operator Schmidt rank
(docs/results.md T2), with certificates.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sympy import QQ

from constructions.checks.bounds import bound_fields, certificate_of, certified, responses
from constructions.checks.mutants import Subject
from constructions.checks.operators import exact_operator_gap
from constructions.checks.oracles.filters import exact_target
from constructions.checks.result import CheckResult, Tier, heads_by_claim
from constructions.checks.state_space import fir_measure, float64_measure
from constructions.construction import Construction
from constructions.filter_bank.layers import PAPER
from constructions.suite.convolution import READOUT_DAMAGES, rolled
from constructions.targets.state_space import RationalFilter, fir, rational_filter, transfer
from iha_theory import exact
from synthetic.systems import PRIME, WIDTH, StateSpace, impulse_response, integers, repeated, stable

ORDERS = (4, 9, 16)
RATIONAL_TOKENS = 20
"""N over the rationals: few enough for float64 to hold the powers of an integer matrix."""
TOKENS, LONG = 64, 256
PROBES = 16
"""At N = 256 the float64 tier uses so many normal inputs; see `float64_operator_gap`."""
CLAIMS = {
    "mha": "MHA with n heads represents a linear state-space model of order n",
    "iha": "IHA with ceil(sqrt n) heads represents a linear state-space model of order n",
}
WITH_FEEDTHROUGH = {
    "mha": "MHA with n + 1 heads represents a state-space model of order n with feedthrough",
    "iha": "IHA with ceil(sqrt(n + 1)) heads represents a state-space model of order n with feedthrough",
}
DEROGATORY = {
    "mha": "MHA with m heads represents a state-space model whose minimal polynomial has degree m < n",
    "iha": "IHA with ceil(sqrt m) heads represents a state-space model whose minimal polynomial has degree m < n",
}
FIR = {
    "mha": "MHA with k heads represents a causal FIR filter of k taps",
    "iha": "IHA with ceil(sqrt k) heads represents a causal FIR filter of k taps",
}


def checks(order: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """Models of one order by both layers: all of them modulo a prime, an integer one, and a stable one in float64."""
    model, every = integers(order, order), integers(order, order, exact.gf(PRIME))
    yield from _exact(f"state-space/n={order}", CLAIMS, order, model, RATIONAL_TOKENS)
    yield from _exact(f"state-space-every/n={order}", CLAIMS, order, every, TOKENS)
    if not exact_only:
        model = stable(order, order)
        yield from _float64(f"state-space/n={order}", CLAIMS, order, model, TOKENS)
        yield from _float64(f"state-space/n={order}", CLAIMS, order, model, LONG, PROBES)


def special_checks(exact_only: bool = False) -> Iterator[CheckResult]:
    """A model with feedthrough, which takes one term more, and one with a derogatory A, which takes fewer."""
    for name, claims, terms, exactly, floating in (
        ("feedthrough/n=4", WITH_FEEDTHROUGH, 5, integers(4, 0, feedthrough=True), stable(4, 0, feedthrough=True)),
        ("derogatory/n=8", DEROGATORY, 4, repeated(integers(4, 0), 1), repeated(stable(4, 0), 1)),
    ):
        yield from _exact(f"state-space-{name}", claims, terms, exactly, RATIONAL_TOKENS)
        if not exact_only:
            yield from _float64(f"state-space-{name}", claims, terms, floating, TOKENS)


def fir_checks(terms: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """FIR filters of k taps by both layers: any taps exactly, as for convolutions, and normal ones in float64."""
    generator = np.random.default_rng(terms)
    shape = (terms, WIDTH, WIDTH)
    kernels: dict[Tier, np.ndarray] = {"exact": generator.integers(0, exact.LARGEST_INTEGER, shape)}
    if not exact_only:
        kernels["float64"] = generator.standard_normal(shape)
    for tier, taps in kernels.items():
        matrices = [exact.matrix(tap, QQ) for tap in taps]
        certificate = certified(responses(matrices))
        for layer in PAPER:
            construction = fir(layer, taps, TOKENS)
            if tier == "exact":
                error, bound = exact_operator_gap(construction, exact_target(matrices, TOKENS)), 0.0
                compared = "operators with the taps, over the rationals, at random taps"
            else:
                error, bound = fir_measure(construction, torch.from_numpy(taps), TOKENS)
                compared = "operators with torch's conv1d, by entry"
            setting = {"taps": terms, "tokens": TOKENS} | bound_fields(layer, certificate)
            if tier == "exact":
                setting["failure_probability"] = 1 / exact.LARGEST_INTEGER
            yield CheckResult.of(
                construction,
                f"fir/k={terms}",
                layer,
                tier,
                claim=FIR[layer],
                error=error,
                bound=bound,
                setting=setting | {"width": WIDTH},
                compared=compared,
                claimed_heads=heads_by_claim(layer, terms),
            )


def _exact(name: str, claims: dict[str, str], terms: int, model: StateSpace, tokens: int) -> Iterator[CheckResult]:
    """One model exactly, claimed to take so many terms; over a prime field a random one, which speaks for all.

    With chi the characteristic polynomial, the entries of the weights' products and of the target are polynomials in
    the entries of A, B, C of degree at most N + 1. A difference that is not the zero polynomial (modulo p) vanishes at
    a uniform random point with probability at most (N + 1) / p (Schwartz, Zippel). The minimal polynomial of such an A
    is the characteristic one if its degree, the number of numerators here, is n.
    """
    domain, given = model.a.domain, transfer(model)
    certificate = certificate_of(model, tokens)
    target = exact_target(impulse_response(model, tokens), tokens)
    setting: dict[str, Any] = {"order": model.a.shape[0], "tokens": tokens, "terms": len(given.numerators)}
    compared = "operators with the impulse response, over the rationals"
    if domain != QQ:
        setting["failure_probability"] = (tokens + 1) / PRIME
        compared = "operators with the impulse response, modulo a prime, for a random model"
    for layer in PAPER:
        construction = rational_filter(layer, given, tokens)
        error = exact_operator_gap(construction, target, domain)
        yield CheckResult.of(
            construction,
            f"{name}/N={tokens}",
            layer,
            "exact",
            claim=claims[layer],
            error=error,
            bound=0.0,
            setting=setting | bound_fields(layer, certificate) | {"width": WIDTH},
            compared=compared,
            claimed_heads=heads_by_claim(layer, terms),
        )


def _float64(
    name: str, claims: dict[str, str], terms: int, model: StateSpace, tokens: int, probes: int | None = None
) -> Iterator[CheckResult]:
    given, certificate = transfer(model), certificate_of(model, tokens)
    setting: dict[str, Any] = {"order": model.a.shape[0], "tokens": tokens, "terms": len(given.numerators)}
    compared = "operators with the recursion, by entry; outputs with scipy.signal.dlsim"
    if probes is not None:
        setting |= {"probes": probes, "failure_probability": tokens * WIDTH * 10.0**-probes}
        compared = f"{probes} outputs with the recursion, one with scipy.signal.dlsim"
    for layer in PAPER:
        construction = rational_filter(layer, given, tokens, rounded=True)
        error, bound = float64_measure(construction, layer, model, tokens, probes)
        yield CheckResult.of(
            construction,
            f"{name}/N={tokens}",
            layer,
            "float64",
            claim=claims[layer],
            error=error,
            bound=bound,
            setting=setting | bound_fields(layer, certificate) | {"width": WIDTH},
            compared=compared,
            claimed_heads=heads_by_claim(layer, terms),
        )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants, on small models."""
    return [subject for layer in PAPER for feedthrough in (False, True) for subject in _models(layer, feedthrough)] + [
        subject for layer in PAPER for subject in _filters(layer)
    ]


def _models(layer: str, feedthrough: bool) -> list[Subject]:
    order, tokens = 4 - feedthrough, 10  # four terms either way
    model = integers(order, 1, feedthrough=feedthrough)
    given, target = transfer(model), exact_target(impulse_response(model, tokens), tokens)
    one = model.a.domain.one

    def by(filtered: RationalFilter) -> Callable[[Any], Any]:
        return lambda _: rational_filter(layer, filtered, tokens)

    first, second, *rest = given.numerators
    c_0, c_1, *c_rest = given.denominator
    damages = {
        "A transposed": by(transfer(replace(model, a=model.a.transpose()))),
        "the output before the input enters": by(replace(given, numerators=(0 * first, *given.numerators))),
        "two numerators swapped": by(replace(given, numerators=(second, first, *rest))),
        "last numerator dropped": by(replace(given, numerators=given.numerators[:-1])),
        "a coefficient of chi~ off by one": by(replace(given, denominator=(c_0, c_1 + one, *c_rest))),
        "last coefficient of chi~ dropped": by(replace(given, denominator=given.denominator[:-1])),
        "chi~ left out": by(replace(given, denominator=(one,))),
        "taps for numerators": by(replace(given, numerators=tuple(impulse_response(model, len(given.numerators))))),
    }
    if feedthrough:
        damages["feedthrough left out"] = by(transfer(replace(model, feedthrough=None)))
    name = f"state-space{'-feedthrough' if feedthrough else ''}/n={order}/N={tokens}/{layer}"
    measures: dict[Tier, Callable[[Any], tuple[float, float]]] = {
        "exact": lambda construction: (exact_operator_gap(construction, target), 0.0),
        "float64": lambda construction: float64_measure(construction, layer, model, tokens),
    }
    return _subjects(name, lambda: rational_filter(layer, transfer(model), tokens), tokens, measures, damages)


def _filters(layer: str) -> list[Subject]:
    tokens = 10
    taps = np.random.default_rng(0).integers(-9, 10, (4, WIDTH, WIDTH))
    target = exact_target([exact.matrix(tap, QQ) for tap in taps], tokens)
    off = taps.copy()
    off[-1, 0, 1] += 1

    def by(changed: np.ndarray) -> Callable[[Any], Any]:
        return lambda _: fir(layer, changed, tokens)

    damages = {
        "taps reversed": by(taps[::-1]),
        "taps one token late": by(np.concatenate((np.zeros_like(taps[:1]), taps))),
        "last tap dropped": by(taps[:-1]),
        "one tap repeated": by(np.concatenate((taps, taps[-1:]))),
        "taps transposed": by(taps.transpose(0, 2, 1)),
        "one entry of a tap off by one": by(off),
    }
    measures: dict[Tier, Callable[[Any], tuple[float, float]]] = {
        "exact": lambda construction: (exact_operator_gap(construction, target), 0.0),
        "float64": lambda construction: fir_measure(construction, torch.from_numpy(taps).double(), tokens),
    }
    return _subjects(f"fir/k=4/{layer}", lambda: fir(layer, taps, tokens), tokens, measures, damages)


def _subjects(
    name: str,
    build: Callable[[], Construction],
    tokens: int,
    measures: dict[Tier, Callable[[Any], tuple[float, float]]],
    damages: dict[str, Callable[[Any], Any]],
) -> list[Subject]:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, tokens, WIDTH)))
    return [
        Subject(
            f"{name}/{tier}",
            build=build,
            error=error,
            outputs=lambda construction: construction(x).detach(),
            layer=lambda construction: construction.layer,
            extra={
                **damages,
                "a query one token off": rolled("q_proj", tokens),
                "a key one token off": rolled("k_proj", tokens),
                **READOUT_DAMAGES,
            },
        )
        for tier, error in measures.items()
    ]
