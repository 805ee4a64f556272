"""Generation token by token: numbers that are kept of each token, and FLOPs of the next one."""

from typing import Any, Literal

Number = Any
"""An integer, a sympy expression, or an array of numbers."""

Way = Literal["mixed maps", "formed anew", "kept"]
"""How IHA comes by its pseudo-keys and pseudo-values; see `token_flops`."""


def cache_numbers(heads: Number, head_dim: Number, value_head_dim: Number, *, pseudo_heads: Number = 1) -> Number:
    """G P (d_k + d_v) for each token that later ones may see.

    MHA keeps G = H heads, grouped-query attention its G key and value heads, IHA its base heads (G = H, or fewer if
    they are grouped) with P = 1 here, or H P pseudo-heads if it keeps those. With base heads kept, IHA has the capacity
    of up to H^2 heads (docs/results.md T1) in the cache of H; with pseudo-heads kept, it has the cache of an MHA with
    H P heads. Virtual rotary positions with base heads kept take one number more, the token's position.
    """
    return heads * pseudo_heads * (head_dim + value_head_dim)


def map_flops(
    tokens: Number,
    heads: Number,
    head_dim: Number,
    value_head_dim: Number,
    pseudo_heads: Number = 1,
    way: Way = "kept",
) -> Number:
    """FLOPs of the next token's attention to N tokens, itself included, beyond its projections and own mixing.

    MHA, and grouped-query attention with H query heads, P = 1:          2 H N (d_k + d_v)
    IHA, pseudo-keys and pseudo-values kept:                             2 H P^2 N (d_k + d_v)
    IHA, formed anew of base heads that are kept:                        2 H P (H + P) N (d_k + d_v)
    IHA, scores and weights of base heads mixed ("mixed maps"):          2 H^2 P N (d_k + d_v + 2 P)

    The last has fewer than the one before where 2 H < d_k + d_v. Its H P queries meet each of H base heads, and alphas
    make P^2 maps a head of these H P scores for each key; weights go the same way back.

    Raises:
        ValueError: another way.
    """
    each = 2 * heads * pseudo_heads * tokens
    if way == "kept":
        return each * pseudo_heads * (head_dim + value_head_dim)
    if way == "formed anew":
        return each * (heads + pseudo_heads) * (head_dim + value_head_dim)
    if way == "mixed maps":
        return each * heads * (head_dim + value_head_dim + 2 * pseudo_heads)
    raise ValueError(f"unknown way {way!r}: accepted are mixed maps, formed anew, kept")


def token_flops(
    tokens: Number,
    width: Number,
    heads: Number,
    head_dim: Number,
    value_head_dim: Number,
    *,
    kv_heads: Number | None = None,
    pseudo_heads: Number | None = None,
    collapse: Literal["global", "per_head"] = "global",
    way: Way = "kept",
) -> Number:
    """FLOPs of one token in generation: its projections (two for a parameter), IHA's mixing and collapse, `map_flops`.

    Args:
        tokens: N that it sees, itself included.
        width: of its input and output.
        heads: H.
        head_dim: d_k.
        value_head_dim: d_v.
        kv_heads: G of grouped-query attention; default H.
        pseudo_heads: P of IHA; None for the others.
        collapse: of IHA.
        way: of IHA.

    Raises:
        ValueError: another way; kv_heads and pseudo_heads, which this formula does not cover.
    """
    if kv_heads is not None and pseudo_heads is not None:
        raise ValueError("kv_heads goes with grouped-query attention, pseudo_heads with IHA: give one of them")
    shared = heads if kv_heads is None else kv_heads
    projections = 2 * width * (heads + shared) * (head_dim + value_head_dim)
    if pseudo_heads is None:
        return projections + map_flops(tokens, heads, head_dim, value_head_dim)
    mixing = 2 * heads**2 * pseudo_heads * (head_dim + (head_dim + value_head_dim if way == "kept" else 0))
    outputs = heads * pseudo_heads * (heads if collapse == "global" else 1)
    attention = map_flops(tokens, heads, head_dim, value_head_dim, pseudo_heads, way)
    return projections + mixing + 2 * outputs * value_head_dim + attention


def intensity(flops: Number, numbers: Number, itemsize: Number) -> Number:
    """FLOPs per byte of the cache that is read: of attention to N tokens, and N times `numbers` of `itemsize` bytes."""
    return flops / (numbers * itemsize)
