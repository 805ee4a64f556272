"""Generation token by token: keys and values of earlier tokens are kept, so that each step forms only its own."""

from typing import Literal

import torch
from torch import Tensor

from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.masks import Pairs
from iha_theory.attention.mixing.interleaved import InterleavedHeadAttention
from iha_theory.attention.patterns import EVERYWHERE, attend, pattern_weights
from iha_theory.attention.projections.grouped import GroupedQueryAttention
from iha_theory.attention.projections.multihead import MultiHeadAttention
from iha_theory.rounding import require_count

Mix = Literal["maps", "keys"]


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
        return sum(x.numel() for x in self._kept())

    @property
    def nbytes(self) -> int:
        """Bytes that these take."""
        return sum(x.numel() * x.element_size() for x in self._kept())

    def _kept(self) -> tuple[Tensor, ...]:
        return tuple(x[:, :, self._begin : self._end] for x in self._buffers)

    def extend(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Takes up what new tokens need, each (batch, heads, tokens, width); gives it for all tokens kept and them.

        What later tokens do not see is not kept. No gradient flows into the cache.

        Raises:
            ValueError: shapes that differ from those of the tokens before in more than their number.
        """
        count = new[0].shape[2]
        for buffer, x in zip(self._buffers, new, strict=False):
            if (*buffer.shape[:2], buffer.shape[3]) != (*x.shape[:2], x.shape[3]):
                was, now = (tuple(shape) for shape in (buffer[:, :, :0].shape, x[:, :, :0].shape))
                raise ValueError(f"the cache is of another batch or layer: shape {was}, and now {now}")
        if not self._buffers or self._end + count > self._buffers[0].shape[2]:
            self._move(new, 2 * (len(self) + count))
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[:, :, self._end : self._end + count] = x.detach()
        self._end += count
        self.tokens += count
        seen = self._kept()
        if self.window is not None:
            self._begin = max(self._begin, self._end - self.window + 1)
        return seen

    def _move(self, new: tuple[Tensor, ...], capacity: int) -> None:
        buffers = tuple(x.new_empty(*x.shape[:2], capacity, x.shape[3]) for x in new)
        for buffer, old in zip(buffers, self._kept(), strict=bool(self._buffers)):
            buffer[:, :, : len(self)] = old
        self._buffers, self._begin, self._end = buffers, 0, len(self)


def extend(
    layer: AttentionLayer,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cache: KeyValueCache,
    *,
    positions: Tensor | None = None,
    mix: Mix | None = None,
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
        mix: how one token's pseudo-heads in IHA come of base heads that are kept: "keys" forms all pseudo-keys and
            pseudo-values anew, "maps" mixes scores and weights of base heads, which reads the cache once and writes
            little. Default: "maps", if its FLOPs are fewer and the pattern and rotary positions allow it. Several
            tokens at once always take "keys".

    Raises:
        TypeError: another layer.
        ValueError: as the layer; a cache of another window; "maps" with hard attention or virtual rotary positions.
    """
    _require_kept(layer, cache)
    if mix == "maps" and (layer.pattern == "hard" or layer.rotary == "virtual"):
        raise ValueError('mix="maps" is for softmax and linear attention without virtual rotary positions')
    layer._check(query, key, value, positions)
    if query.shape[1] != key.shape[1]:
        raise ValueError(f"query and key differ in tokens: {query.shape[1]} and {key.shape[1]}")
    if positions is None:
        positions = torch.arange(cache.tokens, cache.tokens + query.shape[1], device=query.device)
    q, k, v = layer._project(query, key, value)
    if isinstance(layer, InterleavedHeadAttention):
        q = layer._virtual(q, layer.alpha_q, positions)
        seen = _seen(layer, k, v, cache, positions)
        return layer._merge(layer._collapse(_interleaved(layer, q, seen, cache.mixed, mix)))
    q = layer._rotated(q, positions)
    k, v = _seen(layer, k, v, cache, positions)
    tokens, group = q.shape[2], layer.num_heads // k.shape[1]
    if tokens == 1:  # it sees all that is kept, and heads that share keys are so many queries to them
        out = attend(q.unflatten(1, (-1, group)).flatten(2, 3), k, v, pattern=layer.pattern, scale=layer.scale)
        return layer._merge(out.flatten(1, 2).unsqueeze(2))
    pairs = Pairs(None, "token", layer.window, 1, k.shape[2] - tokens)
    k, v = (x if group == 1 else x.repeat_interleave(group, 1) for x in (k, v))
    return layer._merge(attend(q, k, v, pattern=layer.pattern, scale=layer.scale, pairs=pairs))


def take_up(layer: AttentionLayer, key: Tensor, value: Tensor, cache: KeyValueCache) -> None:
    """Lets the cache take up tokens whose outputs are not asked for: no attention is computed.

    Args:
        layer: as of `extend`.
        key: (batch, tokens, kdim); rotary positions are how many tokens came before each.
        value: (batch, tokens, vdim).
        cache: of this layer's window.

    Raises:
        TypeError: as `extend`.
        ValueError: as `extend`.
    """
    _require_kept(layer, cache)
    none = key.new_empty(key.shape[0], 0, layer.embed_dim)
    layer._check(none, key, value)
    positions = torch.arange(cache.tokens, cache.tokens + key.shape[1], device=key.device)
    _, k, v = layer._project(none, key, value)
    _seen(layer, k, v, cache, positions)


def kept_numbers(layer: AttentionLayer, *, mixed: bool = False) -> int:
    """Numbers that generation keeps of each token, counted on a cache without a window that took up two.

    Args:
        layer: as of `extend`.
        mixed: as of `KeyValueCache`.

    Raises:
        TypeError: as `extend`.
    """
    weight = layer.k_proj.weight
    key, value = (weight.new_zeros(1, 2, width) for width in (layer.kdim, layer.vdim))
    cache = KeyValueCache(layer.window, mixed=mixed)
    take_up(layer, key, value, cache)
    return cache.numbers // len(cache)


def _require_kept(layer: AttentionLayer, cache: KeyValueCache) -> None:
    kept = isinstance(layer, MultiHeadAttention | GroupedQueryAttention | InterleavedHeadAttention)
    if not kept or {type(layer).forward, type(layer)._attended} != {AttentionLayer.forward, AttentionLayer._attended}:
        raise TypeError(
            f"layer of type {type(layer).__name__}: accepted are MHA, GQA and IHA, which keep keys and values"
        )
    if cache.window != layer.window:
        raise ValueError(f"cache of window {cache.window}, but the layer's is {layer.window}")


def _seen(layer: AttentionLayer, k: Tensor, v: Tensor, cache: KeyValueCache, positions: Tensor) -> tuple[Tensor, ...]:
    """Keys and values of all tokens that are kept and of the new ones, which the cache takes up.

    Those of IHA's pseudo-heads are mixed if the cache keeps these, a token's side by side. Otherwise base keys are
    turned already, where all heads of a token turn alike; pseudo-heads with angles of their own turn after they are
    mixed, and a third tensor holds the positions.
    """
    if not isinstance(layer, InterleavedHeadAttention) or (layer.rotary != "virtual" and not cache.mixed):
        return cache.extend(layer._rotated(k, positions), v)
    if not cache.mixed:
        return cache.extend(k, v, layer._positions(positions, k.shape[2], k.device)[:, None, :, None])
    k, v = layer._virtual(k, layer.alpha_k, positions), layer._virtual(v, layer.alpha_v, None, rotary=None)
    return cache.extend(*(x.unflatten(2, (-1, layer.num_pseudo_heads)).flatten(3) for x in (k, v)))


def _interleaved(
    layer: InterleavedHeadAttention, q: Tensor, seen: tuple[Tensor, ...], mixed: bool, mix: Mix | None
) -> Tensor:
    """Outputs of the new tokens' pseudo-queries, (batch, heads, tokens * P, width)."""
    k, v, *at = seen
    pseudo = layer.num_pseudo_heads
    tokens, kept = q.shape[2] // pseudo, k.shape[2]
    if mix is None:
        cheaper = 2 * layer.num_kv_heads < layer.head_dim + layer.value_head_dim
        mix = "maps" if cheaper and layer.pattern != "hard" and not at else "keys"
    if mix == "maps" and tokens == 1 and not mixed:
        return _of_base_heads(layer, q, k, v)
    if mixed:
        k, v = (x.unflatten(3, (pseudo, -1)).flatten(2, 3) for x in (k, v))
    else:
        rotary = layer.rotary if at else None
        k = layer._virtual(k, layer.alpha_k, at[0][:, 0, :, 0] if at else None, rotary=rotary)
        v = layer._virtual(v, layer.alpha_v, None, rotary=None)
    pairs = Pairs(None, layer.causality, layer.window, pseudo, kept - tokens)
    if tokens == 1 and layer.causality == "token":
        pairs = EVERYWHERE
    return attend(q, k, v, pattern=layer.pattern, scale=layer.scale, pairs=pairs)


def _of_base_heads(layer: InterleavedHeadAttention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One token's outputs without pseudo-keys and pseudo-values, whose mixing is done on scores and on weights:

        <q[h,j], sum_m alpha_k[m,h,j'] K_m> = sum_m alpha_k[m,h,j'] <q[h,j], K_m>,   and values likewise.

    So each number of the cache is read once, and no N P numbers a head are written. It takes
    2 G H P N (d_k + d_v + 2 P) FLOPs, where forming pseudo-keys and pseudo-values and attending to them takes
    2 (G + P) H P N (d_k + d_v): fewer where 2 G < d_k + d_v. Hard attention needs equal scores of equal keys.
    """
    heads, pseudo = layer.num_heads, layer.num_pseudo_heads
    alpha_k, alpha_v = (alpha.to(q.dtype).permute(1, 2, 0) for alpha in (layer.alpha_k, layer.alpha_v))  # [h, j', m]
    base = _each(q.flatten(1, 2)[:, None], k.transpose(2, 3))  # (batch, m, (h, j), keys)
    scores = alpha_k[:, None] @ base.unflatten(2, (heads, pseudo)).permute(0, 2, 3, 1, 4) * layer.scale
    allowed = None
    if layer.causality == "virtual":
        allowed = scores.new_ones(1, 1, pseudo, pseudo, scores.shape[-1], dtype=torch.bool)
        allowed[..., -1].tril_()
        allowed = allowed.flatten(3)
    weights = pattern_weights(scores.flatten(3), pattern=layer.pattern, allowed=allowed)
    mixed = alpha_v[:, None].transpose(2, 3) @ weights.unflatten(3, (pseudo, -1))  # (batch, h, j, m, keys)
    return _each(mixed.flatten(1, 2).transpose(1, 2), v).sum(1).unflatten(1, (heads, pseudo))


def _each(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, whose heads are products of matrices for one sequence: torch would copy a cache of several to do them."""
    batch = max(a.shape[0], b.shape[0])
    if batch == 1:
        return a @ b
    return torch.stack([x @ y for x, y in zip(*(t.expand(batch, -1, -1, -1) for t in (a, b)), strict=True)])
