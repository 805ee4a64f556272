"""Position-only layers: their weights split by position and content, and their operator, exactly.

On the input [X, I_N] (content X of width d, one-hot positions; Sec. 3.1) a layer is **position-only** if its queries
and keys use no content and its values no positions. Then its attention maps are fixed, and the layer is one linear map

    X  ->  concat_o sum_m U[o,m] X B_m,      U[o,m] = sum_{h,j,j'} R[o,h,j] alpha_v[m,h,j'] S_h[j,j'],

with S_h[j,j'] in R^{N x N} the map from the pseudo-queries j to the pseudo-keys j' of head h and B_m in R^{d x d_v}
the value weights. MHA is the case P = 1, alpha_v = R = 1. Two such layers are equal for every X if and only if these
maps are, so a check that compares them holds for all X at once.
"""

import math
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor, nn

from iha_theory import blueprint, exact
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import Pattern
from iha_theory.exact import Domain

Matrix = DomainMatrix | Tensor


class NotPositionOnlyError(ValueError):
    """The layer's attention depends on content, or its values on positions: it is not one linear map of X."""


@dataclass(frozen=True)
class Mixing:
    """IHA's mixing: alpha_q, alpha_k, alpha_v (H, H, P) indexed [m, h, j]; collapse (H, H, P) [output head, h, j]."""

    alpha_q: np.ndarray
    alpha_k: np.ndarray
    alpha_v: np.ndarray
    collapse: np.ndarray


@blueprint.definition(
    "position-only",
    "position-only attention: queries and keys depend on positions only, values on the content by one"
    " linear map, so that a layer is X -> sum_r S_r X B_r",
    uses=("pattern",),
    check="exact",
    proof="docs/bounds.md, Setting",
    tests="tests/iha_theory/operators/test_weights.py",
)
@dataclass(frozen=True)
class PositionWeights:
    """Weights of a position-only layer on [X, I_N], exact or float.

    query, key: for each head (N, d_k), row n the query of position n. value: for each head (d, d_v), integers or
    elements of the domain. mixing: None for MHA. out: (H d_v, D) or None for no output projection.
    """

    query: tuple[Matrix, ...]
    key: tuple[Matrix, ...]
    value: tuple[Any, ...]
    pattern: Pattern
    mixing: Mixing | None = None
    out: Matrix | None = None

    @property
    def num_heads(self) -> int:
        """H."""
        return len(self.query)

    @property
    def tokens(self) -> int:
        """N."""
        return self.query[0].shape[0]

    @property
    def width(self) -> int:
        """The content's width, d."""
        return self.value[0].shape[0]


def with_positions(x: Tensor) -> Tensor:
    """The input [X, I_N] of width d + N, for X of shape (batch, N, d)."""
    batch, tokens, _ = x.shape
    return torch.cat((x, torch.eye(tokens, dtype=x.dtype, device=x.device).expand(batch, -1, -1)), dim=-1)


def to_layer(weights: PositionWeights) -> AttentionLayer:
    """The torch layer, in float64, that has these weights on the input [X, I_N]; scale 1.

    Raises:
        OverflowError: an exact weight that float64 cannot hold.
    """
    tokens, width = weights.tokens, weights.width
    head_dim, value_head_dim = weights.query[0].shape[1], weights.value[0].shape[1]
    common: dict[str, Any] = {
        "head_dim": head_dim,
        "value_head_dim": value_head_dim,
        "out_proj": weights.out is not None,
        "out_dim": None if weights.out is None else weights.out.shape[1],
        "pattern": weights.pattern,
        "scale": 1.0,
        "dtype": torch.float64,
    }
    with torch.device("meta"):  # nothing is drawn that the weights overwrite
        if weights.mixing is None:
            layer: AttentionLayer = MultiHeadAttention(tokens + width, weights.num_heads, **common)
        else:
            pseudo = weights.mixing.alpha_q.shape[2]
            layer = InterleavedHeadAttention(tokens + width, weights.num_heads, num_pseudo_heads=pseudo, **common)
    layer.load_state_dict({name: untouched_zeros(*p.shape) for name, p in layer.named_parameters()}, assign=True)
    known: dict[int, Tensor] = {}  # heads often share a block

    def floats(block: Any) -> Tensor:
        if id(block) not in known:
            exactly = isinstance(block, DomainMatrix)
            known[id(block)] = exact.to_float64(block) if exactly else torch.as_tensor(block, dtype=torch.float64)
        return known[id(block)]

    with torch.no_grad():
        for linear, blocks, at in (
            (layer.q_proj, weights.query, slice(width, None)),
            (layer.k_proj, weights.key, slice(width, None)),
            (layer.v_proj, weights.value, slice(0, width)),
        ):
            own = _ready(blocks, linear.in_features - at.start)
            if own is not None:
                linear.weight = nn.Parameter(own)
                continue
            rows = linear.weight.unflatten(0, (weights.num_heads, -1))
            places: dict[int, Any] = {}
            for h, block in enumerate(blocks):
                if id(block) not in places:
                    places[id(block)] = few_entries(floats(block).T)
                write_block(rows[h, :, at], floats(block).T, places[id(block)])
        if weights.out is not None:
            assert layer.out_proj is not None
            layer.out_proj.weight.copy_(floats(weights.out).T)
        if weights.mixing is not None:
            for name in ("alpha_q", "alpha_k", "alpha_v", "collapse"):
                values = getattr(weights.mixing, name).astype(np.float64)
                layer.get_parameter(name).copy_(torch.from_numpy(values))
    return layer


def weight_blocks(heads: int, head_dim: int, tokens: int, width: int) -> Tensor:
    """Zeros for all heads' queries or keys, (H, d_k, d + N), as the projection's weight lies in memory.

    Head h's block is the view [h, :, d:].T, (N, d_k). Given all of them in this order `to_layer` copies nothing: of
    large layers the weights are most of the memory.
    """
    return untouched_zeros(heads, head_dim, width + tokens)


def _ready(blocks: tuple[Any, ...], tokens: int) -> Tensor | None:
    """The whole weight, if the blocks are all the views of one that `weight_blocks` describes."""
    whole = blocks[0]._base if isinstance(blocks[0], Tensor) else None
    while whole is not None and whole._base is not None:
        whole = whole._base
    if whole is None or blocks[0].ndim != 2:
        return None
    head_dim, row = blocks[0].shape[1], blocks[0].stride(1)
    size = len(blocks) * head_dim * row
    if whole.dtype != torch.float64 or whole.numel() != size or row <= tokens or blocks[0].stride(0) != 1:
        return None
    flat = whole.view(len(blocks) * head_dim, row)
    starts = [flat[h * head_dim :, row - tokens :].data_ptr() for h in range(len(blocks))]
    same = all(
        isinstance(b, Tensor) and b.shape == (tokens, head_dim) and b.stride() == (1, row) and b.data_ptr() == start
        for b, start in zip(blocks, starts, strict=True)
    )
    return flat if same and not bool(flat[:, : row - tokens].any()) else None


def few_entries(block: Tensor) -> tuple[Tensor, ...] | None:
    """The rows and columns of a matrix' entries that are not 0, if it is large and they are few."""
    if block.numel() <= 2**16 or int(block.count_nonzero()) * 64 >= block.numel():
        return None
    turned = block.stride(0) < block.stride(1)
    at = (block.T if turned else block).nonzero(as_tuple=True)  # as it lies in memory: four times as fast
    return at[::-1] if turned else at


def write_block(place: Tensor, block: Tensor, at: tuple[Tensor, ...] | None) -> None:
    """Writes a block over zeros, and no more than its `few_entries` if it has them: `at`."""
    if at is None:
        place.copy_(block)
    else:
        place[at] = block[at]


def untouched_zeros(*shape: int) -> Tensor:
    """Zeros in float64 that take no memory until they are written: identities of large sizes are mostly zeros."""
    size = 8 * math.prod(shape)
    if size < 2**24:
        return torch.zeros(shape, dtype=torch.float64)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # private: reading takes none
    return torch.frombuffer(pages, dtype=torch.float64).view(shape)


def read(layer: nn.Module, width: int, domain: Domain = QQ, value_width: int | None = None) -> PositionWeights:
    """The weights of a torch layer on the input [X, I_N], split by position and content, exactly.

    Args:
        layer: a `MultiHeadAttention` or an `InterleavedHeadAttention` of embed_dim N + width.
        width: the content's width d.
        domain: QQ, or a prime field into which the weights are mapped.
        value_width: the width of the values' input where that is content alone, as in the second of two layers; None
            where it is [X, I_N] too.

    Raises:
        NotPositionOnlyError: content in queries or keys, positions in values, a bias, rotary positions or a window.
        ValueError: a weight that is NaN or infinite; a scale other than 1; a layer of another kind.
    """
    if not isinstance(layer, MultiHeadAttention | InterleavedHeadAttention):
        raise ValueError(f"cannot read a {type(layer).__name__} exactly: accepted are MHA and IHA of this project")
    if isinstance(layer, InterleavedHeadAttention) and layer.num_kv_heads != layer.num_heads:
        raise ValueError(f"cannot read an IHA with {layer.num_kv_heads} base keys and {layer.num_heads} heads exactly")
    if layer.scale != 1:
        raise ValueError(f"exact evaluation needs scale 1, the layer has {layer.scale}")
    for name, parameter in layer.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise ValueError(f"{name} holds a value that is NaN or infinite")
        if name.endswith("bias"):
            raise NotPositionOnlyError(f"{name}: a bias makes the map affine, not linear")
    if layer.rotary or layer.window:
        raise NotPositionOnlyError("rotary positions and windows are not part of the weights")

    cache: dict[tuple[Any, bytes], DomainMatrix] = {}

    def once(block: Tensor) -> DomainMatrix:  # heads often share a block, such as the identity
        key = block.shape, block.contiguous().numpy().tobytes()
        if key not in cache:
            cache[key] = exact.matrix(block, domain)
        return cache[key]

    def split(linear: nn.Linear, keep: slice, drop: slice, what: str) -> tuple[DomainMatrix, ...]:
        weight = linear.weight.detach().cpu().double().unflatten(0, (layer.num_heads, -1))
        if bool(weight[:, :, drop].any()):
            raise NotPositionOnlyError(what)
        return tuple(once(block[:, keep].T) for block in weight)

    contents, positions = slice(0, width), slice(width, None)
    own = width if value_width is None else value_width
    mixing = None
    if isinstance(layer, InterleavedHeadAttention):
        collapse = layer.collapse
        if layer.collapse_kind == "per_head":
            collapse = torch.diag_embed(collapse.T).permute(1, 2, 0)  # [o, h, j] = 1[o = h] collapse[h, j]
        mixing = Mixing(*(_elements(a, domain) for a in (layer.alpha_q, layer.alpha_k, layer.alpha_v, collapse)))
    return PositionWeights(
        query=split(layer.q_proj, positions, contents, "the queries use content"),
        key=split(layer.k_proj, positions, contents, "the keys use content"),
        value=split(layer.v_proj, slice(0, own), slice(own, None), "the values use positions"),
        pattern=layer.pattern,
        mixing=mixing,
        out=None if layer.out_proj is None else once(layer.out_proj.weight.detach().cpu().double().T),
    )


def _elements(parameter: Tensor, domain: Domain) -> np.ndarray:
    flat = [exact.element(domain, x) for x in parameter.detach().cpu().double().flatten().tolist()]
    array = np.empty(len(flat), dtype=object)
    array[:] = flat
    return array.reshape(parameter.shape)
