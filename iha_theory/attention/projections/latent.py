"""Multi-head latent attention (MLA): keys and values from one narrow latent vector a token."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.projections.multihead import MultiHeadAttention
from iha_theory.rounding import require_count


@blueprint.definition(
    "latent",
    "multi-head latent attention: MHA whose keys and values are made of one narrow latent a token",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class MultiHeadLatentAttention(MultiHeadAttention):
    """MLA: MHA whose keys and values are read off a latent vector of width c.

        c^K = key W_DK,  c^V = value W_DV,   K_h = c^K W_UK,h,  V_h = c^V W_UV,h,   Q_h = query W_UQ,h
        out = concat_h sigma(scale (Q_h K_h^T + QR_h KR^T)) V_h

    In the source keys and values are of the same tokens and share the latent. So W_DK = W_DV, one parameter `kv_down`,
    if kdim = vdim; inputs of different widths have `k_down` and `v_down`. Queries pass a latent too if
    query_latent_dim is given. Source: DeepSeek-AI, arXiv 2405.04434, Sec. 2.1; its norms of the latents are left out,
    as they are not linear in the values.

    With rotary positions Q_h and K_h are not turned. A further part is: QR_h of each head, KR = key W_KR one for all
    heads, both of width rope_dim. The default scale is then 1/sqrt(head_dim + rope_dim).

    As an operator on content it has one map a head: rank at most H, as MHA's (docs/attentions.md).

    Args beyond `AttentionLayer`:
        latent_dim: c; default 4 head_dim.
        query_latent_dim: width of the queries' latent; None: queries are projected at once.
        rope_dim: width of the rotary part, even; default half of head_dim, rounded up to an even number.

    Raises:
        ValueError: as `AttentionLayer`; a width below 1, an odd rope_dim, or one without rotary positions.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        latent_dim: int | None = None,
        query_latent_dim: int | None = None,
        rope_dim: int | None = None,
        scale: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, scale=scale, **options)
        self.latent_dim = require_count("latent_dim", 4 * self.head_dim if latent_dim is None else latent_dim)
        weight, bias = self.q_proj.weight, self.q_proj.bias is not None

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=bias, dtype=weight.dtype, device=weight.device)

        self.q_down: nn.Linear | None = None
        into_queries = self.embed_dim
        if query_latent_dim is not None:
            into_queries = require_count("query_latent_dim", query_latent_dim)
            self.q_down = linear(self.embed_dim, into_queries)
            self.q_proj = linear(into_queries, self.q_proj.out_features)
        if self.kdim == self.vdim:
            self.kv_down = linear(self.kdim, self.latent_dim)
        else:
            self.k_down, self.v_down = linear(self.kdim, self.latent_dim), linear(self.vdim, self.latent_dim)
        self.k_proj = linear(self.latent_dim, self.k_proj.out_features)
        self.v_proj = linear(self.latent_dim, self.v_proj.out_features)
        self.rope_dim = 0
        if self.rotary is None:
            if rope_dim is not None:
                raise ValueError(f"rope_dim is for rotary layers: this one was made with rotary=None, got {rope_dim!r}")
            return
        self.rope_dim = require_count("rope_dim", -(-self.head_dim // 4) * 2 if rope_dim is None else rope_dim)
        if self.rope_dim % 2:
            raise ValueError(f"rotary positions turn pairs of coordinates: rope_dim must be even, got {rope_dim}")
        self.q_rope = linear(into_queries, self.num_heads * self.rope_dim)
        self.k_rope = linear(self.kdim, self.rope_dim)
        if scale is None and self.pattern != "linear":
            self.scale = 1 / math.sqrt(self.head_dim + self.rope_dim)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """With the rotary part, if there is one, behind the other in queries and keys."""
        joint = self.kdim == self.vdim
        latent_k, latent_v = (
            (self.kv_down(key), self.kv_down(value)) if joint else (self.k_down(key), self.v_down(value))
        )
        latent_q = query if self.q_down is None else self.q_down(query)
        q = self._split(self._up(self.q_proj, latent_q), self.head_dim)
        k = self._split(self._up(self.k_proj, latent_k), self.head_dim)
        v = self._split(self._up(self.v_proj, latent_v), self.value_head_dim)
        if self.rope_dim:
            turned_q = self._split(self._up(self.q_rope, latent_q), self.rope_dim)
            turned_k = self._split(self.k_rope(key), self.rope_dim)
            q = torch.cat((q, turned_q), -1)
            k = torch.cat((k, turned_k.expand(-1, self.num_heads, -1, -1)), -1)
        return q, k, v

    def _up(self, linear: nn.Linear, latent: Tensor) -> Tensor:
        """A second projection, in the precision that the pattern needs."""
        if self.pattern != "hard":
            return linear(latent)
        work = torch.promote_types(latent.dtype, torch.float32)
        return F.linear(latent.to(work), linear.weight.to(work), None if linear.bias is None else linear.bias.to(work))

    def _rotated(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """The last rope_dim coordinates rotated."""
        if not self.rope_dim:
            return x
        plain, turned = x.split([self.head_dim, self.rope_dim], -1)
        return torch.cat((plain, super()._rotated(turned, positions)), -1)
