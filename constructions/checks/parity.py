"""Parity by softmax attention: a layer's error over the rationals and in float64, and Theorem 1 over the rationals.

Bits become tokens as `constructions.targets.parity` says: s = 1 or -1 at a bit, the query token behind them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Literal

import flint
import torch
from torch import Tensor

from constructions.checks.softmax import RationalSoftmax, Rows
from constructions.targets.parity import ParityLayer
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.bounds.obstruction import sizes

ONE, ZERO, QUERY = ((Fraction(s), Fraction(q)) for s, q in ((1, 0), (-1, 0), (0, 1)))
RATIOS = (Fraction(1, 3), Fraction(2), Fraction(7, 2), Fraction(5))


def exact_errors(layer: AttentionLayer, bits: int) -> tuple[float, float]:
    """The largest |g(c) - (-1)^c| on c = 0..n ones, over the rationals: with exact read-out weights, and as they are.

    The softmax rows are those of the torch layer. They leave one read-out (theta, w) that is parity, which is solved
    for. A weight of the layer that is the float64 nearest to it counts as it; any other counts as it stands.
    """
    exact = RationalSoftmax(layer)
    rows = [exact.rows([ONE] * c + [ZERO] * (bits - c) + [QUERY]) for c in range(bits + 1)]
    own = {row: weights[0][0] for row, weights in exact.readout.items() if weights[0][0]}
    values = [[Fraction(1), *(found[row][1] / found[row][0] for row in own)] for found in rows]
    rounded = [exact.constant[0], *own.values()]
    wanted = _solved(values) if len(own) == bits else None
    meant = rounded if wanted is None else [w if float(w) == x else x for w, x in zip(wanted, rounded, strict=True)]
    exactly, as_stored = (
        max(
            abs(sum(w * f for w, f in zip(weights, at, strict=True)) - (-1) ** c)  # type: ignore[arg-type]
            for c, at in enumerate(values)
        )
        for weights in (meant, rounded)
    )
    return float(exactly), float(as_stored)


def exact_outputs(layer: AttentionLayer, bits: int) -> list[Fraction]:
    """g(c) over the rationals for c = 0..n ones, with the layer's weights as they are."""
    exact = RationalSoftmax(layer)
    return [exact([ONE] * c + [ZERO] * (bits - c) + [QUERY])[0] for c in range(bits + 1)]


def _solved(values: Sequence[Sequence[Fraction]]) -> list[Fraction] | None:
    """The x with values x = (1, -1, 1, ...); None if there is not exactly one."""
    n = len(values)
    matrix = flint.fmpq_mat(n, n, [flint.fmpq(v.numerator, v.denominator) for row in values for v in row])
    try:
        found = matrix.solve(flint.fmpq_mat(n, 1, [flint.fmpq(1 - 2 * (c % 2)) for c in range(n)]))
    except ZeroDivisionError:
        return None
    return [Fraction(int(x.p), int(x.q)) for x in found.entries()]


@dataclass(frozen=True)
class FloatRun:
    """error: the largest |g - (-1)^|x|| / G, G as in `Sizes`, infinite if a sign is wrong. bound: of it by rounding, of
    the weights too. margin: the least (-1)^|x| g. least: what the bound leaves of it on every input, where it holds."""

    error: float
    bound: float
    margin: float
    least: float


def float64_run(construction: ParityLayer, inputs: Tensor) -> FloatRun:
    """The torch layer on some inputs, (batch, n)."""
    signs = (-1.0) ** inputs.sum(1).double()
    out = construction(inputs)
    tokens = torch.tensor([[float(x) for x in token] for token in (ONE, ZERO, QUERY)], dtype=torch.float64)
    size = sizes(construction.layer, tokens, construction.bits + 1)
    bound = float(size.error) + 2.0**-52
    margin = float((signs * out).min())
    error = float((out - signs).abs().max() / size.output) if margin > 0 else math.inf
    return FloatRun(error, bound, margin, 1 - bound * float(size.output))


@dataclass(frozen=True)
class ExactRuns:
    """A layer over the rationals on all 2^n inputs: its outputs g and denominators d_1, ..., d_r."""

    outputs: tuple[Fraction, ...]
    denominators: tuple[tuple[Fraction, ...], ...]

    @property
    def terms(self) -> list[Fraction]:
        """D g for each x."""
        return [math.prod(d) * g for d, g in zip(self.denominators, self.outputs, strict=True)]

    @property
    def error(self) -> float:
        """|sum_x (-1)^|x| D g|; infinite if no sign is wrong."""
        signs = [(-1) ** sum(x) for x in product((0, 1), repeat=len(self.outputs).bit_length() - 1)]
        wrong = any(sign * g <= 0 for sign, g in zip(signs, self.outputs, strict=True))
        return float(abs(sum(sign * term for sign, term in zip(signs, self.terms, strict=True)))) if wrong else math.inf


def exact_runs(layer: AttentionLayer, bits: int, generator: torch.Generator) -> ExactRuns:
    """A layer on random integer tokens, one for each bit and value and one of the query: content anywhere."""
    exact = RationalSoftmax(layer)
    tokens = torch.randint(-1, 2, (2 * bits + 1, layer.embed_dim), generator=generator).tolist()
    *kinds, query = [tuple(map(Fraction, token)) for token in tokens]
    inputs: list[Rows] = [[*(kinds[2 * i + b] for i, b in enumerate(x)), query] for x in product((0, 1), repeat=bits)]
    denominators = [tuple(row[0] for row in exact.rows(x).values()) for x in inputs]
    return ExactRuns(tuple(exact(x)[0] for x in inputs), tuple(denominators))


def rational_layer(
    kind: Literal["mha", "global", "per_head"],
    heads: int,
    pseudo_heads: int,
    generator: torch.Generator,
    **options: int,
) -> MultiHeadAttention | InterleavedHeadAttention:
    """A layer with rational softmax weights on integer inputs of width 3: logarithms in queries, else 1, 2, -1, -2.

    Args:
        kind: "mha", or IHA's collapse, "global" or "per_head".
        heads: H.
        pseudo_heads: P of IHA.
        generator: of the weights.
        **options: of the layer, instead of widths 1 of values and output.
    """
    common: dict[str, Any] = {
        "head_dim": 1,
        "value_head_dim": 1,
        "out_dim": 1,
        "bias": True,
        "scale": 1.0,
        "dtype": torch.float64,
    }
    common |= options
    if kind == "mha":
        layer: MultiHeadAttention | InterleavedHeadAttention = MultiHeadAttention(3, heads, **common)
    else:
        layer = InterleavedHeadAttention(3, heads, num_pseudo_heads=pseudo_heads, collapse=kind, **common)
    logs = torch.tensor([math.log(r) for r in RATIOS], dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            size, sign = (torch.randint(0, 2, parameter.shape, generator=generator) for _ in range(2))
            parameter.copy_((1 + size) * (2 * sign - 1))
            if name.startswith("q_proj"):
                parameter.copy_(logs[torch.randint(0, len(logs), parameter.shape, generator=generator)])
    return layer
