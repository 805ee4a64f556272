"""What a capacity costs: the smallest IHA of H heads that has it, beside MHA and grouped-query attention.

Two capacities are meant: the operator Schmidt rank with positions only (`capacity_bound`, docs/bounds.md), which
min(H^2, H P^2) bounds, and the rows of softmax, H P, which are the bits of parity that one layer computes
(`parity_bits`, docs/parity.md).
"""

from dataclasses import dataclass
from typing import Any, Literal

from iha_theory.attention import GroupedQueryAttention, InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.generation import KeyValueCache, Mix, extend, kept_numbers, take_up
from iha_theory.attention.mixing.interleaved import Collapse
from iha_theory.bounds.parity import parity_bits
from iha_theory.capacity import capacity_bound
from iha_theory.costs.cache import Way, cache_numbers, intensity, map_flops, token_flops
from iha_theory.costs.counted import flops_of
from iha_theory.costs.formulas import AttentionSizes
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

Of = Literal["rank", "rows"]
ITEMSIZE = 4
"""Bytes of a float32."""


def smallest(heads: int, capacity: int, of: Of = "rank") -> tuple[int, Collapse]:
    """The least P with which H heads of IHA have the capacity, and the collapse: of both, if both do, the smaller.

    Rank R <= H^2:  P = ceil(sqrt(R / H)), since global collapse has min(H^2, H P^2); per head, with min(H^2, H P), if
    R <= H P for this P.
    Rows R:         P = ceil(R / H), per head: both collapses have H P.

    Per-head collapse has H P numbers, global H^2 P.

    Args:
        heads: H.
        capacity: R.
        of: "rank" or "rows".

    Raises:
        ValueError: a number below 1; a rank above H^2, which no P reaches.
    """
    require_count("heads", heads)
    require_count("capacity", capacity)
    require_one_of("capacity", of, ("rank", "rows"))
    if of == "rows":
        return -(-capacity // heads), "per_head"
    if capacity > heads**2:
        least = ceil_sqrt(capacity)
        raise ValueError(f"{heads} heads of IHA have rank {heads**2} at most: rank {capacity} takes {least} heads")
    pseudo_heads = ceil_sqrt(-(-capacity // heads))
    return pseudo_heads, "per_head" if capacity <= heads * pseudo_heads else "global"


@dataclass(frozen=True)
class Priced:
    """A layer of causal self-attention, with what it can do and what it costs.

    Attributes:
        name: what it is here for.
        heads: H.
        embed_dim: D, of input and output.
        head_dim: d, of queries, keys and values.
        pseudo_heads: P of IHA; None for the others.
        collapse: of IHA; None for the others.
        kv_heads: G of grouped-query attention; None for the others.
        way: how IHA comes by its pseudo-heads in generation.
    """

    name: str
    heads: int
    embed_dim: int
    head_dim: int
    pseudo_heads: int | None = None
    collapse: Collapse | None = None
    kv_heads: int | None = None
    way: Way = "kept"

    @property
    def rank(self) -> int:
        """The largest operator Schmidt rank, with content of width D."""
        if self.pseudo_heads is None:
            return capacity_bound("mha", self.heads)
        return capacity_bound("iha", self.heads, self.pseudo_heads, self.collapse)

    @property
    def rows(self) -> int:
        """Rows of softmax: bits of parity."""
        bits = parity_bits("mha" if self.pseudo_heads is None else "iha", self.heads, self.pseudo_heads)
        assert bits is not None
        return bits

    @property
    def maps(self) -> int:
        """H P^2."""
        return self.heads * (self.pseudo_heads or 1) ** 2

    @property
    def parameters(self) -> int:
        """Without biases."""
        own = AttentionSizes(
            *(1, self.embed_dim, self.heads, self.head_dim, self.head_dim, self.pseudo_heads),
            out_width=self.embed_dim,
            collapse=self.collapse or "global",
        )
        shared = 0 if self.kv_heads is None else self.heads - self.kv_heads
        return own.parameters - 2 * shared * self.head_dim * self.embed_dim

    @property
    def cache(self) -> int:
        """Numbers that generation keeps of a token."""
        pseudo = self.pseudo_heads if self.pseudo_heads and self.way == "kept" else 1
        return cache_numbers(self.kv_heads or self.heads, self.head_dim, self.head_dim, pseudo_heads=pseudo)

    def flops(self, tokens: int) -> int:
        """Of one token in generation that sees so many, itself included."""
        sizes = tokens, self.embed_dim, self.heads, self.head_dim, self.head_dim
        if self.pseudo_heads is None:
            return token_flops(*sizes, kv_heads=self.kv_heads)
        return token_flops(*sizes, pseudo_heads=self.pseudo_heads, collapse=self.collapse or "global", way=self.way)

    def intensity(self, itemsize: int = ITEMSIZE) -> float:
        """FLOPs of attention for each byte of the cache that it reads."""
        spent = map_flops(1, self.heads, self.head_dim, self.head_dim, self.pseudo_heads or 1, self.way)
        return intensity(spent, self.cache, itemsize)

    def build(self, **options: Any) -> AttentionLayer:
        """The layer, with such options of `AttentionLayer`; IHA with random mixing."""
        sizes: dict[str, Any] = {"embed_dim": self.embed_dim, "num_heads": self.heads, "head_dim": self.head_dim}
        if self.kv_heads is not None:
            return GroupedQueryAttention(**sizes, num_kv_heads=self.kv_heads, **options)
        if self.pseudo_heads is None:
            return MultiHeadAttention(**sizes, **options)
        own: dict[str, Any] = {"num_pseudo_heads": self.pseudo_heads, "collapse": self.collapse, "init": "random"}
        return InterleavedHeadAttention(**sizes | own | options)

    @property
    def mix(self) -> Mix | None:
        """As of `extend`."""
        if self.pseudo_heads is None or self.way == "kept":
            return None
        return "maps" if self.way == "mixed maps" else "keys"

    def cache_for(self, layer: AttentionLayer) -> KeyValueCache:
        """An empty one."""
        return KeyValueCache(layer.window, mixed=self.pseudo_heads is not None and self.way == "kept")

    def counted(self, tokens: int) -> tuple[int, int, int]:
        """Parameters, FLOPs of a token as `flops`, numbers of the cache: what the layer has, spends and keeps."""
        layer = self.build(device="meta")
        parameters = sum(parameter.numel() for parameter in layer.parameters())
        cache = self.cache_for(layer)
        before = layer.k_proj.weight.new_empty(1, tokens - 1, self.embed_dim)
        take_up(layer, before, before, cache)
        dtype = layer.k_proj.weight.dtype
        spent = flops_of(lambda x: extend(layer, x, x, x, cache, mix=self.mix), (1, 1, self.embed_dim), dtype=dtype)
        return parameters, spent, kept_numbers(layer, mixed=cache.mixed)


def prices(heads: int, capacity: int, of: Of = "rank", *, embed_dim: int) -> list[Priced]:
    """MHA and grouped-query attention with H heads, the smallest IHA that has the capacity, and wider MHAs.

    All heads are d = D / H wide, those of the wider MHAs too: of the capacity that is wanted, of as many rows of
    softmax as the IHA, of as many maps. The last one has the capacity from heads of D / R, where R divides D: as many
    parameters and as large a cache as MHA with H heads.

    Args:
        heads: H.
        capacity: R.
        of: "rank" or "rows".
        embed_dim: D, a multiple of H.

    Raises:
        ValueError: as `smallest`; D that is no multiple of H.
    """
    pseudo_heads, collapse = smallest(heads, capacity, of)
    if require_count("embed_dim", embed_dim) % heads:
        raise ValueError(f"embed_dim {embed_dim} is not a multiple of {heads} heads")
    width = embed_dim // heads
    rows = [Priced("mha", heads, embed_dim, width)]
    if heads > 1:
        shared = heads // next(n for n in range(2, heads + 1) if heads % n == 0)
        rows.append(Priced("gqa", heads, embed_dim, width, kv_heads=shared))
    for way in ("mixed maps", "formed anew", "kept"):
        rows.append(Priced(f"iha, {way}", heads, embed_dim, width, pseudo_heads, collapse, way=way))
    wider = {capacity: [str(of)]}
    for reason, count in (("rows", heads * pseudo_heads), ("maps", heads * pseudo_heads**2)):
        if reason != of:
            wider.setdefault(count, []).append(reason)
    rows += [
        Priced(f"mha, equal {' and '.join(reasons)}", count, embed_dim, width)
        for count, reasons in sorted(wider.items())
        if count > heads
    ]
    if capacity > heads and embed_dim % capacity == 0:
        rows.append(Priced(f"mha, equal {of}, narrow", capacity, embed_dim, embed_dim // capacity))
    return rows
