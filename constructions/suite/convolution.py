"""Checks of convolutions against torch's conv2d, their lower bounds, and their mutants.

As operators: torch's conv2d of every basis input is the target, so equality holds for every image. The lower bound is
on the operator Schmidt rank of that target (docs/results.md T2), with a certificate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks import (
    CheckResult,
    Operator,
    Tier,
    exact_operator_error,
    float64_operator_error,
    gamma,
    layer_operations,
)
from constructions.construction import Construction
from constructions.convolution import PADDINGS, PRODUCTS, Padding, convolution
from constructions.suite.mutants import Subject
from iha_theory import exact
from iha_theory.certificates import Certificate, bank_refusal
from iha_theory.costs import ceil_sqrt
from iha_theory.exact_rank import bank_rank

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


def conv2d(kernel: Tensor, grid: tuple[int, int], padding: Padding) -> Operator:
    """torch's conv2d on (batch, R C, d) content, tokens row-major."""
    p = kernel.shape[-1] // 2
    mode = {"circular": "circular", "zero": "constant"}[padding]

    def apply(x: Tensor) -> Tensor:
        images = x.transpose(1, 2).unflatten(2, grid)
        return F.conv2d(F.pad(images, (p, p, p, p), mode=mode), kernel).flatten(2).transpose(1, 2)

    return apply


def operator_array(operator: Operator, tokens: int, width: int) -> np.ndarray:
    """d out[i, o] / d X[j, a] as (N, D, N, d), from every basis input."""
    basis = torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)
    return operator(basis).unflatten(0, (tokens, width)).permute(2, 3, 0, 1).numpy()


def exact_target(array: np.ndarray) -> list[list[DomainMatrix | None]]:
    """`exact_operator_error`'s target from an operator's entries, (N, D, N, d), which must be exact."""
    _, outputs, _, width = array.shape
    return [[exact.matrix(array[:, o, :, a], QQ) for a in range(width)] for o in range(outputs)]


def responses(array: np.ndarray, token: int) -> list[np.ndarray]:
    """For each output o and content coordinate a the column d out[:, o] / d X[token, a], (N, 1)."""
    _, outputs, _, width = array.shape
    return [array[:, o, token, a][:, None] for o in range(outputs) for a in range(width)]


def certified(columns: Sequence[Any]) -> Certificate | None:
    """A certificate of the operator Schmidt rank from below, verified; None if all is 0.

    The columns of one token j are the rows (i, j) of the operator's realignment, which have at most its rank.

    Raises:
        ValueError: the certificate does not prove what it claims.
    """
    certificate = bank_rank(columns).certificate
    if certificate is not None and (reason := bank_refusal(certificate, columns)):
        raise ValueError(f"the lower bound has no certificate: {reason}")
    return certificate


def lower_bound(layer: str, certificate: Certificate | None) -> int:
    """The least heads of position-only attention: r for "mha", ceil(sqrt r) for "iha" (docs/results.md T1, T2)."""
    rank = 1 if certificate is None else certificate.rank
    return {"mha": rank, "iha": ceil_sqrt(rank)}[layer]


def bound_fields(layer: str, certificate: Certificate | None) -> dict[str, Any]:
    """The lower bound as fields of a check's setting."""
    data = None if certificate is None else certificate.to_json()
    return {"lower_bound_heads": lower_bound(layer, certificate), "certificate": data}


def exact_measure(construction: Construction, target: list[list[DomainMatrix | None]]) -> tuple[float, float]:
    """Error and bound over the rationals."""
    return exact_operator_error(construction, target), 0.0


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
    operations = layer_operations(construction.layer, tokens) + size**2 * width + 1
    return float64_operator_error(construction, tokens, target, majorant), gamma(operations)


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
            for layer in PRODUCTS:
                construction = convolution(layer, kernel, GRID, padding)
                if tier == "exact":
                    error, bound = exact_measure(construction, target)
                else:
                    error, bound = float64_measure(construction, kernel, GRID, padding)
                yield CheckResult.of(
                    construction,
                    id=f"convolution/K={size}/{padding}/{layer}/{tier}",
                    claim=CLAIMS[layer],
                    layer=layer,
                    tier=tier,
                    error=error,
                    bound=bound,
                    setting=setting | bound_fields(layer, certificate),
                    compared=COMPARED[tier],
                )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants, on a small grid that is not square."""
    return [subject for padding in PADDINGS for layer in PRODUCTS for subject in _subjects(layer, padding)]


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


def _swap_channels(construction: Construction) -> Construction:
    first, second, *rest = construction.readout
    return replace(construction, readout=(second, first, *rest))


def _shift_channel(construction: Construction) -> Construction:
    first, *rest = construction.readout
    return replace(construction, readout=(replace(first, start=first.start + 1), *rest))


READOUT_DAMAGES: dict[str, Callable[[Any], Any]] = {
    "two output channels swapped": _swap_channels,
    "an output channel read one further": _shift_channel,
}
