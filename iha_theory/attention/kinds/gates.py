"""The entries of layers with gates. Imports no torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.options import option

if TYPE_CHECKING:
    from torch import nn


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


@dataclass(frozen=True)
class GatedLinear(LayerOptions):
    """Linear attention whose weights decay, whatever the task's pattern."""

    layer: ClassVar[str] = "GatedLinearAttention"
    skips: ClassVar[bool] = False

    def make(self, query: int, key: int, value: int, **given: Any) -> "nn.Module":
        """As other layers, with the linear pattern."""
        linear: dict[str, Any] = given | {"pattern": "linear"}
        return super().make(query, key, value, **linear)


@dataclass(frozen=True)
class Forgetting(LayerOptions):
    """Attention whose weights decay, with gates of temperature 1 and the task's pattern."""

    layer: ClassVar[str] = "GatedLinearAttention"
    skips: ClassVar[bool] = False

    def arguments(self, content: int) -> dict[str, Any]:
        """As MHA's."""
        return {"value_head_dim": content, "temperature": 1.0}
