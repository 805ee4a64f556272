"""FLOPs of a torch module, counted while it runs."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode


def flops(module: nn.Module, *shapes: tuple[int, ...], **options: Any) -> int:
    """FLOPs of module(*inputs, **options) for inputs of these shapes; see `flops_of`."""
    state = {name: torch.empty_like(tensor, device="meta") for name, tensor in module.state_dict().items()}
    dtype = next(module.parameters()).dtype
    return flops_of(lambda *inputs: functional_call(module, state, inputs, options), *shapes, dtype=dtype)


def flops_of(function: Callable[..., Any], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> int:
    """FLOPs of function(*inputs) for inputs of these shapes, by torch's counter: two for a multiplication and addition.

    It runs on torch's meta device: all operations happen, on shapes without numbers. There every attention pattern is
    made of products of matrices, where the CPU has a fused kernel that the counter does not know.

    `torch.einsum` makes an entry-by-entry product of tensors where its sum has one term (a mixing of one head). That is
    counted here as the product of matrices that it stands for, 2 FLOPs an entry. Rotary layers have other
    such products.
    """
    inputs = (torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mul: _entrywise}) as counter:
        function(*inputs)
    return counter.get_total_flops()


def _entrywise(a: Any, b: Any, *_: Any, out_shape: torch.Size, **__: Any) -> int:
    """The counter gives shapes for tensors, and leaves numbers, which only scale, as they are."""
    return 2 * prod(out_shape) if isinstance(a, torch.Size) and isinstance(b, torch.Size) else 0
