"""Checks: a construction against an independent answer, at a tier of equality.

A check compares *operators*. A position-only layer is one linear map of the content X (`iha_theory.position_only`), so
equal operators are equal outputs for every X, where a test on samples would speak of the samples only.

Tiers: "exact" reads the weights out of the torch layer and computes over the rationals or modulo primes, where equal is
== and the error is 0. "float64" runs the torch layer, and must meet a bound on rounding that follows from sizes alone.
NaN never passes, shapes never broadcast, and comparing nothing is an error.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.construction import Construction
from iha_theory import exact
from iha_theory.exact import Domain
from iha_theory.position_only import columns, read, with_positions

Tier = Literal["exact", "float64"]
UNIT = 2.0**-53
"""The unit roundoff of float64."""
BATCH_BYTES = 2**27
"""Memory that one batch of basis inputs may take in the float64 tier."""


@dataclass(frozen=True)
class CheckResult:
    """What was checked and what came out.

    id: unique. claim: the statement, in words. layer: "mha" or "iha". heads, pseudo_heads, parameters: of the layer,
    counted.
    tier: how equality is meant. error: measured; infinite where the layer could not be evaluated. bound: what the error
    had to meet. setting: the case, as data. compared: how.
    """

    id: str
    claim: str
    layer: str
    heads: int
    pseudo_heads: int
    parameters: int
    tier: Tier
    error: float
    bound: float
    setting: dict[str, Any] = field(default_factory=dict)
    compared: str = ""

    @property
    def holds(self) -> bool:
        """Whether the error is a number and meets the bound."""
        return not math.isnan(self.error) and self.error <= self.bound

    @property
    def verdict(self) -> str:
        """ "holds" or "fails"."""
        return "holds" if self.holds else "fails"

    def to_json(self) -> dict[str, Any]:
        """The fields as strict JSON: an error that is no finite number becomes null."""
        fields = asdict(self) | {"verdict": self.verdict}
        return fields | {"error": self.error if math.isfinite(self.error) else None}


def gamma(operations: int) -> float:
    """n u / (1 - n u): the relative error of n chained float64 operations (Higham 2002, Sec. 3.1)."""
    return operations * UNIT / (1 - operations * UNIT)


def largest_ratio(gap: Tensor, scale: Tensor) -> float:
    """The largest |gap| / scale, where 0 / 0 counts as 0 and anything else over 0 is infinite; NaN if anything is NaN.

    Raises:
        ValueError: shapes that differ, or nothing to compare.
    """
    if gap.shape != scale.shape or gap.numel() == 0:
        raise ValueError(f"cannot compare shapes {tuple(gap.shape)} and {tuple(scale.shape)}")
    if bool(gap.isnan().any()) or bool(scale.isnan().any()):
        return math.nan
    ratio = gap.abs() / scale
    return float(torch.where(gap == 0, 0.0, ratio).max())


def exact_error(construction: Construction, blocks: Sequence[DomainMatrix], domain: Domain = QQ) -> float:
    """0.0 if and only if the layer's readout is [T_0 X, T_1 X, ...] for every X; the blocks T_t over the domain.

    Over the rationals the largest difference of an operator's entries, over a prime field the number of wrong entries.

    Raises:
        ValueError: a layer that is not position-only or holds NaN, or as many blocks as the readout does not have.
    """
    if len(blocks) != len(construction.readout) or not blocks:
        raise ValueError(f"{len(blocks)} blocks against {len(construction.readout)} in the readout")
    pairs = zip(construction.readout, blocks, strict=True)
    wanted = [(block.start + b, t, b) for block, t in pairs for b in range(block.width)]
    operator = list(columns(read(construction.layer, construction.width, domain)))
    if any(c >= len(operator) for c, _, _ in wanted):
        raise ValueError(f"the readout goes beyond the layer's {len(operator)} output coordinates")
    return max(
        exact.difference(operator[c], [t if a == b else None for a in range(construction.width)]) for c, t, b in wanted
    )


def float64_error(construction: Construction, targets: np.ndarray, majorants: np.ndarray, seed: int = 0) -> float:
    """Largest componentwise relative error of the torch layer's operator, and of its outputs for one normal X.

    The layer runs as layer(positions, positions, content) on every basis input, and once as self-attention.

    Args:
        construction: the layer.
        targets: T_t, (blocks, N, N).
        majorants: |T_t| with every addend in absolute value (for A^t: |A|^t); errors are relative to these.
        seed: of the normal X.
    """
    t, m = torch.from_numpy(targets), torch.from_numpy(majorants)
    tokens, width = t.shape[-1], construction.width
    positions = with_positions(torch.zeros(1, tokens, width, dtype=torch.float64))
    basis = torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)
    own = torch.eye(width, dtype=torch.float64)
    rows = max(1, BATCH_BYTES // (8 * tokens * construction.layer.out_dim * (construction.pseudo_heads + 1)))
    worst = 0.0
    with torch.no_grad():
        for start in range(0, len(basis), rows):
            x = basis[start : start + rows]
            out = construction.pick(construction.layer(positions, positions, with_positions(x)))
            at = torch.arange(start, start + len(x))
            j, a = at // width, at % width  # column j of T_t, in content coordinate a
            expected = _columns(t, j, own[a])
            worst = _worse(worst, largest_ratio(out - expected, _columns(m, j, own[a])))
        x = torch.from_numpy(np.random.default_rng(seed).standard_normal((1, tokens, width)))
        out = construction(x)
        expected, scale = (torch.einsum("tij,bja->bita", op, y).flatten(2) for op, y in ((t, x), (m, x.abs())))
    return _worse(worst, largest_ratio(out - expected, scale))


def _columns(operators: Tensor, j: Tensor, content: Tensor) -> Tensor:
    """Outputs (rows, N, blocks * width) of the operators on basis inputs: column j, in the content's coordinate."""
    return torch.einsum("tir,rb->ritb", operators[:, :, j], content).flatten(2)


def _worse(a: float, b: float) -> float:
    return math.nan if math.isnan(a) or math.isnan(b) else max(a, b)
