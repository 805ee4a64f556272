"""Masks and windows over original tokens: blocks of query tokens, each against the keys that it may see.

A window of W tokens lets a block of c tokens see c + W - 1 tokens (c + 2 W - 2 if it is not causal), so that with
c = W / 4 the kernel does about 5/4 of the work of the window. No mask is larger than one block's.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from iha_theory.attention.fused import kernel
from iha_theory.attention.masks import Pairs

ROWS = 128
"""Virtual queries of a block without a window."""
LEAST_ROWS = 64
"""Virtual queries of a block at least: fewer cost more in calls than they save in keys."""
TILED_ROWS = 192
"""From so many queries on the kernel works in tiles of 64 rather than 32: worth a block twice as large."""

LINE = 16
"""Float32 numbers of a cache line: rows of scores that are not a multiple of it take 1.05 times as long."""


class Block(NamedTuple):
    """Virtual rows, the virtual columns that they may see, and what is added to their scores."""

    rows: slice
    columns: slice
    bias: Tensor | None


def blocks(pairs: Pairs, queries: int, keys: int, like: Tensor) -> Iterator[Block]:
    """All blocks, for numbers of original tokens; biases of the dtype and device of `like`."""
    pseudo, window = pairs.pseudo, pairs.window
    biases: dict[tuple[int, int, int], Tensor | None] = {}  # without a mask, blocks inside the sequence share theirs
    size = max(1, (ROWS if window is None else _window_rows(window * pseudo)) // pseudo)
    for start in range(0, queries, size):
        rows = range(start, min(start + size, queries))
        columns = _whole_lines(pairs.seen(rows, keys), keys, pseudo)
        shape = len(rows), len(columns), rows.start - columns.start
        if shape not in biases or pairs.mask is not None:
            biases[shape] = _bias(pairs.block(rows, columns, like.device), like.dtype)
        yield Block(_virtual(rows, pseudo), _virtual(columns, pseudo), biases[shape])


def _whole_lines(columns: range, keys: int, pseudo: int) -> range:
    """More columns, if there are any before or behind, so that rows of scores start at cache lines."""
    more = -len(columns) % (LINE // math.gcd(LINE, pseudo))
    start = max(0, columns.start - more)
    return range(start, min(keys, columns.stop + more - (columns.start - start)))


def _window_rows(window: int) -> int:
    """Virtual queries of a block, for a window of so many virtual tokens."""
    rows = max(LEAST_ROWS, math.ceil(window / 4))
    return TILED_ROWS if rows < TILED_ROWS <= 2 * rows else rows


def _virtual(tokens: range, pseudo: int) -> slice:
    return slice(tokens.start * pseudo, tokens.stop * pseudo)


def _bias(allowed: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """0 where allowed and -inf elsewhere, (1 or batch, 1, rows, columns)."""
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, -math.inf)[:, None]


def forward(q: Tensor, k: Tensor, v: Tensor, scale: float, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """Outputs and log-sum-exps, as `kernel.forward`; 0 for a query that sees no key."""
    queries, keys = (x.shape[2] // pairs.pseudo for x in (q, k))
    out, lse = kernel.like(q), None
    for rows, columns, bias in blocks(pairs, queries, keys, q):
        some, sums = kernel.forward(q[:, :, rows], k[:, :, columns], v[:, :, columns], scale, bias=bias)
        if lse is None:
            lse = kernel.token_major(sums.new_empty(q.shape[:-1]))
        out[:, :, rows], lse[:, :, rows] = some, sums
    assert lse is not None
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float, pairs: Pairs
) -> kernel.Gradients:
    """Gradients of queries, keys and values; those of keys and values are added up over the blocks in float32."""
    queries, keys = (x.shape[2] // pairs.pseudo for x in (q, k))
    sums = torch.promote_types(q.dtype, torch.float32)
    total = kernel.Gradients(kernel.token_major(q), *(kernel.token_major(x.to(sums)).zero_() for x in (k, v)))
    for rows, columns, bias in blocks(pairs, queries, keys, q):
        some = kernel.backward(
            *(grad[:, :, rows], q[:, :, rows], k[:, :, columns], v[:, :, columns], out[:, :, rows], lse[:, :, rows]),
            scale,
            bias=bias,
        )
        total.q[:, :, rows] = some.q
        total.k[:, :, columns].add_(some.k)
        total.v[:, :, columns].add_(some.v)
    return kernel.Gradients(total.q, total.k.to(k.dtype), total.v.to(v.dtype))
