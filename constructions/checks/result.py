"""Checks: a construction against an independent answer, at a tier of equality.

A check compares *operators*. A position-only layer is one linear map of the content X (`iha_theory.operators.weights`),
so equal operators are equal outputs for every X, where a test on samples would speak of the samples only.

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

from constructions.checks.oracles import Operator
from constructions.construction import Construction
from iha_theory import exact
from iha_theory.attention.base import AttentionLayer
from iha_theory.exact import Domain
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import read, with_positions
from iha_theory.rounding import largest_ratio, worse

Tier = Literal["exact", "float64"]
BATCH_BYTES = 2**27
"""Memory that one batch of basis inputs may take in the float64 tier."""
MANY, PROBES = 256, 16
"""Beyond so many tokens a bank is run on so many random inputs, not on every basis input."""


@dataclass(frozen=True)
class CheckResult:
    """What was checked and what came out.

    id: unique. claim: the statement, in words. layer: "mha" or "iha". heads, pseudo_heads, parameters: of the layer,
    counted.
    tier: how equality is meant. error: measured; infinite where the layer could not be evaluated. bound: what the error
    had to meet. setting: the case, as data. compared: how.
    claimed_heads: what the claim says, None if it says nothing of heads.
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
    claimed_heads: int | None = None

    @classmethod
    def of(cls, construction: Construction, **fields: Any) -> "CheckResult":
        """The result of a check of a construction: its heads, pseudo-heads and parameters, and the other fields."""
        return cls(
            heads=construction.heads,
            pseudo_heads=construction.pseudo_heads,
            parameters=construction.parameters,
            **fields,
        )

    @property
    def holds(self) -> bool:
        """Whether the error is a number that meets the bound, and the layer has as many heads as the claim says."""
        heads = self.claimed_heads in (None, self.heads)
        return heads and not math.isnan(self.error) and self.error <= self.bound

    @property
    def verdict(self) -> str:
        """ "holds" or "fails"."""
        return "holds" if self.holds else "fails"

    def to_json(self) -> dict[str, Any]:
        """The fields as strict JSON: a number that is not finite becomes null."""
        return strict(asdict(self) | {"verdict": self.verdict})


def strict(value: Any) -> Any:
    """The value with null for every float that is no finite number."""
    if isinstance(value, dict):
        return {key: strict(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def least_root(n: int) -> int:
    """The least H with H^2 >= n: what the claims say, by its definition."""
    return next(h for h in range(1, n + 1) if h * h >= n)


def relative_error(out: Tensor, target: Tensor, majorant: Tensor) -> float:
    """`largest_ratio` of out - target to the majorant.

    Raises:
        ValueError: shapes that differ.
    """
    if out.shape != target.shape:
        raise ValueError(f"cannot compare shapes {tuple(out.shape)} and {tuple(target.shape)}")
    return largest_ratio(out - target, majorant)


def exact_error(construction: Construction, blocks: Sequence[DomainMatrix], domain: Domain = QQ) -> float:
    """0.0 if and only if the layer's readout is [T_0 X, T_1 X, ...] for every X; the blocks T_t over the domain.

    Over the rationals the largest difference of an operator's entries, over a prime field the number of wrong entries.

    Raises:
        ValueError: a layer that is not position-only or holds NaN, or as many blocks as the readout does not have.
    """
    if len(blocks) != len(construction.readout) or not blocks:
        raise ValueError(f"{len(blocks)} blocks against {len(construction.readout)} in the readout")
    if any(block.width != construction.width for block in construction.readout):
        raise ValueError(f"every block of the readout must have the content's width {construction.width}")
    target = [
        [t if a == b else None for a in range(construction.width)]
        for block, t in zip(construction.readout, blocks, strict=True)
        for b in range(block.width)
    ]
    return exact_operator_error(construction, target, domain)


def exact_operator_error(
    construction: Construction, target: Sequence[Sequence[DomainMatrix | None]], domain: Domain = QQ
) -> float:
    """0.0 if and only if the layer's readout is the target operator, for every X; otherwise as `exact_error`.

    Args:
        construction: the layer.
        target: for each coordinate c of the readout and each content coordinate a the (N, N) matrix
            M[i, j] = d out[i, c] / d X[j, a] over the domain; None for 0.
        domain: the rationals or a prime field.

    Raises:
        ValueError: a layer that is not position-only or holds NaN, or as many coordinates as the readout does not have.
    """
    read_out = [c for block in construction.readout for c in block.columns]
    if len(target) != len(read_out) or not read_out:
        raise ValueError(f"{len(target)} target coordinates against {len(read_out)} in the readout")
    operator = list(columns(read(construction.layer, construction.width, domain), construction.causality))
    if any(c >= len(operator) for c in read_out):
        raise ValueError(f"the readout goes beyond the layer's {len(operator)} output coordinates")
    return max(exact.difference(operator[c], wanted) for c, wanted in zip(read_out, target, strict=True))


def float64_error(construction: Construction, targets: np.ndarray, majorants: np.ndarray, seed: int = 0) -> float:
    """`float64_operator_error` against a bank of matrices.

    Args:
        construction: the layer.
        targets: T_t, (blocks, N, N).
        majorants: |T_t| with every addend in absolute value (for A^t: |A|^t); errors are relative to these.
        seed: of the normal X.
    """
    t, m = (_bank(torch.from_numpy(array)) for array in (targets, majorants))
    tokens = targets.shape[-1]
    return float64_operator_error(construction, tokens, t, m, seed, None if tokens <= MANY else PROBES)


def float64_operator_error(
    construction: Construction,
    tokens: int,
    target: Operator,
    majorant: Operator,
    seed: int = 0,
    probes: int | None = None,
) -> float:
    """Largest componentwise relative error of the torch layer's operator, and of its outputs for one normal X.

    The layer runs as layer(positions, positions, content) on every basis input, and once as self-attention.

    Where there are too many basis inputs, s normal ones serve: let e hold the entries behind one output of the
    difference of the operators. A normal X gives |<e, X>| <= |e|_2 / 8 with probability below 1/10, so that all s do
    with probability below 10^-s: but for that, |e|_2 is at most 8 times what the s inputs show.

    Args:
        construction: the layer.
        tokens: N.
        target: the operator.
        majorant: the operator with every addend in absolute value, on content in absolute value; errors are relative
            to it.
        seed: of the normal inputs.
        probes: s; None for every basis input.
    """
    width = construction.width
    generator = np.random.default_rng(seed)
    positions = with_positions(torch.zeros(1, tokens, width, dtype=torch.float64))
    if probes is None:
        inputs = torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)
    else:
        inputs = torch.from_numpy(generator.standard_normal((probes, tokens, width)))
    layer = construction.layer
    widest = max(layer.out_dim, layer.num_heads * layer.value_head_dim)
    rows = max(1, BATCH_BYTES // (8 * tokens * max(layer.embed_dim, widest * (construction.pseudo_heads + 1))))
    worst = 0.0
    with torch.no_grad():
        for x in inputs.split(rows):
            out = layer(positions, positions, with_positions(x), is_causal=construction.is_causal)
            out = construction.pick(out)
            worst = worse(worst, relative_error(out, target(x), majorant(x.abs())))
        x = torch.from_numpy(generator.standard_normal((1, tokens, width)))
        return worse(worst, relative_error(construction(x), target(x), majorant(x.abs())))


def layer_operations(layer: AttentionLayer, tokens: int) -> int:
    """The longest chain of float64 operations behind an output entry of a layer of linear attention without biases.

    Three projections (N + d each), three mixings (H each), scores (d_k), values (N P), collapse (H P), output
    projection (H d_v). Every output is a sum of products of weights and content; one entry's computed value is that sum
    with each addend times a product of at most so many factors 1 + delta, |delta| <= u (Higham 2002, Sec. 3.1).
    """
    heads, pseudo = layer.num_heads, getattr(layer, "num_pseudo_heads", 1)
    out = 0 if layer.out_proj is None else heads * layer.value_head_dim
    return 3 * layer.embed_dim + 3 * heads + layer.head_dim + tokens * pseudo + heads * pseudo + out


def _bank(operators: Tensor) -> Operator:
    """X -> [T_0 X, T_1 X, ...]."""
    return lambda x: torch.einsum("tij,bja->bita", operators, x).flatten(2)
