"""Talking-Heads Attention: heads mixed before and after the softmax."""

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import apply_weights, pattern_weights

Mix = Literal["both", "logits", "weights"]
MIXES = get_args(Mix)


@blueprint.definition(
    "talking-heads",
    "Talking-Heads attention: heads mix their scores before the softmax, their maps after it, or both",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class TalkingHeadsAttention(AttentionLayer):
    """Talking-Heads: H heads whose logits and whose weights are mixed over the heads.

        s_g = scale Q_g K_g^T,   t_h = sum_g mix_logits[h,g] s_g,   w_h = sigma(t_h),   u_h = sum_g mix_weights[h,g] w_g
        out = concat_h u_h V_h

    Masks, causality and windows act on the mixed logits t, so that a forbidden weight is exactly 0 in every w_g and in
    every mixture u_h: causal stays causal, and a query with no allowed key gives 0. Dropout acts on u.
    Source: Shazeer et al., arXiv 2003.02436.

    As an operator on content it still has one map u_h a head: rank at most H, as MHA's (docs/results.md T1).

    Args beyond `AttentionLayer`:
        mix: "both", "logits" (before sigma only) or "weights" (after sigma only). The parameters `mix_logits` and
            `mix_weights` are (H, H), indexed [to, from]; the one left out is None. Both start as the identity: MHA.

    Raises:
        ValueError: as `AttentionLayer`; and another mix.
    """

    mix_logits: nn.Parameter | None
    mix_weights: nn.Parameter | None

    def __init__(self, embed_dim: int, num_heads: int, *, mix: Mix = "both", **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if mix not in MIXES:
            raise ValueError(f"unknown mix {mix!r}: accepted are {', '.join(MIXES)}")
        weight = self.q_proj.weight
        for name, left_out in (("mix_logits", "weights"), ("mix_weights", "logits")):
            identity = nn.Parameter(torch.eye(num_heads, dtype=weight.dtype, device=weight.device))
            self.register_parameter(name, None if mix == left_out else identity)

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        """Mix the logits, mask, normalise, mix the weights: see the class."""
        allowed = self._allowed_pairs(mask, is_causal, v.shape[0], q.shape[-2], k.shape[-2], q.device)
        scores = (self._rotated(q, positions) * self.scale) @ self._rotated(k, positions).transpose(-1, -2)
        weights = pattern_weights(
            _over_heads(self.mix_logits, scores),
            pattern=self.pattern,
            allowed=None if allowed is None else allowed[:, None],
        )
        weights = _over_heads(self.mix_weights, weights)
        return apply_weights(F.dropout(weights, self.dropout, self.training), v)


def _over_heads(mix: Tensor | None, maps: Tensor) -> Tensor:
    return maps if mix is None else torch.einsum("hg,bgij->bhij", mix.to(maps.dtype), maps)
