"""What `bench layer` measures: forward and backward passes at one size, each as a function without arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention

BATCH, WIDTH = 2, 256


@dataclass(frozen=True)
class Size:
    """N tokens, H heads, P pseudo-heads; and a window, in tokens."""

    tokens: int
    heads: int
    pseudo: int
    window: int | None = None

    def __str__(self) -> str:
        window = "" if self.window is None else f" window={self.window}"
        return f"N={self.tokens} H={self.heads} P={self.pseudo}{window}"


SIZES = (Size(128, 8, 8), Size(256, 8, 4), Size(512, 4, 4), Size(512, 4, 2))
WINDOW = Size(2048, 4, 2, 256)
"""A window of N / 8."""


def floor(size: Size, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """The arithmetic that no IHA avoids: the bare causal kernel on (B, H, N P, d), and four projections of D x D."""
    attention = kernel(size, device, dtype)
    projections = [nn.Linear(WIDTH, WIDTH, bias=False, device=device, dtype=dtype) for _ in range(4)]
    x = torch.randn(BATCH, size.tokens, WIDTH, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn_like(x)

    def run() -> None:
        attention()
        for projection in projections:
            projection(x).backward(grad)
        _forget(x, *(projection.weight for projection in projections))

    return run


def kernel(size: Size, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """Torch's causal attention of all virtual tokens, forward and backward."""
    shape = BATCH, size.heads, size.tokens * size.pseudo, WIDTH // size.heads
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
    grad = torch.randn_like(q)

    def run() -> None:
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(grad)
        _forget(q, k, v)

    return run


def kernel_flops(size: Size) -> int:
    """Of `kernel`'s products of matrices, 2 forward and 5 backward, for the pairs that causality leaves."""
    virtual = size.tokens * size.pseudo
    return 7 * 2 * BATCH * WIDTH * virtual * (virtual + 1) // 2


def _pass(layer: nn.Module, size: Size, device: str, dtype: torch.dtype) -> Callable[[], None]:
    """Forward and backward of causal self-attention, parameters and input."""
    layer = layer.to(device=device, dtype=dtype)
    x = torch.randn(BATCH, size.tokens, WIDTH, device=device, dtype=dtype, requires_grad=True)
    grad = torch.randn_like(x)

    def run() -> None:
        layer(x, x, x, is_causal=True).backward(grad)
        _forget(x, *layer.parameters())

    return run


def _forget(*leaves: Tensor) -> None:
    for leaf in leaves:
        leaf.grad = None


class PlainIHA(InterleavedHeadAttention):
    """IHA as one writes it down first: einsum, a mask of all pairs of virtual tokens, an explicit softmax."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **call: Any) -> Tensor:
        """Causal self-attention of softmax layers without rotary positions or a window."""
        tokens, pseudo = query.shape[1], self.num_pseudo_heads
        mixed = []
        for x, project, alpha in (
            (query, self.q_proj, self.alpha_q),
            (key, self.k_proj, self.alpha_k),
            (value, self.v_proj, self.alpha_v),
        ):
            heads = project(x).unflatten(-1, (self.num_heads, -1))
            mixed.append(torch.einsum("bnmd,mhj->bhnjd", heads, alpha).flatten(2, 3))
        scores = torch.einsum("bhqd,bhkd->bhqk", mixed[0], mixed[1]) * self.scale
        at = torch.arange(tokens * pseudo, device=query.device)
        at = at // pseudo if self.causality == "token" else at
        weights = scores.masked_fill(at[:, None] < at, -torch.inf).softmax(-1)
        out = torch.einsum("bhqk,bhkd->bhqd", weights, mixed[2]).unflatten(2, (tokens, pseudo))
        assert self.out_proj is not None
        return self.out_proj(torch.einsum("bhnjd,ohj->bnod", out, self.collapse).flatten(2))


def ways(size: Size, device: str = "cpu", dtype: torch.dtype = torch.float32) -> dict[str, Callable[[], None]]:
    """All ways of a size by name; MHA has as many tokens, and no pseudo-heads."""
    names = (
        ("virtual", "virtual, no window") if size.window else ("floor", "virtual", "token", "plain", "mha", "kernel")
    )
    if size.window:
        names += ("token", "token, no window")
    return {name: way(name, size, device, dtype) for name in names}


def way(name: str, size: Size, device: str = "cpu", dtype: torch.dtype = torch.float32) -> Callable[[], None]:
    """One of `ways`."""
    torch.manual_seed(0)
    if name in ("floor", "kernel"):
        return (floor if name == "floor" else kernel)(size, device, dtype)
    if name == "mha":
        return _pass(MultiHeadAttention(WIDTH, size.heads), size, device, dtype)
    causality = "token" if name.startswith("token") else "virtual"
    window = None if name.endswith("no window") else size.window
    kind = PlainIHA if name == "plain" else InterleavedHeadAttention
    layer = kind(WIDTH, size.heads, num_pseudo_heads=size.pseudo, causality=causality, init="random", window=window)
    return _pass(layer, size, device, dtype)
