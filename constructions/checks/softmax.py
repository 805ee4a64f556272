"""Softmax attention in exact arithmetic, where every weight of the softmax is rational.

`RationalSoftmax` reads a torch layer. A parameter behind the logits that is the float64 nearest to log(p/q), p and q at
most `LARGEST`, is taken as that logarithm; every other parameter as the dyadic rational that it is. Then a logit is
a + sum_i c_i log(r_i), and its exponential is the rational prod_i r_i^{c_i} where a = 0 and the c_i are integers.
Layers with other logits are refused. So nothing is rounded: equal is ==, and a sign is certain.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer

LARGEST = 4096
"""Numerators and denominators of the rationals whose logarithms are recognised."""

Rows = Sequence[Sequence[Fraction]]


@dataclass(frozen=True)
class Logit:
    """rational + sum_i c_i log(r_i), logs as pairs (r_i, c_i) with different r_i and c_i other than 0."""

    rational: Fraction = Fraction(0)
    logs: tuple[tuple[Fraction, Fraction], ...] = ()

    def __add__(self, other: "Logit") -> "Logit":
        total = dict(self.logs)
        for r, c in other.logs:
            total[r] = total.get(r, Fraction(0)) + c
        logs = tuple(sorted((r, c) for r, c in total.items() if c))
        return Logit(self.rational + other.rational, logs)

    def __mul__(self, other: "Logit") -> "Logit":
        if self.logs and other.logs:
            raise ValueError("a logit has a product of two logarithms: its exponential is not rational")
        own, factor = (self, other.rational) if self.logs else (other, self.rational)
        return Logit(own.rational * factor, tuple((r, c * factor) for r, c in own.logs) if factor else ())

    def exponential(self) -> Fraction:
        """e to this, exactly.

        Raises:
            ValueError: it is not rational.
        """
        if self.rational or any(c.denominator != 1 for _, c in self.logs):
            raise ValueError("a logit is no sum of logarithms of rationals: its exponential is not rational")
        return math.prod((r ** int(c) for r, c in self.logs), start=Fraction(1))


@cache
def logit_number(x: float) -> Logit:
    """A parameter behind the logits: a logarithm where it is the nearest float64 to one, else itself."""
    if x and abs(x) <= math.log(LARGEST):
        r = Fraction(math.exp(x)).limit_denominator(LARGEST)
        if 0 < r.numerator <= LARGEST and math.log(r) == x:
            return Logit(logs=((r, Fraction(1)),))
    return Logit(Fraction(x))


class RationalSoftmax:
    """A layer of softmax attention as a function on rational inputs, run at one query token.

    Attributes:
        readout: by row, as in `rows`, the weights (out_dim, d_v) of its s / d in the output. constant: the biases.

    Args:
        layer: a `MultiHeadAttention` or an `InterleavedHeadAttention` in float64, without a mask.

    Raises:
        ValueError: another kind of layer, pattern or dtype, rotary positions or a window.
    """

    def __init__(self, layer: AttentionLayer) -> None:
        if not isinstance(layer, MultiHeadAttention | InterleavedHeadAttention):
            raise ValueError(f"cannot run a {type(layer).__name__} exactly: accepted are MHA and IHA of this project")
        if layer.pattern != "softmax" or layer.rotary or layer.window:
            raise ValueError("exact runs are for softmax without rotary positions or a window")
        self.heads, self.pseudo = layer.num_heads, getattr(layer, "num_pseudo_heads", 1)
        self.scale = logit_number(layer.scale)
        self._q, self._k, self._v = (_table(p, self.heads) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
        heads, pseudo = range(self.heads), range(self.pseudo)
        if isinstance(layer, InterleavedHeadAttention):
            self._alpha = [_floats(a) for a in (layer.alpha_q, layer.alpha_k, layer.alpha_v)]
            collapse = _floats(layer.collapse)
            per_head = layer.collapse_kind == "per_head"
            mix = {
                (o, h, j): Fraction(collapse[h][j] if per_head else collapse[o][h][j])
                for o in heads
                for h in heads
                for j in pseudo
                if not per_head or o == h
            }
        else:
            self._alpha = [[[[float(m == h)] for h in heads] for m in heads]] * 3
            mix = {(h, h, 0): Fraction(1) for h in heads}
        width = len(self._v[0])
        columns = self.heads * width
        out = (
            _table(layer.out_proj, 1)[0]
            if layer.out_proj
            else [[float(i == j) for j in range(columns)] + [0.0] for i in range(columns)]
        )
        self.constant = [Fraction(row[-1]) for row in out]
        self.readout = {
            (h, j): [
                [
                    sum((mix.get((o, h, j), Fraction(0)) * Fraction(row[o * width + d]) for o in heads), Fraction(0))
                    for d in range(width)
                ]
                for row in out
            ]
            for h in heads
            for j in pseudo
        }
        self._terms: dict[Any, dict[tuple[int, int], list[Fraction]]] = {}

    def __call__(self, tokens: Rows, query: int = -1) -> list[Fraction]:
        """The output at a token, from inputs (tokens, embed_dim), as self-attention: constant + sum readout s / d."""
        total = list(self.constant)
        for row, (d, *s) in self.rows(tokens, query).items():
            for i, weights in enumerate(self.readout[row]):
                total[i] += sum((w * x for w, x in zip(weights, s, strict=True)), Fraction(0)) / d
        return total

    def rows(self, tokens: Rows, query: int = -1) -> dict[tuple[int, int], list[Fraction]]:
        """By head and pseudo-query the softmax row s / d at a token: [d, s_1, ..., s_{d_v}]."""
        number = Counter((*token, Fraction(1)) for token in tokens)  # equal tokens have equal keys and values
        at = (*tokens[query], Fraction(1))
        terms = [(n, self._term(at, kind)) for kind, n in number.items()]
        return {
            row: [sum((n * term[row][i] for n, term in terms), Fraction(0)) for i in range(len(first))]
            for row, first in terms[0][1].items()
        }

    def _term(self, at: tuple[Fraction, ...], token: tuple[Fraction, ...]) -> dict[tuple[int, int], list[Fraction]]:
        """What a token adds to each of the rows at a query token; both with a 1 for the biases at the end."""
        if (at, token) not in self._terms:
            found = self._terms[at, token] = {}
            for h, j in self.readout:
                q = self._mixed(self._q, self._alpha[0], h, j, at)
                found[h, j] = [Fraction(0)] * (1 + len(self._v[0]))
                for i in range(self.pseudo):
                    score = Logit()
                    for a, b in zip(q, self._mixed(self._k, self._alpha[1], h, i, token), strict=True):
                        score = score + a * b
                    weight = (score * self.scale).exponential()
                    for d, value in enumerate((Fraction(1), *self._values(h, i, token))):
                        found[h, j][d] += weight * value
        return self._terms[at, token]

    def _mixed(self, table: list[Any], alpha: list[Any], h: int, j: int, token: tuple[Fraction, ...]) -> list[Logit]:
        """The pseudo-query or -key j of head h at a token, one `Logit` for each coordinate."""
        found = [Logit() for _ in table[0]]
        for m in range(self.heads):
            if alpha[m][h][j]:
                factor = logit_number(alpha[m][h][j])
                for d, row in enumerate(table[m]):
                    for w, x in zip(row, token, strict=True):
                        if w and x:
                            found[d] = found[d] + factor * (logit_number(w) * Logit(x))
        return found

    def _values(self, h: int, j: int, token: tuple[Fraction, ...]) -> list[Fraction]:
        found = [Fraction(0)] * len(self._v[0])
        for m in range(self.heads):
            if factor := Fraction(self._alpha[2][m][h][j]):
                for d, row in enumerate(self._v[m]):
                    found[d] += factor * sum((Fraction(w) * x for w, x in zip(row, token, strict=True)), Fraction(0))
        return found


def _floats(parameter: Tensor) -> list[Any]:
    """A parameter as nested lists of floats.

    Raises:
        ValueError: another dtype than float64, NaN or infinity.
    """
    if str(parameter.dtype) != "torch.float64" or not bool(parameter.isfinite().all()):
        raise ValueError("exact runs need finite float64 weights")
    return parameter.detach().cpu().tolist()


def _table(linear: nn.Linear, heads: int) -> list[Any]:
    """A projection's rows by head, each with its bias at the end: [head][coordinate][input and 1]."""
    bias = torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias
    return _floats(torch.cat((linear.weight, bias[:, None]), dim=1).unflatten(0, (heads, -1)))
