"""The entry of two layers of MHA. Imports no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from iha_theory.attention.kinds.base import LayerOptions


@dataclass(frozen=True)
class TwoLayer(LayerOptions):
    """Two layers of MHA; the second keeps all heads of the first apart."""

    layer: ClassVar[str] = "TwoLayerAttention"
    skips: ClassVar[bool] = False
    affine_maps: ClassVar[bool] = False

    def arguments(self, content: int) -> dict[str, Any]:
        """d for a head of the first layer, so H d for one of the second."""
        return {"first": {"value_head_dim": content}, "second": {"value_head_dim": content * self.heads}}
