"""The entries of layers that mix heads or maps. Imports no torch."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from iha_theory.attention.kinds.base import LayerOptions
from iha_theory.options import option


@dataclass(frozen=True)
class TalkingHeads(LayerOptions):
    """Heads mixed before and after the pattern."""

    layer: ClassVar[str] = "TalkingHeadsAttention"
    skips: ClassVar[bool] = False
    passed: ClassVar[tuple[str, ...]] = ("mix",)

    mix: Literal["both", "logits", "weights"] = option("both", "what Talking-Heads mixes over the heads")


@dataclass(frozen=True)
class Composable(LayerOptions):
    """Heads mixed by matrices that the tokens make."""

    layer: ClassVar[str] = "ComposableAttention"
    skips: ClassVar[bool] = False
    affine_maps: ClassVar[bool] = False

    composition_rank: int = option(2, "rank R of the dynamic mixing of composable heads", 1)

    def arguments(self, content: int) -> dict[str, Any]:
        """As MHA's."""
        return {"value_head_dim": content, "rank": self.composition_rank}


@dataclass(frozen=True)
class MultiToken(LayerOptions):
    """Logits convolved over queries and keys."""

    layer: ClassVar[str] = "MultiTokenAttention"
    skips: ClassVar[bool] = False
    passed: ClassVar[tuple[str, ...]] = ("query_window", "key_window", "head_group")
    affine_maps: ClassVar[bool] = False

    query_window: int = option(6, "queries in the kernel of multi-token attention", 1)
    key_window: int = option(11, "keys in the kernel of multi-token attention", 1)
    head_group: int | None = option(None, "heads that multi-token attention mixes (default: all)", 1)


@dataclass(frozen=True)
class Differential(LayerOptions):
    """The difference of two maps a head."""

    layer: ClassVar[str] = "DifferentialAttention"
    passed: ClassVar[tuple[str, ...]] = ("lambda_init",)

    lambda_init: float = option(0.8, "initial factor on the second maps of Differential attention")


@dataclass(frozen=True)
class IHA(LayerOptions):
    """Interleaved heads. The G base values must be independent, so that each is d G wide (App. B.2)."""

    layer: ClassVar[str] = "InterleavedHeadAttention"

    pseudo_heads: int | None = option(None, "pseudo-heads P of IHA (default: as many as heads)", 1)
    collapse: Literal["global", "per_head"] = option("global", "which outputs IHA's collapse mixes: all, or a head's")
    init: Literal["random", "construction", "random-keys", "identity", "mha"] = option(
        "random", "initial mixing of IHA"
    )
    noise: float = option(0.1, "standard deviation of noise on the initial mixing", 0)
    kv_heads: int | None = option(None, "base key and value heads G of IHA, a divisor of H (default: H)", 1, late=True)

    @property
    def pseudo(self) -> int:
        """P."""
        return self.pseudo_heads or self.heads

    def arguments(self, content: int) -> dict[str, Any]:
        """See the class."""
        base = self.kv_heads or self.heads
        own = {"num_pseudo_heads": self.pseudo, "collapse": self.collapse, "num_kv_heads": base}
        return own | {"value_head_dim": content * base}

    def numbers(self, tokens: int) -> int:
        """With P^2 maps a head, and the mixing."""
        return super().numbers(tokens) + self.heads * self.pseudo * (self.pseudo * tokens**2 + 4 * self.heads)

    def bound(self) -> dict[str, Any]:
        """P, the collapse and G."""
        return {"pseudo_heads": self.pseudo, "collapse": self.collapse, "kv_heads": self.kv_heads}
