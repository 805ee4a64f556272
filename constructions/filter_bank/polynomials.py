"""H^2 combinations of powers of A by H heads of IHA with d_k = N (docs/bounds.md, Theorem 6).

**Low degree.** Let V be spanned by H^2 polynomials of degree at most D = H^2 + c - 1. The polynomials w with
w, x w, .., x^{H-1} w all in V, in coefficients c H equations for D - H + 2 unknowns, are a space W of dimension at
least H for c <= H - 1. For almost every V the products x^a w_b with H of them, a, b < H, are a basis of V. So Q_a = A^a
and K_b^T = w_b(A) make every combination, D <= H^2 + H - 2.

**Two heads, any degree.** Maps T_ab that commute are products Q_a K_b^T if T_00 T_11 = T_01 T_10: with vectors u, v for
which S = sum_ab u_a v_b T_ab is invertible,

    Q_a = sum_b v_b T_ab,    K_b^T = S^{-1} sum_a u_a T_ab.

So four commuting maps S_1 .. S_4 have such a basis T_ab if a quadratic form of signature (2, 2) is 0 at the points
(S_1, .., S_4)(lambda) of all eigenvalues: in coordinates it is T_00 T_11 - T_01 T_10.
"""

from itertools import combinations_with_replacement

import numpy as np
import torch
from jaxtyping import Complex, Float
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.filter_bank.approximate import decompose
from constructions.filter_bank.layers import LAYERS, to_module
from constructions.filter_bank.product_fit import Products
from iha_theory import blueprint, exact
from iha_theory.rounding import ceil_sqrt, require_count

ZERO = 1e-10
"""Singular values below so much of the largest count as 0."""
TRIES = 200
"""Forms that are tried where several are 0 at all points, and pairs u, v."""


def shifted_inside(polynomials: DomainMatrix, heads: int) -> DomainMatrix:
    """H polynomials w, (H, D - H + 2), whose products with 1, .., x^{H-1} lie in the span of the given ones.

    Args:
        polynomials: (H^2, D + 1) coefficients, the constant first, over a field.
        heads: H.

    Raises:
        ValueError: there are fewer than H.
    """
    count = polynomials.shape[1] - heads + 1
    outside = polynomials.nullspace().to_list() if polynomials.rank() < polynomials.shape[1] else []
    rows = [row[i : i + count] for row in outside for i in range(heads)]
    field = polynomials.domain
    inside = (
        DomainMatrix(rows, (len(rows), count), field).to_dense().nullspace() if rows else exact.identity(count, field)
    )
    if inside.shape[0] < heads:
        raise ValueError(f"only {inside.shape[0]} of {heads} polynomials stay in the span when shifted")
    if inside.shape[0] == heads:
        return inside
    mix = np.random.default_rng(heads).integers(0, 1000, (heads, inside.shape[0]))
    return exact.matrix(mix, field) * inside


@blueprint.construction(
    "low-degree",
    "H heads of IHA with queries and keys of width N make almost every H^2 polynomials of A of degree at most"
    " H^2 + H - 2",
    uses=("products",),
    check="exact",
    proof="docs/bounds.md, Theorem 6",
)
def bank(a: DomainMatrix, polynomials: DomainMatrix, width: int = 1) -> Construction:
    """X -> [p_1(A) X, .., p_k(A) X] by IHA with H = P = sqrt k heads, d_k = N and an output projection.

    Args:
        a: A, over a field.
        polynomials: (k, D + 1), k = H^2 of degree at most D <= H^2 + H - 2, the constant first, over this field.
        width: of the content, d.

    Raises:
        OverflowError: a weight that float64 cannot hold.
        ValueError: k is no square; the polynomials are of those few that have no such products.
    """
    count, field = polynomials.shape[0], a.domain
    heads = ceil_sqrt(require_count("polynomials", count))
    if heads**2 != count:
        raise ValueError(f"accepted are H^2 polynomials, got {count}")
    w = shifted_inside(polynomials, heads)
    products = DomainMatrix(
        [[field.zero] * i + row + [field.zero] * (heads - 1 - i) for i in range(heads) for row in w.to_list()],
        polynomials.shape,
        field,
    ).to_dense()
    if products.rank() < count:
        raise ValueError("the products are dependent: this span is one of the exceptions")
    _, pivots = products.rref()
    square = products.extract(range(count), pivots)
    combination = polynomials.extract(range(count), pivots) * square.inv()  # (t, (a, b))
    power = [exact.identity(a.shape[0], field)]
    while len(power) < polynomials.shape[1]:
        power.append(power[-1] * a)
    none = exact.zeros(a.shape, field)
    keys = [none if m is None else m.transpose() for m in exact.combinations(w, power[: w.shape[1]])]
    queries = torch.stack([exact.to_float64(m) for m in power[:heads]])
    stacked = torch.stack([exact.to_float64(m) for m in keys])
    contents = torch.einsum("th,cd->hctd", exact.to_float64(combination), torch.eye(width, dtype=torch.float64))
    module = to_module(LAYERS["iha"].products(queries, stacked, contents.flatten(2).unflatten(0, (heads, heads))))
    return Construction("polynomials/iha", "docs/bounds.md", module, blocks("p_{}(A) X", count, width), width)


def points(maps: Float[Tensor, "4 N N"]) -> Complex[np.ndarray, "N 4"]:
    """(S_1, .., S_4)(lambda_i) for commuting diagonalisable maps: at the eigenvectors of a random combination."""
    s = maps.numpy()
    vectors = np.linalg.eig(np.einsum("s,sij->ij", np.random.default_rng(0).standard_normal(len(s)), s))[1]
    return np.einsum("ni,sij,jn->ns", np.linalg.inv(vectors), s, vectors)


def forms(at: Complex[np.ndarray, "N 4"]) -> tuple[Float[np.ndarray, "forms 4 4"], float]:
    """A basis of the real quadratic forms that are 0 at all points; and the least singular value that is not 0,
    relative to the largest.
    """
    pairs = list(combinations_with_replacement(range(4), 2))
    monomials = np.stack([at[:, i] * at[:, j] for i, j in pairs], axis=1)
    _, sizes, rows = np.linalg.svd(np.concatenate((np.real(monomials), np.imag(monomials))))
    rank = int((sizes > ZERO * sizes[0]).sum())
    found = np.zeros((len(pairs) - rank, 4, 4))
    for (i, j), column in zip(pairs, rows[rank:].T, strict=True):
        found[:, i, j] += column / 2
        found[:, j, i] += column / 2
    return found, float(sizes[rank - 1] / sizes[0])


@blueprint.theorem(
    "quadric",
    "two heads of IHA with queries and keys of width N make four independent commuting diagonalisable maps if and only"
    " if a real quadratic form of signature (2, 2) is 0 at their values at all eigenvalues",
    uses=("products", "capacity"),
    check="numerical",
    proof="docs/bounds.md, Theorem 6",
)
def split_form(basis: Float[np.ndarray, "forms 4 4"]) -> Float[np.ndarray, "4 4"] | None:
    """Of their combinations one of signature (2, 2), as far from degenerate as is found; None if none is found."""
    best, least = None, 1e-6
    for mix in np.random.default_rng(0).standard_normal((TRIES if len(basis) > 1 else len(basis), len(basis))):
        form = np.einsum("f,fij->ij", mix, basis)
        values = np.linalg.eigvalsh(form)
        share = min(-values[1], values[2]) / np.abs(values).max()
        if share > least:
            best, least = form, share
    return best


def split_products(bank: Float[Tensor, "k N N"]) -> Products | None:
    """Two heads at the floor of capacity 4 for a bank of commuting maps, or None: see the module.

    Args:
        bank: at least 4 independent maps.
    """
    form = split_form(forms(points(decompose(bank).maps[:4]))[0])
    return None if form is None else products_of(form, bank)


def products_of(form: Float[np.ndarray, "4 4"], bank: Float[Tensor, "k N N"]) -> Products:
    """Q_a and K_b^T for a form of signature (2, 2), in whose coordinates x_1^2 + x_2^2 - x_3^2 - x_4^2 it is
    (x_1 - x_3)(x_1 + x_3) - (x_4 - x_2)(x_4 + x_2). The error is relative to the bank.
    """
    svd = decompose(bank)
    maps, coefficients = svd.maps[:4], svd.coefficients[:4]
    values, vectors = np.linalg.eigh(form)
    x = (vectors * np.sqrt(np.abs(values))).T[::-1]  # the positive ones first
    change = torch.from_numpy(np.stack((x[0] - x[2], x[3] - x[1], x[3] + x[1], x[0] + x[2])))
    t = torch.einsum("xs,sij->xij", change, maps).unflatten(0, (2, 2))
    u, v = _best_pair(t)
    s = torch.einsum("a,b,abij->ij", u, v, t)
    outer, inner = torch.einsum("b,abij->aij", v, t), torch.linalg.solve(s, torch.einsum("a,abij->bij", u, t))
    weights = (torch.linalg.inv(change).T @ coefficients).unflatten(0, (2, 2))
    made = torch.einsum("abt,aij,bjl->til", weights, outer, inner)
    return Products(outer, inner, weights, float((made - bank).norm() / bank.norm()))


def _best_pair(t: Float[Tensor, "2 2 N N"]) -> tuple[Tensor, Tensor]:
    """u, v with the best conditioned sum_ab u_a v_b T_ab of those tried."""
    tried = torch.randn(TRIES, 2, 2, dtype=t.dtype, generator=torch.Generator().manual_seed(0))
    sums = torch.einsum("na,nb,abij->nij", tried[:, 0], tried[:, 1], t)
    u, v = tried[int(torch.linalg.cond(sums).argmin())]
    return u, v
