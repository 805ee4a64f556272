"""The capacity table: our layers and torch's with generic parameters, to be measured one by one."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from torch import nn

from iha_theory.attention import (
    ComposableAttention,
    DifferentialAttention,
    GatedAttention,
    GatedLinearAttention,
    GroupedQueryAttention,
    InterleavedHeadAttention,
    MultiHeadAttention,
    MultiHeadLatentAttention,
    MultiTokenAttention,
    StrassenAttention,
    TalkingHeadsAttention,
    TensorProductAttention,
    TwoLayerAttention,
    TwoSimplicialAttention,
)
from iha_theory.capacity.bound import COLLAPSES, Kind, capacity_bound
from iha_theory.capacity.measured import Capacity, generic, measure, tokens_for
from iha_theory.rounding import require_count

TORCH = "torch.nn.MultiheadAttention"
HEADS = range(1, 7)
PATTERNS = ("softmax", "linear")
VALUE_DIM = 4
"""Width d_v of a head's values in the table."""

VALUE_RANK = 2
"""R_V of tensor-product attention in the table."""

KEY_WINDOW = 2
"""Keys, and queries, in the kernel of multi-token attention in the table."""


def table(
    heads: Iterable[int] = HEADS, width: int | None = None, value_dim: int = VALUE_DIM
) -> Iterator[tuple[str, Callable[[], Capacity]]]:
    """The rows of the capacity table as (label, measurement), for each number of heads.

    All kinds but IHA (GQA for H > 3 not prime: groups of the smallest divisor of H; Talking-Heads with both mixings),
    each with the softmax and the linear pattern, gated-linear only linear; IHA with both, P = 1..H and both collapses;
    torch's MHA. Each has an output projection.

    Args:
        heads: the numbers of heads H.
        width: of the content, d; default wide enough to bound no rank.
        value_dim: d_v, of all but torch's.
    """
    simple: list[tuple[Kind, Callable[..., nn.Module]]] = [
        ("mha", MultiHeadAttention),
        ("mqa", partial(GroupedQueryAttention, num_kv_heads=1)),
        ("gqa", _gqa),
        ("mla", MultiHeadLatentAttention),
        ("tensor-product", partial(TensorProductAttention, value_rank=VALUE_RANK)),
        ("talking-heads", TalkingHeadsAttention),
        ("composable", ComposableAttention),
        ("multi-token", partial(MultiTokenAttention, query_window=KEY_WINDOW, key_window=KEY_WINDOW)),
        ("differential", DifferentialAttention),
        ("simplicial", TwoSimplicialAttention),
        ("strassen", StrassenAttention),
        ("two-layer", TwoLayerAttention),
        ("gated", GatedAttention),
        ("gated-headwise", partial(GatedAttention, gate="headwise")),
        ("gated-linear", GatedLinearAttention),
        ("forgetting", partial(GatedLinearAttention, temperature=1.0)),
    ]
    for h in heads:
        d = max(4, require_count("heads", h)) if width is None else require_count("width", width)
        for kind, build in simple:
            if kind == "gqa" and not between(h):
                continue
            for pattern in ("linear",) if kind == "gated-linear" else PATTERNS:
                yield f"{kind} H = {h}", partial(_row, build, kind, h, None, None, pattern, d, value_dim)
        for collapse in COLLAPSES:
            for p in range(1, h + 1):
                build = partial(InterleavedHeadAttention, num_pseudo_heads=p, collapse=collapse)
                for pattern in PATTERNS:
                    yield f"iha H = {h}, P = {p}", partial(_row, build, "iha", h, p, collapse, pattern, d, value_dim)
        yield f"{TORCH} H = {h}", partial(_torch_row, h, d)


def between(heads: int) -> bool:
    """Whether GQA with so many heads has a number of groups between MQA's 1 and MHA's H: H is no prime and above 1."""
    return _smallest_divisor(heads) not in (1, heads)


def _row(
    build: Callable[..., nn.Module],
    kind: Kind,
    heads: int,
    pseudo_heads: int | None,
    collapse: str | None,
    pattern: str,
    width: int,
    value_dim: int,
) -> Capacity:
    """One of our layers with generic parameters, on more tokens than its bound needs."""
    value_rank = VALUE_RANK if kind == "tensor-product" else None
    bound = capacity_bound(kind, heads, pseudo_heads, collapse, value_dim, width, value_rank)
    embed_dim = max(24, 4 * heads)
    sizes = {"vdim": width, "head_dim": max(8, value_dim), "value_head_dim": value_dim}
    module = generic(lambda: build(embed_dim, heads, pattern=pattern, **sizes))
    found = measure(module, embed_dim, tokens=max(tokens_for(heads), value_dim))
    return Capacity(kind, heads, pseudo_heads, collapse, pattern, found.rank, bound, found.gap)


def _torch_row(heads: int, width: int) -> Capacity:
    embed_dim = 8 * heads
    module = generic(lambda: nn.MultiheadAttention(embed_dim, heads, vdim=width))
    found = measure(module, embed_dim, tokens=tokens_for(heads))
    return Capacity(TORCH, heads, None, None, "softmax", found.rank, capacity_bound("mha", heads), found.gap)


def _gqa(embed_dim: int, heads: int, **options: Any) -> nn.Module:
    return GroupedQueryAttention(embed_dim, heads, num_kv_heads=heads // _smallest_divisor(heads), **options)


def _smallest_divisor(heads: int) -> int:
    return next((n for n in range(2, heads + 1) if heads % n == 0), 1)
