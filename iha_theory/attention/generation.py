"""Generation token by token: keys and values of earlier tokens are kept, so that each step forms only its own."""

import torch
from torch import Tensor

from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.masks import Pairs
from iha_theory.attention.mixing.interleaved import InterleavedHeadAttention
from iha_theory.attention.patterns import attend
from iha_theory.attention.projections.grouped import GroupedQueryAttention
from iha_theory.attention.projections.multihead import MultiHeadAttention
from iha_theory.rounding import require_count


class KeyValueCache:
    """Keys and values of the tokens so far; with a window, of those that later tokens may still see.

    Args:
        window: the layer's; None: all tokens are kept.
        mixed: IHA's pseudo-keys and pseudo-values are kept, H P heads of them, rather than its base keys and values,
            of which each step then forms them anew.
    """

    def __init__(self, window: int | None = None, *, mixed: bool = False) -> None:
        self.window, self.mixed = None if window is None else require_count("window", window), mixed
        self.tokens = 0
        """Tokens so far."""
        self._begin = self._end = 0  # of what is kept, in the buffers
        self._buffers: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        """Tokens that are kept."""
        return self._end - self._begin

    @property
    def numbers(self) -> int:
        """Numbers that are kept. Buffers hold up to twice as many, so that they seldom move."""
        return sum(x[:, self._begin : self._end].numel() for x in self._buffers)

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Takes up what new tokens need, each (batch, tokens, ...); gives it for them and all tokens kept, in order.

        What later tokens do not see is not kept. No gradient flows into the cache.

        Raises:
            ValueError: shapes that differ from those of the tokens before in more than their number.
        """
        count = new[0].shape[1]
        for buffer, x in zip(self._buffers, new, strict=False):
            if (buffer.shape[0], *buffer.shape[2:]) != (x.shape[0], *x.shape[2:]):
                was, now = (tuple(shape) for shape in (buffer[:, :0].shape, x[:, :0].shape))
                raise ValueError(f"the cache is of another batch or layer: shape {was}, and now {now}")
        if not self._buffers or self._end + count > self._buffers[0].shape[1]:
            self._move(new, 2 * (len(self) + count))
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[:, self._end : self._end + count] = x.detach()
        self._end += count
        self.tokens += count
        seen = tuple(buffer[:, self._begin : self._end] for buffer in self._buffers)
        if self.window is not None:
            self._begin = max(self._begin, self._end - self.window + 1)
        return seen

    def _move(self, new: tuple[Tensor, ...], capacity: int) -> None:
        buffers = tuple(x.new_empty(x.shape[0], capacity, *x.shape[2:]) for x in new)
        for buffer, old in zip(buffers, self._buffers, strict=bool(self._buffers)):
            buffer[:, : len(self)] = old[:, self._begin : self._end]
        self._buffers, self._begin, self._end = buffers, 0, len(self)


def extend(
    layer: AttentionLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: KeyValueCache,
    *,
    positions: Tensor | None = None,
) -> Tensor:
    """Causal outputs of the tokens that follow those in the cache, which takes them up.

    Called with the tokens of a sequence in any pieces, it gives what layer(..., is_causal=True) gives for all of them.

    Args:
        layer: MHA, GQA or IHA.
        query: the new tokens, as keys and values too; shapes as of `AttentionLayer.forward`.
        key: as many tokens.
        value: as many tokens.
        cache: of this layer's window; the same one for all pieces.
        positions: rotary positions of the new tokens; default: how many tokens came before each.

    Raises:
        TypeError: another layer.
        ValueError: as the layer; a cache of another window.
    """
    kept = isinstance(layer, MultiHeadAttention | GroupedQueryAttention | InterleavedHeadAttention)
    if not kept or {type(layer).forward, type(layer)._attended} != {AttentionLayer.forward, AttentionLayer._attended}:
        raise TypeError(
            f"layer of type {type(layer).__name__}: accepted are MHA, GQA and IHA, which keep keys and values"
        )
    if cache.window != layer.window:
        raise ValueError(f"cache of window {cache.window}, but the layer's is {layer.window}")
    layer._check(query, key, value, positions)
    if query.shape[1] != key.shape[1]:
        raise ValueError(f"query and key differ in tokens: {query.shape[1]} and {key.shape[1]}")
    if positions is None:
        positions = torch.arange(cache.tokens, cache.tokens + query.shape[1], device=query.device)
    q, k, v = layer._project(query, key, value)
    causality, pseudo = "token", 1
    if isinstance(layer, InterleavedHeadAttention):
        causality, pseudo = layer.causality, layer.num_pseudo_heads
        q = layer._virtual(q, layer.alpha_q, positions)
        k, v = _interleaved(layer, k, v, cache, positions)
    else:
        q = layer._rotated(q, positions)
        k, v = (x.transpose(1, 2) for x in cache.extend(_by_token(layer._rotated(k, positions)), _by_token(v)))
        if isinstance(layer, GroupedQueryAttention):
            group = layer.num_heads // layer.num_kv_heads
            k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    pairs = Pairs(None, causality, layer.window, pseudo, (k.shape[2] - q.shape[2]) // pseudo)
    out = attend(q, k, v, pattern=layer.pattern, scale=layer.scale, pairs=pairs)
    return layer._merge(layer._collapse(out) if isinstance(layer, InterleavedHeadAttention) else out)


def _interleaved(
    layer: InterleavedHeadAttention, k: Tensor, v: Tensor, cache: KeyValueCache, positions: Tensor
) -> tuple[Tensor, Tensor]:
    """Pseudo-keys and pseudo-values of all tokens, (batch, heads, tokens * P, width)."""
    if cache.mixed:
        mixed = layer._virtual(k, layer.alpha_k, positions), layer._virtual(v, layer.alpha_v, None, rotary=None)
        kept = cache.extend(*(_by_token(x).unflatten(1, (-1, layer.num_pseudo_heads)) for x in mixed))
        return kept[0].flatten(1, 2).transpose(1, 2), kept[1].flatten(1, 2).transpose(1, 2)
    if layer.rotary == "virtual":  # pseudo-heads turn by angles of their own, after they are mixed
        at = layer._positions(positions, k.shape[2], k.device)
        keys, values, at = cache.extend(_by_token(k), _by_token(v), at)
        keys = layer._virtual(keys.transpose(1, 2), layer.alpha_k, at)
    else:  # all heads of a token turn alike, so that it may be done before
        keys, values = cache.extend(_by_token(layer._rotated(k, positions)), _by_token(v))
        keys = layer._virtual(keys.transpose(1, 2), layer.alpha_k, None, rotary=None)
    return keys, layer._virtual(values.transpose(1, 2), layer.alpha_v, None, rotary=None)


def _by_token(x: Tensor) -> Tensor:
    """(batch, heads, tokens, width) as (batch, tokens, heads, width)."""
    return x.transpose(1, 2)
