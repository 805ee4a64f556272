"""Lower bounds: the heads that a layer needs for a bank X -> [T_0 X, ..., T_{k-1} X], exactly or within an error.

Setting: **position-only** attention (queries and keys depend on positions, values linearly on content), any pattern,
mask and output projection, any weights. The layer is then X -> sum_r S_r X B_r, and everything here follows from one
number, the rank of its realignment (`iha_theory.operators.numerical`), which is at most the layer's **capacity**
(`iha_theory.capacity.capacity_bound`): H for MHA, min(H^2, H P^2) for IHA.

The bank itself has the realignment sum_t vec(T_t) vec(B_t)^T with B_t = e_t^T x I_d, which writes X into block t. The
B_t are orthogonal and of norm sqrt d, so the realignment has the rank of the matrix [vec T_0, ..., vec T_{k-1}], and
sqrt d times its singular values. Hence rank and relative errors do not depend on the content's width d.

- `least_heads`: from a rank (T2). The rank of powers or of any bank, exactly and with a certificate:
  `iha_theory.bounds.exact_rank`.
- `spectrum`, `error_floor`, `least_rank`: the best error at a capacity, and the least capacity for an error (T3, T4).
- `unstructured_heads`: why the square root needs structure (T5).

The page docs/bounds.md puts the statements and proofs in one place. Source: docs/results.md T1 to T5.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from iha_theory import blueprint
from iha_theory.capacity import Kind, capacity_bound
from iha_theory.operators.numerical import EPS, singular_values
from iha_theory.rounding import require_count


@blueprint.theorem(
    "head-bound",
    "a position-only layer that is a bank of rank r has at least r heads (MHA) or ceil(sqrt r) (IHA, "
    "two layers), and at least r attention maps",
    uses=("capacity",),
    check="exact",
    proof="docs/bounds.md, Theorem 2",
)
def least_heads(
    kind: Kind, rank: int, pseudo_heads: int | None = None, collapse: str = "global", depth: int = 1
) -> int:
    """The heads that a layer needs at least, to represent a bank of rank r exactly.

    Theorem. r is at most the capacity of the layer, so H is at least

    - r for MHA, MQA, GQA, Talking-Heads and differential attention;
    - max(ceil(sqrt r), ceil(r / P^2)) for IHA with global collapse, max(ceil(sqrt r), ceil(r / P)) with per-head
      collapse, and ceil(sqrt r) if P is free;
    - ceil(sqrt r) in each of two layers of MHA.

    Proof. The layer's operator is the bank up to an output projection, which never raises the rank; the rank is at most
    `capacity_bound`, which grows with H.

    Tight for MHA, for IHA with P free, and for two layers: for the powers of every A, whose first r powers span the
    others, so that r MHA heads, or ceil(sqrt r) in IHA or in each of two layers, make the first r blocks (App. B.2) and
    an output projection the rest (`constructions.filter_bank.reduced`). For any bank, MHA needs no more than r heads;
    nor does IHA need more than ceil(sqrt r) if its queries and keys may have width H N (`error_floor`).

    **Depth.** L position-only layers, one behind the other, have at most the product of their ranks: sum_p S_p X B_p
    and then sum_q S'_q X B'_q is sum_{p,q} S'_q S_p X B_p B'_q. So r <= capacity^L: each of L layers has at least
    r^(1/L) MHA heads, or r^(1/(2L)) IHA heads, and powers of any A take no more (`constructions.filter_bank.deep`).

    Heads are saved, maps never: a layer's operators are in the span of its attention maps, H in MHA and H P^2 in IHA
    (T1), so one layer of either forms at least r of them.

    Args:
        kind: the layer.
        rank: r, at least 1.
        pseudo_heads: P, for "iha"; None for free.
        collapse: "global" or "per_head", for "iha".
        depth: L, of layers with as many heads each.

    Raises:
        ValueError: a rank or depth below 1, "simplicial" (it needs r / d_v, where d_v can be as large as one likes), or
            what `capacity_bound` refuses.
    """
    require_count("rank", rank)
    require_count("depth", depth)
    if kind == "simplicial":
        raise ValueError("2-simplicial attention has capacity H d_v: its heads alone are not bounded by a rank")
    heads = 1
    while _capacity(kind, heads, pseudo_heads, collapse) ** depth < rank:
        heads += 1
    return heads


def _capacity(kind: Kind, heads: int, pseudo_heads: int | None, collapse: str) -> int:
    if kind != "iha":
        return capacity_bound(kind, heads, pseudo_heads)
    return capacity_bound(kind, heads, heads if pseudo_heads is None else pseudo_heads, collapse)


def spectrum(bank: Any) -> Float[Tensor, " k"]:
    """The singular values s_1 >= s_2 >= ... of [vec T_0, ..., vec T_{k-1}], (rows * columns, k).

    Times sqrt d they are the Schmidt spectrum of the bank on content of width d (see the module).

    Args:
        bank: (k, rows, columns), k <= rows * columns; computed in float64.

    Raises:
        ValueError: another number of dimensions, an empty bank, or NaN or infinity.
    """
    matrices = torch.as_tensor(bank, dtype=torch.float64)
    if matrices.ndim != 3 or matrices.numel() == 0:
        raise ValueError(f"a bank of shape {tuple(matrices.shape)}: expected (k, rows, columns), at least one of each")
    if not bool(matrices.isfinite().all()):
        raise ValueError("a bank with NaN or infinity has no spectrum")
    values = singular_values(matrices.flatten(1).T)
    return torch.cat((values, values.new_zeros(len(matrices) - len(values))))


def unit_norm(bank: Any) -> Float[Tensor, "k rows columns"]:
    """Each matrix over its Frobenius norm; zero matrices stay zero."""
    matrices = torch.as_tensor(bank, dtype=torch.float64)
    largest = matrices.abs().amax((1, 2), keepdim=True)  # first, so that no square overflows
    scaled = matrices / torch.where(largest == 0, 1.0, largest)
    norms = scaled.norm(dim=(1, 2), keepdim=True)
    return scaled / torch.where(norms == 0, 1.0, norms)


@blueprint.theorem(
    "error-floor",
    "the least relative squared error of a layer of capacity R is sum_{i>R} s_i^2 / sum s_i^2, s_i "
    "the singular values of the target's realignment",
    uses=("capacity", "schmidt-rank"),
    check="numerical",
    proof="docs/bounds.md, Theorem 3",
)
def error_floor(values: Float[Tensor, " k"] | Sequence[float], rank: int) -> float:
    """sum_{i>R} s_i^2 / sum_i s_i^2: the least relative squared error of a layer of capacity R (Eckart and Young).

    Theorem. Let the entries of X be uncorrelated, with mean 0 and variance 1, and let the target be the linear map L.
    Every layer f(X) = M(X) + c with rank Rl(M) <= R has

        E |f(X) - L(X)|^2 / E |L(X)|^2  >=  sum_{i>R} s_i^2 / sum_i s_i^2,

    where s_i are the singular values of Rl(L), and linear MHA with R heads, d_k = N, d_v = d and an output projection
    attains it.

    Proof. E |(M - L)(X) + c|^2 = |Rl(M) - Rl(L)|_F^2 + |c|^2, since X has the identity as its covariance and the
    realignment only moves entries. Its minimum over rank Rl(M) <= R is sum_{i>R} s_i^2 (Eckart, Young, Mirsky), at the
    truncated SVD sum_{i<=R} s_i u_i w_i^T, which is X -> sum_i (s_i U_i) X W_i: head i has queries s_i U_i, keys I,
    values X, and W_i in the output projection.

    R is H for MHA and min(H^2, H P^2) for IHA. IHA with P = H and d_k = H N attains the floor of R = H^2 for every
    target: for any maps S_ab in R^{N x N}, a, b < H, let base query a be I in block a of H blocks of N columns and 0
    elsewhere, and base key b be [S_0b^T, ..., S_{H-1,b}^T]. Then Q_a K_b^T = S_ab, and the mixing of App. B.2 makes all
    H^2 blocks S_ab X for the output projection. With d_k = N most banks are out of reach (`unstructured_heads`).

    Args:
        values: s_1 >= s_2 >= ..., at least one of them not 0.
        rank: R, at least 0.

    Raises:
        ValueError: a negative rank; values that are all 0, negative or not finite.
    """
    return _tails(values)[min(_not_negative(rank), len(values))] ** 2


@blueprint.theorem(
    "tolerance",
    "a relative error eps takes a capacity R(eps): so many heads of MHA, and at least its root, rounded up, of IHA",
    uses=("error-floor", "capacity"),
    check="numerical",
    proof="docs/bounds.md, Theorem 4",
)
def least_rank(values: Float[Tensor, " k"] | Sequence[float], tolerance: float) -> int:
    """The least capacity R with a relative error sqrt(error_floor(R)) <= tolerance (T4).

    With `least_heads` it bounds the heads for this error. Computed singular values are those of a matrix that differs
    by a relative k EPS, and so is each tail's root (Mirsky); the comparison gives that much to the tolerance, so that
    rounding never makes the bound too large.

    Args:
        values: as in `error_floor`.
        tolerance: of the relative error: norm of the difference over norm of the target.

    Raises:
        ValueError: as `error_floor`; a tolerance outside (0, 1).
    """
    _require_tolerance(tolerance)
    allowed = tolerance + len(values) * EPS
    return next(r for r, tail in enumerate(_tails(values)) if tail <= allowed)


def _tails(values: Float[Tensor, " k"] | Sequence[float]) -> list[float]:
    """sqrt(sum_{i>R} s_i^2 / sum_i s_i^2) for R = 0 .. k, summed from the small end."""
    s = np.sort(np.asarray(values, dtype=np.float64))
    if s.ndim != 1 or s.size == 0 or not np.isfinite(s).all() or s[0] < 0 or s[-1] == 0:
        raise ValueError("singular values are finite, at least 0, and not all 0")
    sums = np.concatenate(([0.0], np.cumsum((s / s[-1]) ** 2)))[::-1]
    return np.sqrt(sums / sums[0]).tolist()


@blueprint.theorem(
    "structure",
    "banks of k matrices without structure take about k/2 heads of IHA with d_k = N: those that fewer"
    " make have measure 0",
    uses=("iha", "capacity"),
    check="numerical",
    proof="docs/bounds.md, Theorem 5",
)
def unstructured_heads(terms: int, tokens: int, head_dim: int | None = None, pseudo_heads: int | None = None) -> int:
    """The IHA heads that almost every bank of k matrices needs, by counting dimensions: about (k + 1) / 2, not sqrt k.

    Theorem. Let IHA have H heads, P pseudo-heads and queries and keys of width d_k <= N H. If

        d_k (2 H N - d_k) + 4 H^2 P + k H^2 < k N^2,                                                          (*)

    the banks (T_0, ..., T_{k-1}) in R^{k N^2} that it represents, by any position-only weights and output projection,
    have measure 0. So a generic bank needs an H without (*): with d_k = N and N -> infinity, 2 H - 1 >= k. Nor can H be
    less than `least_heads` for the generic rank min(k, N^2).

    Proof. Stack the base queries to Q in R^{HN x d_k}, and the keys to K. All logits are mixtures of the blocks of
    G = Q K^T: head h has sum_{m,n} alpha_q[m,h,j] alpha_k[n,h,j'] G[m,n] between pseudo-query j and pseudo-key j'. So
    the H^2 maps U[o,m] of the layer (T1) are a function of G, the alphas and the collapse, and
    T_t = sum_{o,m} c[t,o,m] U[o,m] for some c, because vec T_t is in the column space of the realignment. G runs
    through the matrices of rank <= d_k, finitely many manifolds of dimension at most d_k (2 H N - d_k); the alphas and
    the collapse have 4 H^2 P numbers, c has k H^2. The map is smooth (softmax and linear pattern), and a smooth image
    of a manifold of dimension below k N^2 has measure 0 (Sard). For the linear pattern the image is semialgebraic, so
    that its closure has no more dimensions (Tarski and Seidenberg), and almost every bank has a positive error floor.

    The powers of one matrix are no generic bank: A^{aH+b} = A^{aH} A^b puts them into H^2 = k products. Nor does the
    theorem bind wide heads: with d_k = H N the H^2 blocks of G are arbitrary, and ceil(sqrt k) heads make any bank.
    docs/results.md T5 counts 2 H N d_k for Q and K; this count takes off the d_k^2 numbers that cancel in Q K^T, and is
    sharper by 1/2.

    Args:
        terms: k.
        tokens: N.
        head_dim: d_k; default N.
        pseudo_heads: P; default H.

    Raises:
        ValueError: a number below 1.
    """
    k, n = require_count("terms", terms), require_count("tokens", tokens)
    d = n if head_dim is None else require_count("head_dim", head_dim)
    heads = least_heads("iha", min(k, n**2), pseudo_heads)
    while True:
        p = heads if pseudo_heads is None else require_count("pseudo_heads", pseudo_heads)
        width = min(d, heads * n)
        if width * (2 * heads * n - width) + 4 * heads**2 * p + k * heads**2 >= k * n**2:
            return heads
        heads += 1


def _not_negative(rank: int) -> int:
    if rank < 0:
        raise ValueError(f"a capacity is at least 0, got {rank}")
    return rank


def _require_tolerance(tolerance: float) -> None:
    if not 0 < tolerance < 1:
        raise ValueError(f"a tolerance is between 0 and 1, got {tolerance!r}")
