"""The filter bank within an error, by fewer heads (docs/results.md T3, T4).

Target: X -> [T_0 X, ..., T_{k-1} X], T_t the powers A^t of Frobenius norm 1. Error: |L' - L|_F / |L|_F of the
operators, the root mean square error relative to the target for content with independent entries of mean 0 and variance
1. The realignment of the target is T in R^{N^2 x k}, with column vec T_t, for each coordinate of the content. With its
singular values s_1 >= s_2 >= ... no layer of capacity R has an error below (sum_{i>R} s_i^2 / sum_i s_i^2)^{1/2}
(`iha_theory.bounds.heads.error_floor`).

- `truncated_mha`, R heads: T ~ sum_{i<=R} vec(S_i) c_i^T is the truncated SVD, which attains the floor. Head i has
  queries S_i, keys I, values X; the output projection holds the c_i.
- `wide_iha`, H heads with d_k = H N: base query a is I in block a of H blocks of N columns, base key b is
  [S_0b^T, ..., S_{H-1,b}^T], so that Q_a K_b^T = S_ab for *any* H^2 maps, such as the H^2 leading S_i. So the floor of
  capacity H^2 is attained: ceil(sqrt R) heads are enough wherever MHA needs R, for any bank. The price is the width of
  queries and keys, with which they hold as many numbers as MHA's: 2 H N (H N) = 2 H^2 N^2.
- `product_iha` and `product_two_layers`, H heads with d_k = N: maps p_a(A) q_b(A), with 2 H polynomials such that the
  span of the H^2 products is near the T_t (`constructions.filter_bank.product_fit`).
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from constructions.construction import Block, Construction
from constructions.filter_bank import tiled
from constructions.filter_bank.product_fit import Products, fit_within
from constructions.filter_bank.products import iha_products, mha_products
from constructions.filter_bank.two_layer import to_two_layers
from constructions.filter_bank.two_layer import weights as two_layer_weights
from iha_theory.bounds.heads import error_floor, least_rank, spectrum
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt

LAYERS = ("mha", "iha", "iha-tiled", "iha-wide", "mha-two-layer")


def unit_powers(a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """c_t A^t of Frobenius norm 1, t < k; 0 where A^t is.

    Raises:
        ValueError: terms below 1.
    """
    if terms < 1:
        raise ValueError(f"terms must be at least 1, got {terms}")
    last = torch.eye(len(a), dtype=torch.float64)
    bank = []
    for _ in range(terms):
        norm = float(last.norm())
        bank.append(last / norm if norm else last)
        last = a @ bank[-1]
    return torch.stack(bank)


@dataclass(frozen=True)
class Decomposition:
    """The SVD of a bank: T_t = sum_i coefficients[i, t] maps[i].

    maps: S_i, (n, N, N), orthonormal, n = min(k, N^2). coefficients: (n, k), orthogonal rows of norm s_i. values: s_i.
    """

    maps: Float[Tensor, "n N N"]
    coefficients: Float[Tensor, "n k"]
    values: Float[Tensor, " n"]


def decompose(bank: Float[Tensor, "k N N"]) -> Decomposition:
    """The SVD of [vec T_0, ..., vec T_{k-1}], by a QR decomposition first."""
    q, r = torch.linalg.qr(bank.flatten(1).T)
    u, s, v = torch.linalg.svd(r, full_matrices=False)
    maps = (q @ u).T.unflatten(1, bank.shape[1:])
    return Decomposition(maps, s[:, None] * v, s)


def truncated_mha(bank: Float[Tensor, "k N N"], heads: int, width: int = 1) -> Construction:
    """MHA with R heads at the floor of capacity R, for any bank of k >= R matrices."""
    svd = decompose(bank)
    one = torch.eye(bank.shape[1], dtype=torch.float64)[None]
    contents = _contents(svd.coefficients[:heads, None], width)
    return _construction("mha", mha_products(svd.maps[:heads], one, contents), bank, width, floor(svd.values, heads))


def wide_iha(bank: Float[Tensor, "k N N"], heads: int, width: int = 1) -> Construction:
    """IHA with H heads of d_k = H N at the floor of capacity H^2, for any bank; at most ceil(sqrt H) pseudo-heads."""
    svd, tokens = decompose(bank), bank.shape[1]
    maps, coefficients = (_padded(x, heads) for x in (svd.maps, svd.coefficients))
    queries = torch.eye(heads * tokens, dtype=torch.float64).unflatten(0, (heads, tokens))
    keys = maps.permute(1, 3, 0, 2).flatten(2)  # [b, j, (a, i)] = S_ab[i, j]
    weights = tiled.products(queries, keys, _contents(coefficients, width))
    return _construction("iha-wide", weights, bank, width, floor(svd.values, heads**2))


def product_iha(found: Products, bank: Float[Tensor, "k N N"], width: int = 1, *, layer: str = "iha") -> Construction:
    """IHA of fitted products, d_k = N: P = H for "iha", at most ceil(sqrt H) for "iha-tiled"."""
    products = {"iha": iha_products, "iha-tiled": tiled.products}[layer]
    weights = products(found.outer, found.inner.mT, _contents(found.coefficients, width))
    return _construction(layer, weights, bank, width, found.error)


def product_two_layers(found: Products, bank: Float[Tensor, "k N N"], width: int = 1) -> Construction:
    """Two layers of MHA with H heads each, of fitted products."""
    out = _contents(found.coefficients, width).flatten(0, 2)
    layer = to_two_layers(*two_layer_weights(list(found.outer), list(found.inner), width, out))
    name = "approximate-bank/mha-two-layer"
    return Construction(name, "docs/results.md T4", layer, _readout(bank, width), width, found.error)


def within(layer: str, a: Float[Tensor, "N N"], terms: int, tolerance: float, width: int = 1) -> Construction:
    """The bank of unit-norm powers within a relative error, by the fewest heads known here.

    Args:
        layer: of `LAYERS`.
        a: A, float64.
        terms: k.
        tolerance: in (0, 1).
        width: the content's width d.

    Raises:
        ValueError: another layer, or what `fit_within` and `unit_powers` refuse.
    """
    if layer not in LAYERS:
        raise ValueError(f"unknown layer {layer!r}: accepted are {', '.join(LAYERS)}")
    bank = unit_powers(a, terms)
    rank = max(1, least_rank(spectrum(bank), tolerance))
    if layer == "mha":
        return truncated_mha(bank, rank, width)
    if layer == "iha-wide":
        return wide_iha(bank, ceil_sqrt(rank), width)
    found = fit_within(a, bank, tolerance)
    if layer == "mha-two-layer":
        return product_two_layers(found, bank, width)
    return product_iha(found, bank, width, layer=layer)


def floor(values: Float[Tensor, " n"], capacity: int) -> float:
    """The least relative error of a layer of this capacity."""
    return math.sqrt(error_floor(values, capacity))


def _contents(coefficients: Float[Tensor, "a b k"], width: int) -> Float[Tensor, "a b d kd"]:
    """B_ab = [c[a,b,0] I_d, ..., c[a,b,k-1] I_d]."""
    own = torch.eye(width, dtype=torch.float64)
    return torch.einsum("abt,cd->abctd", coefficients, own).flatten(3)


def _padded(x: Tensor, heads: int) -> Tensor:
    """The first H^2 of x, with zeros if there are fewer, as (H, H, ...)."""
    zeros = x.new_zeros(max(0, heads**2 - len(x)), *x.shape[1:])
    return torch.cat((x[: heads**2], zeros)).unflatten(0, (heads, heads))


def _readout(bank: Tensor, width: int) -> tuple[Block, ...]:
    return tuple(Block(f"c_{t} A^{t} X", t * width, width) for t in range(len(bank)))


def _construction(layer: str, weights: PositionWeights, bank: Tensor, width: int, error: float) -> Construction:
    name = f"approximate-bank/{layer}"
    return Construction(name, "docs/results.md T4", to_layer(weights), _readout(bank, width), width, error)
