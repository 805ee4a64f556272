"""The output of a layer of linear attention, in exact rationals: every weight is the dyadic rational that it is."""

from typing import Any

import numpy as np
from sympy import QQ
from torch import Tensor

from iha_theory import exact
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer


def rationals(array: Any) -> np.ndarray:
    """An array of numbers, such as a tensor, as elements of the rationals (sympy's QQ), without rounding."""
    numbers = array.detach().cpu().double().numpy() if isinstance(array, Tensor) else np.asarray(array)
    return np.vectorize(lambda x: exact.element(QQ, x), otypes=[object])(numbers)


class ExactLayer:
    """A torch layer of linear attention as a function on rational inputs (tokens, embed_dim).

    Args:
        layer: a `MultiHeadAttention` or an `InterleavedHeadAttention` with global collapse; no mask, no window.

    Raises:
        ValueError: a layer of another kind, with another pattern or collapse, a bias, rotary positions or a window.
    """

    def __init__(self, layer: AttentionLayer) -> None:
        if not isinstance(layer, MultiHeadAttention | InterleavedHeadAttention):
            raise ValueError(f"cannot run a {type(layer).__name__} exactly: accepted are MHA and IHA of this project")
        if layer.pattern != "linear" or layer.rotary or layer.window or layer.q_proj.bias is not None:
            raise ValueError("exact runs are for the linear pattern without biases, rotary positions or a window")
        if getattr(layer, "collapse_kind", "global") != "global":
            raise ValueError("exact runs are for the global collapse")
        self.heads, self.scale = layer.num_heads, exact.element(QQ, layer.scale)
        self.projections = [rationals(p.weight).T for p in (layer.q_proj, layer.k_proj, layer.v_proj)]
        self.out = None if layer.out_proj is None else rationals(layer.out_proj.weight).T
        self.mixing = None
        if isinstance(layer, InterleavedHeadAttention):
            mixing = (layer.alpha_q, layer.alpha_k, layer.alpha_v, layer.collapse)
            self.mixing = [rationals(m) for m in mixing]

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Self-attention on one sequence, (tokens, embed_dim) -> (tokens, D)."""
        q, k, v = (np.stack(np.split(inputs @ p, self.heads, axis=1)) for p in self.projections)
        if self.mixing is None:
            heads = [self.scale * (a @ (b.T @ c)) for a, b, c in zip(q, k, v, strict=True)]
        else:
            alpha_q, alpha_k, alpha_v, collapse = self.mixing
            base = range(self.heads)
            queries, keys, values = (
                np.tensordot(alpha, x, axes=(0, 0)) for alpha, x in ((alpha_q, q), (alpha_k, k), (alpha_v, v))
            )  # (H, P, tokens, width)
            inner = [
                sum(b.T @ c for b, c in zip(keys[h], values[h], strict=True)) for h in base
            ]  # over all pseudo-keys
            out = np.stack([self.scale * np.stack([a @ inner[h] for a in queries[h]]) for h in base])
            heads = list(np.tensordot(collapse, out, axes=((1, 2), (0, 1))))
        merged = np.concatenate(heads, axis=1)
        return merged if self.out is None else merged @ self.out


def with_positions(x: Any) -> np.ndarray:
    """[X, I_N] in rationals, for X of integers or rationals, (N, d)."""
    content = rationals(x)
    return np.concatenate((content, rationals(np.eye(len(content), dtype=int))), axis=1)
