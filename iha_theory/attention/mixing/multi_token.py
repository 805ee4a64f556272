"""Multi-token attention (MTA): logits convolved over queries and keys, weights mixed over heads."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import apply_weights, pattern_weights
from iha_theory.rounding import require_count


@blueprint.definition(
    "multi-token",
    "multi-token attention: logits convolved over queries and keys, weights mixed over heads",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class MultiTokenAttention(AttentionLayer):
    """MTA: a logit sees a window of queries and keys, and weights are mixed over a group of heads.

        s_h = scale Q_h K_h^T, 0 where i may not attend to j
        t_h[i,j] = sum_{a,b} kernel[h,a,b] s_h[i - (c_q - 1) + a, j - floor(c_k / 2) + b]   (0 outside the sequences)
        w_h = sigma(t_h),   u_h = sum_g mix_weights[h,g] w_g over the heads g of h's group,   out = concat_h u_h V_h

    So a query sees itself and the c_q - 1 queries before it, and each key c_k keys around it, also without causality.
    Masks, causality and windows are applied twice, to s and to t: what is forbidden for a query has no part in its row
    of s, nor a weight. A row before it enters with what that row may attend to. Dropout acts on u. Kernels start as
    the identity, and so does the mixing: MHA. Source: Golovneva et al., arXiv 2504.00927, key-query convolution before
    sigma and head mixing behind it; its norm of each head's output is left out, as it is not linear in the values.

    As an operator on content it has one map a head: rank at most H (docs/attentions.md).

    Args beyond `AttentionLayer`:
        query_window: c_q.
        key_window: c_k. The parameter `kernel` is (H, c_q, c_k).
        head_group: how many heads are mixed together, a divisor of num_heads; default all. The parameter
            `mix_weights` is (H / group, group, group), indexed [group, to, from].

    Raises:
        ValueError: as `AttentionLayer`; a window below 1, a head_group that does not divide num_heads.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        query_window: int = 6,
        key_window: int = 11,
        head_group: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        self.query_window = require_count("query_window", query_window)
        self.key_window = require_count("key_window", key_window)
        self.head_group = require_count("head_group", self.num_heads if head_group is None else head_group)
        if self.num_heads % self.head_group:
            raise ValueError(f"head_group must divide num_heads {num_heads}, got {head_group}")
        like: dict[str, Any] = {"dtype": self.q_proj.weight.dtype, "device": self.q_proj.weight.device}
        kernel = torch.zeros(self.num_heads, self.query_window, self.key_window, **like)
        kernel[:, -1, self.key_window // 2] = 1
        self.kernel = nn.Parameter(kernel)
        own = torch.eye(self.head_group, **like).repeat(self.num_heads // self.head_group, 1, 1)
        self.mix_weights = nn.Parameter(own)

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        """Convolve the logits, mask, normalise, mix the weights: see the class."""
        allowed = self._allowed_pairs(mask, is_causal, v.shape[0], q.shape[-2], k.shape[-2], q.device)
        allowed = None if allowed is None else allowed[:, None]
        scores = (self._rotated(q, positions) * self.scale) @ self._rotated(k, positions).transpose(-1, -2)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, 0.0)
        weights = pattern_weights(self._convolved(scores), pattern=self.pattern, allowed=allowed)
        grouped = weights.unflatten(1, (-1, self.head_group))
        weights = torch.einsum("ghm,bgmij->bghij", self.mix_weights.to(weights.dtype), grouped).flatten(1, 2)
        return apply_weights(F.dropout(weights, self.dropout, self.training), v)

    def _convolved(self, scores: Tensor) -> Tensor:
        """t from s, (batch, heads, queries, keys)."""
        left = self.key_window // 2
        padded = F.pad(scores, (left, self.key_window - 1 - left, self.query_window - 1, 0))
        kernel = self.kernel.to(scores.dtype).unsqueeze(1)
        return F.conv2d(padded, kernel, groups=self.num_heads)
