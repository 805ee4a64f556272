"""Attention layers with one call: `layer(query, key, value, *, mask=None, is_causal=False)`.

- `base`: what all layers share: projections, argument checks, the output projection.
- `patterns`: softmax, linear and hard attention on (batch, heads, tokens, width) tensors.
- `masks`: which (query, key) pairs may attend, from a mask, causality and a window.
- `rotary`: rotary positions.
- `multihead`, `interleaved`: MHA and IHA.
- `grouped`, `talking_heads`, `differential`, `simplicial`, `two_layer`: what they are compared with, GQA and MQA,
  Talking-Heads, Differential and 2-simplicial attention, and two layers of MHA.

Called as layer(positions, positions, X) without biases, every one of them is linear in X. Imports nothing from outside
this folder.
"""

from iha_theory.attention.differential import DifferentialAttention
from iha_theory.attention.grouped import GroupedQueryAttention
from iha_theory.attention.interleaved import InterleavedHeadAttention
from iha_theory.attention.multihead import MultiHeadAttention
from iha_theory.attention.simplicial import TwoSimplicialAttention
from iha_theory.attention.talking_heads import TalkingHeadsAttention
from iha_theory.attention.two_layer import TwoLayerAttention

__all__ = [
    "DifferentialAttention",
    "GroupedQueryAttention",
    "InterleavedHeadAttention",
    "MultiHeadAttention",
    "TalkingHeadsAttention",
    "TwoLayerAttention",
    "TwoSimplicialAttention",
]
