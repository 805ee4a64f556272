"""2-simplicial attention: trilinear logits of a query and two keys."""

from typing import Any

import torch
from torch import Tensor

from iha_theory import blueprint
from iha_theory.attention.higher_order.pairs import PairAttention


@blueprint.definition(
    "simplicial",
    "2-simplicial attention: a query attends to pairs of keys, a pair's value is the product of two",
    uses=("pattern",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class TwoSimplicialAttention(PairAttention):
    """2-simplicial attention: trilinear logits of a query and two keys, values multiplied elementwise.

        s_ijl = scale sum_c Q_h[i,c] K_h[j,c] K'_h[l,c]
        out_i = concat_h sum_jl sigma(s_i)_jl (V_h[j] * V'_h[l])

    Source: Clift et al., arXiv 1909.00668; Roy et al., arXiv 2507.02754. In self-attention, layer(x, x, x), this is
    the layer of the sources. Pairs, masks and ranks: `PairAttention`.

    Raises:
        ValueError: as `AttentionLayer`; and rotary positions: the trilinear logit is not a function of the differences
            of three rotated positions.
    """

    def __init__(self, embed_dim: int, num_heads: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, **options)
        if self.rotary is not None:
            raise ValueError(
                f"rotary {self.rotary!r}: accepted is None, as trilinear logits do not keep rotary positions relative"
            )

    def scores(self, q: Tensor, k: Tensor, k2: Tensor) -> Tensor:
        """See the class."""
        first = torch.einsum("bhic,bhjc->bhijc", q * self.scale, k)
        return first @ k2.transpose(-1, -2).unsqueeze(2)
