"""Torch's fused attention kernel for CPUs with its log-sum-exp, forward and backward.

F.scaled_dot_product_attention hides the log-sum-exp, which is what parts of one softmax are merged by: with a row's
outputs o_1, o_2 over disjoint sets of keys and log-sum-exps l_1, l_2 of its scores there,

    l = log(e^l_1 + e^l_2),   o = e^(l_1 - l) o_1 + e^(l_2 - l) o_2

is its output over all of them. The kernel's backward needs only scores, l and o to form a part's gradients, so that on
each part it is called with the merged o and l, and the gradients add up.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
"""What the kernel takes."""


class Gradients(NamedTuple):
    """Of queries, keys and values."""

    q: Tensor
    k: Tensor
    v: Tensor


def forward(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, is_causal: bool = False, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Outputs (batch, heads, queries, width), and log-sum-exps (batch, heads, queries) in float32 at least.

    Args:
        q: queries (batch, heads, queries, width), as all of them with a last axis of stride 1.
        k: keys (batch, heads, keys, width).
        v: values of the same shape as the keys.
        scale: factor on <q, k>.
        is_causal: query i sees keys 0..i.
        bias: added to the scores, (1 or batch, 1, queries, keys), 0 or -inf. A row of -inf gives output and
            log-sum-exp 0.
    """
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, is_causal, attn_mask=bias, scale=scale
    )


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    *,
    is_causal: bool = False,
    bias: Tensor | None = None,
) -> Gradients:
    """The part's gradients, from output and log-sum-exp over all parts; see the module."""
    return Gradients(
        *torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, k, v, out, lse, 0.0, is_causal, attn_mask=bias, scale=scale
        )
    )


def fit_width(x: Tensor, width: int) -> Tensor:
    """x with zeros behind its last axis up to this width, and with stride 1 there: neither scores nor outputs change.

    The kernel takes queries, keys and values of one width.
    """
    if x.shape[-1] < width:
        x = F.pad(x, (0, width - x.shape[-1]))  # keeps strides as in channels_last
    return x if x.stride(-1) == 1 else x.contiguous()


def token_major(like: Tensor) -> Tensor:
    """An empty tensor of this shape (batch, heads, tokens, ...), which lies in memory as (batch, tokens, heads, ...).

    The kernel's own layout, in which heads stand side by side for the output projection.
    """
    return torch.empty_like(like.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)


def like(q: Tensor) -> Tensor:
    """An empty tensor of the shape and layout of the kernel's outputs: as the queries lie."""
    return torch.empty_like(q.transpose(1, 2)).transpose(1, 2)
