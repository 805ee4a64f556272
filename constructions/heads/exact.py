"""Heads for the filter bank of a graph, exactly (docs/results.md T2). A task as `constructions.heads.count` has it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from math import lcm

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.checks.operators import MANY, PROBES, exact_gap, float64_gap, operations, require_blocks, settled
from constructions.checks.rows import Rows
from constructions.construction import Construction
from constructions.filter_bank import layers as filter_bank
from constructions.filter_bank import reduced
from constructions.filter_bank.layers import EXACT, LAYERS
from constructions.filter_bank.paper import powers
from constructions.filter_bank.reduced import ReducedBank
from constructions.filter_bank.tiled import tiling
from constructions.heads.count import Built, HeadCount, Verdict
from constructions.heads.large import powers_in_float64
from iha_theory import exact
from iha_theory.bounds.certificates import refusal
from iha_theory.bounds.exact_rank import ExactRank, power_rank
from iha_theory.bounds.heads import least_heads
from iha_theory.rounding import ceil_sqrt, gamma, largest_ratio
from synthetic.graphs import Graph
from synthetic.tasks.filter_bank import PolynomialBank, power_blocks

EXACT_NODES = MANY
"""Layers of larger graphs are read in float64 and tried on a few normal contents: to read the weights of all layers
exactly would take a minute. The rank and its certificate are exact for all."""
PRIME_NODES = 1000
"""Nodes times primes, beyond which layers whose weights float64 cannot hold are measured in float64, for the same
reason. Floats make many primes: the denominators of A^t are those of A to the power t."""


@dataclass(frozen=True)
class ExactTask:
    """[X, A X, ..., A^{k-1} X], exactly.

    Args:
        graph: A is its adjacency matrix, (N, N), as it is: fractions too, and floats as the numbers that they hold.
        terms: k.
        width: of the content, d.
    """

    graph: Graph
    terms: int
    width: int = 1
    tolerance: float = field(default=0.0, init=False)

    @cached_property
    def a(self) -> DomainMatrix:
        """A over the rationals."""
        return exact.matrix(self.graph.adjacency, QQ)

    @cached_property
    def blocks(self) -> list[DomainMatrix]:
        """A^t over the rationals, t < k: what the layers are compared with."""
        return list(power_blocks(self.a, self.terms))

    @cached_property
    def rank(self) -> ExactRank:
        """dim span{I, A, ..., A^{k-1}}, with a certificate."""
        whole = self.graph.adjacency.dtype.kind in "iu"
        return power_rank(self.graph.adjacency if whole else self.a, self.terms)

    @cached_property
    def refusal(self) -> str | None:
        """Why the certificate proves nothing; None if it proves the rank."""
        assert self.rank.certificate is not None
        return refusal(self.rank.certificate, self.graph.adjacency, self.terms)

    @cached_property
    def bank(self) -> ReducedBank:
        """A and the coefficients of its powers in the first r."""
        return reduced.reduce(self.a, self.terms, self.rank)

    @property
    def layers(self) -> tuple[str, ...]:
        """See `Task`. Not "iha-wide": with wide heads nothing is gained where the powers are exact."""
        return EXACT

    def count(self, layer: str) -> HeadCount:
        """See `Task`. Over the rationals, else modulo primes; large graphs and many primes in float64."""
        lower = least_heads(LAYERS[layer].kind, self.rank.rank)
        nodes = len(self.graph.nodes)
        found = None
        if not self._large:
            found = settled(partial(self._at, layer), self._primes, PRIME_NODES / nodes)
        if found is not None:
            construction, verdict = found[0], Verdict("exact", found[1], 0.0)
        else:
            construction = self._build(layer, rounded=True)
            verdict = self._in_float64(layer, construction)
        built = Built.of(construction)
        return HeadCount(layer, 0.0, lower, self.rank.certificate, built, verdict, self.refusal)

    def writable(self, layer: str) -> Construction:
        """See `Task`."""
        if self._large:
            return self._build(layer, rounded=True)
        try:
            return self._build(layer)
        except OverflowError:
            return self._build(layer, rounded=True)

    def judge(self, layer: str, construction: Construction) -> Verdict:
        """See `Task`. Exactly, unless the graph is large or float64 cannot hold the weights of such a layer."""
        require_blocks(construction, self.terms)
        if not self._large:
            error = exact_gap(construction, self.blocks)
            if error == 0 or self.writable(layer).error_bound is None:
                return Verdict("exact", error, 0.0)
        return self._in_float64(layer, construction)

    def _build(self, layer: str, bank: ReducedBank | None = None, *, rounded: bool = False) -> Construction:
        """The least heads; an output projection only where the powers are dependent, or where it saves maps."""
        heads = ceil_sqrt(self.terms)
        sizes = (-(-self.terms // heads), heads, heads)
        sides = [max(tile.side for tile in tiling(*sizes, projected=p)) for p in (False, True)]
        power = None
        if rounded:  # a large graph's powers are not kept: they take as much as an MHA's weights
            power = powers_in_float64(self._floats) if self._large else self._rounded_power
        if self.rank.rank < self.terms or (layer == "iha-tiled" and sides[1] < sides[0]):
            return reduced.bank(layer, bank or self.bank, self.width, rounded=rounded, power=power)
        if power is not None:
            made = filter_bank.bank(layer, power, self.terms, self.width)
            return replace(made, error_bound=gamma(3))
        return filter_bank.bank(layer, powers((bank or self.bank).matrix), self.terms, self.width)

    def _at(self, layer: str, prime: int | None) -> tuple[Construction, list[DomainMatrix]]:
        """The layer and its blocks, modulo a prime if one is given: both are polynomial in A and c."""
        if prime is None:
            return self._build(layer), self.blocks
        bank = self.bank.residues(prime)
        return self._build(layer, bank), list(power_blocks(bank.matrix, self.terms))

    def _primes(self) -> list[int]:
        """So many that what is 0 modulo all of them is 0.

        Let q be the common denominator of A's entries and g of c's. The construction has coefficients in the halves of
        integers, so 2 g q^t times the entries of sum_s c[t,s] A^s - A^t are integers, of sizes below
        2 g q^t (sum_s |c[t,s]| |A|^s + |A|^t) in the maximum row sum norm.
        """
        a, c = ([[abs(x) for x in row] for row in m.to_list()] for m in (self.bank.matrix, self.bank.coefficients))
        q, g = (lcm(*(int(x.denominator) for row in rows for x in row)) for rows in (a, c))
        norm = max(QQ(1), *(sum(row, QQ(0)) for row in a))
        sizes = [norm**t + sum((x * norm**s for s, x in enumerate(row)), QQ(0)) for t, row in enumerate(c)]
        largest = max(int(x.numerator) // int(x.denominator) + 1 for x in sizes)
        return list(exact.primes_beyond(2 * g * q**self.terms * largest, g * q))

    def _in_float64(self, layer: str, construction: Construction) -> Verdict:
        """Entry by entry against the exact powers, rounded.

        With F_s = |A^s| for MHA and F_{aH+b} = |A^{aH}| |A^b| for the others, the sizes of the addends behind an entry
        of block t add up to at most sum_s |c[t,s]| F_s, times 3 where tiles overlap (`OVERLAPPING` in
        `constructions.filter_bank.tiled`). Each is a product of at most three rounded weights and of the roundings of
        the layer's operations, and the target is rounded once: gamma_n bounds the error.
        """
        if self._large:
            return self._at_random(layer, construction)
        nodes, heads = len(self.graph.nodes), ceil_sqrt(self.bank.rank)
        sizes = [self._rounded_power(i).abs() for i in range(max(self.bank.rank, (heads - 1) * heads + 1))]
        products = [sizes[s - s % heads] @ sizes[s % heads] for s in range(self.bank.rank)]
        factors = sizes if layer == "mha" else products
        c = exact.nearest_float64(self.bank.coefficients).abs() * (3 if layer == "iha-tiled" else 1)
        majorants = torch.einsum("ts,sij->tij", c, torch.stack(factors[: self.bank.rank]))
        error = float64_gap(construction, self._rounded_blocks, majorants.numpy(), also_as_self_attention=False)
        return Verdict("float64", error, gamma(operations(construction, nodes) + 4))

    @cached_property
    def _rounded_blocks(self) -> np.ndarray:
        return np.stack([exact.nearest_float64(block).numpy() for block in self.blocks])

    @cached_property
    def _rounded_power(self) -> Callable[[int], torch.Tensor]:
        """i -> A^i, exact and then rounded; each once."""
        power = powers(self.a)
        return cache(lambda i: exact.nearest_float64(power(i)))  # type: ignore[arg-type]

    @property
    def _large(self) -> bool:
        return len(self.graph.nodes) > EXACT_NODES

    @property
    def _floats(self) -> torch.Tensor:
        return torch.from_numpy(self.graph.adjacency.astype(np.float64))

    def _at_random(self, layer: str, construction: Construction) -> Verdict:
        """A large graph's layer on a few normal contents, read from its weights (`constructions.checks.rows`).

        Entry by entry relative to sum_s |c[t,s]| |A|^s |X|, times 3 as in `_in_float64`. With w entries in a row of A,
        a power A^s has an error of gamma_{s (w + 1)} relative to |A|^s, which weights, target and majorant have each.
        What `PROBES` contents may overlook: `constructions.checks.operators.float64_operator_gap`.
        """
        read = Rows(construction)
        nodes, a = len(self.graph.nodes), self.graph.adjacency
        steps = 3 * (self.terms - 1) * (int((a != 0).sum(1).max()) + 1)
        bound = gamma(operations(construction, nodes) + 4 + steps)
        if not read.runs:
            return Verdict("float64", math.inf, bound)
        x = np.random.default_rng(0).standard_normal((nodes, PROBES * self.width))
        target, sizes = (
            self._side_by_side(PolynomialBank(graph, self.terms).target(own))
            for graph, own in ((self.graph, x), (replace(self.graph, adjacency=abs(a)), abs(x)))
        )
        if self.rank.rank < self.terms:
            c = exact.nearest_float64(self.bank.coefficients).abs()
            kept = sizes.unflatten(2, (self.terms, self.width))[:, :, : self.rank.rank]
            sizes = torch.einsum("ts,bnsd->bntd", c, kept).flatten(2)
        sizes = sizes * (3 if layer == "iha-tiled" else 1)
        contents = torch.from_numpy(x).unflatten(1, (PROBES, -1)).transpose(0, 1)
        return Verdict("float64", largest_ratio(read.apply(contents) - target, sizes), bound)

    def _side_by_side(self, blocks: np.ndarray) -> torch.Tensor:
        """The blocks of `PROBES` contents that were side by side, (N, k s d), as (s, N, k d)."""
        return torch.from_numpy(blocks).unflatten(1, (self.terms, PROBES, -1)).permute(2, 0, 1, 3).flatten(2)
