"""Strassen attention: pairwise logits among a query and two keys."""

from typing import ClassVar

from torch import Tensor

from iha_theory import blueprint
from iha_theory.attention.higher_order.pairs import PairAttention


@blueprint.definition(
    "strassen",
    "Strassen attention: a query attends to pairs of keys, whose logit is a sum of three products",
    uses=("pattern",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class StrassenAttention(PairAttention):
    """Strassen attention: the logit of a pair of keys is a sum of three dot products, values multiplied elementwise.

        s_ijl = scale (<Q_h[i], K_h[j]> + <K_h[j], K'_h[l]> + <K'_h[l], Q_h[i]>)
        out_i = concat_h sum_jl sigma(s_i)_jl (V_h[j] * V'_h[l])

    Source: Kozachinskiy et al., arXiv 2501.19215. In self-attention, layer(x, x, x), this is the layer of the source.
    Its exponentials factor into three maps of tokens by tokens, so that fast products of matrices would do with less
    than N^3; here the pairs are formed, which needs no care with overflow and takes any mask. Pairs, masks and ranks:
    `PairAttention`. Rotary positions turn all three, and the three products see differences of positions only.
    """

    second_key: ClassVar[str] = "r_proj"

    def scores(self, q: Tensor, k: Tensor, k2: Tensor) -> Tensor:
        """See the class."""
        q, middle = q * self.scale, k * self.scale
        first = (q @ k.transpose(-1, -2)).unsqueeze(-1)
        both = (middle @ k2.transpose(-1, -2)).unsqueeze(-3)
        return first + both + (q @ k2.transpose(-1, -2)).unsqueeze(-2)
