"""Heads for the filter bank of a graph within a relative error (docs/results.md T4).

A task as `constructions.head_counts` has it, and what the tasks of one graph share.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from constructions import approximate, product_fit
from constructions.construction import Construction
from constructions.head_counts import KINDS, LAYERS, HeadCount, Verdict
from constructions.measure import relative_error
from iha_theory.bounds import least_heads, least_rank, spectrum
from iha_theory.costs import ceil_sqrt
from iha_theory.operators import EPS
from synthetic.graphs import Graph


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
        self.bank = approximate.unit_powers(self.a, terms)
        self.values = spectrum(self.bank)
        self._fits: dict[int, product_fit.Products] = {}
        self._measured: dict[tuple[str, int, float], tuple[Construction, float]] = {}

    def within(self, layer: str, rank: int, tolerance: float) -> tuple[Construction, float]:
        """A construction for the tolerance, where R is the least capacity for it, and its measured error."""
        heads = rank if layer == "mha" else ceil_sqrt(rank)
        products = None if layer in ("mha", "iha-wide") else self._fit(heads, tolerance)
        key = (layer, heads, 0.0) if products is None else (layer, len(products.outer), products.error)
        if key not in self._measured:
            construction = self._build(layer, heads, products)
            self._measured[key] = construction, relative_error(construction, self.bank)
        return self._measured[key]

    def _fit(self, heads: int, tolerance: float) -> product_fit.Products:
        """Products of polynomials of A, by the fewest heads from `heads` on that meet the tolerance."""
        while True:
            if heads not in self._fits or self._fits[heads].error > tolerance:
                self._fits[heads] = product_fit.fit(self.a, self.bank, heads, tolerance)
            if self._fits[heads].error <= tolerance or heads**2 >= self.terms:
                return self._fits[heads]
            heads += 1

    def _build(self, layer: str, heads: int, products: product_fit.Products | None) -> Construction:
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
        return self._verdict(relative_error(construction, self.powers.bank))

    def _verdict(self, error: float) -> Verdict:
        """Rounding is allowed k N EPS on top of the tolerance."""
        return Verdict("float64", error, self.tolerance + self.powers.bank[:, 0].numel() * EPS)
