"""T1: the largest operator Schmidt rank of each attention layer, by proof and by measurement.

- `capacity_bound`: the bound, with the proof of each row.
- `table`: our layers and torch's with generic parameters, to be measured one by one.
- `measure`: any module with the call (query, key, value) at generic positions.

A bound is reached by generic parameters as soon as one instance reaches it: ranks are lower semicontinuous, and where
the parameters enter analytically (softmax and linear patterns) the parameters of smaller rank are the zeros of a
minor, which is not 0 everywhere, so a set of measure 0. Source: docs/results.md T1.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import nn

from iha_theory.attention import (
    DifferentialAttention,
    GroupedQueryAttention,
    InterleavedHeadAttention,
    MultiHeadAttention,
    TalkingHeadsAttention,
    TwoLayerAttention,
    TwoSimplicialAttention,
)
from iha_theory.operators.numerical import position_only
from iha_theory.operators.rank import CLEAR_GAP, Rank, rank
from iha_theory.rounding import require_count

Kind = Literal["mha", "mqa", "gqa", "talking-heads", "differential", "iha", "two-layer", "simplicial"]
KINDS = get_args(Kind)

TORCH = "torch.nn.MultiheadAttention"
HEADS = range(1, 7)
PATTERNS = ("softmax", "linear")
COLLAPSES = ("global", "per_head")
VALUE_DIM = 4
"""Width d_v of a head's values in the table."""
SEED = 0


@dataclass(frozen=True)
class Capacity:
    """A measured operator Schmidt rank beside its bound.

    Attributes:
        layer: a `Kind`, torch's class, or the name of a module of the user's.
        heads: H.
        pseudo_heads: P, for IHA; None for other layers.
        collapse: "global" or "per_head", for IHA; None for other layers.
        pattern: "softmax" or "linear"; None where it is not known.
        rank: measured.
        bound: proved for our layers and torch's; for a module of the user's MHA's H, to compare with.
        gap: of the singular values, which decides the rank: see `iha_theory.operators.rank.Rank`.
    """

    layer: str
    heads: int
    pseudo_heads: int | None
    collapse: str | None
    pattern: str | None
    rank: int
    bound: int
    gap: float

    @property
    def clear(self) -> bool:
        """Whether the gap is large enough for the rank to be trusted."""
        return self.gap >= CLEAR_GAP

    @property
    def reached(self) -> bool:
        """Whether the rank is the bound, clearly."""
        return self.clear and self.rank == self.bound


def capacity_bound(
    kind: Kind,
    heads: int,
    pseudo_heads: int | None = None,
    collapse: str | None = None,
    value_dim: int | None = None,
    width: int | None = None,
) -> int:
    """Upper bound on the operator Schmidt rank of layer(pos, pos, X), whatever its parameters, pattern and mask.

    The tools. Let L(X) = sum_{r in I} S_r X B_r, so that Rl(L) = sum_r vec(S_r) vec(B_r)^T.

    - (a) rank L <= dim span{S_r}, the column space of Rl lies in span{vec S_r}; so <= |I|.
    - (b) An output projection never raises the rank: (L W)[i,b] = sum_c L[i,c] W[c,b], so Rl(L W) = Rl(L) (I_d x W).
      So below, outputs are concatenated heads. E_h is the d_v x H d_v matrix that writes block h.
    - (c) Biases of values and outputs add a constant to L(X), which is not part of the linear map; those of queries and
      keys change the S_r only. So do masks, windows, rotary positions and the pattern: a map S is whatever matrix
      the layer computes from positions.

    The rows. S_h is the attention map of head h, B_h in R^{d x d_v} its value weights.

    - **MHA**: L(X) = sum_h S_h X (B_h E_h). H terms: rank <= H.
    - **GQA**, **MQA**: B_h = B_{g(h)} is shared by a group, the maps S_h are not, as queries differ. H terms: H.
    - **Talking-Heads**: head h applies one map, U_h = sum_g mix[h,g] S_g, where S_g is the pattern of mixed logits.
      L(X) = sum_h U_h X (B_h E_h): H. That U_h is a sum of H maps does not matter, since only U_h meets B_h.
    - **Differential**: U_h = S1_h - lambda_h S2_h: H.
    - **IHA**: head h has maps S_h[j,j'] from its pseudo-queries j to its pseudo-keys j' (the P^2 blocks of one virtual
      map; a softmax joins the blocks of a row, which (c) allows). Pseudo-value j' is X sum_m alpha_v[m,h,j'] B_m. So
          L(X) = sum_{o,m} U[o,m] X (B_m E_o),   U[o,m] = sum_{h,j,j'} R[o,h,j] alpha_v[m,h,j'] S_h[j,j'].
      There are H^2 maps U[o,m]: rank <= H^2. All lie in the span of the H P^2 maps S_h[j,j']: rank <= H P^2 by (a).
      **Global collapse: min(H^2, H P^2).**
      Per-head collapse has R[o,h,j] = 0 for o != h, so U[h,m] = sum_j' alpha_v[m,h,j'] T_h[j'] with
      T_h[j'] = sum_j R[h,j] S_h[j,j']: the query rows of a head fold to one, and H P maps T_h[j'] span all.
      **Per-head collapse: min(H^2, H P).**
      With **P = 1** both are H: mixing heads alone gains nothing over MHA.
    - **Two layers** of MHA: the second applies sum_g S2_g (.) C_g E_g to sum_h S1_h X B_h E_h, which gives
      sum_{g,h} (S2_g S1_h) X (B_h E_h C_g E_g): H^2 terms. (Layers of H1 and H2 heads: H1 H2.)
    - **2-simplicial**, second value position-only: coordinate c of head h is
      sum_j (sum_l sigma_ijl V'_h[l,c]) (X B_h)[j,c] = (S_hc X B_h e_c)_i: one map a value coordinate, H d_v terms.
      (With the linear pattern S_hc = Q_h diag(K'_h^T V'_h e_c) K_h^T, so at most d_k a head are independent, and the
      rank is at most H min(d_v, d_k).)
    - **Every layer**, content of width d: each term's B is in R^{d x H d_v} before the output projection (b), so Rl(L)
      has H d d_v columns: rank <= H d d_v. **IHA: min(H^2, H P^2, H d d_v)**; two layers likewise, d_v the second's.

    Positions bound it too: rank <= N_q N_k.

    Args:
        kind: the layer.
        heads: H; of each layer, for "two-layer".
        pseudo_heads: P, for "iha" only.
        collapse: "global" or "per_head", for "iha" only.
        value_dim: d_v; "simplicial" needs it, other kinds take it with `width`.
        width: of the content, d; None for any.

    Raises:
        ValueError: an unknown kind or collapse, a number below 1, or an argument that the kind lacks or does not have.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: accepted are {', '.join(KINDS)}")
    require_count("heads", heads)
    for name, value in (("pseudo_heads", pseudo_heads), ("collapse", collapse)):
        if (value is None) != (kind != "iha"):
            raise ValueError(f"{name} goes with iha, and only with it; got {name}={value!r} for {kind}")
    if (value_dim is None) == (kind == "simplicial" or width is not None):
        raise ValueError(f"value_dim goes with width, and with simplicial; got {value_dim=}, {width=} for {kind}")
    bound = heads**2 if kind in ("iha", "two-layer") else heads
    if pseudo_heads is not None:
        if collapse not in COLLAPSES:
            raise ValueError(f"unknown collapse {collapse!r}: accepted are {', '.join(COLLAPSES)}")
        bound = min(bound, heads * require_count("pseudo_heads", pseudo_heads) ** (2 if collapse == "global" else 1))
    if value_dim is None:
        return bound
    values = heads * require_count("value_dim", value_dim)
    return values if kind == "simplicial" else min(bound, require_count("width", width or 0) * values)


def table(
    heads: Iterable[int] = HEADS, width: int | None = None, value_dim: int = VALUE_DIM
) -> Iterator[tuple[str, Callable[[], Capacity]]]:
    """The rows of the capacity table as (label, measurement), for each number of heads.

    MHA, MQA, GQA (H > 3 not prime: groups of the smallest divisor of H), Talking-Heads (both mixings), Differential,
    2-simplicial and two layers of MHA, each with the softmax and the linear pattern; IHA with both, P = 1..H and both
    collapses; torch's MHA. Each has an output projection.

    Args:
        heads: the numbers of heads H.
        width: of the content, d; default wide enough to bound no rank.
        value_dim: d_v, of all but torch's.
    """
    simple: list[tuple[Kind, Callable[..., nn.Module]]] = [
        ("mha", MultiHeadAttention),
        ("mqa", partial(GroupedQueryAttention, num_kv_heads=1)),
        ("gqa", _gqa),
        ("talking-heads", TalkingHeadsAttention),
        ("differential", DifferentialAttention),
        ("simplicial", TwoSimplicialAttention),
        ("two-layer", TwoLayerAttention),
    ]
    for h in heads:
        d = max(4, require_count("heads", h)) if width is None else require_count("width", width)
        for kind, build in simple:
            if kind == "gqa" and _smallest_divisor(h) in (1, h):
                continue
            for pattern in PATTERNS:
                yield f"{kind} H = {h}", partial(_row, build, kind, h, None, None, pattern, d, value_dim)
        for collapse in COLLAPSES:
            for p in range(1, h + 1):
                build = partial(InterleavedHeadAttention, num_pseudo_heads=p, collapse=collapse)
                for pattern in PATTERNS:
                    yield f"iha H = {h}, P = {p}", partial(_row, build, "iha", h, p, collapse, pattern, d, value_dim)
        yield f"{TORCH} H = {h}", partial(_torch_row, h, d)


def measure(module: nn.Module, embed_dim: int, *, tokens: int, width: int | None = None) -> Rank:
    """The rank of layer(query, key, X) at random normal positions, seeded.

    Args:
        module: see `iha_theory.operators.numerical.position_only`. Its attribute `kdim`, if it has one, is the key's
            width.
        embed_dim: width of the query, and of the key without `kdim`.
        tokens: N, of queries and of keys. Positions are the same for both where their widths are.
        width: of the content; default as in `position_only`.

    Raises:
        ValueError: as `position_only`.
    """
    generator = torch.Generator().manual_seed(SEED)
    kdim = getattr(module, "kdim", embed_dim)
    query = torch.randn(tokens, embed_dim, generator=generator, dtype=torch.float64)
    key = query if kdim == embed_dim else torch.randn(tokens, kdim, generator=generator, dtype=torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small are faster so: ten times on a machine whose cores are busy
    try:
        return rank(position_only(module, query, key, width=width))
    finally:
        torch.set_num_threads(threads)


def measure_module(name: str, module: nn.Module, heads: int, *, embed_dim: int | None = None) -> Capacity:
    """A module of the user's as it is, with MHA's bound H to compare with.

    Its parameters are not touched, so the rank is theirs: a layer that starts at zeros or copies shows less than it
    can. A larger rank than H is no fault: it says that the layer does more than any MHA with H heads.

    Args:
        name: for the result.
        module: with the call (query, key, value) and attributes as in `measure`.
        heads: H.
        embed_dim: width of the query; default the module's attribute of this name.

    Raises:
        ValueError: as `position_only`; no embed_dim given, nor told by the module.
    """
    if embed_dim is None:
        embed_dim = getattr(module, "embed_dim", None)
        if not isinstance(embed_dim, int):
            raise ValueError(f"{name} makes a module without an integer attribute embed_dim, the width of its query")
    found = measure(module, embed_dim, tokens=_tokens(heads))
    return Capacity(name, heads, None, None, None, found.rank, heads, found.gap)


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
    bound = capacity_bound(kind, heads, pseudo_heads, collapse, value_dim, width)
    embed_dim = max(24, 4 * heads)
    sizes = {"vdim": width, "head_dim": max(8, value_dim), "value_head_dim": value_dim}
    module = generic(lambda: build(embed_dim, heads, pattern=pattern, **sizes))
    found = measure(module, embed_dim, tokens=max(_tokens(heads), value_dim))
    return Capacity(kind, heads, pseudo_heads, collapse, pattern, found.rank, bound, found.gap)


def _torch_row(heads: int, width: int) -> Capacity:
    embed_dim = 8 * heads
    module = generic(lambda: nn.MultiheadAttention(embed_dim, heads, vdim=width))
    found = measure(module, embed_dim, tokens=_tokens(heads))
    return Capacity(TORCH, heads, None, None, "softmax", found.rank, capacity_bound("mha", heads), found.gap)


def _tokens(heads: int) -> int:
    return max(20, 3 * heads)


def _gqa(embed_dim: int, heads: int, **options: Any) -> nn.Module:
    return GroupedQueryAttention(embed_dim, heads, num_kv_heads=heads // _smallest_divisor(heads), **options)


def _smallest_divisor(heads: int) -> int:
    return next((n for n in range(2, heads + 1) if heads % n == 0), 1)


def generic(build: Callable[[], nn.Module]) -> nn.Module:
    """The module with normal numbers of variance 1 / fan-in in every parameter: logits of about 1.

    Larger logits would make softmax rows almost one-hot, and maps that are only almost equal would be told apart by
    small singular values.
    """
    with torch.random.fork_rng(devices=[]):  # constructors draw from the global stream: leave it as it was
        module = build().double()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in module.parameters():
            normal = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(normal / fan_in(parameter) ** 0.5)
    return module


def fan_in(parameter: torch.Tensor) -> int:
    """How many numbers a parameter adds up: of weights the last axis, of mixings (from, to, pseudo-head) the first."""
    return parameter.shape[-1] if parameter.ndim == 2 else parameter.shape[0]
