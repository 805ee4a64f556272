"""What a check found: a construction's error against an independent answer, at a tier of equality.

A check compares *operators*. A position-only layer is one linear map of the content X (`iha_theory.operators.weights`),
so equal operators are equal outputs for every X, where a test on samples would speak of the samples only.

Tiers: "exact" reads the weights out of the torch layer and computes over the rationals or modulo primes, where equal is
== and the error is 0. "float64" runs the torch layer, and must meet a bound on rounding that follows from sizes alone.
NaN never passes, shapes never broadcast, and comparing nothing is an error (`constructions.checks.operators`).
"""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from constructions.construction import Counted

Tier = Literal["exact", "float64"]


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What was checked and what came out.

    id: unique. claim: the statement, in words. layer: "mha" or "iha". heads, pseudo_heads, parameters: of the layer,
    counted. tier: how equality is meant. error: measured; infinite where the layer could not be evaluated. bound: what
    the error had to meet. setting: the case, as data. compared: how. claimed_heads: what the claim says, by its own
    definition and not by the construction (`heads_by_claim`).
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
    claimed_heads: int

    @classmethod
    def of(cls, construction: Counted, name: str, layer: str, tier: Tier, **fields: Any) -> "CheckResult":
        """The result name/layer/tier of a check of a construction, which is counted here, and the other fields."""
        return cls(
            id=f"{name}/{layer}/{tier}",
            layer=layer,
            tier=tier,
            heads=construction.heads,
            pseudo_heads=construction.pseudo_heads,
            parameters=construction.parameters,
            **fields,
        )

    @property
    def holds(self) -> bool:
        """Whether the error is a number that meets the bound, and the layer has as many heads as the claim says."""
        return self.heads == self.claimed_heads and not math.isnan(self.error) and self.error <= self.bound

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


def least_root(n: int, power: int = 2) -> int:
    """The least H with H^power >= n: what the claims say, by its definition."""
    return next(h for h in range(n + 1) if h**power >= n)


def heads_by_claim(layer: str, terms: int) -> int:
    """What most claims say: k heads of MHA, and the least H with H^2 >= k of any other layer."""
    return terms if layer == "mha" else least_root(terms)
