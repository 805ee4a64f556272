"""Heads for the filter bank of a graph within a relative error (docs/results.md T4).

A task as `constructions.heads.count` has it, and what the tasks of one graph share.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from sympy import QQ
from torch import Tensor

from constructions.checks.operators import frobenius_error
from constructions.construction import Construction
from constructions.filter_bank import approximate, product_fit
from constructions.filter_bank.product_fit import Products
from constructions.heads.count import KINDS, LAYERS, HeadCount, Verdict
from iha_theory import exact
from iha_theory.bounds.heads import least_heads, least_rank, spectrum, unit_norm
from iha_theory.operators.numerical import EPS
from iha_theory.rounding import ceil_sqrt
from synthetic.graphs import Graph
from synthetic.tasks.filter_bank import power_blocks


def unit_powers(graph: Graph, a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """A^t over its Frobenius norm, t < k; 0 where A^t is.

    Integers of both signs are multiplied exactly where float64 can hold the powers: rounding would leave something of
    a power that cancels to 0, and scaling would make it large.

    Args:
        graph: A is its adjacency matrix.
        a: A in float64.
        terms: k.
    """
    if graph.adjacency.dtype.kind in "iO" and (graph.adjacency < 0).any():
        try:
            powers = power_blocks(exact.matrix(graph.adjacency, QQ), terms)
            return unit_norm(torch.stack([exact.nearest_float64(power) for power in powers]))
        except OverflowError:
            pass
    return approximate.unit_powers(a, terms)


def power_products(bank: Float[Tensor, "k N N"], heads: int) -> Products:
    """A^{aH} A^b for A^{aH+b}, where H^2 >= k: the paper's, up to scale.

    `product_fit` has them among its polynomials, but its Chebyshev coordinates tell powers of a very asymmetric A badly
    apart.
    """
    terms, tokens = bank.shape[:2]
    outer, inner = bank.new_zeros(2, heads, tokens, tokens)
    coefficients = bank.new_zeros(heads, heads, terms)
    outer[: -(-terms // heads)], inner[: min(heads, terms)] = bank[::heads], bank[:heads]
    squares = 0.0
    for t, target in enumerate(bank):
        a, b = divmod(t, heads)
        product = outer[a] @ inner[b]
        square = float(product.square().sum())
        coefficients[a, b, t] = float((product * target).sum()) / square if square else 0.0
        squares += float((coefficients[a, b, t] * product - target).square().sum())
    return Products(outer, inner, coefficients, math.sqrt(squares / float(bank.square().sum())))


class UnitPowers:
    """The powers of A, scaled to Frobenius norm 1, with what was fitted to them so far.

    Args:
        graph: A is its adjacency matrix, (N, N), normalised as one likes.
        terms: k.
        width: of the content, d.
    """

    def __init__(self, graph: Graph, terms: int, width: int = 1) -> None:
        self.graph, self.terms, self.width = graph, terms, width
        self.a = torch.tensor(graph.adjacency.astype(np.float64))
        self.bank = unit_powers(graph, self.a, terms)
        self.values = spectrum(self.bank)
        self._fits: dict[int, Products] = {}
        self._measured: dict[tuple[str, int, float], tuple[Construction, float]] = {}

    def within(self, layer: str, rank: int, tolerance: float) -> tuple[Construction, float]:
        """A construction for the tolerance, where R is the least capacity for it, and its measured error."""
        heads = rank if layer == "mha" else ceil_sqrt(rank)
        products = None if layer in ("mha", "iha-wide") else self._fit(heads, tolerance)
        key = (layer, heads, 0.0) if products is None else (layer, len(products.outer), products.error)
        if key not in self._measured:
            construction = self._build(layer, heads, products)
            self._measured[key] = construction, frobenius_error(construction, self.bank)
        return self._measured[key]

    def _fit(self, heads: int, tolerance: float) -> Products:
        """Products of polynomials of A, by the fewest heads from `heads` on that meet the tolerance."""
        while True:
            if heads not in self._fits or self._fits[heads].error > tolerance:
                self._fits[heads] = product_fit.fit(self.a, self.bank, heads, tolerance)
            if self._fits[heads].error > tolerance and heads**2 >= self.terms:
                self._fits[heads] = power_products(self.bank, heads)
                return self._fits[heads]
            if self._fits[heads].error <= tolerance:
                return self._fits[heads]
            heads += 1

    def _build(self, layer: str, heads: int, products: Products | None) -> Construction:
        if products is None:
            build = approximate.truncated_mha if layer == "mha" else approximate.wide_iha
            return build(self.bank, heads, self.width)
        if layer == "mha-two-layer":
            return approximate.product_two_layers(products, self.bank, self.width)
        return approximate.product_iha(products, self.bank, self.width, layer=layer)


@dataclass(frozen=True)
class ApproximateTask:
    """[c_0 X, c_1 A X, ..., c_{k-1} A^{k-1} X] within a relative error, c_t A^t of Frobenius norm 1.

    Args:
        powers: A and k.
        tolerance: |L - T|_F / |T|_F of the operators, in (0, 1).
    """

    powers: UnitPowers
    tolerance: float

    @cached_property
    def least_rank(self) -> int:
        """R, the least capacity whose error floor meets the tolerance."""
        return least_rank(self.powers.values, self.tolerance)

    @property
    def terms(self) -> int:
        """See `Task`."""
        return self.powers.terms

    @property
    def layers(self) -> tuple[str, ...]:
        """See `Task`."""
        return LAYERS

    def count(self, layer: str) -> HeadCount:
        """See `Task`."""
        construction, error = self.powers.within(layer, self.least_rank, self.tolerance)
        lower = least_heads(KINDS[layer], self.least_rank)
        return HeadCount(layer, self.tolerance, lower, None, construction, self._verdict(error))

    def writable(self, layer: str) -> Construction:
        """See `Task`."""
        return self.powers.within(layer, self.least_rank, self.tolerance)[0]

    def judge(self, layer: str, construction: Construction) -> Verdict:
        """See `Task`."""
        return self._verdict(frobenius_error(construction, self.powers.bank))

    def _verdict(self, error: float) -> Verdict:
        """Rounding is allowed k N EPS on top of the tolerance."""
        return Verdict("float64", error, self.tolerance + self.powers.bank[:, 0].numel() * EPS)
