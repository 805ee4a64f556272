"""Gated attention: a sigmoid gate on the output of each head."""

from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.projections.multihead import MultiHeadAttention

Gate = Literal["elementwise", "headwise"]
GATES = get_args(Gate)


@blueprint.definition(
    "gated",
    "gated attention: MHA with a sigmoid gate on the output of each head, for each coordinate or for the head",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class GatedAttention(MultiHeadAttention):
    """MHA whose heads' outputs are gated by the query's token, before the output projection.

        out_i = concat_h g_h(i) * (sigma(scale Q_h K_h^T) V_h)_i,   g_h(i) = sigmoid(query_i W_G,h)

    elementwise: W_G,h makes d_v numbers, one for each coordinate of the head. headwise: one number a head.
    Source: Qiu et al., arXiv 2505.06708, its gate behind the attention (G1), multiplicative and of each head its own.

    The gate sees the query's input only. As an operator on content, layer(pos, pos, X), an elementwise gate makes
    each value coordinate its own map, diag(g_hc) S_h: rank at most H d_v, and H with a headwise gate
    (docs/attentions.md).

    Args beyond `AttentionLayer`:
        gate: "elementwise" or "headwise". The parameter `gate_proj` makes the logits of the gates.

    Raises:
        ValueError: as `AttentionLayer`; and another gate.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, gate: Gate = "elementwise", **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if gate not in GATES:
            raise ValueError(f"unknown gate {gate!r}: accepted are {', '.join(GATES)}")
        self.gate: Gate = gate
        gates = self.num_heads * (self.value_head_dim if gate == "elementwise" else 1)
        weight, bias = self.q_proj.weight, self.q_proj.bias is not None
        self.gate_proj = nn.Linear(self.embed_dim, gates, bias=bias, dtype=weight.dtype, device=weight.device)

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        heads = super()._attended(query, key, value, mask, is_causal, positions)
        gates = torch.sigmoid(self.gate_proj(query)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        return gates * heads
