"""Attention layers with one call: `layer(query, key, value, *, mask=None, is_causal=False)`.

- `base`: what all layers share: projections, argument checks, the output projection.
- `patterns`: softmax, linear and hard attention on (batch, heads, tokens, width) tensors.
- `masks`: which (query, key) pairs may attend, from a mask, causality and a window.
- `rotary`: rotary positions.
- `multihead`, `interleaved`: MHA and IHA.
"""

from iha_theory.attention.interleaved import InterleavedHeadAttention
from iha_theory.attention.multihead import MultiHeadAttention

__all__ = ["InterleavedHeadAttention", "MultiHeadAttention"]
