"""Grouped-Query Attention (GQA) and, with one key/value head, Multi-Query Attention (MQA)."""

from typing import Any

from torch import Tensor

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import attend
from iha_theory.rounding import require_count


@blueprint.definition(
    "gqa",
    "grouped- and multi-query attention: MHA whose heads share keys and values in groups",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class GroupedQueryAttention(AttentionLayer):
    """GQA: H query heads share G key/value heads, H/G of them each.

        out = concat_h sigma(scale Q_h K_g^T) V_g,   g = floor(h G / H)   (0-based)

    num_kv_heads = 1 is MQA (Shazeer, arXiv 1911.02150); num_kv_heads = H is MHA.
    Source: Ainslie et al., arXiv 2305.13245.

    As an operator on content it has one attention map a head, so its rank is at most H, as MHA's (docs/results.md T1).

    Args beyond `AttentionLayer`:
        num_kv_heads: G, a divisor of num_heads. `k_proj` and `v_proj` make G heads.

    Raises:
        ValueError: as `AttentionLayer`; and a num_kv_heads that does not divide num_heads.
    """

    def __init__(self, embed_dim: int, num_heads: int, *, num_kv_heads: int, **options: Any) -> None:
        self.num_kv_heads = require_divisor("num_kv_heads", num_kv_heads, "num_heads", num_heads)
        super().__init__(embed_dim, num_heads, **options)

    def _projection_heads(self) -> tuple[int, int, int]:
        return self.num_heads, self.num_kv_heads, self.num_kv_heads

    def heads(
        self, q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        """Ordinary attention, in which each key/value head serves its group of query heads."""
        options = self._options(mask, is_causal, q, k, v)
        q, k = self._rotated(q, positions), self._rotated(k, positions)
        group = self.num_heads // self.num_kv_heads
        return attend(q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1), **options)


def require_divisor(name: str, value: int | None, of: str, whole: int) -> int:
    """The value, or the whole if there is none.

    Raises:
        ValueError: a value that is no divisor; a whole below 1.
    """
    whole = require_count(of, whole)
    value = whole if value is None else require_count(name, value)
    if whole % value:
        raise ValueError(f"{name} must divide {of} {whole}, got {value}")
    return value
