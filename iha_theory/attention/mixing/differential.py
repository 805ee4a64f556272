"""Differential Attention: the difference of two attention maps a head."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import attend


@blueprint.definition(
    "differential",
    "differential attention: head h applies S1_h - lambda_h S2_h",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class DifferentialAttention(AttentionLayer):
    """Differential attention: each head subtracts a second map from its first.

        out = concat_h (sigma(scale Q1_h K1_h^T) - lambda_h sigma(scale Q2_h K2_h^T)) V_h

    Source: Ye et al., arXiv 2410.05258. Of that paper's layer this one keeps the difference of two maps with a learned
    factor, and leaves out what matters for optimisation or is not linear in the values:

    - lambda is a parameter itself, one number a head, where the paper learns exp(a . b) - exp(c . d) + lambda_init, one
      a layer; the reparametrisation changes how lambda moves, not what it can be;
    - no normalisation of each head's output (the paper's GroupNorm), and so no factor 1 - lambda_init either, which a
      `v_proj` or `out_proj` holds as well;
    - widths are those of `AttentionLayer`: head_dim is the width of each of the two maps. For the paper's sizes, give
      head_dim = embed_dim / (2 num_heads) and value_head_dim = embed_dim / num_heads.

    As an operator on content a head has one map, the difference: rank at most H, as MHA's (docs/results.md T1).

    Args beyond `AttentionLayer`:
        lambda_init: where every lambda_h starts. The parameter `lam` is (H,). `q_proj` and `k_proj` make 2 H heads:
            the H of the first maps, then the H of the second.

    Raises:
        ValueError: as `AttentionLayer`; and a lambda_init that is not finite.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, lambda_init: float = 0.8, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if not math.isfinite(lambda_init):
            raise ValueError(f"lambda_init must be a finite number, got {lambda_init!r}")
        self.lam = nn.Parameter(torch.full_like(self.q_proj.weight[:num_heads, 0], lambda_init))

    def _projection_heads(self) -> tuple[int, int, int]:
        return 2 * self.num_heads, 2 * self.num_heads, self.num_heads

    @property
    def attention_maps(self) -> int:
        """2 H: two maps a head."""
        return 2 * self.num_heads

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        """Two ordinary attentions over the same values, subtracted."""
        options = self._options(mask, is_causal, q, k, v)
        first_q, second_q = self._rotated(q, positions).chunk(2, dim=1)
        first_k, second_k = self._rotated(k, positions).chunk(2, dim=1)
        second = attend(second_q, second_k, v, **options)
        return attend(first_q, first_k, v, **options) - self.lam[:, None, None] * second
