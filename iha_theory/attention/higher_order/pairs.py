"""What layers share whose query attends to pairs of keys."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import apply_weights, pattern_weights


class PairAttention(AttentionLayer):
    """A query attends to pairs of keys, whose values are multiplied elementwise; a layer gives the logits.

        out_i = concat_h sum_jl sigma(s_i)_jl (V_h[j] * V'_h[l])

    with sigma over all pairs (j, l). K' and V' come from `key`, as K does. So in the position-only setting the second
    value is position-only and the layer is linear in content, with one operator for each value coordinate: rank at
    most H d_v (docs/results.md T1).

    A mask, causality and the window hold for both keys: the pair (j, l) is allowed if i may attend to j and to l, so
    causal row i (0-based) uses (i+1)^2 pairs. Time and memory are N^3 a head.

    Args beyond `AttentionLayer`: none; `k2_proj` makes K' (`r_proj` in Strassen attention, so that the weights of one
    do not load into the other), `v2_proj` makes V'.

    Raises:
        ValueError: as `AttentionLayer`.
    """

    second_key: ClassVar[str] = "k2_proj"
    """The name of the projection that makes K'."""

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        weight = self.k_proj.weight
        like: dict[str, Any] = {
            "bias": self.k_proj.bias is not None,
            "dtype": weight.dtype,
            "device": weight.device,
        }
        setattr(self, self.second_key, nn.Linear(self.kdim, self.k_proj.out_features, **like))
        self.v2_proj = nn.Linear(self.kdim, self.v_proj.out_features, **like)

    @property
    def second_keys(self) -> nn.Linear:
        """The projection that makes K'."""
        linear = self.get_submodule(self.second_key)
        assert isinstance(linear, nn.Linear)
        return linear

    def scores(self, q: Tensor, k: Tensor, k2: Tensor) -> Tensor:
        """The logits, scaled, (batch, heads, queries, keys, keys), from (batch, heads, tokens, head_dim) of each."""
        raise NotImplementedError

    @property
    def attention_maps(self) -> int:
        """H; but a map here is of tokens by pairs of tokens, so it costs N ordinary ones."""
        return self.num_heads

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        q, k, k2 = (
            self._split(projection(x), self.head_dim)
            for projection, x in ((self.q_proj, query), (self.k_proj, key), (self.second_keys, key))
        )
        v, v2 = (
            self._split(projection(x), self.value_head_dim)
            for projection, x in ((self.v_proj, value), (self.v2_proj, key))
        )
        queries, keys = q.shape[-2], k.shape[-2]
        allowed = self._allowed_pairs(mask, is_causal, v.shape[0], queries, keys, q.device)
        if allowed is not None:
            allowed = (allowed.unsqueeze(-1) & allowed.unsqueeze(-2)).flatten(-2)[:, None]
        scores = self.scores(*(self._rotated(x, positions) for x in (q, k, k2)))
        weights = pattern_weights(scores.flatten(-2), pattern=self.pattern, allowed=allowed)
        weights = F.dropout(weights, self.dropout, self.training).unflatten(-1, (keys, keys))
        # First over l, which leaves one ordinary map (i, j) for each value coordinate; then over j.
        maps = (weights @ v2.unsqueeze(2)).permute(0, 1, 4, 2, 3).flatten(1, 2)
        coordinates = v.transpose(-1, -2).flatten(1, 2).unsqueeze(-1)
        heads = apply_weights(maps, coordinates).squeeze(-1).unflatten(1, (self.num_heads, self.value_head_dim))
        return heads.transpose(-1, -2)
