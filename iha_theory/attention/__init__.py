"""Attention layers with one call: `layer(query, key, value, *, mask=None, is_causal=False)`.

- `base`: what all layers share: projections, argument checks, the output projection.
- `patterns`: softmax, linear and hard attention on (batch, heads, tokens, width) tensors.
- `masks`: which (query, key) pairs may attend, from a mask, causality and a window.
- `fused`: softmax attention by causality, masks and windows without a mask of all pairs.
- `rotary`: rotary positions.
- `projections`: MHA, GQA and MQA, latent (MLA) and tensor-product attention.
- `mixing`: IHA, Talking-Heads, composable (DCMHA), multi-token and Differential attention.
- `higher_order`: 2-simplicial and Strassen attention.
- `gates`: gated attention and gated linear attention.
- `two_layer`: two layers of MHA.
- `generation`: MHA, GQA and IHA token by token, with a key-value cache.
- `kinds`: the layers by name with the options of each, `KINDS`.

Called as layer(positions, positions, X) without biases, every one of them is linear in X. The classes are loaded when
they are used, so that names and options need no torch. Imports nothing from outside this folder but `options` and
`rounding`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iha_theory.attention.kinds import KINDS, LayerOptions

if TYPE_CHECKING:
    from iha_theory.attention.gates.gated import GatedAttention
    from iha_theory.attention.gates.gated_linear import GatedLinearAttention
    from iha_theory.attention.higher_order.simplicial import TwoSimplicialAttention
    from iha_theory.attention.higher_order.strassen import StrassenAttention
    from iha_theory.attention.mixing.composable import ComposableAttention
    from iha_theory.attention.mixing.differential import DifferentialAttention
    from iha_theory.attention.mixing.interleaved import InterleavedHeadAttention
    from iha_theory.attention.mixing.multi_token import MultiTokenAttention
    from iha_theory.attention.mixing.talking_heads import TalkingHeadsAttention
    from iha_theory.attention.projections.grouped import GroupedQueryAttention
    from iha_theory.attention.projections.latent import MultiHeadLatentAttention
    from iha_theory.attention.projections.multihead import MultiHeadAttention
    from iha_theory.attention.projections.tensor_product import TensorProductAttention
    from iha_theory.attention.two_layer import TwoLayerAttention

_PLACES = {
    "ComposableAttention": "mixing.composable",
    "DifferentialAttention": "mixing.differential",
    "GatedAttention": "gates.gated",
    "GatedLinearAttention": "gates.gated_linear",
    "GroupedQueryAttention": "projections.grouped",
    "InterleavedHeadAttention": "mixing.interleaved",
    "MultiHeadAttention": "projections.multihead",
    "MultiHeadLatentAttention": "projections.latent",
    "MultiTokenAttention": "mixing.multi_token",
    "StrassenAttention": "higher_order.strassen",
    "TalkingHeadsAttention": "mixing.talking_heads",
    "TensorProductAttention": "projections.tensor_product",
    "TwoLayerAttention": "two_layer",
    "TwoSimplicialAttention": "higher_order.simplicial",
}

__all__ = [
    "KINDS",
    "ComposableAttention",
    "DifferentialAttention",
    "GatedAttention",
    "GatedLinearAttention",
    "GroupedQueryAttention",
    "InterleavedHeadAttention",
    "LayerOptions",
    "MultiHeadAttention",
    "MultiHeadLatentAttention",
    "MultiTokenAttention",
    "StrassenAttention",
    "TalkingHeadsAttention",
    "TensorProductAttention",
    "TwoLayerAttention",
    "TwoSimplicialAttention",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"iha_theory.attention.{_PLACES[name]}"), name)
