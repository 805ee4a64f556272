"""The routes of this folder as one torch operation, `iha_theory::attention`.

As an operation of torch's own kind it is one node for autograd, it is opaque to torch.compile, and under torch.func's
vmap the mapped axis joins the batch. Second derivatives are those of attention with the mask written out.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha_theory.attention.fused import blocks, kernel, token_causal
from iha_theory.attention.fused.blocks import Pattern


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, pattern: Pattern) -> Tensor:
    """Softmax attention of virtual tokens, (batch, heads, queries * P, value width); 0 for a query that sees no key.

    Args:
        q: (batch, heads, queries * P, width), on the CPU, of a dtype in `kernel.DTYPES`.
        k: (batch, heads, keys * P, width).
        v: (batch, heads, keys * P, value width).
        scale: factor on <q, k>.
        pattern: which virtual tokens see which.
    """
    width = max(q.shape[-1], v.shape[-1])
    fitted = (kernel.fit_width(x, width) for x in (q, k, v))
    out, _ = _forward(*fitted, scale, *pattern)
    return out[..., : v.shape[-1]]


def dense(q: Tensor, k: Tensor, v: Tensor, scale: float, pattern: Pattern) -> Tensor:
    """The same by definition, with the mask of all pairs: slow, and differentiable as often as one likes."""
    tokens = (range(x.shape[2] // pattern.pseudo) for x in (q, k))
    allowed = blocks.allowed_block(pattern, *tokens, q.device)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=None if allowed is None else allowed[:, None], scale=scale
        )


@torch.library.custom_op("iha_theory::attention", mutates_args=())
def _forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    pseudo: int,
    causality: str,
    window: int | None,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor]:
    if causality == "token" and window is None and mask is None:
        return token_causal.forward(q, k, v, scale, pseudo)
    return blocks.forward(q, k, v, scale, Pattern(pseudo, causality, window, mask))


@torch.library.custom_op("iha_theory::attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    pseudo: int,
    causality: str,
    window: int | None,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    if causality == "token" and window is None and mask is None:
        return token_causal.backward(grad, q, k, v, out, lse, scale, pseudo)
    return blocks.backward(grad, q, k, v, out, lse, scale, Pattern(pseudo, causality, window, mask))


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    sums = torch.promote_types(q.dtype, torch.float32)
    return kernel.like(q), kernel.token_major(q[..., 0].to(sums))


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return kernel.token_major(q), kernel.token_major(k), kernel.token_major(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, ctx.scale, ctx.pseudo, ctx.causality, ctx.window, mask = inputs
    ctx.save_for_backward(q, k, v, *output, mask)


def _first_derivative(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, out, lse, mask = ctx.saved_tensors
    pattern = ctx.pseudo, ctx.causality, ctx.window, mask
    return *_backward(kernel.fit_width(grad, 0), q, k, v, out, lse, ctx.scale, *pattern), *(None,) * 5


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    grad, q, k, v, _, _, ctx.scale, ctx.pseudo, ctx.causality, ctx.window, mask = inputs
    ctx.save_for_backward(grad, q, k, v, mask)


def _second_derivative(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Outputs and log-sum-exps are functions of queries, keys and values: what hangs on them is in those gradients."""
    *saved, mask = ctx.saved_tensors
    with torch.enable_grad():
        grad, q, k, v = (x.detach().requires_grad_() for x in saved)
        out = dense(q, k, v, ctx.scale, Pattern(ctx.pseudo, ctx.causality, ctx.window, mask))
        first = torch.autograd.grad(out, (q, k, v), grad, create_graph=True)
    return *torch.autograd.grad(first, (grad, q, k, v), grads), *(None,) * 7


def _mapped(operation: Any, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
    """The mapped axis joins the batch, which every tensor has first; a mask too, if it is not one for all."""
    tensors = [isinstance(x, Tensor) for x in arguments]
    size, flat = info.batch_size, list(arguments)
    batch = next(x.shape[0 if at is None else 1] for x, at in zip(arguments, in_dims, strict=True))
    for i in range(len(flat)):
        if not tensors[i] or (flat[i].dtype == torch.bool and in_dims[i] is None and flat[i].shape[0] == 1):
            continue
        moved = flat[i].expand(size, *flat[i].shape) if in_dims[i] is None else flat[i].movedim(in_dims[i], 0)
        flat[i] = moved.expand(size, batch, *moved.shape[2:]).flatten(0, 1)
    outputs = operation(*flat)
    return tuple(x.unflatten(0, (size, batch)) for x in outputs), (0,) * len(outputs)


_forward.register_autograd(_first_derivative, setup_context=_save)
_backward.register_autograd(_second_derivative, setup_context=_save_gradients)
_forward.register_vmap(partial(_mapped, _forward))
_backward.register_vmap(partial(_mapped, _backward))
