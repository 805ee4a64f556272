"""How many heads the filter bank of a graph needs, beside layers that have them (docs/results.md T2, T4, T6, T7).

A `HeadCount` sets a lower bound beside the heads of weights that were loaded into a layer and measured. A `Task` makes
them, and measures any other layer, one from a file for instance, by the same rule:

- `constructions.heads.exact`, tolerance 0: the bound is the exact rank, with a verified certificate;
- `constructions.heads.approximate`: the bound is the least capacity whose error floor meets the tolerance, numerically.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from constructions.checks.result import Tier
from constructions.construction import Construction
from iha_theory.bounds.certificates import Certificate


@dataclass(frozen=True)
class Verdict:
    """A measured error, the bound that it has to meet, and how it was measured: "exact" or "float64"."""

    tier: Tier
    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the error meets the bound; NaN does not."""
        return self.error <= self.bound


@dataclass(frozen=True)
class Built:
    """The sizes of a layer that was measured, counted; its weights take gigabytes where the graph is large."""

    heads: int
    pseudo_heads: int
    attention_maps: int
    parameters: int

    @classmethod
    def of(cls, construction: Construction) -> "Built":
        """A construction's."""
        maps = construction.layer.attention_maps
        return cls(construction.heads, construction.pseudo_heads, maps, construction.parameters)


@dataclass(frozen=True)
class HeadCount:
    """Heads that a layer needs at least, and heads that do it.

    Attributes:
        layer: of `constructions.filter_bank.layers.LAYERS`.
        tolerance: relative error allowed; 0 for exact.
        lower: heads needed, by theorem.
        certificate: of the rank behind `lower`; None above tolerance 0, where that is numerical.
        refusal: why the certificate proves nothing, by `iha_theory.bounds.certificates`; None if it proves its claim.
        built: the sizes of the layer that was measured.
        verdict: what came out. At tolerance 0 the error is the largest of an entry (in float64 relative to the sizes
            of its addends), else that of the operator relative to the target's norm.
    """

    layer: str
    tolerance: float
    lower: int
    certificate: Certificate | None
    built: Built
    verdict: Verdict
    refusal: str | None = None

    @property
    def failure(self) -> str | None:
        """What does not hold: the certificate or the construction; None if both do."""
        if self.refusal is not None:
            return f"the certificate proves nothing: {self.refusal}"
        return None if self.verdict.holds else f"error {self.verdict.error:.3g}, bound {self.verdict.bound:.3g}"

    @property
    def achieved(self) -> int | None:
        """The heads of the layer, if it does what it should."""
        return self.built.heads if self.verdict.holds else None

    def to_json(self) -> dict[str, Any]:
        """The fields of `iha-theory heads --json`."""
        error = self.verdict.error
        return {
            "layer": self.layer,
            "tolerance": self.tolerance,
            "lower": self.lower,
            "achieved": self.achieved,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
            "certificate_verified": None if self.certificate is None else self.refusal is None,
            "pseudo_heads": self.built.pseudo_heads,
            "attention_maps": self.built.attention_maps,
            "parameters": self.built.parameters,
            "error": error if np.isfinite(error) else None,
            "bound": self.verdict.bound,
            "tier": self.verdict.tier,
        }


@runtime_checkable
class Task(Protocol):
    """What layers are for: a target, and what counts as reaching it."""

    @property
    def tolerance(self) -> float:
        """Relative error allowed; 0 for exact."""
        ...

    @property
    def terms(self) -> int:
        """k."""
        ...

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that it can count."""
        ...

    def count(self, layer: str) -> HeadCount:
        """The row of a layer."""
        ...

    def writable(self, layer: str) -> Construction:
        """The row's construction with float64 weights, whether or not they had to be rounded."""
        ...

    def judge(self, layer: str, construction: Construction) -> Verdict:
        """Measures any construction for this target, by the rule for this layer.

        Raises:
            ValueError: a layer that is not position-only or holds NaN, or a readout of another form.
        """
        ...
