"""Checks that MHA is inside IHA, strictly."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from constructions.checks.inclusion import (
    TOKENS,
    WIDTH,
    WITNESS_WIDTH,
    copies_error,
    integer_mha,
    operators_error,
    outputs_error,
    real_mha,
    repeated_mha_error,
    witness_error,
    witness_weights,
)
from constructions.checks.mutants import Subject
from constructions.checks.result import CheckResult, Tier
from constructions.construction import count
from constructions.targets.inclusion import inclusion, repeated, witness
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.weights import with_positions

SIZES = ((1, 2), (2, 2), (2, 3), (3, 4))
"""(H, P) of the inclusion checks."""

INCLUSION = "IHA represents every MHA with as many heads"
STRICTNESS = (
    "On repeated tokens every MHA is linear and an IHA with P = 2 is tanh(<q, k>) v, so the inclusion is strict"
)


def inclusion_checks(exact_only: bool) -> Iterator[CheckResult]:
    """MHA inside IHA: linear and hard attention as operators, softmax by its weights and by its outputs."""
    for heads, pseudo in SIZES:
        generator = torch.Generator().manual_seed(heads)
        for pattern in ("linear", "hard"):
            mha = integer_mha(heads, pattern, generator)
            iha = inclusion(mha, pseudo)
            yield _inclusion(mha, iha, "exact", operators_error(mha, iha), 0.0, "operators over the rationals")
        mha = real_mha(heads, generator)
        iha = inclusion(mha, pseudo)
        yield _inclusion(mha, iha, "exact", copies_error(mha, iha), 0.0, "every pseudo-head's weights")
        if not exact_only:
            yield _inclusion(mha, iha, "float64", *outputs_error(mha, iha), "outputs on normal inputs")


def strictness_checks() -> Iterator[CheckResult]:
    """The witness for P = 2, 3, 5, and MHA on repeated tokens."""
    for pseudo in (2, 3, 5):
        weights = witness_weights(seed=pseudo)
        layer = witness(*weights, pseudo)
        error, bound, departure = witness_error(layer, weights)
        if not departure >= 1e3 * bound:
            error = float("inf")
        yield CheckResult(
            id=f"strictness/P={pseudo}/iha/float64",
            claim=STRICTNESS,
            layer="iha",
            heads=layer.num_heads,
            pseudo_heads=layer.num_pseudo_heads,
            parameters=count(layer),
            tier="float64",
            error=error,
            bound=bound,
            setting={"width": WITNESS_WIDTH, "tokens": TOKENS, "departure_from_linear": departure},
            compared="outputs on repeated tokens against the closed form",
            claimed_heads=1,
        )
    for heads in (1, 2, 3):
        generator = torch.Generator().manual_seed(heads)
        layer = MultiHeadAttention(4 * heads, heads, dtype=torch.float64)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.normal_(generator=generator)
        error, bound = repeated_mha_error(layer)
        yield CheckResult(
            id=f"strictness/H={heads}/mha/float64",
            claim=STRICTNESS,
            layer="mha",
            heads=layer.num_heads,
            pseudo_heads=1,
            parameters=count(layer),
            tier="float64",
            error=error,
            bound=bound,
            setting={"width": layer.embed_dim, "tokens": TOKENS},
            compared="outputs on repeated tokens against W_O W_V x",
            claimed_heads=heads,
        )


def _inclusion(
    mha: MultiHeadAttention, iha: InterleavedHeadAttention, tier: Tier, error: float, bound: float, compared: str
) -> CheckResult:
    return CheckResult(
        id=f"inclusion/{mha.pattern}/H={iha.num_heads}/P={iha.num_pseudo_heads}/iha/{tier}",
        claim=INCLUSION,
        layer="iha",
        heads=iha.num_heads,
        pseudo_heads=iha.num_pseudo_heads,
        parameters=count(iha),
        tier=tier,
        error=error,
        bound=bound,
        setting={"pattern": mha.pattern},
        compared=compared,
        claimed_heads=mha.num_heads,
    )


def subjects() -> list[Subject]:
    """The checks of inclusion and strictness, to be tested by mutants."""
    heads, pseudo = 2, 3
    out = []
    for pattern in ("linear", "hard"):
        mha = integer_mha(heads, pattern, torch.Generator().manual_seed(0))
        out.append(_included(f"inclusion/{pattern}/exact", mha, pseudo, operators_error))
    mha = real_mha(heads, torch.Generator().manual_seed(0))
    out.append(_included("inclusion/softmax/exact", mha, pseudo, copies_error))
    out.append(_included("inclusion/softmax/float64", mha, pseudo, outputs_error))
    return out + _strictness()


def _included(check: str, mha: Any, pseudo: int, error: Callable[[Any, Any], Any]) -> Subject:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, TOKENS, mha.embed_dim, dtype=torch.float64, generator=generator)
    if mha.pattern != "softmax":  # position-only, on [X, I_N]
        x = with_positions(x[..., :WIDTH])

    def measured(iha: Any) -> tuple[float, float]:
        found = error(mha, iha)
        return found if isinstance(found, tuple) else (found, 0.0)

    return Subject(
        check,
        build=lambda: inclusion(mha, pseudo),
        error=measured,
        outputs=lambda iha: iha(x, x, x).detach(),
        layer=lambda iha: iha,
        extra={"another head's row read": _collapse_crossed},
    )


def _strictness() -> list[Subject]:
    weights = witness_weights(seed=0)
    x = np.random.default_rng(1).standard_normal((4, WITNESS_WIDTH))
    inputs = repeated(torch.from_numpy(x), TOKENS)

    def printed(layer: InterleavedHeadAttention) -> InterleavedHeadAttention:
        with torch.no_grad():
            layer.alpha_v[0, 0, 1] = 1
        return layer

    return [
        Subject(
            f"strictness/P={pseudo}/iha/float64",
            build=lambda pseudo=pseudo: witness(*weights, pseudo),
            error=lambda layer: witness_error(layer, weights)[:2],
            outputs=lambda layer: layer(inputs, inputs, inputs).detach(),
            layer=lambda layer: layer,
            extra={"pseudo-value +1, as printed": printed},
        )
        for pseudo in (2, 3)
    ]


def _collapse_crossed(iha: InterleavedHeadAttention) -> nn.Module:
    with torch.no_grad():
        iha.collapse.copy_(iha.collapse.roll(1, 0))
    return iha
