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
- `product_bank`, H heads with d_k = N: maps p_a(A) q_b(A), with 2 H polynomials such that the
  span of the H^2 products is near the T_t (`constructions.filter_bank.product_fit`). Where none are found,
  H >= (R + 1) / 2 heads make the R leading maps (`half_products`), if there is an invertible one in their span.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from sympy import QQ
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.filter_bank.layers import LAYERS, Weights, to_module
from constructions.filter_bank.paper import powers
from constructions.filter_bank.product_fit import Products, fit, power_products
from iha_theory import blueprint, exact
from iha_theory.bounds.heads import error_floor, least_rank, spectrum, unit_norm
from iha_theory.operators.weights import untouched_zeros
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of


def unit_powers(a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """c_t A^t of Frobenius norm 1, t < k; 0 where A^t is.

    Integers of both signs are multiplied exactly where float64 can hold the powers: rounding would leave something of
    a power that cancels to 0, and scaling would make it large.

    Raises:
        ValueError: terms below 1.
    """
    require_count("terms", terms)
    if bool((a < 0).any()) and bool((a == a.round()).all()):
        power = powers(exact.matrix(a, QQ))
        try:
            return unit_norm(torch.stack([exact.nearest_float64(power(t)) for t in range(terms)]))  # type: ignore[arg-type]
        except OverflowError:
            pass
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


@blueprint.construction(
    "truncated-mha",
    "R heads of MHA from the R leading singular vectors attain the floor",
    uses=("products", "schmidt-rank"),
    check="numerical",
)
def truncated_mha(bank: Float[Tensor, "k N N"], heads: int, width: int = 1) -> Construction:
    """MHA with R heads at the floor of capacity R, for any bank of k >= R matrices."""
    svd = decompose(bank)
    one = torch.eye(bank.shape[1], dtype=torch.float64)[None]
    contents = contents_of(svd.coefficients[:heads, None], width)
    weights = LAYERS["mha"].products(svd.maps[:heads], one, contents)
    return made("mha", weights, len(bank), width, floor(svd.values, heads))


@blueprint.construction(
    "wide-iha",
    "H heads of IHA with queries and keys of width H N make any H^2 maps",
    uses=("products",),
    check="numerical",
    proof="docs/bounds.md, Theorem 3, Wide heads",
)
def wide_iha(bank: Float[Tensor, "k N N"], heads: int, width: int = 1) -> Construction:
    """IHA with H heads of d_k = H N at the floor of capacity H^2, for any bank; at most ceil(sqrt H) pseudo-heads."""
    svd = decompose(bank)
    maps = _padded(svd.maps, heads)
    keys = maps.permute(1, 3, 0, 2).flatten(2)  # [b, j, (a, i)] = S_ab[i, j]
    return wide_layer([*keys], svd.coefficients, bank.shape[1], width, floor(svd.values, heads**2))


def wide_layer(
    keys: Sequence[Float[Tensor, "N dk"]], coefficients: Float[Tensor, "n k"], tokens: int, width: int, error: float
) -> Construction:
    """`wide_iha` of its H keys, (N, H N), and the coefficients of all maps S_ab, row by row."""
    heads = len(keys)
    wide = untouched_zeros(tokens, (2 * heads - 1) * tokens)  # I in the middle block: a window of it for each query
    wide[:, (heads - 1) * tokens : heads * tokens].fill_diagonal_(1)
    queries = [wide[:, h * tokens : (h + heads) * tokens] for h in range(heads)][::-1]
    weights = LAYERS["iha-wide"].products(queries, keys, contents_of(_padded(coefficients, heads), width))
    return made("iha-wide", weights, coefficients.shape[1], width, error)


def product_bank(layer: str, found: Products, width: int = 1) -> Construction:
    """ "iha", "iha-tiled" or "mha-two-layer" of fitted products, d_k = N."""
    contents = contents_of(found.coefficients, width)
    terms = found.coefficients.shape[2]
    return made(layer, LAYERS[layer].products(found.outer, found.inner.mT, contents), terms, width, found.error)


class UnitPowers:
    """The powers of A, scaled to Frobenius norm 1, and layers near them; what was fitted once serves all layers.

    Args:
        a: A, (N, N), float64.
        terms: k.
        width: of the content, d.

    Raises:
        ValueError: as `unit_powers`.
    """

    def __init__(self, a: Float[Tensor, "N N"], terms: int, width: int = 1) -> None:
        self.a, self.terms, self.width = a, terms, width
        self.bank = unit_powers(a, terms)
        self.values = spectrum(self.bank)
        self._fits: dict[int, Products] = {}

    def least_rank(self, tolerance: float) -> int:
        """R, the least capacity whose error floor meets the tolerance."""
        return max(1, least_rank(self.values, tolerance))

    def within(self, layer: str, tolerance: float) -> Construction:
        """The bank within a relative error, by the fewest heads known here.

        Its `error_bound` is above the tolerance where rounding is.

        Args:
            layer: of `constructions.filter_bank.layers.LAYERS`.
            tolerance: in (0, 1).

        Raises:
            ValueError: another layer, or a tolerance outside its range.
        """
        require_one_of("layer", layer, LAYERS)
        rank = self.least_rank(tolerance)
        if layer == "mha":
            return truncated_mha(self.bank, rank, self.width)
        if layer == "iha-wide":
            return wide_iha(self.bank, ceil_sqrt(rank), self.width)
        return product_bank(layer, self.products(ceil_sqrt(rank), tolerance), self.width)

    def products(self, heads: int, tolerance: float) -> Products:
        """Fitted products with the fewest heads, from `heads` on, that meet the tolerance; at the latest H^2 >= k.

        If rounding leaves more than the tolerance even there, `power_products`, whatever their error is.
        """
        while True:
            last, found = heads**2 >= self.terms, self._fits.get(heads)
            if found is None or found.error > tolerance:
                found = self._fit(heads, tolerance)
                if found.error > tolerance and 2 * heads > (rank := self.least_rank(tolerance)):
                    found = min(found, self._half_products(rank, heads), key=lambda products: products.error)
                if last and found.error > tolerance:
                    found = self._power_products(heads)
                self._fits[heads] = found
            if last or found.error <= tolerance:
                return found
            heads += 1

    def _fit(self, heads: int, tolerance: float) -> Products:
        return fit(self.a, self.bank, heads, tolerance)

    def _half_products(self, rank: int, heads: int) -> Products:
        return half_products(self.bank, rank, heads)

    def _power_products(self, heads: int) -> Products:
        return power_products(self.bank, heads)


def half_products(bank: Float[Tensor, "k N N"], rank: int, heads: int) -> Products:
    """2 H - 1 >= R maps as products: docs/bounds.md, Theorem 5, for an orthonormal basis S of the R leading maps.

    S_0 is the projection of I to their span. Q_0 = I, K_b^T = S_b, Q_a = S_{H+a-1} S_0^{-1}. Where S_0 cannot be
    inverted the error says so; it may be infinite.
    """
    svd = decompose(bank)
    found = half_grid(svd.maps[:rank], svd.coefficients[:rank], heads)
    made = torch.einsum("abt,aij,bjl->til", found.coefficients, found.outer, found.inner)
    error = float((made - bank).norm() / bank.norm())
    return replace(found, error=error if math.isfinite(error) else math.inf)


def half_grid(maps: Float[Tensor, "R N N"], coefficients: Float[Tensor, "R k"], heads: int) -> Products:
    """`half_products` of the R leading maps and their coefficients; the error is left infinite."""
    rank, tokens, terms = len(maps), maps.shape[1], coefficients.shape[1]
    one = torch.eye(tokens, dtype=torch.float64)
    traces = maps.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    turn = torch.linalg.qr(torch.cat((traces, torch.eye(rank, dtype=torch.float64)), 1)).Q.T
    maps, coefficients = torch.einsum("qr,rij->qij", turn, maps), turn @ coefficients
    outer, inner = maps.new_zeros(2, heads, tokens, tokens)
    chosen = maps.new_zeros(heads, heads, terms)
    inner[: min(heads, rank)], chosen[0, : min(heads, rank)] = maps[:heads], coefficients[:heads]
    outer[0], rest = one, max(0, rank - heads)
    outer[1 : rest + 1], chosen[1 : rest + 1, 0] = maps[heads:] @ torch.linalg.inv_ex(maps[0])[0], coefficients[heads:]
    return Products(outer, inner, chosen, math.inf)


def floor(values: Float[Tensor, " n"], capacity: int) -> float:
    """The least relative error of a layer of this capacity."""
    return math.sqrt(error_floor(values, capacity))


def contents_of(coefficients: Float[Tensor, "a b k"], width: int) -> Float[Tensor, "a b d kd"]:
    """B_ab = [c[a,b,0] I_d, ..., c[a,b,k-1] I_d]."""
    own = torch.eye(width, dtype=torch.float64)
    return torch.einsum("abt,cd->abctd", coefficients, own).flatten(3)


def _padded(x: Tensor, heads: int) -> Tensor:
    """The first H^2 of x, with zeros if there are fewer, as (H, H, ...)."""
    zeros = x.new_zeros(max(0, heads**2 - len(x)), *x.shape[1:])
    return torch.cat((x[: heads**2], zeros)).unflatten(0, (heads, heads))


def made(layer: str, weights: Weights, terms: int, width: int, error: float) -> Construction:
    """The construction of these weights, whose readout is the bank's."""
    readout = blocks("c_{} A^{} X", terms, width)
    return Construction(f"approximate-bank/{layer}", "docs/results.md T4", to_module(weights), readout, width, error)
