"""Causality by token: virtual token (n,j) sees (n',j') if n' <= n.

That is ordinary causality of the virtual sequence, and beside it j' > j within each token: N blocks of P - 1 queries
(all pseudo-heads but the last) and P - 1 keys (all but the first), of which the pairs j <= j' - 1 are allowed. The
kernel does the first, one batched product the second, and log-sum-exps merge them.
"""

import math

import torch
from torch import Tensor

from iha_theory.attention.fused import kernel


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, pseudo: int) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps of (batch, heads, tokens * pseudo, width); see `kernel.forward`."""
    out, lse = kernel.forward(q, k, v, scale, is_causal=True)
    if pseudo == 1:
        return out, lse
    scores = _scores(_early(q, pseudo), _late(k, pseudo), scale)
    own, some = _rows(out, pseudo), lse.unflatten(-1, (-1, pseudo))[..., :-1]
    merged = torch.logaddexp(some, scores.logsumexp(-1))
    weights = scores.sub_(merged.unsqueeze(-1)).exp_()
    rest = weights @ _late(v, pseudo)
    own.copy_(torch.addcmul(rest, own, (some - merged).exp_().unsqueeze(-1)))
    some.copy_(merged)
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, pseudo: int
) -> kernel.Gradients:
    """Gradients of queries, keys and values from that of the outputs."""
    total = kernel.backward(grad, q, k, v, out, lse, scale, is_causal=True)
    if pseudo == 1:
        return total
    early, late, above = _early(q, pseudo), _late(k, pseudo), _early(grad, pseudo)
    weights = _scores(early, late, scale).sub_(lse.unflatten(-1, (-1, pseudo))[..., :-1, None]).exp_()
    _columns(total.v, pseudo).add_(weights.mT @ above)
    slopes = above @ _late(v, pseudo).mT
    slopes.sub_((above * _rows(out, pseudo)).sum(-1, keepdim=True)).mul_(weights).mul_(scale)
    _rows(total.q, pseudo).add_(slopes @ late)
    _columns(total.k, pseudo).add_(slopes.mT @ early)
    return total


def _scores(early: Tensor, late: Tensor, scale: float) -> Tensor:
    """Of each token's early queries and late keys, -inf where the kernel has them: (batch, heads, tokens, P-1, P-1)."""
    scores = (early @ late.mT).mul_(scale)
    below = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril_(-1)
    return scores.masked_fill_(below, -math.inf)


def _rows(x: Tensor, pseudo: int) -> Tensor:
    """All pseudo-heads but the last of each token, (batch, heads, tokens, P - 1, width): a view."""
    return x.unflatten(2, (-1, pseudo))[..., :-1, :]


def _columns(x: Tensor, pseudo: int) -> Tensor:
    """All pseudo-heads but the first of each token: a view."""
    return x.unflatten(2, (-1, pseudo))[..., 1:, :]


def _early(x: Tensor, pseudo: int) -> Tensor:
    """`_rows` in the precision in which the kernel adds."""
    return _rows(x, pseudo).to(torch.promote_types(x.dtype, torch.float32))


def _late(x: Tensor, pseudo: int) -> Tensor:
    return _columns(x, pseudo).to(torch.promote_types(x.dtype, torch.float32))
