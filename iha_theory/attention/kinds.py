"""The layers as entries: by the names of `iha_theory.capacity.Kind`, each with its own options. Imports no torch.

To add a layer: its class in a folder here, its bound in `iha_theory.capacity.capacity_bound`, an entry here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from iha_theory.options import Options, option

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LayerOptions(Options):
    """What every layer here has, and MHA all that it has.

    Raises:
        ValueError: as `Options`; circulant projections of a width of their own.
    """

    layer: ClassVar[str] = "MultiHeadAttention"
    """The class, in `iha_theory.attention`."""
    passed: ClassVar[tuple[str, ...]] = ()
    """The options that are arguments of the class, by the same names."""
    affine_maps: ClassVar[bool] = True
    """Whether each map of one linear layer is affine in the content of the query: docs/content.md, Theorem 1."""

    heads: int = option(3, "heads H", 1)
    head_dim: int | None = option(None, "width of queries and keys (default: N; 0: input width / heads)", 0)
    circulant: bool = option(
        False, "initial query and key projections are circulant on positions, and so alike for all of them"
    )
    gain: float = option(1.0, "factor on the initial orthogonal query and key projections", 0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.circulant and self.head_dim is not None:
            raise ValueError("circulant projections are square on positions: leave head_dim out")

    def arguments(self, content: int) -> dict[str, Any]:
        """The layer's arguments beyond those of all: values wide enough to reach its capacity on content of width d."""
        return {"value_head_dim": content} | {name: getattr(self, name) for name in self.passed}

    def numbers(self, tokens: int) -> int:
        """Of its query and key projections and of its attention maps of a sample, from below."""
        return self.heads * (2 * (self.head_dim or 1 if self.head_dim is not None else tokens) * tokens + tokens**2)

    def bound(self) -> dict[str, Any]:
        """What `iha_theory.capacity.capacity_bound` needs beyond the heads."""
        return {}

    def make(
        self,
        query: int,
        key: int,
        value: int,
        *,
        content: int | None,
        tokens: int,
        pattern: str,
        out: int | None,
        bias: bool = False,
    ) -> "nn.Module":
        """The layer; scale 1, since the initial weights set the size of the logits.

        Args:
            query: width of the query's input.
            key: of the key's.
            value: of the value's.
            content: d, or the output's width where values hold more than content. None: the layer of a transformer,
                whose values are query / heads wide and whose scale is its own, 1/sqrt(head_dim) for most.
            tokens: N, the default width of queries and keys.
            pattern: of `iha_theory.attention.patterns`.
            out: width of the output; None for no output projection.
            bias: biases in the projections.

        Raises:
            ValueError: sizes that the layer refuses.
        """
        from iha_theory import attention

        share = max(1, query // self.heads)
        own = self.arguments(share if content is None else content)
        if content is None and "value_head_dim" in own:
            own["value_head_dim"] = share
        own |= {"out_proj": False} if out is None else {"out_dim": out}
        head_dim = tokens if self.head_dim is None else self.head_dim or None
        common: dict[str, Any] = {"kdim": key, "vdim": value, "head_dim": head_dim, "pattern": pattern, "bias": bias}
        if content is not None:
            common["scale"] = 1.0
        return getattr(attention, self.layer)(query, self.heads, **common, **own)


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


@dataclass(frozen=True)
class TalkingHeads(LayerOptions):
    """Heads mixed before and after the pattern."""

    layer: ClassVar[str] = "TalkingHeadsAttention"
    passed: ClassVar[tuple[str, ...]] = ("mix",)

    mix: Literal["both", "logits", "weights"] = option("both", "what Talking-Heads mixes over the heads")


@dataclass(frozen=True)
class Differential(LayerOptions):
    """The difference of two maps a head."""

    layer: ClassVar[str] = "DifferentialAttention"
    passed: ClassVar[tuple[str, ...]] = ("lambda_init",)

    lambda_init: float = option(0.8, "initial factor on the second maps of Differential attention")


@dataclass(frozen=True)
class IHA(LayerOptions):
    """Interleaved heads. The H base values must be independent, so that each is d H wide (App. B.2)."""

    layer: ClassVar[str] = "InterleavedHeadAttention"

    pseudo_heads: int | None = option(None, "pseudo-heads P of IHA (default: as many as heads)", 1)
    collapse: Literal["global", "per_head"] = option("global", "which outputs IHA's collapse mixes: all, or a head's")
    init: Literal["random", "construction", "random-keys", "identity", "mha"] = option(
        "random", "initial mixing of IHA"
    )
    noise: float = option(0.1, "standard deviation of noise on the initial mixing", 0)

    @property
    def pseudo(self) -> int:
        """P."""
        return self.pseudo_heads or self.heads

    def arguments(self, content: int) -> dict[str, Any]:
        """See the class."""
        return {"value_head_dim": content * self.heads, "num_pseudo_heads": self.pseudo, "collapse": self.collapse}

    def numbers(self, tokens: int) -> int:
        """With P^2 maps a head, and the mixing."""
        return super().numbers(tokens) + self.heads * self.pseudo * (self.pseudo * tokens**2 + 4 * self.heads)

    def bound(self) -> dict[str, Any]:
        """P and the collapse."""
        return {"pseudo_heads": self.pseudo, "collapse": self.collapse}


@dataclass(frozen=True)
class TwoLayer(LayerOptions):
    """Two layers of MHA; the second keeps all heads of the first apart."""

    layer: ClassVar[str] = "TwoLayerAttention"
    affine_maps: ClassVar[bool] = False

    def arguments(self, content: int) -> dict[str, Any]:
        """d for a head of the first layer, so H d for one of the second."""
        return {"first": {"value_head_dim": content}, "second": {"value_head_dim": content * self.heads}}


@dataclass(frozen=True)
class Simplicial(LayerOptions):
    """2-simplicial attention: a map for each value coordinate."""

    layer: ClassVar[str] = "TwoSimplicialAttention"

    value_dim: int = option(4, "width d_v of a head's values: its capacity is H d_v", 1)

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


KINDS: dict[str, type[LayerOptions]] = {
    "mha": LayerOptions,
    "mqa": MQA,
    "gqa": GQA,
    "mla": MLA,
    "tensor-product": TensorProduct,
    "talking-heads": TalkingHeads,
    "differential": Differential,
    "iha": IHA,
    "two-layer": TwoLayer,
    "simplicial": Simplicial,
    "gated": Gated,
    "gated-headwise": GatedHeadwise,
}
"""The options of each layer, by its name."""
