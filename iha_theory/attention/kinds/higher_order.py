"""The entries of layers whose query attends to pairs of keys. Imports no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.options import option


@dataclass(frozen=True)
class Simplicial(LayerOptions):
    """2-simplicial attention: a map for each value coordinate."""

    layer: ClassVar[str] = "TwoSimplicialAttention"
    skips: ClassVar[bool] = False

    value_dim: int = option(4, "width d_v of a head's values: the capacity is H d_v", 1)

    def arguments(self, content: int) -> dict[str, Any]:
        """d_v, whatever the content's width."""
        return {"value_head_dim": self.value_dim}

    def numbers(self, tokens: int) -> int:
        """With maps of N^3."""
        return super().numbers(tokens) + self.heads * (tokens**3 + self.value_dim)

    def bound(self) -> dict[str, Any]:
        """d_v."""
        return {"value_dim": self.value_dim}


@dataclass(frozen=True)
class Strassen(Simplicial):
    """Strassen attention: a map for each value coordinate."""

    layer: ClassVar[str] = "StrassenAttention"
