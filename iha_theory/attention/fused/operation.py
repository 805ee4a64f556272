"""The routes of this folder as one torch operation, `iha_theory::attention`.

As an operation of torch's own kind it is one node for autograd, it is opaque to torch.compile, and under torch.func's
vmap the mapped axis joins the batch. Second derivatives are those of attention with the mask written out. torch.func's
own derivatives cannot enter it: `takes` says so, and such calls go another way.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha_theory.attention.fused import blocks, kernel, token_causal
from iha_theory.attention.masks import Pairs

LONG = 768
"""Queries from which on torch's kernel works in tiles of 256 of them."""


def takes(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs) -> bool:
    """Whether `attention` can run this: on the CPU, some tokens, one dtype, causality in one sequence.

    Other devices have other kernels; there the mask is written out.
    """
    if q.device.type != "cpu" or not q.dtype == k.dtype == v.dtype or q.dtype not in kernel.DTYPES:
        return False
    if _has_tangent(q) or _has_tangent(k) or _has_tangent(v):
        return False
    if pairs.causality != "none" and not pairs.narrow and (pairs.start or q.shape[2] != k.shape[2]):
        return False
    return min(q.numel(), k.numel(), v.numel()) > 0 and not any(_is_differentiated_by_func(x) for x in (q, k, v))


def is_mapped(*tensors: Tensor) -> bool:
    """Whether torch.func.vmap maps one of them."""
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    return not torch.compiler.is_compiling() and any(functorch.is_batchedtensor(x) for x in tensors)


def _has_tangent(x: Tensor) -> bool:
    """Whether a derivative is taken forwards, which the operation has no rule for."""
    return not torch.compiler.is_compiling() and forward_ad.unpack_dual(x).tangent is not None


def _is_differentiated_by_func(x: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    functorch: Any = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue]
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_gradtrackingtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return False


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, pairs: Pairs) -> Tensor:
    """Softmax attention of virtual tokens, (batch, heads, queries * P, value width); 0 for a query that sees no key.

    Args:
        q: (batch, heads, queries * P, width); see `takes`.
        k: (batch, heads, keys * P, width).
        v: (batch, heads, keys * P, value width).
        scale: factor on <q, k>.
        pairs: which virtual tokens see which.
    """
    width = max(q.shape[-1], v.shape[-1])
    fitted = (kernel.fit_width(x, width) for x in (q, k, v))
    out, _ = _forward(*fitted, pairs.mask, scale, pairs.causality, pairs.window, pairs.pseudo, pairs.start)
    return out[..., : v.shape[-1]]


def dense(q: Tensor, k: Tensor, v: Tensor, scale: float, pairs: Pairs) -> Tensor:
    """The same by definition, with the mask of all pairs: slow, and differentiable as often as one likes."""
    allowed = pairs.written_out(q, k)
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, scale=scale)


def _long(q: Tensor, pairs: Pairs) -> bool:
    """Whether nothing but causality restricts the pairs, in so long a sequence that the kernel's own is the quickest.

    On fewer queries the kernel skips no keys before the 512th, and blocks form fewer pairs (docs/speed.md).
    """
    return pairs.causality != "none" and not pairs.narrow and q.shape[2] >= LONG


def _run(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    scale: float,
    causality: str,
    window: int | None,
    pseudo: int,
    start: int,
) -> tuple[Tensor, Tensor]:
    pairs = Pairs(mask, causality, window, pseudo, start)  # type: ignore[arg-type]
    if _long(q, pairs):
        return token_causal.forward(q, k, v, scale, pseudo if causality == "token" else 1)
    return blocks.forward(q, k, v, scale, pairs)


def _run_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    mask: Tensor | None,
    scale: float,
    causality: str,
    window: int | None,
    pseudo: int,
    start: int,
) -> tuple[Tensor, Tensor, Tensor]:
    pairs = Pairs(mask, causality, window, pseudo, start)  # type: ignore[arg-type]
    if _long(q, pairs):
        return token_causal.backward(grad, q, k, v, out, lse, scale, pseudo if causality == "token" else 1)
    return blocks.backward(grad, q, k, v, out, lse, scale, pairs)


def _defined(name: str, run: Callable[..., Any]) -> str:
    """Defines the operation piece by piece: the first call of a `torch.library.custom_op` loads torch's compiler.

    That takes some seconds and 140 MiB.
    """
    qualified = f"iha_theory::{name}"
    schema = torch.library.infer_schema(run, mutates_args=())
    torch.library.define(qualified, schema, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.impl(qualified, "cpu", run)
    return qualified


FORWARD, BACKWARD = _defined("attention", _run), _defined("attention_backward", _run_backward)
_forward = torch.ops.iha_theory.attention.default
_backward = torch.ops.iha_theory.attention_backward.default


@torch.library.register_fake(FORWARD)  # pyright: ignore[reportUntypedFunctionDecorator]
def _(q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    sums = torch.promote_types(q.dtype, torch.float32)
    return kernel.like(q), kernel.token_major(q[..., 0].to(sums))


@torch.library.register_fake(BACKWARD)  # pyright: ignore[reportUntypedFunctionDecorator]
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return kernel.token_major(q), kernel.token_major(k), kernel.token_major(v)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, mask)


def _first_derivative(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_backward(kernel.fit_width(grad, 0), *ctx.saved_tensors, *ctx.rest), *(None,) * 6


def _save_gradients(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    grad, q, k, v, _, _, mask, *ctx.rest = inputs
    ctx.save_for_backward(grad, q, k, v, mask)


def _second_derivative(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """Outputs and log-sum-exps are functions of queries, keys and values: what hangs on them is in those gradients."""
    *saved, mask = ctx.saved_tensors
    scale, *rest = ctx.rest
    more = torch.is_grad_enabled()  # a third derivative may follow
    with torch.enable_grad():
        own = [x.view_as(x) if more and x.requires_grad else x.detach().requires_grad_() for x in saved]
        grad, q, k, v = own
        first = torch.autograd.grad(dense(q, k, v, scale, Pairs(mask, *rest)), (q, k, v), grad, create_graph=True)
    return *torch.autograd.grad(first, own, grads, create_graph=more), *(None,) * 8


def _mapped(operation: Any, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
    """The mapped axis joins the batch, which every tensor has first; a mask that is one for all stays so."""
    size, flat = info.batch_size, list(arguments)
    batch = arguments[0].shape[0 if in_dims[0] is None else 1 if in_dims[0] == 0 else 0]
    for i, (x, at) in enumerate(zip(arguments, in_dims, strict=True)):
        if not isinstance(x, Tensor) or (x.dtype == torch.bool and at is None and x.shape[0] == 1):
            continue
        moved = x.expand(size, *x.shape) if at is None else x.movedim(at, 0)
        flat[i] = moved.expand(size, batch, *moved.shape[2:]).flatten(0, 1)
    outputs = operation(*flat)
    return tuple(x.unflatten(0, (size, batch)) for x in outputs), (0,) * len(outputs)


torch.library.register_autograd(FORWARD, _first_derivative, setup_context=_save)
torch.library.register_autograd(BACKWARD, _second_derivative, setup_context=_save_gradients)
torch.library.register_vmap(FORWARD, partial(_mapped, _forward))
torch.library.register_vmap(BACKWARD, partial(_mapped, _backward))
