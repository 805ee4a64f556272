"""Numbers that generation keeps of each token: the key-value cache."""

from iha_theory.costs.formulas import Number


def cache_numbers(heads: Number, head_dim: Number, value_head_dim: Number, *, pseudo_heads: Number = 1) -> Number:
    """G P (d_k + d_v) for each token that later ones may see.

    MHA keeps G = H heads, grouped-query attention its G key and value heads, IHA its base heads (G = H, or fewer if
    they are grouped) with P = 1 here, or H P pseudo-heads if it keeps those. With base heads kept, IHA has the capacity
    of up to H^2 heads (docs/results.md T1) in the cache of H; with pseudo-heads kept, it has the cache of an MHA with
    H P heads. Virtual rotary positions with base heads kept take one number more, the token's position.
    """
    return heads * pseudo_heads * (head_dim + value_head_dim)
