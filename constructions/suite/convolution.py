"""Checks of convolutions against torch's conv2d, their lower bounds, and their mutants.

As operators: torch's conv2d of every basis input is the target, so equality holds for every image. The lower bound is
on the operator Schmidt rank of that target (docs/results.md T2), with a certificate.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.bounds import bound_fields, certified
from constructions.checks.mutants import Subject, shift_block, swap_blocks
from constructions.checks.operators import exact_operator_gap, float64_operator_gap, operations
from constructions.checks.oracles.convolution import conv2d, exact_target, operator_array, responses
from constructions.checks.result import CheckResult, Tier, heads_by_claim
from constructions.construction import Construction
from constructions.filter_bank.layers import PAPER
from constructions.targets.convolution import PADDINGS, Padding, convolution
from iha_theory import exact
from iha_theory.rounding import gamma

SIZES = (3, 5, 7)
GRID = (9, 7)
WIDTH = 3
"""Input channels; the output channels are as few as let all K^2 taps be independent."""

CLAIMS = {
    "mha": "MHA with K^2 heads represents any K x K convolution",
    "iha": "IHA with K heads and as many pseudo-heads represents any K x K convolution",
}

COMPARED: dict[Tier, str] = {
    "exact": "operators with conv2d's, over the rationals, at a random kernel",
    "float64": "operators with conv2d's, by entry",
}


def exact_measure(construction: Construction, target: list[list[DomainMatrix | None]]) -> tuple[float, float]:
    """Error and bound over the rationals."""
    return exact_operator_gap(construction, target), 0.0


def float64_measure(
    construction: Construction, kernel: Tensor, grid: tuple[int, int], padding: Padding
) -> tuple[float, float]:
    """Error of the torch layer's operator against conv2d, and its bound.

    The weights are the kernel's entries, unrounded. With M the convolution of |X| by |kernel|, the layer is within
    gamma_m M for its longest chain m of operations, conv2d (K^2 d products, added in any order) within gamma_{K^2 d} M;
    one more covers the rounding of M.
    """
    tokens, (_, width, size, _) = grid[0] * grid[1], kernel.shape
    target, majorant = conv2d(kernel, grid, padding), conv2d(kernel.abs(), grid, padding)
    steps = operations(construction, tokens) + size**2 * width + 1
    return float64_operator_gap(construction, tokens, target, majorant), gamma(steps)


def checks(size: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """K x K convolutions by both layers with both paddings: any kernel exactly, a normal one in float64.

    Layer and target are linear in the kernel, so if they differ for some kernel they differ for one of uniform integers
    in 0 .. 2^53 - 1 but with probability at most 2^-53. On a grid of at least K x K places conv2d of a basis input adds
    zeros to one entry of the kernel, without rounding.
    """
    generator = np.random.default_rng(size)
    shape = (-(-(size**2) // WIDTH), WIDTH, size, size)
    kernels: dict[Tier, Tensor] = {
        "exact": torch.from_numpy(generator.integers(0, exact.LARGEST_INTEGER, shape)).double()
    }
    if not exact_only:
        kernels["float64"] = torch.from_numpy(generator.standard_normal(shape))
    for padding in PADDINGS:
        for tier, kernel in kernels.items():
            array = operator_array(conv2d(kernel, GRID, padding), GRID[0] * GRID[1], WIDTH)
            certificate = certified(responses(array, (GRID[0] // 2) * GRID[1] + GRID[1] // 2))
            target = exact_target(array) if tier == "exact" else []
            setting = {"kernel": size, "grid": list(GRID), "padding": padding, "channels": [shape[1], shape[0]]}
            if tier == "exact":
                setting["failure_probability"] = 1 / exact.LARGEST_INTEGER
            for layer in PAPER:
                construction = convolution(layer, kernel, GRID, padding)
                if tier == "exact":
                    error, bound = exact_measure(construction, target)
                else:
                    error, bound = float64_measure(construction, kernel, GRID, padding)
                yield CheckResult.of(
                    construction,
                    f"convolution/K={size}/{padding}",
                    layer,
                    tier,
                    claim=CLAIMS[layer],
                    error=error,
                    bound=bound,
                    setting=setting | bound_fields(layer, certificate),
                    compared=COMPARED[tier],
                    claimed_heads=heads_by_claim(layer, size**2),
                )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants, on a small grid that is not square."""
    return [subject for padding in PADDINGS for layer in PAPER for subject in _subjects(layer, padding)]


def _subjects(layer: str, padding: Padding) -> list[Subject]:
    grid, size = (5, 4), 3
    tokens = grid[0] * grid[1]
    generator = np.random.default_rng(0)
    kernel = torch.from_numpy(generator.integers(1, 10, (3, 2, size, size))).double()
    target = exact_target(operator_array(conv2d(kernel, grid, padding), tokens, 2))
    x = torch.from_numpy(generator.standard_normal((2, tokens, 2)))
    other: Padding = "zero" if padding == "circular" else "circular"

    def built(kernel: Tensor, grid: tuple[int, int] = grid, padding: Padding = padding) -> Callable[[Any], Any]:
        return lambda _: convolution(layer, kernel, grid, padding)

    def entry_changed(change: float) -> Tensor:
        changed = kernel.clone()
        changed[0, 1, 0, 2] *= change
        return changed

    common: dict[str, Any] = {
        "build": lambda: convolution(layer, kernel, grid, padding),
        "outputs": lambda construction: construction(x).detach(),
        "layer": lambda construction: construction.layer,
        "extra": {
            "kernel flipped: convolution for cross-correlation": built(kernel.flip(2, 3)),
            "kernel transposed": built(kernel.transpose(2, 3)),
            "one tap dropped": built(entry_changed(0.0)),
            "one tap 1/64 off": built(entry_changed(1 + 1 / 64)),
            "the other padding": built(kernel, padding=other),
            "grid transposed": built(kernel, grid=(grid[1], grid[0])),
            "a row shift off by one": rolled("q_proj", tokens),
            "a column shift off by one": rolled("k_proj", tokens),
            **READOUT_DAMAGES,
        },
    }
    return [
        Subject(
            f"convolution/K={size}/{padding}/{layer}/exact",
            error=lambda construction: exact_measure(construction, target),
            **common,
        ),
        Subject(
            f"convolution/K={size}/{padding}/{layer}/float64",
            error=lambda construction: float64_measure(construction, kernel, grid, padding),
            **common,
        ),
    ]


def rolled(name: str, tokens: int) -> Callable[[Any], Any]:
    """The damage of the first head's queries (`q_proj`) or keys (`k_proj`) one token off."""

    def make(construction: Construction) -> Construction:
        with torch.no_grad():
            block = getattr(construction.layer, name).weight[:tokens, -tokens:]
            block.copy_(block.roll(1, 1))
        return construction

    return make


READOUT_DAMAGES: dict[str, Callable[[Any], Any]] = {
    "two output channels swapped": swap_blocks,
    "an output channel read one further": shift_block,
}
