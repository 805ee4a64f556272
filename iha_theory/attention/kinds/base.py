"""What the entries of all layers have. Imports no torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
    skips: ClassVar[bool] = True
    """Whether the layer spares the work outside a window: layers that write all weights out do not."""

    heads: int = option(3, "heads H", 1)
    head_dim: int | None = option(None, "width of queries and keys, 0: input width / heads (default: N)", 0)
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
        window: int | None = None,
        rotary: bool = False,
        ordinary: bool = False,
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
            window: in tokens, as `AttentionLayer`'s; None for none.
            rotary: rotate queries and keys by the position of their token.
            ordinary: MHA with the same heads instead.

        Raises:
            ValueError: sizes that the layer refuses.
        """
        from iha_theory import attention

        if ordinary and type(self) is not LayerOptions:
            plain = LayerOptions.of({name: getattr(self, name) for name in LayerOptions.names()})
            sizes: dict[str, Any] = {"content": content, "tokens": tokens, "pattern": pattern, "out": out}
            return plain.make(query, key, value, **sizes, bias=bias, window=window, rotary=rotary)
        if self.head_dim == 0 and query % self.heads:
            raise ValueError(
                f"heads {self.heads} do not divide the width {query} of the layer's input: give other heads, another "
                "width, or head_dim"
            )
        share = max(1, query // self.heads)
        own = self.arguments(share if content is None else content)
        if content is None and "value_head_dim" in own:
            own["value_head_dim"] = share
        own |= {"out_proj": False} if out is None else {"out_dim": out}
        head_dim = tokens if self.head_dim is None else self.head_dim or None
        common: dict[str, Any] = {"kdim": key, "vdim": value, "head_dim": head_dim, "pattern": pattern, "bias": bias}
        if content is not None:
            common["scale"] = 1.0
        common |= {"window": window} if window else {}
        common |= {"rotary": True} if rotary else {}
        return getattr(attention, self.layer)(query, self.heads, **common, **own)
