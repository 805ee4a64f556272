"""The entries of layers with gates. Imports no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.options import option


@dataclass(frozen=True)
class Gated(LayerOptions):
    """A gate on each value coordinate, and so a map for each."""

    layer: ClassVar[str] = "GatedAttention"
    affine_maps: ClassVar[bool] = False

    value_dim: int = option(4, "width d_v of a head's values: its capacity is H d_v", 1)

    def arguments(self, content: int) -> dict[str, Any]:
        """d_v, whatever the content's width."""
        return {"value_head_dim": self.value_dim}

    def bound(self) -> dict[str, Any]:
        """d_v."""
        return {"value_dim": self.value_dim}


@dataclass(frozen=True)
class GatedHeadwise(LayerOptions):
    """A gate on each head."""

    layer: ClassVar[str] = "GatedAttention"
    affine_maps: ClassVar[bool] = False

    def arguments(self, content: int) -> dict[str, Any]:
        """As MHA's."""
        return {"value_head_dim": content, "gate": "headwise"}
