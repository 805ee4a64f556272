"""Dynamically composable heads (DCMHA): heads mixed by matrices that the tokens make."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import apply_weights, pattern_weights
from iha_theory.rounding import require_count


@blueprint.definition(
    "composable",
    "dynamically composable heads: logits and weights mixed over the heads by matrices that the tokens make",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class ComposableAttention(AttentionLayer):
    """DCMHA: logits and weights of each pair of tokens are mixed over the heads by a matrix of this pair.

        s_g = scale Q_g K_g^T,   t = compose(s),   w_h = sigma(t_h),   u = compose'(w),   out = concat_h u_h V_h
        compose(s)_h[i,j] = sum_g (W[h,g] + M^Q_i[h,g] + M^K_j[h,g]) s_g[i,j]
        M_i = A_i B_i^T + diag(tanh(x_i W_G)),   [A_i, B_i] = GELU(x_i W_1) W_2 in R^{H x 2R},   x_i the token's input

    compose' has parameters of its own. W starts as the identity. Masks, causality and windows act on the mixed logits,
    as in Talking-Heads. Dropout acts on u. Source: Xiao et al., arXiv 2405.08553; left out is the norm of B_i, and
    heads are not divided into groups.

    As an operator on content, layer(pos, pos, X), it still has one map a head: rank at most H (docs/attentions.md).

    Args beyond `AttentionLayer`:
        rank: R, of the dynamic mixing. Its parameters are in `compose`; `mix_logits` and `mix_weights` are W, (H, H).
        hidden_dim: width of the hidden layer behind W_1; default 2 H R.

    Raises:
        ValueError: as `AttentionLayer`; and a rank or width below 1.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, *, rank: int = 2, hidden_dim: int | None = None, **options: Any
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.rank = require_count("rank", rank)
        hidden = require_count("hidden_dim", 2 * self.num_heads * self.rank if hidden_dim is None else hidden_dim)
        like: dict[str, Any] = {"dtype": self.q_proj.weight.dtype, "device": self.q_proj.weight.device}
        self.mix_logits = nn.Parameter(torch.eye(self.num_heads, **like))
        self.mix_weights = nn.Parameter(torch.eye(self.num_heads, **like))
        like["bias"] = self.q_proj.bias is not None
        self.compose = nn.ModuleDict(
            {
                f"{stage}_{side}": _Composition(width, hidden, self.num_heads, self.rank, like)
                for stage in ("logits", "weights")
                for side, width in (("query", self.embed_dim), ("key", self.kdim))
            }
        )

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        q, k, v = self._project(query, key, value)
        allowed = self._allowed_pairs(mask, is_causal, v.shape[0], q.shape[-2], k.shape[-2], q.device)
        scores = (self._rotated(q, positions) * self.scale) @ self._rotated(k, positions).transpose(-1, -2)
        weights = pattern_weights(
            self._composed("logits", self.mix_logits, scores, query, key),
            pattern=self.pattern,
            allowed=None if allowed is None else allowed[:, None],
        )
        weights = self._composed("weights", self.mix_weights, weights, query, key)
        return apply_weights(F.dropout(weights, self.dropout, self.training), v)

    def _composed(self, stage: str, mix: Tensor, maps: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The maps, (batch, heads, queries, keys), mixed over the heads."""
        of_query = (mix + self.compose[f"{stage}_query"](query)).to(maps.dtype)
        of_key = self.compose[f"{stage}_key"](key).to(maps.dtype)
        return torch.einsum("bihg,bgij->bhij", of_query, maps) + torch.einsum("bjhg,bgij->bhij", of_key, maps)


class _Composition(nn.Module):
    """The matrices M of tokens: (batch, tokens, width) -> (batch, tokens, heads, heads)."""

    def __init__(self, width: int, hidden: int, heads: int, rank: int, like: dict[str, Any]) -> None:
        super().__init__()
        self.heads, self.rank = heads, rank
        self.inner = nn.Linear(width, hidden, **like)
        self.outer = nn.Linear(hidden, 2 * heads * rank, **like)
        self.gate = nn.Linear(width, heads, **like)

    def forward(self, x: Tensor) -> Tensor:
        """A B^T + diag(tanh(x W_G))."""
        a, b = self.outer(F.gelu(self.inner(x))).unflatten(-1, (2, self.heads, self.rank)).unbind(-3)
        return a @ b.transpose(-1, -2) + torch.diag_embed(self.gate(x).tanh())
