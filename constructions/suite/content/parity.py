"""Checks of parity by softmax attention with content anywhere, that no layer does one bit more, and their mutants.

The proofs are in docs/parity.md: Theorem 2 for the constructions, Theorem 1 for one bit more.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from constructions.checks.mutants import Subject, of_parameter
from constructions.checks.parity import ExactRuns, exact_errors, exact_runs, float64_run, rational_layer
from constructions.checks.result import CheckResult, Tier, heads_by_claim
from constructions.construction import count
from constructions.targets.parity import LAYERS, ParityLayer, parity
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.bounds.obstruction import Runs, run
from iha_theory.rounding import ceil_sqrt

BITS = range(1, 17)
ALL_INPUTS = 10
"""Up to so many bits the torch layer runs on all inputs, beyond on one of each Hamming weight, in random order."""
ROWS = (1, 4, 9)
"""R of the layers that are asked for R + 1 bits: the inputs are 2^(R+1)."""
WEIGHTS, FEW = 1000, 20
"""How many random layers; few of the largest R where parity is not all that is checked."""
EXACT_ROWS = 4
"""Over the rationals up to this R."""
EXACT_LAYERS = 3
READOUT = {"mha": "out_proj.weight", "iha": "collapse"}
"""Where the weights w of the rows are."""

CLAIMS = {
    "mha": "softmax MHA with k heads computes the parity of k bits, content anywhere",
    "iha": "softmax IHA with ceil(sqrt k) heads computes the parity of k bits, content anywhere",
}
MORE = {
    "mha": "no softmax MHA with R heads computes the parity of R + 1 bits, see docs/parity.md",
    "iha": "no softmax IHA with H heads and P pseudo-heads computes the parity of H P + 1 bits, see docs/parity.md",
}


def checks(bits: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """Parity of k bits by both layers: over the rationals by Hamming weight, and the torch layer within rounding.

    The exact run reads tokens as a multiset, as a layer without positions or mask does: k + 1 inputs are all there are.
    """
    for layer in LAYERS:
        construction = parity(layer, bits)
        error, stored = exact_errors(construction.layer, bits)
        fields: dict[str, Any] = {"claim": CLAIMS[layer], "claimed_heads": heads_by_claim(layer, bits)}
        yield CheckResult.of(
            construction,
            f"parity/k={bits}",
            layer,
            "exact",
            error=error,
            bound=0.0,
            setting={"bits": bits, "inputs": bits + 1, "error_of_stored_weights": stored},
            compared="(-1)^c with the layer's softmax rows over the rationals, read out by the exact weights whose "
            "nearest float64 are the layer's, for every number c of ones",
            **fields,
        )
        if not exact_only:
            inputs = _inputs(bits)
            found = float64_run(construction, inputs)
            yield CheckResult.of(
                construction,
                f"parity/k={bits}",
                layer,
                "float64",
                error=found.error,
                bound=found.bound,
                setting={
                    "bits": bits,
                    "inputs": len(inputs),
                    "margin": found.margin,
                    "margin_on_every_input": found.least,
                    "largest_weight": float(construction.layer.get_parameter(READOUT[layer]).detach().abs().max()),
                },
                compared=f"(-1)^|x| with the output, relative to its terms' sizes; signs on {len(inputs)} inputs",
                **fields,
            )


def more_checks(
    rows: int, exact_only: bool = False, weights: int = WEIGHTS, layers: Sequence[str] = LAYERS
) -> Iterator[CheckResult]:
    """Layers of R softmax rows and any weights on R + 1 bits: sum_x (-1)^|x| D g = 0, and a wrong sign."""
    for layer in layers:
        results: dict[Tier, tuple[AttentionLayer, tuple[float, float], dict[str, Any]]] = {}
        if rows <= EXACT_ROWS:
            generator = torch.Generator().manual_seed(rows)
            exact = [_rational(layer, rows, generator) for _ in range(EXACT_LAYERS)]
            error = max(exact_runs(one, rows + 1, generator).error for one in exact)
            results["exact"] = exact[0], (error, 0.0), {"layers": EXACT_LAYERS}
        if not exact_only:
            runs = run(_template(layer, rows), rows + 1, weights=weights)
            wrong = {"least_wrong_inputs": int(runs.wrong.min()), "most_wrong_inputs": int(runs.wrong.max())}
            with_wrong = int((runs.wrong > 0).sum())
            setting = {"layers": weights, "layers_with_a_wrong_sign": with_wrong, **wrong}
            results["float64"] = _template(layer, rows), obstructed(runs), setting
        for tier, (used, (error, bound), setting) in results.items():
            yield CheckResult(
                id=f"parity-more/rows={rows}/{layer}/{tier}",
                claim=MORE[layer],
                layer=layer,
                heads=used.num_heads,
                pseudo_heads=getattr(used, "num_pseudo_heads", 1),
                parameters=count(used),
                tier=tier,
                error=error,
                bound=bound,
                setting={"rows": rows, "bits": rows + 1, "inputs": 2 ** (rows + 1), **setting},
                compared="sum over all inputs of (-1)^|x| times output times denominators with 0, for random weights "
                "and tokens; some input has a wrong sign",
                claimed_heads=heads_by_claim(layer, rows),
            )


def obstructed(runs: Runs) -> tuple[float, float]:
    """`Runs.worst`, the sum infinite if a layer has no wrong sign."""
    found, bound = runs.worst
    return found if bool((runs.wrong > 0).all()) else math.inf, bound


def _inputs(bits: int) -> Tensor:
    if bits <= ALL_INPUTS:
        return torch.tensor(list(itertools.product((0, 1), repeat=bits)))
    generator = torch.Generator().manual_seed(bits)
    ordered = torch.ones(bits + 1, bits, dtype=torch.long).tril(-1)
    return torch.stack([row[torch.randperm(bits, generator=generator)] for row in ordered])


def _rational(layer: str, rows: int, generator: torch.Generator) -> AttentionLayer:
    heads = heads_by_claim(layer, rows)
    kind: Literal["mha", "global"] = "mha" if layer == "mha" else "global"
    return rational_layer(kind, heads, heads, generator)


def _template(layer: str, rows: int) -> MultiHeadAttention | InterleavedHeadAttention:
    """A layer of R softmax rows, with whatever weights."""
    options: dict[str, Any] = {"head_dim": 2, "value_head_dim": 2, "out_dim": 1, "bias": True, "dtype": torch.float64}
    if layer == "mha":
        return MultiHeadAttention(4, rows, **options)
    return InterleavedHeadAttention(4, ceil_sqrt(rows), **options)


def subjects() -> list[Subject]:
    """The checks to be tested by mutants: five bits, which leave IHA rows to spare, and four."""
    return [subject for layer in LAYERS for bits in (5, 4) for subject in _parities(layer, bits)] + [
        subject for layer in LAYERS for subject in _more(layer)
    ]


def _parities(layer: str, bits: int) -> list[Subject]:
    inputs = _inputs(bits)

    def float64_error(construction: ParityLayer) -> tuple[float, float]:
        found = float64_run(construction, inputs)
        return found.error, found.bound

    measures: dict[Tier, Callable[[Any], tuple[float, float]]] = {
        "exact": lambda construction: (exact_errors(construction.layer, bits)[0], 0.0),
        "float64": float64_error,
    }
    weights, scales = READOUT[layer], "q_proj.weight" if layer == "mha" else "alpha_q"
    return [
        Subject(
            f"parity/k={bits}/{layer}/{tier}",
            build=lambda: parity(layer, bits),
            error=error,
            outputs=lambda construction: construction(inputs),
            layer=lambda construction: construction.layer,
            extra={
                "a row left out": of_parameter(weights, lambda w: w.view(-1)[0].zero_()),
                "a row with the other sign": of_parameter(weights, lambda w: w.view(-1)[1].neg_()),
                "two rows exchanged": of_parameter(weights, lambda w: w.view(-1)[:2].copy_(w.view(-1)[:2].flip(0))),
                "a head's nodes squared": of_parameter(scales, lambda q: q[0].mul_(2)),
                "the constant 1 too large": of_parameter("out_proj.bias", lambda b: b.add_(1)),
                "the weights of a bit more": lambda _: replace(parity(layer, bits + 1), bits=bits),
            },
        )
        for tier, error in measures.items()
    ]


def _more(layer: str) -> list[Subject]:
    rows = 4

    def floats(bits: int) -> Runs:
        return run(_template(layer, rows), bits, weights=20)

    def exact(bits: int) -> ExactRuns:
        generator = torch.Generator().manual_seed(5)  # no two tokens and no two rows alike
        return exact_runs(_rational(layer, rows, generator), bits, generator)

    measures: dict[Tier, tuple[Callable[[int], Any], Callable[[Any], tuple[float, float]], Callable[[Any], Tensor]]] = {
        "exact": (
            exact,
            lambda runs: (runs.error, 0.0),
            lambda runs: torch.tensor([float(term) for term in runs.terms], dtype=torch.float64),
        ),
        "float64": (floats, obstructed, lambda runs: runs.denominators.prod(-1) * runs.outputs),
    }
    return [
        Subject(
            f"parity-more/rows={rows}/{layer}/{tier}",
            build=lambda made=made: made(rows + 1),
            error=error,
            outputs=outputs,
            layer=None,
            extra={
                "no bit more": lambda _, made=made: made(rows),
                "a denominator left out": _denominators(lambda d: d[1:]),
                "the last denominator left out": _denominators(lambda d: d[:-1]),
                "a denominator counted twice": _denominators(lambda d: (*d, d[0])),
                "outputs of other inputs": _outputs(lambda g: g[::-1]),
                "an MLP behind the layer": _outputs(lambda g: [one**2 for one in g]),
            },
        )
        for tier, (made, error, outputs) in measures.items()
    ]


def _denominators(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The damage of the denominators d_1, ..., d_r, given one by one."""

    def make(runs: Any) -> Any:
        if isinstance(runs, Runs):
            return replace(runs, denominators=torch.stack(tuple(change(runs.denominators.unbind(-1))), -1))
        return replace(runs, denominators=tuple(tuple(change(d)) for d in runs.denominators))

    return make


def _outputs(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The damage of the outputs g, given one by one."""

    def make(runs: Any) -> Any:
        if isinstance(runs, Runs):
            return replace(runs, outputs=torch.stack(tuple(change(runs.outputs.unbind(-1))), -1))
        return replace(runs, outputs=tuple(change(runs.outputs)))

    return make
