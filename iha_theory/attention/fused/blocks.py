"""Masks and windows over original tokens: blocks of query tokens, each against the keys that it may see.

A window of W tokens lets a block of c tokens see c + W - 1 tokens (c + 2 W - 2 if it is not causal), so that with
c = W / 4 the kernel does 5/4 of the work of the window. No mask is larger than one block's.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from iha_theory.attention.fused import kernel

ROWS = 256
"""Virtual queries of a block without a window; from 192 on the kernel works in larger tiles."""
LEAST_ROWS = 64
"""Virtual queries of a block at least: fewer cost more in calls than they save in keys."""


class Pattern(NamedTuple):
    """Which virtual tokens see which.

    pseudo: P, consecutive virtual tokens of one original token. causality: "none", "token" or "virtual". window: token
    n sees n' with |n - n'| < window. mask: (1 or batch, query tokens, key tokens), True where it may see.
    """

    pseudo: int
    causality: str
    window: int | None
    mask: Tensor | None


class Block(NamedTuple):
    """Virtual rows, the virtual columns that they may see, and what is added to their scores."""

    rows: slice
    columns: slice
    bias: Tensor | None


def blocks(pattern: Pattern, queries: int, keys: int, like: Tensor) -> Iterator[Block]:
    """All blocks, for numbers of original tokens; biases of the dtype and device of `like`."""
    pseudo, window = pattern.pseudo, pattern.window
    biases: dict[tuple[int, int, int], Tensor | None] = {}  # without a mask, blocks inside the sequence share theirs
    size = max(1, (ROWS if window is None else max(LEAST_ROWS, math.ceil(window * pseudo / 4))) // pseudo)
    for start in range(0, queries, size):
        stop = min(start + size, queries)
        first = 0 if window is None else max(0, start - window + 1)
        last = keys if window is None else min(keys, stop + window - 1)
        if pattern.causality != "none":
            last = min(last, stop)
        shape = stop - start, last - first, start - first
        if shape not in biases or pattern.mask is not None:
            biases[shape] = _bias(pattern, range(start, stop), range(first, last), like)
        yield Block(slice(start * pseudo, stop * pseudo), slice(first * pseudo, last * pseudo), biases[shape])


def _bias(pattern: Pattern, rows: range, columns: range, like: Tensor) -> Tensor | None:
    """0 or -inf for a block, (1 or batch, 1, rows * P, columns * P)."""
    allowed = allowed_block(pattern, rows, columns, like.device)
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=like.dtype, device=like.device).masked_fill_(~allowed, -math.inf)[:, None]


def allowed_block(pattern: Pattern, rows: range, columns: range, device: torch.device) -> Tensor | None:
    """True where a virtual token may see another, (1 or batch, rows * P, columns * P); None: everywhere."""
    allowed = None if pattern.mask is None else pattern.mask[:, rows.start : rows.stop, columns.start : columns.stop]
    if pattern.causality != "none" or pattern.window is not None:
        near = torch.ones(1, len(rows), len(columns), dtype=torch.bool, device=device)
        back = rows.start - columns.start  # the own token's column is its row plus this
        if pattern.causality != "none":
            near = near.tril_(back)
        if pattern.window is not None:
            near = near.triu_(back - pattern.window + 1).tril_(back + pattern.window - 1)
        allowed = near if allowed is None else allowed & near
    if allowed is None:
        return None
    if pattern.pseudo > 1:
        allowed = allowed.repeat_interleave(pattern.pseudo, -2).repeat_interleave(pattern.pseudo, -1)
        if pattern.causality == "virtual":
            allowed = allowed.tril_((rows.start - columns.start) * pattern.pseudo)
    return allowed


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, pattern: Pattern) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps, as `kernel.forward`; 0 for a query that sees no key."""
    queries, keys = (x.shape[2] // pattern.pseudo for x in (q, k))
    out, lse = kernel.like(q), None
    for rows, columns, bias in blocks(pattern, queries, keys, q):
        some, sums = kernel.forward(q[:, :, rows], k[:, :, columns], v[:, :, columns], scale, bias=bias)
        if lse is None:
            lse = kernel.token_major(sums.new_empty(q.shape[:-1]))
        out[:, :, rows], lse[:, :, rows] = some, sums
    assert lse is not None
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, pattern: Pattern
) -> kernel.Gradients:
    """Gradients of queries, keys and values; those of keys and values are added up over the blocks in float32."""
    queries, keys = (x.shape[2] // pattern.pseudo for x in (q, k))
    sums = torch.promote_types(q.dtype, torch.float32)
    total = kernel.Gradients(
        kernel.token_major(q), *(kernel.token_major(x.to(sums)).zero_() for x in (k, v))
    )
    for rows, columns, bias in blocks(pattern, queries, keys, q):
        some = kernel.backward(
            *(grad[:, :, rows], q[:, :, rows], k[:, :, columns], v[:, :, columns], out[:, :, rows], lse[:, :, rows]),
            scale,
            bias=bias,
        )
        total.q[:, :, rows] = some.q
        total.k[:, :, columns].add_(some.k)
        total.v[:, :, columns].add_(some.v)
    return kernel.Gradients(total.q, total.k.to(k.dtype), total.v.to(v.dtype))
