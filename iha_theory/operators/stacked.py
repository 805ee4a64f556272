"""The operators of many linear layers on one-hot positions at once, from their stacked weights, by matrix products.

With queries Q_a and keys K_b of the positions, a layer without mask, bias, window, rotary positions and dropout, whose
attention is linear, is (`weights`, and the sums over pseudo-heads taken first)

    X  ->  sum_{a,b} (scale Q_a K_b^T) X E[a,b],

    MHA:  E[a,b] = 1[a=b] B_a W_a,
    IHA:  E[a,b] = sum_{o,m} T[a,b,o,m] B_m W_o,
          T[a,b,o,m] = sum_h (sum_j collapse[o,h,j] alpha_q[a,h,j]) (sum_j alpha_k[b,h,j] alpha_v[m,h,j]),

with B_m in R^{d x d_v} the values of base head m and W_o in R^{d_v x D} the output projection of head o. So H G maps of
tokens by tokens do for all H P^2 of virtual tokens. It differs from the layer's own pass by rounding.
"""

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor, diag_embed, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention


def saves(layer: nn.Module) -> bool:
    """Whether `images` takes this layer, and with no more maps and mixing than the layer's own pass."""
    if type(layer) not in (MultiHeadAttention, InterleavedHeadAttention):
        return False
    assert isinstance(layer, MultiHeadAttention | InterleavedHeadAttention)
    if layer.pattern != "linear" or layer.out_proj is None or layer.q_proj.bias is not None:
        return False
    if layer.rotary is not None or layer.window is not None or layer.dropout or layer.embed_dim != layer.kdim:
        return False
    if isinstance(layer, MultiHeadAttention):
        return True
    own, base, pseudo = layer.num_heads, layer.num_kv_heads, layer.num_pseudo_heads
    return base <= pseudo**2 and own * base**2 <= (pseudo * layer.embed_dim) ** 2


def images(layer: nn.Module, weights: Mapping[str, Tensor]) -> Float[Tensor, "runs contents queries out_dim"]:
    """What layers make of each basis content: [r, (i,c), n] is token n's output of layer r on e_i e_c^T, i < N, c < d.

    Args:
        layer: one that `saves`; its options count, and its weights do not.
        weights: of all layers, by the layer's names of its parameters, with a leading axis.

    Shapes: N d contents and N queries, N the layer's embed_dim and d its vdim.
    """
    assert isinstance(layer, MultiHeadAttention | InterleavedHeadAttention)
    width, head_dim = layer.vdim, layer.head_dim
    q, k = (weights[f"{name}_proj.weight"].unflatten(1, (-1, head_dim)) for name in "qk")  # (runs, heads, d_k, N)
    value = weights["v_proj.weight"].unflatten(1, (-1, layer.value_head_dim))  # (runs, m, d_v, d)
    out = weights["out_proj.weight"].unflatten(2, (layer.num_heads, -1))  # (runs, D, o, d_v)
    if isinstance(layer, MultiHeadAttention):
        maps = (k.mT @ q).flatten(2)  # (runs, a, (i, n))
        terms = (value.mT @ out.permute(0, 2, 3, 1)).flatten(2)  # (runs, a, (c, D))
    else:
        keys, queries = (x.transpose(1, 2).flatten(2) for x in (k, q))
        pairs = (keys.mT @ queries).unflatten(1, (len(k[0]), -1)).unflatten(3, (len(q[0]), -1))  # (runs, b, i, a, n)
        maps = pairs.permute(0, 3, 1, 2, 4).flatten(3).flatten(1, 2)  # (runs, (a, b), (i, n))
        products = out.flatten(1, 2) @ value.transpose(1, 2).flatten(2)  # (runs, (D, o), (m, c))
        products = products.unflatten(1, (-1, layer.num_heads)).unflatten(3, (-1, width))
        products = products.permute(0, 2, 3, 4, 1).flatten(3).flatten(1, 2)  # (runs, (o, m), (c, D))
        terms = _mixing(layer, weights) @ products
    if layer.scale != 1:
        maps = maps * layer.scale
    found = (maps.mT @ terms).unflatten(1, (-1, layer.embed_dim)).unflatten(3, (width, -1))  # (runs, i, n, c, D)
    return found.transpose(2, 3).flatten(1, 2)


def _mixing(layer: InterleavedHeadAttention, weights: Mapping[str, Tensor]) -> Tensor:
    """T, (runs, (a, b), (o, m))."""
    collapse = weights["collapse"]
    if layer.collapse_kind == "per_head":
        by_head = diag_embed(collapse.mT).permute(0, 2, 3, 1)  # [h, o, j] = 1[o = h] collapse[h, j]
    else:
        by_head = collapse.transpose(1, 2)  # (runs, h, o, j)
    outputs = by_head @ weights["alpha_q"].permute(0, 2, 3, 1)  # (runs, h, o, a)
    inputs = weights["alpha_k"].transpose(1, 2) @ weights["alpha_v"].permute(0, 2, 3, 1)  # (runs, h, b, m)
    whole = outputs.flatten(2).mT @ inputs.flatten(2)  # (runs, (o, a), (b, m))
    whole = whole.unflatten(1, outputs.shape[2:]).unflatten(3, inputs.shape[2:])
    return whole.permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
