"""Attention patterns: how scores become weights over the keys.

With queries q, keys k, values v and scores s_ij = scale <q_i, k_j>:

- softmax: out_i = sum_j exp(s_ij) v_j / sum_j exp(s_ij), over the allowed j;
- linear: out_i = sum_j s_ij v_j (no normalisation; "linear attention" in the paper, Sec. 3.1);
- hard: out_i = the mean of v_j over the allowed j with the largest s_ij (softmax at temperature 0, App. B.3).

A query with no allowed key gives 0, with zero gradient.

Hard attention is for float32 and float64: half precision rounds different scores to a tie, and overflows where ties are
counted and their values added. The layers turn to float32 between their projections.

Limit: a value that is not finite reaches every row whose weights it is multiplied with, a weight of 0 included
(0 * inf = NaN), as in torch's own attention. Finite keys and values at forbidden places never matter.

Second derivatives of softmax attention need float64: torch's fused kernels for lower precision have none.

Where causality is by token, or a mask or window is given, or torch.func.vmap maps the inputs, softmax attention takes
the routes of `fused`, without a mask of all pairs. It takes one for few tokens outside vmap, with dropout, off the CPU,
and where torch.func differentiates.
"""

import math
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha_theory import blueprint
from iha_theory.attention.fused import operation
from iha_theory.attention.masks import Pairs

Pattern = Literal["softmax", "linear", "hard"]
PATTERNS = get_args(Pattern)
EVERYWHERE = Pairs()
DENSE = 128**2
"""Up to so many pairs of virtual tokens a mask is written out: the steps that save it would take longer."""


def default_scale(pattern: Pattern, head_dim: int) -> float:
    """1/sqrt(head_dim) for softmax and hard; 1 for linear, as in the paper's linear constructions."""
    return 1.0 if pattern == "linear" else 1 / math.sqrt(head_dim)


@blueprint.definition(
    "pattern",
    "a pattern makes attention maps of scores: softmax of a row, hard (equal weight on the largest), "
    "or the scores themselves (linear)",
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
def attend(
    q: Float[Tensor, "b_qk heads queries head_dim"],
    k: Float[Tensor, "b_qk heads keys head_dim"],
    v: Float[Tensor, "batch heads keys value_dim"],
    *,
    pattern: Pattern,
    scale: float,
    pairs: Pairs = EVERYWHERE,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads queries value_dim"]:
    """Attention outputs, (batch, heads, queries, value_dim).

    Args:
        q: queries; a batch of 1 is shared by all values, and the pattern is then formed only once.
        k: keys, with the same batch as the queries.
        v: values.
        pattern: "softmax", "linear" or "hard", as in the module docstring.
        scale: factor on <q, k>.
        pairs: which queries may attend to which keys, its mask of batch 1 or the values' batch; all if left out.
        dropout: probability with which a weight is zeroed (the rest is scaled up to compensate).

    Source: Sec. 3.1; hard attention, App. B.3.
    """
    batch = v.shape[0]
    share = q.shape[0] == 1 and batch > 1 and (pairs.mask is None or pairs.mask.shape[0] == 1)
    if share:
        v = _batch_into_width(v)
    elif q.shape[0] != batch:
        q, k = q.expand(batch, -1, -1, -1), k.expand(batch, -1, -1, -1)

    if pattern == "softmax":
        if scale <= 0:  # torch's kernel scales what it has masked
            q, scale = q * scale, 1.0
        out = _softmax(q, k, v, scale, pairs, dropout)
    else:
        scores = (q @ k.transpose(-1, -2)) * scale
        out = (_linear if pattern == "linear" else _hard)(scores, v, pairs.written_out(q, k), dropout)

    return _batch_out_of_width(out, batch) if share else out


def pattern_weights(
    scores: Float[Tensor, "b_qk heads queries keys"],
    *,
    pattern: Pattern,
    allowed: Bool[Tensor, "b_mask 1 queries keys"] | None = None,
) -> Float[Tensor, "batch heads queries keys"]:
    """The weights themselves, for layers that change them: out_i = sum_j weights_ij v_j is what `attend` gives.

    A weight that is not allowed is exactly 0, in a row with no allowed key too.

    Args:
        scores: s_ij, scaled.
        pattern: "softmax", "linear" or "hard", as in the module docstring.
        allowed: True where a query may attend to a key; None allows all.
    """
    if pattern == "linear":
        return scores if allowed is None else scores.masked_fill(~allowed, 0.0)
    if allowed is not None:
        some = allowed.any(-1, keepdim=True)
        scores = scores.masked_fill(some & ~allowed, -math.inf)  # a row of -inf alone has NaN on its way back
    if pattern == "softmax":
        weights = scores.softmax(-1)
    else:
        ties = scores == scores.amax(-1, keepdim=True)
        weights = ties.to(scores.dtype) / ties.sum(-1, keepdim=True)
    return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


def apply_weights(
    weights: Float[Tensor, "b_w heads queries keys"], v: Float[Tensor, "batch heads keys value_dim"]
) -> Float[Tensor, "batch heads queries value_dim"]:
    """sum_j weights_ij v_j; weights of batch 1 are shared by all values and used once."""
    batch = v.shape[0]
    if weights.shape[0] == 1 and batch > 1:
        return _batch_out_of_width(weights @ _batch_into_width(v), batch)
    return weights @ v


def _batch_into_width(v: Tensor) -> Tensor:
    """(batch, heads, keys, width) -> (1, heads, keys, batch * width), where one pattern serves the whole batch."""
    return v.permute(1, 2, 0, 3).flatten(2).unsqueeze(0)


def _batch_out_of_width(out: Tensor, batch: int) -> Tensor:
    return out.squeeze(0).unflatten(-1, (batch, -1)).permute(2, 0, 1, 3)


def _softmax(q: Tensor, k: Tensor, v: Tensor, scale: float, pairs: Pairs, dropout: float) -> Tensor:
    ordered = pairs.causality == "virtual" or (pairs.causality == "token" and pairs.pseudo == 1)
    plainly_causal = ordered and not pairs.narrow and pairs.start == 0 and q.shape[-2] == k.shape[-2]
    everything = pairs.causality == "none" and not pairs.narrow
    size = q.shape[-2] * k.shape[-2]
    if operation.is_mapped(q, k, v):  # by torch.func.vmap, which torch's own kernel cannot follow
        fused = v.shape[-1] <= 2 * q.shape[-1]  # the kernel widens queries and keys to the values' width
    else:
        fused = size > DENSE and not everything and (not plainly_causal or q.shape[-2] < operation.LONG)
    if fused and dropout == 0 and operation.takes(q, k, v, pairs):
        return operation.attention(q, k, v, scale, pairs)
    allowed = None if plainly_causal or everything else pairs.written_out(q, k)

    def sdpa() -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=allowed, dropout_p=dropout, is_causal=plainly_causal, scale=scale
        )

    if q.dtype != torch.float64:
        return sdpa()
    with sdpa_kernel(SDPBackend.MATH):  # the fused CPU kernel has no second derivatives
        return sdpa()


def _linear(scores: Tensor, v: Tensor, allowed: Tensor | None, dropout: float) -> Tensor:
    if allowed is not None:
        scores = scores.masked_fill(~allowed, 0.0)
    return F.dropout(scores, dropout) @ v


def _hard(scores: Tensor, v: Tensor, allowed: Tensor | None, dropout: float) -> Tensor:
    if scores.numel() == 0:  # no queries or no keys: nothing to take the largest of
        return scores @ v
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    ties = scores == scores.amax(-1, keepdim=True)
    if allowed is not None:
        ties = ties & allowed
    count = ties.sum(-1, keepdim=True)
    if allowed is not None:  # a row with no allowed key sums to 0: divide it by 1, since 0/0 has NaN gradients
        count = count.masked_fill(~allowed.any(-1, keepdim=True), 1)
    # Divide the sum, not the weights: (H x) / H is exact where (1/H) (H x) need not be.
    return (F.dropout(ties.to(v.dtype), dropout) @ v) / count
