"""Causality by token: virtual token (n,j) sees (n',j') if n' <= n.

That is ordinary causality of the virtual sequence, and beside it j' > j within each token. The kernel does the first.
The second is P (P - 1) / 2 pairs a token, taken by their distance t = j' - j: all queries (n,j) with j + t < P against
the keys t behind them, entry by entry. Log-sum-exps merge them. (As products of matrices, one a token and head, these
are so small that they take up to three times as long.)
"""

import torch
from torch import Tensor

from iha_theory.attention.fused import kernel


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, pseudo: int) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps of (batch, heads, tokens * pseudo, width); see `kernel.forward`."""
    out, lse = kernel.forward(q, k, v, scale, is_causal=True)
    if pseudo == 1:
        return out, lse
    wide = out.to(lse.dtype)
    queries, keys, values, outputs, sums = (_by_token(x, pseudo, lse.dtype) for x in (q, k, v, wide, lse))
    scores = [_scores(queries[early], keys[late], scale) for early, late in _pairs(pseudo)]
    merged = sums.clone()
    for some, (early, _) in zip(scores, _pairs(pseudo), strict=True):
        merged[early] = torch.logaddexp(merged[early], some)
    outputs.mul_(sums.sub_(merged).exp_().unsqueeze(-1))
    for some, (early, late) in zip(scores, _pairs(pseudo), strict=True):
        outputs[early].addcmul_(some.sub_(merged[early]).exp_().unsqueeze(-1), values[late])
    sums.copy_(merged)
    return wide.to(out.dtype), lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, pseudo: int
) -> kernel.Gradients:
    """Gradients of queries, keys and values from that of the outputs."""
    total = kernel.backward(grad, q, k, v, out, lse, scale, is_causal=True)
    if pseudo == 1:
        return total
    wide = [x.to(lse.dtype) for x in total]
    above, queries, keys, values, outputs, sums = (_by_token(x, pseudo, lse.dtype) for x in (grad, q, k, v, out, lse))
    grad_q, grad_k, grad_v = (_by_token(x, pseudo, lse.dtype) for x in wide)
    share = (above * outputs).sum(-1)
    for early, late in _pairs(pseudo):
        weights = _scores(queries[early], keys[late], scale).sub_(sums[early]).exp_()
        grad_v[late].addcmul_(weights.unsqueeze(-1), above[early])
        slopes = (above[early] * values[late]).sum(-1).sub_(share[early]).mul_(weights).mul_(scale).unsqueeze(-1)
        grad_q[early].addcmul_(slopes, keys[late])
        grad_k[late].addcmul_(slopes, queries[early])
    return kernel.Gradients(*(x.to(q.dtype) for x in wide))


def _pairs(pseudo: int) -> list[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """For each distance t the queries j and the keys j + t, as places in what `_by_token` gives."""
    every = slice(None)
    return [((every, every, slice(pseudo - t)), (every, every, slice(t, None))) for t in range(1, pseudo)]


def _scores(queries: Tensor, keys: Tensor, scale: float) -> Tensor:
    """scale <q, k> of queries and keys side by side, (batch, tokens, P - t, heads)."""
    return (queries * keys).sum(-1).mul_(scale)


def _by_token(x: Tensor, pseudo: int, dtype: torch.dtype) -> Tensor:
    """(batch, heads, tokens * P, ...) as (batch, tokens, P, heads, ...); a view if it has the dtype."""
    return x.to(dtype).transpose(1, 2).unflatten(1, (-1, pseudo))
