"""Two layers of MHA as one attention layer."""

from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.projections.multihead import MultiHeadAttention


@blueprint.definition(
    "two-layer",
    "two layers of MHA: the second one's queries and keys see the inputs, its values the first one's outputs",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class TwoLayerAttention(nn.Module):
    """Two MHA layers, of which the second attends, with the same queries' and keys' inputs, to the first's outputs:

        out = second(query, key, first(query, key, value))

    No residual, norm or MLP between them. In the position-only setting, layer(pos, pos, X), the operator is a sum of
    products S2_g S1_h of attention maps: rank at most H^2 with H heads each (docs/results.md T1, T7). Masks, causality
    and windows hold in each layer: two causal windows of W together reach 2 W - 1 tokens, the own one counted.

    Args:
        embed_dim: width of the query.
        num_heads: heads H of each layer.
        first: options of the first layer only; they override `options`. Without an output projection unless given
            out_proj=True.
        second: options of the second layer only. Its value input is the first layer's output.
        **options: options of `MultiHeadAttention` for both layers. vdim is the first layer's; out_dim and out_proj are
            the second's.

    Raises:
        ValueError: as `MultiHeadAttention`; an option that belongs to the other layer.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        first: Mapping[str, Any] | None = None,
        second: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if second is not None and "vdim" in second:
            raise ValueError("vdim of the second layer is the first layer's out_dim: leave it out of second")
        sizes: dict[str, Any] = {"embed_dim": embed_dim, "num_heads": num_heads}
        start: dict[str, Any] = {"vdim": options.pop("vdim", None), "out_proj": False}
        end: dict[str, Any] = {name: options.pop(name) for name in ("out_dim", "out_proj") if name in options}
        self.first = MultiHeadAttention(**sizes | options | start | dict(first or {}))
        self.second = MultiHeadAttention(**sizes | options | end | dict(second or {}), vdim=self.first.out_dim)

    @property
    def num_heads(self) -> int:
        """H, in each layer; of the layer with more, if they differ."""
        return max(self.first.num_heads, self.second.num_heads)

    @property
    def attention_maps(self) -> int:
        """The heads of both layers together."""
        return self.first.attention_maps + self.second.attention_maps

    @property
    def embed_dim(self) -> int:
        """Width of the query."""
        return self.first.embed_dim

    @property
    def kdim(self) -> int:
        """Width of the key."""
        return self.first.kdim

    @property
    def vdim(self) -> int:
        """Width of the value."""
        return self.first.vdim

    @property
    def out_dim(self) -> int:
        """Width of the output."""
        return self.second.out_dim

    def forward(
        self,
        query: Float[Tensor, "b_qk queries embed_dim"],
        key: Float[Tensor, "b_qk keys kdim"],
        value: Float[Tensor, "batch keys vdim"],
        *,
        mask: Shaped[Tensor, "..."] | None = None,
        is_causal: bool = False,
        positions: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch queries out_dim"]:
        """Outputs, (batch, queries, out_dim); arguments and errors as `AttentionLayer.forward`.

        Raises:
            ValueError: also, different numbers of queries and keys: the first layer's outputs are the second's values.
        """
        if query.shape[-2:-1] != key.shape[-2:-1]:
            raise ValueError(
                f"query and key differ in tokens: {query.shape[-2]} and {key.shape[-2]}, which two layers need equal"
            )
        options: dict[str, Any] = {"mask": mask, "is_causal": is_causal, "positions": positions}
        return self.second(query, key, self.first(query, key, value, **options), **options)
