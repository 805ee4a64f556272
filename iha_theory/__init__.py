"""The theory: what an attention layer is, what it can do, what it costs.

- `attention`: the layers, one call convention, one definition of a pattern.
- `operators`: any module as a linear map of content, its realignment and rank; weights of position-only layers.
- `capacity`: the largest rank of each kind of attention, proved and measured.
- `bounds`: lower bounds on heads, exactly or within an error, with content in the queries too; certificates.
- `costs`: parameters and FLOPs, as formulas and counted; where IHA needs fewer than MHA.
- `exact`: exact matrices over the rationals and modulo primes. `rounding`: sizes and rounding.
- `blueprint`: the graph of the theory, as annotations beside the code.
- `processes`, `places`, `memory`: calls in other processes; where output goes; sizes that do not fit.
- `cli`: the command line.

What users need first can be imported from here; it is loaded when it is used. Imports nothing from `synthetic`,
`constructions` or `figures`.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

__version__ = version("iha-theory")

if TYPE_CHECKING:
    from iha_theory.attention import (
        DifferentialAttention,
        GroupedQueryAttention,
        InterleavedHeadAttention,
        MultiHeadAttention,
        TalkingHeadsAttention,
        TwoLayerAttention,
        TwoSimplicialAttention,
    )
    from iha_theory.bounds.certificates import Certificate, bank_refusal, refusal, verify
    from iha_theory.bounds.content import content_floor, limit_heads
    from iha_theory.bounds.exact_rank import bank_rank, power_rank
    from iha_theory.bounds.heads import error_floor, least_heads, least_rank, spectrum, unit_norm
    from iha_theory.bounds.witness import witness
    from iha_theory.capacity import capacity_bound, measure_module

_PLACES = {
    "iha_theory.attention": (
        "DifferentialAttention",
        "GroupedQueryAttention",
        "InterleavedHeadAttention",
        "MultiHeadAttention",
        "TalkingHeadsAttention",
        "TwoLayerAttention",
        "TwoSimplicialAttention",
    ),
    "iha_theory.bounds.certificates": ("Certificate", "bank_refusal", "refusal", "verify"),
    "iha_theory.bounds.content": ("content_floor", "limit_heads"),
    "iha_theory.bounds.exact_rank": ("bank_rank", "power_rank"),
    "iha_theory.bounds.heads": ("error_floor", "least_heads", "least_rank", "spectrum", "unit_norm"),
    "iha_theory.bounds.witness": ("witness",),
    "iha_theory.capacity": ("capacity_bound", "measure_module"),
}
_PLACE = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Certificate",
    "DifferentialAttention",
    "GroupedQueryAttention",
    "InterleavedHeadAttention",
    "MultiHeadAttention",
    "TalkingHeadsAttention",
    "TwoLayerAttention",
    "TwoSimplicialAttention",
    "__version__",
    "bank_rank",
    "bank_refusal",
    "capacity_bound",
    "content_floor",
    "error_floor",
    "least_heads",
    "least_rank",
    "limit_heads",
    "measure_module",
    "power_rank",
    "refusal",
    "spectrum",
    "unit_norm",
    "verify",
    "witness",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
