"""Gated linear attention: what lies back decays by gates that the tokens between make."""

import math
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import apply_weights, pattern_weights


@blueprint.definition(
    "gated-linear",
    "gated linear attention: weights decay by gates that the tokens between query and key make",
    uses=("pattern",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class GatedLinearAttention(AttentionLayer):
    """Attention whose weights decay, by one gate a head and token, of the tokens between query and key.

        log a_h[l] = log sigmoid(key_l W_A,h) / temperature,      D_h[i,j] = sum of log a_h[l] over l between j and i
        linear:          w_h[i,j] = scale <Q_h[i], K_h[j]> exp(D_h[i,j])
        softmax, hard:   w_h[i] = sigma(scale <Q_h[i], K_h[j]> + D_h[i,j])_j
        out_i = concat_h sum_j w_h[i,j] V_h[j]

    *Between* is j < l <= i. With is_causal and the linear pattern this is the state-space layer S_i = a_i S_{i-1} +
    K_i V_i^T, out_i = Q_i S_i: gated linear attention (Yang et al., arXiv 2312.06635) with one gate a head in place of
    one a coordinate, which is the form of Mamba-2 (Dao and Gu, arXiv 2405.21060). The softmax pattern is the Forgetting
    Transformer's (Lin et al., arXiv 2503.02130).

    Causal by nature: **without is_causal** the layer sees both sides, and i < l <= j is between for later keys, so that
    D is symmetric in its two tokens. A token l that i may not attend to (mask, window) does not decay either, so what
    is hidden has no effect. All weights are formed, N^2 a head; there is no recurrent form here.

    As an operator on content, with gates of positions, it has one map a head: rank at most H (docs/attentions.md).

    Args beyond `AttentionLayer`:
        temperature: of the gates, positive. `decay_proj` makes their logits.

    Raises:
        ValueError: as `AttentionLayer`; a temperature that is not positive and finite. In a call: different numbers of
            queries and keys, which have no tokens between them.
    """

    one_sequence: ClassVar[bool] = True
    """Queries and keys are of the same tokens."""

    def __init__(self, embed_dim: int, num_heads: int, *, temperature: float = 16.0, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be a positive finite number, got {temperature!r}")
        self.temperature = float(temperature)
        weight, bias = self.k_proj.weight, self.k_proj.bias is not None
        self.decay_proj = nn.Linear(self.kdim, self.num_heads, bias=bias, dtype=weight.dtype, device=weight.device)

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        queries, keys = query.shape[-2], key.shape[-2]
        if queries != keys:
            raise ValueError(f"query and key differ in tokens: {queries} and {keys}, which gates between need equal")
        q, k, v = self._project(query, key, value)
        allowed = self._allowed_pairs(mask, is_causal, v.shape[0], queries, keys, q.device)
        allowed = None if allowed is None else allowed[:, None]
        scores = (self._rotated(q, positions) * self.scale) @ self._rotated(k, positions).transpose(-1, -2)
        decays = self._decays(key, allowed)
        scores = scores * decays.exp() if self.pattern == "linear" else scores + decays
        weights = pattern_weights(scores, pattern=self.pattern, allowed=allowed)
        return apply_weights(F.dropout(weights, self.dropout, self.training), v)

    def _decays(self, key: Tensor, allowed: Tensor | None) -> Tensor:
        """D, (batch, heads, queries, keys)."""
        logits = self._split(self.decay_proj(key), 1).squeeze(-1)
        gates = (F.logsigmoid(logits) / self.temperature).unsqueeze(-2)  # (batch, heads, 1, keys)
        if allowed is not None:
            gates = gates.expand(-1, -1, allowed.shape[-2], -1).masked_fill(~allowed, 0.0)
        sums = gates.cumsum(-1)
        own = sums.transpose(-1, -2) if allowed is None else sums.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        return -(sums - own).abs()  # all gates are at most 0, so sums fall along the keys
