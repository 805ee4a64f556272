"""The entries of layers that differ in how queries, keys and values are made. Imports no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.options import option


@dataclass(frozen=True)
class MQA(LayerOptions):
    """One key and value head for all heads."""

    layer: ClassVar[str] = "GroupedQueryAttention"

    def arguments(self, content: int) -> dict[str, Any]:
        """As MHA's."""
        return {"value_head_dim": content, "num_kv_heads": 1}


@dataclass(frozen=True)
class GQA(LayerOptions):
    """A key and value head for each group of heads."""

    layer: ClassVar[str] = "GroupedQueryAttention"

    kv_heads: int | None = option(None, "key and value heads of GQA (default: groups of H's smallest divisor)", 1)

    def arguments(self, content: int) -> dict[str, Any]:
        """As MHA's."""
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads {self.heads}, got {self.kv_heads}")
        divisor = next((n for n in range(2, self.heads + 1) if self.heads % n == 0), 1)
        return {"value_head_dim": content, "num_kv_heads": self.kv_heads or self.heads // divisor}


@dataclass(frozen=True)
class MLA(LayerOptions):
    """Keys and values from a latent vector."""

    layer: ClassVar[str] = "MultiHeadLatentAttention"
    passed: ClassVar[tuple[str, ...]] = ("latent_dim",)

    latent_dim: int | None = option(None, "width of MLA's latent vector (default: four heads' widths)", 1)


@dataclass(frozen=True)
class TensorProduct(LayerOptions):
    """Queries, keys and values as products of factors: R_V maps a head."""

    layer: ClassVar[str] = "TensorProductAttention"
    passed: ClassVar[tuple[str, ...]] = ("query_rank", "key_rank", "value_rank")
    affine_maps: ClassVar[bool] = False

    query_rank: int = option(6, "rank of the queries' tensor product", 1)
    key_rank: int = option(2, "rank of the keys'", 1)
    value_rank: int = option(2, "rank R_V of the values': its capacity is H R_V", 1)

    def bound(self) -> dict[str, Any]:
        """R_V."""
        return {"value_rank": self.value_rank}
