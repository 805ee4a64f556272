"""Multi-Head Attention (MHA)."""

import torch
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import attend


@blueprint.definition(
    "mha",
    "MHA: head h applies the map S_h that the pattern makes of Q_h K_h^T to the values X B_h; an "
    "output projection or none",
    uses=("pattern",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class MultiHeadAttention(AttentionLayer):
    """MHA: out = concat_h sigma(scale Q_h K_h^T) V_h, then W_O (Sec. 3.1).

    Q_h = query W_Q,h and so on; sigma is the pattern. Arguments, shapes and errors: `AttentionLayer`. rotary "token"
    and "virtual" are the same here.
    """

    def heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None,
        is_causal: bool,
        positions: Tensor | None,
    ) -> Tensor:
        """One pattern a head: see the class."""
        options = self._options(mask, is_causal, q, k, v)
        return attend(self._rotated(q, positions), self._rotated(k, positions), v, **options)

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """The same function as a `torch.nn.MultiheadAttention`, with copied weights.

        Raises:
            ValueError: a layer with `bias_k`, `bias_v` or `add_zero_attn`, which have no counterpart here.
        """
        if layer.bias_k is not None or layer.bias_v is not None or layer.add_zero_attn:
            raise ValueError("a torch layer with add_bias_kv or add_zero_attn has no counterpart here")
        weight = layer.out_proj.weight
        new = cls(
            layer.embed_dim,
            layer.num_heads,
            kdim=layer.kdim,
            vdim=layer.vdim,
            head_dim=layer.head_dim,
            bias=layer.in_proj_bias is not None,
            dropout=layer.dropout,
            dtype=weight.dtype,
            device=weight.device,
        )
        if layer.in_proj_weight is not None:
            weights = layer.in_proj_weight.chunk(3)
        else:
            weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        with torch.no_grad():
            for linear, w in zip((new.q_proj, new.k_proj, new.v_proj), weights, strict=True):
                linear.weight.copy_(w)
            if layer.in_proj_bias is not None:
                biases = layer.in_proj_bias.chunk(3)
                for linear, b in zip((new.q_proj, new.k_proj, new.v_proj), biases, strict=True):
                    linear.bias.copy_(b)
            assert new.out_proj is not None
            new.out_proj.load_state_dict(layer.out_proj.state_dict())
        return new.train(layer.training)
