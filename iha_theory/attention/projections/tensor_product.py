"""Tensor-product attention (TPA): queries, keys and values as sums of products of two factors of the token."""

from typing import Any

import torch
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.projections.multihead import MultiHeadAttention
from iha_theory.rounding import require_count


@blueprint.definition(
    "tensor-product",
    "tensor-product attention: MHA whose queries, keys and values are sums of products of two factors"
    " of the token, over heads and coordinates",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class TensorProductAttention(MultiHeadAttention):
    """TPA: MHA whose queries, keys and values are tensor products, over the heads and their coordinates.

        Q_h = (1/R_Q) sum_r aQ_rh(query) bQ_r(query),     K_h = (1/R_K) sum_r aK_rh(key) bK_r(key),
        V_h = (1/R_V) sum_r aV_rh(key) bV_r(value)

    with linear a_r in R^H and b_r in R^d_k, or R^d_v. Source: Zhang et al., arXiv 2501.06425 (T6).

    The head factors of the values come from `key`. In self-attention, layer(x, x, x), this is the layer of the source,
    whose values are quadratic in the token. In the position-only setting, layer(pos, pos, X), it stays linear in
    content, and each position has values of its own, V_h = sum_r diag(aV_rh) X B_r / R_V: rank at most H R_V
    (docs/attentions.md).

    Args beyond `AttentionLayer`:
        query_rank: R_Q.
        key_rank: R_K.
        value_rank: R_V. `q_proj`, `k_proj` and `v_proj` make the factors b; `q_heads`, `k_heads` and `v_heads` the a.

    Raises:
        ValueError: as `AttentionLayer`; and a rank below 1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        query_rank: int = 6,
        key_rank: int = 2,
        value_rank: int = 2,
        **options: Any,
    ) -> None:
        self.query_rank = require_count("query_rank", query_rank)  # before the projections are made
        self.key_rank = require_count("key_rank", key_rank)
        self.value_rank = require_count("value_rank", value_rank)
        super().__init__(embed_dim, num_heads, **options)
        weight, bias = self.q_proj.weight, self.q_proj.bias is not None

        def heads(inputs: int, rank: int) -> nn.Linear:
            return nn.Linear(inputs, rank * self.num_heads, bias=bias, dtype=weight.dtype, device=weight.device)

        self.q_heads = heads(self.embed_dim, self.query_rank)
        self.k_heads = heads(self.kdim, self.key_rank)
        self.v_heads = heads(self.kdim, self.value_rank)

    def _projection_heads(self) -> tuple[int, int, int]:
        return self.query_rank, self.key_rank, self.value_rank

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The factors and their products: see the class."""
        return (
            self._product(self.q_heads(query), self.q_proj(query), self.head_dim),
            self._product(self.k_heads(key), self.k_proj(key), self.head_dim),
            self._product(self.v_heads(key), self.v_proj(value), self.value_head_dim),
        )

    def _product(self, a: Tensor, b: Tensor, width: int) -> Tensor:
        """(1/R) sum_r a_rh b_r, (batch, heads, tokens, width)."""
        of_heads, of_width = self._split(a, self.num_heads), self._split(b, width)  # (batch, rank, tokens, ...)
        return torch.einsum("brnh,brnd->bhnd", of_heads, of_width) / of_heads.shape[1]
