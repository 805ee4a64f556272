"""Heads for the filter bank of a graph within a relative error (docs/results.md T4).

A task as `constructions.heads.count` has it.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from constructions.checks.operators import MANY, frobenius_error
from constructions.checks.oracles import powers as oracle
from constructions.checks.rows import Target, frobenius_error_in_rows
from constructions.construction import Construction
from constructions.filter_bank.approximate import UnitPowers
from constructions.filter_bank.layers import LAYERS
from constructions.heads.count import Built, HeadCount, Verdict
from constructions.heads.large import LargePowers
from iha_theory.bounds.heads import least_heads
from iha_theory.operators.numerical import EPS
from synthetic.graphs import Graph

FAR = 300
"""Powers of two from 1 beyond which squares of sums may leave float64's range."""


def unit_powers(graph: Graph, terms: int, width: int = 1) -> UnitPowers:
    """The powers of a graph's adjacency matrix, which is normalised as one likes: see `UnitPowers`.

    Raises:
        ValueError: as `UnitPowers`; weights that float64 does not hold once the largest is brought near 1.
    """
    a = torch.from_numpy(near_one(graph.adjacency.astype(np.float64)))
    return (UnitPowers if _whole(a) else LargePowers)(a, terms, width)


def near_one(a: Float[np.ndarray, "N N"]) -> Float[np.ndarray, "N N"]:
    """A, or where its largest entry is outside 2^-300 .. 2^300, A times a power of two: the same up to scale, exactly.

    Raises:
        ValueError: it would not be exact.
    """
    exponent = int(np.frexp(np.abs(a).max())[1])
    if abs(exponent) <= FAR:
        return a
    scaled = np.ldexp(a, -exponent)
    if not np.array_equal(np.ldexp(scaled, exponent), a):
        raise ValueError("weights are too far apart for float64: accepted are weights within a factor of 1e300")
    return scaled


def _whole(a: Float[Tensor, "N N"]) -> bool:
    """Whether all powers are held at once: of few nodes; and of integers of both signs, whose powers are exact."""
    return len(a) <= MANY or (bool((a < 0).any()) and torch.equal(a, a.round()))


@dataclass(frozen=True)
class ApproximateTask:
    """[c_0 X, c_1 A X, ..., c_{k-1} A^{k-1} X] within a relative error, c_t A^t of Frobenius norm 1.

    Args:
        powers: A and k.
        tolerance: |L - T|_F / |T|_F of the operators, in (0, 1).
        measured: rows of the same powers; what is counted is added.
    """

    powers: UnitPowers
    tolerance: float
    measured: list[HeadCount] = field(default_factory=list, compare=False)

    @property
    def terms(self) -> int:
        """See `Task`."""
        return self.powers.terms

    @cached_property
    def target(self) -> Float[Tensor, "k N N"] | Target:
        """The powers, multiplied anew: the construction's own would be as wrong as it is."""
        return (
            self.powers.target
            if isinstance(self.powers, LargePowers)
            else oracle.unit_powers(self.powers.a, self.terms)
        )

    @property
    def layers(self) -> tuple[str, ...]:
        """See `Task`."""
        return tuple(LAYERS)

    def count(self, layer: str) -> HeadCount:
        """See `Task`. A layer that was measured serves again where its error is allowed and no fewer heads do."""
        lower = least_heads(LAYERS[layer].kind, self.powers.least_rank(self.tolerance))
        for row in self.measured:
            if row.layer == layer and row.built.heads == lower and row.verdict.error <= self._bound:
                return replace(row, tolerance=self.tolerance, lower=lower, verdict=self._verdict(row.verdict.error))
        construction = self.writable(layer)
        verdict = self.judge(layer, construction)
        self.measured.append(HeadCount(layer, self.tolerance, lower, None, Built.of(construction), verdict))
        return self.measured[-1]

    def writable(self, layer: str) -> Construction:
        """See `Task`."""
        return self.powers.within(layer, self.tolerance)

    def judge(self, layer: str, construction: Construction) -> Verdict:
        """See `Task`. Rounding is allowed k N EPS on top of the tolerance."""
        target = self.target
        if isinstance(target, Target):
            error = frobenius_error_in_rows(construction, target)
        else:
            error = frobenius_error(construction, target)
        return self._verdict(error)

    def _verdict(self, error: float) -> Verdict:
        return Verdict("float64", error, self._bound)

    @property
    def _bound(self) -> float:
        return self.tolerance + self.terms * len(self.powers.a) * EPS
