"""The operator of an attention layer: what it does to content at given positions, as one linear map.

With queries and keys fixed, layer(pos, pos, X) is, for a layer whose attention ignores content, a linear map
L : R^{N_k x d} -> R^{N_q x D} (an affine one with biases: L(0) is then subtracted). Every such map is a sum

    L(X) = sum_r S_r X B_r,      S_r in R^{N_q x N_k},  B_r in R^{d x D},

and the least number of terms is its **operator Schmidt rank**, the rank of the **realignment**

    Rl in R^{N_q N_k x d D},     Rl[(i,j),(a,b)] = d L(X)[i,b] / d X[j,a] = sum_r S_r[i,j] B_r[a,b].

- `position_only`: the operator of a module; refuses one that is not linear in its value.
- `linearised`: the derivative of any module at a given content.
- `realignment`, `spectrum`: the matrix and its singular values.
- `rank`: the rank, the gap that decides it, and for large operators a sketch with its failure probability.

Everything is in float64, on a copy of the module in evaluation mode. Source: theory.md, "The one idea".
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.base import AttentionLayer

EPS = torch.finfo(torch.float64).eps

ROUNDING = 64
"""A singular value is zero up to ROUNDING * EPS * sqrt(rows * columns) times the largest."""

CLEAR_GAP = 1e3
"""A rank is clear if the last singular value kept is at least this many times the first one dropped."""

SHRINKAGE = 1e-4
"""A sketch that shrinks a singular value below this fraction of itself has failed; see `sketch_failure`."""

SKETCH_START = 40
SKETCH_BEYOND = 64
"""`rank` sketches operators of more keys than this, from SKETCH_START directions on."""

ELEMENTS = 2**22
"""About how many numbers are evaluated at once: contents, outputs and, where each content has its own, maps."""


class NotLinearError(ValueError):
    """The module is not a linear (or affine) map of its value at fixed query and key."""


@dataclass(frozen=True)
class Operator:
    """A linear map of content, (N_k, d) -> (N_q, D).

    Attributes:
        function: a batch of contents (batch, N_k, d) -> their images (batch, N_q, D).
        keys: N_k.
        width: d, of the content.
        queries: N_q.
        out_width: D.
        constant: the largest |L(0)| entry, which was subtracted; it sets the scale of rounding errors beside L itself.
    """

    function: Callable[[Tensor], Tensor]
    keys: int
    width: int
    queries: int
    out_width: int
    constant: float = 0.0


@dataclass(frozen=True)
class Rank:
    """A numerical rank.

    Attributes:
        rank: number of singular values above ROUNDING * EPS * sqrt(rows * columns) * scale, with scale the largest
            singular value or the subtracted constant, whichever is larger.
        gap: the last singular value kept over the first one dropped; a dropped one counts as at least EPS * scale, and
            if none is left to drop, as the threshold. Always finite. With nothing kept, scale over the first dropped.
        limit: the largest rank that the sizes allow.
        failure: upper bound on the probability that a singular value of the operator larger than 1/SHRINKAGE times the
            threshold was missed; 0 without a sketch.

    The rank of the true operator is at least `rank` if the rounding error has a norm below the threshold (Weyl). That
    it is not more no computation in floating point can show: the gap says how far from more it is, and where it is not
    `clear`, the number depends on the threshold and should not be trusted.
    """

    rank: int
    gap: float
    limit: int
    failure: float = 0.0

    @property
    def clear(self) -> bool:
        """Whether the gap is at least CLEAR_GAP."""
        return self.gap >= CLEAR_GAP


def position_only(
    module: nn.Module,
    query: Float[Tensor, "queries embed_dim"],
    key: Float[Tensor, "keys kdim"] | None = None,
    *,
    width: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Operator:
    """The operator X -> module(query, key, X) - module(query, key, 0).

    Args:
        module: any module with the call (query, key, value); of a tuple of outputs, as torch.nn.MultiheadAttention
            gives, the first counts. Inputs are (batch, tokens, width), or (tokens, batch, width) for a module whose
            attribute `batch_first` is False. The module itself stays as it is: a float64 copy in evaluation mode
            (dropout off) is run.
        query: positions of the queries, (N_q, embed_dim).
        key: positions of the keys, (N_k, kdim); default query.
        width: d, of the content; default the module's `vdim`, or the query's width if it has none.
        seed: of the random contents of the linearity test.
        **options: passed on in each call (a mask, say).

    Raises:
        NotLinearError: the module is not affine in its value. Tested on random normal contents X, Y with c = -1024:
            f(X + Y) = f(X) + f(Y) and f(c X) = c f(X) within 100 n EPS of the terms' norms, n = N_k d: n EPS bounds
            the rounding of sums of n terms, and the factor leaves room for terms that cancel to 1/100 of their size.
            So a layer can pass only if its content dependence is below that, or starts beyond contents of this size.
        ValueError: an output that is not (N_q, D) in float64.
    """
    query = query.detach().double()
    key = query if key is None else key.detach().double()
    width = width or getattr(module, "vdim", None) or query.shape[-1]
    copied = _frozen(module, query.device)
    shared = isinstance(module, AttentionLayer | TwoLayerAttention)  # these take positions of batch 1

    @torch.no_grad()
    def affine(content: Tensor) -> Tensor:
        batch = 1 if shared else len(content)
        return _call(copied, query.expand(batch, -1, -1), key.expand(batch, -1, -1), content, options)

    zero = affine(query.new_zeros(1, len(key), width))
    own = len(key) * width + len(query) * zero.shape[-1] + (0 if shared else len(query) * len(key))
    operator = Operator(
        function=lambda content: torch.cat([affine(part) - zero for part in content.split(_batch(own))]),
        keys=len(key),
        width=width,
        queries=len(query),
        out_width=zero.shape[-1],
        constant=float(zero.abs().max()),
    )
    _require_linear(operator, zero, seed)
    return operator


def linearised(
    module: nn.Module,
    at: Float[Tensor, "keys width"],
    query: Float[Tensor, "queries embed_dim"] | None = None,
    key: Float[Tensor, "keys kdim"] | None = None,
    **options: Any,
) -> Operator:
    """The derivative at the content X0, for a module whose attention depends on content.

    Without query it is that of self-attention, X -> module(X, X, X); with query, of X -> module(query, key, X).

    Args:
        module: as in `position_only`; its operations need forward-mode derivatives.
        at: X0, (N_k, d).
        query: positions of the queries, (N_q, embed_dim), or None.
        key: positions of the keys, (N_k, kdim); default query.
        **options: passed on in each call.

    Raises:
        ValueError: a key without a query; an output that is not (N_q, D) in float64.
    """
    if query is None and key is not None:
        raise ValueError("a key without a query: give both, or none for self-attention")
    at = at.detach().double()
    copied = _frozen(module, at.device)
    fixed = None if query is None else (query.detach().double(), (query if key is None else key).detach().double())

    def function(content: Tensor) -> Tensor:
        if fixed is None:
            return _call(copied, content, content, content, options)
        batch = len(content)
        return _call(copied, fixed[0].expand(batch, -1, -1), fixed[1].expand(batch, -1, -1), content, options)

    def derivative(tangents: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no forward-mode derivative
            return torch.func.jvp(function, (at.expand_as(tangents).contiguous(),), (tangents,))[1]

    keys, width = at.shape
    _, queries, out_width = derivative(torch.zeros_like(at)[None]).shape
    own = 2 * (keys * width + queries * (out_width + keys))
    return Operator(
        function=lambda tangents: torch.cat([derivative(part) for part in tangents.split(_batch(own))]),
        keys=keys,
        width=width,
        queries=queries,
        out_width=out_width,
    )


def realignment(operator: Operator) -> Float[Tensor, "entries coefficients"]:
    """Rl of shape (N_q N_k, d D): Rl[(i,j),(a,b)] = d L(X)[i,b] / d X[j,a], from the N_k d basis contents."""
    return _partial(operator, torch.eye(operator.keys, dtype=torch.float64))


def spectrum(operator: Operator) -> Float[Tensor, "values"]:
    """The Schmidt spectrum: the singular values of the realignment, largest first."""
    return torch.linalg.svdvals(realignment(operator))


def rank(operator: Operator, *, sketch: bool | None = None, seed: int = 0) -> Rank:
    """The operator Schmidt rank.

    A sketch evaluates L on v_k x e_a for the first t of N_k random orthonormal directions v_k in R^{N_k}, so on t d
    contents instead of N_k d, and takes the rank of (I x V^T) Rl, with rows (i,k). In exact arithmetic that is at most
    R = rank Rl and, with probability 1, at least min(t, R): while some M != 0 in the column space of Rl (as a matrix)
    is lost, M v_1 = ... = M v_k = 0, the next direction has M v != 0 and finds one more. So a rank r < t is R.
    In float64 something may be shrunk to almost nothing instead: t grows until t >= 2 (r + 1) + 20, from where on
    `sketch_failure` is below 1e-20, or reaches N_k, where the sketch is Rl in another orthonormal basis.

    Memory: N_q t d D numbers.

    Args:
        operator: the operator.
        sketch: whether to sketch; None: if N_k > SKETCH_BEYOND.
        seed: of the directions.
    """
    limit = min(operator.queries * operator.keys, operator.width * operator.out_width)
    if sketch is None:
        sketch = operator.keys > SKETCH_BEYOND
    if not sketch:
        return Rank(*_decide(realignment(operator), operator.constant), limit)
    generator = torch.Generator().manual_seed(seed)
    keys = operator.keys
    directions = torch.linalg.qr(torch.randn(keys, keys, generator=generator, dtype=torch.float64)).Q
    parts: list[Tensor] = []
    used, enough = 0, SKETCH_START
    while True:
        used, before = min(enough, keys), used
        parts.append(_partial(operator, directions[before:used]))
        found, gap = _decide(torch.cat(parts), operator.constant)
        enough = 2 * (found + 1) + 20
        if used == keys:
            return Rank(found, gap, limit)
        if used >= enough:
            return Rank(found, gap, limit, sketch_failure(found + 1, used, keys))
        enough = max(enough, 2 * used)


def sketch_failure(rank: int, directions: int, keys: int) -> float:
    """Upper bound on the probability that a sketch shrinks the `rank`-th singular value below SHRINKAGE of itself.

    Let U be the span of the `rank` leading left singular vectors of Rl, as matrices M in R^{N_q x N_k}, and V the t
    random orthonormal directions, V = G (G^T G)^{-1/2} with G normal, (N_k, t). The rank-th singular value of the
    sketch is at least that of Rl times the least |M V|_F over M in U of |M|_F = 1. Put e = SHRINKAGE.

    - One M: with its singular values s_k, |M G|_F^2 = sum_k s_k^2 chi2_k(t), so by Chernoff, and
      prod_k (1 + 2 c s_k^2) >= 1 + 2 c, P(|M G|_F <= x sqrt t) <= (e' x^2)^{t/2}, e' = exp(1).
    - |M V|_F >= |M G|_F / |G|, where |G| <= sqrt N_k + sqrt t + z =: g sqrt t but with probability exp(-z^2 / 2)
      (Davidson and Szarek); here z = 10. So P(|M V|_F <= 2 e) <= (e' (2 e g)^2)^{t/2}.
    - All M: the unit sphere of U has a net of radius e with at most (1 + 2/e)^rank points. If |M V|_F > 2 e at each,
      then |M V|_F > e everywhere, since |V| = 1.

    Args:
        rank: how many leading singular values must survive.
        directions: t.
        keys: N_k.
    """
    z = 10.0
    g = (math.sqrt(keys) + math.sqrt(directions) + z) / math.sqrt(directions)
    net = rank * math.log1p(2 / SHRINKAGE)
    small_ball = directions * (0.5 + math.log(2 * SHRINKAGE * g))
    return min(1.0, math.exp(min(0.0, net + small_ball)) + math.exp(-(z**2) / 2))


def _partial(operator: Operator, directions: Tensor) -> Tensor:
    """(I x V^T) Rl of shape (N_q t, d D), for the t rows v_k of `directions`: rows (i,k), columns (a,b)."""
    t, keys = directions.shape
    basis = torch.eye(operator.width, dtype=torch.float64)
    contents = torch.einsum("kj,ac->kajc", directions, basis).reshape(t * operator.width, keys, operator.width)
    out = operator.function(contents).unflatten(0, (t, operator.width))
    return out.permute(2, 0, 1, 3).reshape(operator.queries * t, operator.width * operator.out_width)


def _decide(matrix: Tensor, constant: float) -> tuple[int, float]:
    """Rank and gap by the rule of `Rank`."""
    values = torch.linalg.svdvals(matrix).tolist()
    scale = max(values[0], constant)
    if scale == 0:
        return 0, 1 / EPS
    threshold = ROUNDING * EPS * math.sqrt(matrix.numel()) * scale
    found = sum(value > threshold for value in values)
    kept = values[found - 1] if found else scale
    dropped = max(values[found], EPS * scale) if found < len(values) else threshold
    return found, kept / dropped


def _batch(numbers: int) -> int:
    return max(1, ELEMENTS // numbers)


def _frozen(module: nn.Module, device: torch.device) -> nn.Module:
    return copy.deepcopy(module).to(device=device, dtype=torch.float64).eval().requires_grad_(False)


def _call(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
    """The module's output as (batch, queries, D), checked."""
    inputs = (query, key, value)
    batch_first = getattr(module, "batch_first", True)
    out = module(*(inputs if batch_first else (x.transpose(0, 1) for x in inputs)), **options)
    if isinstance(out, tuple):
        out = out[0]
    name = type(module).__name__
    if not isinstance(out, Tensor) or out.dtype != torch.float64 or out.ndim != 3:
        what = f"{out.dtype} of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"{name} gives {what} for float64 inputs: expected float64 of 3 dimensions")
    out = out if batch_first else out.transpose(0, 1)
    if out.shape[:2] != (len(value), query.shape[1]):
        raise ValueError(f"{name} gives (batch, tokens) {tuple(out.shape[:2])}, not {(len(value), query.shape[1])}")
    return out


def _require_linear(operator: Operator, zero: Tensor, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, operator.keys, operator.width, generator=generator, dtype=torch.float64).to(zero.device)
    factor = -1024.0
    fx, fy, both, scaled = operator.function(torch.stack((x, y, x + y, factor * x)))
    terms = operator.keys * operator.width
    for law, defect, sizes in (
        ("additive", both - fx - fy, (both, fx, fy, 3 * zero)),
        ("homogeneous", (scaled - factor * fx) / factor, (fx, fx, 2 * zero)),
    ):
        bound = 100 * terms * EPS * sum(float(size.norm()) for size in sizes)
        found = float(defect.norm())
        if not found <= bound:  # NaN included
            raise NotLinearError(
                f"not linear in its value at fixed query and key: not {law}, off by {found:.2g} where rounding allows "
                f"{bound:.2g}; its attention depends on content, or its arithmetic is random or below float64"
            )
