"""What training found, beside the constructions: up to the changes of weights that leave the function as it is.

A position-only layer is X -> sum_r S_r X B_r (`iha_theory.operators.numerical`). With linear attention everything that
content is mixed by lies in the span of the **base products**

    G_h = Q_h K_h^T (MHA),      G_mn = Q_m K_n^T (IHA),      Q_m, K_n in R^{N x d_k}.

These changes leave the function as it is, so no comparison may depend on them:

- Q_m -> Q_m W, K_n -> K_n W^{-T}: one invertible W for all heads in IHA, whose mixing adds heads; one a head in MHA;
- IHA: Q_m -> sum_i P[m,i] Q_i with alpha_q -> P^{-T} alpha_q over m; the same with another matrix for the keys;
- any change of the maps S_h = G_h of MHA among themselves that its values and output projection undo.

What is left is the **span** of the S_r (`gap`), the span of the base products (`commutator`), and for IHA the products
as a tensor up to one invertible matrix over m and one over n (`fit`, `degrees`). Theorems and proofs: docs/learned.md.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.bounds import heads as bounds
from iha_theory.operators.numerical import EPS, position_only, realignment
from synthetic.tasks.bank_problem import Bank
from synthetic.tasks.polynomial import Polynomial
from synthetic.training.config import TrainConfig

STARTS, SWEEPS = 6, 300
"""Of the alternating least squares in `fit`."""
ROUNDING = 1e3 * EPS
"""Of a relative squared error."""
CLEAR = 30.0
"""The least ratio of neighbouring singular values at which `degrees` counts those that are not 0."""
DEPENDENT = 1e-10
"""Singular values below this fraction of the largest do not count in a span."""


@dataclass(frozen=True)
class Gap:
    """How far the span of a layer's maps is from the best one of its dimension.

    angle: the largest principal angle, in degrees. allowed: the largest that the layer's error allows (Theorem 1 of
    docs/learned.md), 90 if that says nothing.
    """

    angle: float
    allowed: float


@dataclass(frozen=True)
class Structure:
    """A layer beside the construction; None where a measure is not defined.

    commutator: of the base products with A; for banks of powers and linear attention. fit, degrees: for IHA with
    H^2 = k too.
    """

    gap: Gap
    commutator: float | None
    fit: float | None
    degrees: tuple[int, int] | None


def structure(layer: nn.Module, problem: Bank, config: TrainConfig) -> Structure:
    """All measures of the layer of a run, trained or not."""
    bank = torch.from_numpy(problem.matrices.copy())
    positions = torch.eye(problem.tokens, dtype=torch.float64)
    capacity = config.capacity
    assert capacity is not None
    found = gap(layer, positions, bank, capacity, problem.width)
    own = isinstance(layer, MultiHeadAttention | InterleavedHeadAttention)
    if not own or not isinstance(config.problem, Polynomial) or len(bank) < 2:
        return Structure(found, None, None, None)
    products = base_products(layer, positions)
    commuting = commutator(products, bank[1])
    if config.attention != "iha" or len(bank) != len(products):
        return Structure(found, commuting, None, None)
    degree = None if config.problem.unit_norm else degrees(products, bank)
    return Structure(found, commuting, fit(products, bank), degree)


def base_products(
    layer: MultiHeadAttention | InterleavedHeadAttention, positions: Float[Tensor, "N embed_dim"]
) -> Float[Tensor, "products N N"]:
    """The base products of a layer with linear attention, in float64: H of MHA, or H^2 of IHA, n fastest.

    Args:
        layer: without biases, rotary positions, window or grouped heads, at any scale.
        positions: the input of queries and keys.

    Raises:
        ValueError: another pattern, a bias, rotary positions or a window.
    """
    if layer.pattern != "linear" or layer.rotary or layer.window or layer.q_proj.bias is not None:
        raise ValueError("base products are those of linear attention without biases, rotary positions or a window")

    def heads(projection: nn.Linear) -> Tensor:
        weight = projection.weight.detach().cpu().double().unflatten(0, (layer.num_heads, -1))
        return positions.double() @ weight.transpose(1, 2)

    queries, keys = heads(layer.q_proj), layer.scale * heads(layer.k_proj)
    if isinstance(layer, InterleavedHeadAttention):
        return torch.einsum("mix,njx->mnij", queries, keys).flatten(0, 1)
    return queries @ keys.transpose(1, 2)


@blueprint.theorem(
    "small-angle",
    "a layer whose error is near the floor has maps whose span is near that of the target's leading ones",
    uses=("error-floor",),
    check="numerical",
    proof="docs/learned.md, Theorem 1",
    tests="tests/constructions/learned/test_structure.py",
)
def gap(
    layer: nn.Module, positions: Float[Tensor, "N embed_dim"], bank: Float[Tensor, "k N N"], capacity: int, width: int
) -> Gap:
    """The layer's maps against the span of the bank's R leading singular vectors (Eckart and Young), R <= capacity.

    With r the bank's rank and R = min(capacity, r), this is the span of the whole bank if R = r. Theorem 1: with s the
    bank's spectrum, e the layer's relative squared error and f the floor at R,

        sum_j sin^2 theta_j  <=  (e - f) |s|^2 / (s_R^2 - s_{R+1}^2).

    Args:
        layer: any layer of position-only attention whose output is the k blocks.
        positions: the input of queries and keys.
        bank: T.
        capacity: the largest rank of such a layer (`iha_theory.capacity.capacity_bound`).
        width: d, of the values' input.

    Raises:
        ValueError: an operator of another size than the bank's.
    """
    learned = realignment(position_only(layer, positions, width=width))
    if learned.shape != (bank[0].numel(), len(bank) * width**2):
        raise ValueError(f"an operator of realigned shape {tuple(learned.shape)} for a bank {tuple(bank.shape)}")
    eye = torch.eye(width, dtype=torch.float64)
    target = torch.einsum("tij,ab->ijatb", bank, eye).reshape(learned.shape)
    left, values, _ = torch.linalg.svd(bank.flatten(1).T, full_matrices=False)
    size = min(capacity, int((values > DEPENDENT * values[0]).sum()))
    own = torch.linalg.svd(learned, full_matrices=False).U[:, :size]
    sine = float(torch.linalg.matrix_norm(left[:, :size] - own @ (own.T @ left[:, :size]), 2))
    squares = torch.cat((values.square(), values.new_zeros(1)))
    error = float((learned - target).square().sum() / target.square().sum())
    excess = (max(0.0, error - bounds.error_floor(values, size)) + ROUNDING) * float(squares.sum())
    room = float(squares[size - 1] - squares[size])
    most = (excess / room) ** 0.5 if room > 0 else 1.0
    return Gap(_degrees(sine), _degrees(most))


@blueprint.theorem(
    "polynomial-products",
    "at the threshold H^2 = r the products Q_m K_n^T of an exact IHA are polynomials of A, and factor"
    " into such if d_k = N",
    uses=("capacity", "filter-bank"),
    check="numerical",
    proof="docs/learned.md, Theorem 2",
    tests="tests/constructions/learned/test_any_matrix.py",
)
def commutator(products: Float[Tensor, "products N N"], a: Float[Tensor, "N N"]) -> float:
    """Root mean square of |A B - B A|_F / |A|_2 over an orthonormal basis of the products' span: 0 to 2.

    0 if and only if all of them commute with A: they are polynomials of A if its minimal polynomial has degree N. The
    sum over an orthonormal basis depends on the span only. A random B has about sqrt 2 at an orthogonal A.
    """
    left, values, _ = torch.linalg.svd(products.flatten(1).T, full_matrices=False)
    basis = left[:, values > DEPENDENT * values[0]].T.unflatten(1, a.shape)
    squares = (a @ basis - basis @ a).square().sum((1, 2))
    return float(squares.mean().sqrt() / torch.linalg.matrix_norm(a, 2))


def fit(products: Float[Tensor, "HH N N"], bank: Float[Tensor, "HH N N"], seed: int = 0) -> float:
    """The least |sum_{m,n} P[a,m] R[b,n] G_mn - T_{aH+b}| / |T| that was found, over P, R in R^{H x H}.

    0 if and only if the layer is the paper's up to the changes above; so is its mirror image, in which queries and keys
    exchange roles, T_{a+bH}: the smaller of both counts. Alternating least squares, from random starts and from the
    Kronecker product nearest to the matrix that takes the G_mn to the T_t; a local minimum is an upper bound only.

    Args:
        products: the base products of IHA with H heads, n fastest.
        bank: T, H^2 blocks.
        seed: of the random starts.

    Raises:
        ValueError: counts that differ, or are no square.
    """
    heads = round(len(products) ** 0.5)
    if heads**2 != len(products) or len(bank) != len(products):
        raise ValueError(f"{len(products)} products for {len(bank)} blocks: both must be the square of the heads")
    both = torch.linalg.qr(torch.cat((products, bank)).flatten(1).T, mode="r").R.T  # lengths and angles are kept
    found, wanted = (part.unflatten(0, (heads, heads)) for part in both.split(len(products)))
    generator = torch.Generator().manual_seed(seed)
    results = []
    for target in (wanted, wanted.transpose(0, 1)):
        matrix = torch.linalg.lstsq(found.flatten(0, 1).T, target.flatten(0, 1).T).solution.T
        realigned = matrix.reshape(heads, heads, heads, heads).permute(1, 3, 0, 2).flatten(2).flatten(0, 1)
        nearest = torch.linalg.svd(realigned).U[:, 0].unflatten(0, (heads, heads))
        starts = [torch.randn(heads, heads, dtype=torch.float64, generator=generator) for _ in range(STARTS - 1)]
        results += [_alternate(found, target, start) for start in [nearest, *starts]]
    return min(results)


@blueprint.theorem(
    "family",
    "the exact IHAs with d_k = N are pairs of spaces of polynomials, a family of dimension H (H - "
    "1)^2; the paper's is one point of it",
    uses=("polynomial-products", "bank-iha"),
    check="numerical",
    proof="docs/learned.md, Theorem 3",
    tests="tests/constructions/learned/test_structure.py",
)
def degrees(products: Float[Tensor, "HH N N"], bank: Float[Tensor, "HH N N"], seed: int = 0) -> tuple[int, int] | None:
    """The degrees (a, b) for which G_mn = u_m(A) v_n(A), deg u_m <= a, deg v_n <= b, a + b = k - 1; None if not clear.

    The paper's are (H^2 - H, H - 1). With f_mn the polynomial of G_mn and y random, sum_n y_n f_mn = u_m (v y): these
    have a greatest common divisor of degree b if the u_m have none, as Theorem 3 of docs/learned.md says. Their
    multiples by 1, x, ..., x^{k-1} then span all its multiples of degree below 2 k - 1, so 2 k - 1 - b dimensions.

    Args:
        products: the base products of IHA with H heads, n fastest.
        bank: the first H^2 powers of A, well-conditioned.
        seed: of y.
    """
    terms = len(bank)
    heads = round(terms**0.5)
    f = torch.linalg.lstsq(bank.flatten(1).T, products.flatten(1).T).solution.T.unflatten(0, (heads, heads))
    y = torch.randn(heads, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = []
    for side in (f.transpose(0, 1), f):
        combined = torch.einsum("mnt,n->mt", side, y)
        multiples = [torch.nn.functional.pad(combined, (i, terms - 1 - i)) for i in range(terms)]
        values = torch.linalg.svdvals(torch.cat(multiples)).clamp_min(DEPENDENT)
        ratios = values[:-1] / values[1:]
        if float(ratios.max()) < CLEAR:
            return None
        found.append(2 * terms - 2 - int(ratios.argmax()))
    return (found[0], found[1]) if sum(found) == terms - 1 else None


def _alternate(found: Tensor, wanted: Tensor, r: Tensor) -> float:
    """|P R G - T| / |T| after alternating least squares from R."""
    rows, columns = wanted.flatten(1).T, wanted.transpose(0, 1).flatten(1).T
    distance = torch.ones(())
    for _ in range(SWEEPS):
        p = torch.linalg.lstsq(torch.einsum("bn,mnx->mbx", r, found).flatten(1).T, rows).solution.T
        mixed = torch.einsum("am,mnx->nax", p, found).flatten(1).T
        r = torch.linalg.lstsq(mixed, columns).solution.T
        distance = (mixed @ r.T - columns).norm() / wanted.norm()
    return float(distance)


def _degrees(sine: float) -> float:
    return float(torch.rad2deg(torch.asin(torch.tensor(min(1.0, sine), dtype=torch.float64))))


blueprint.unowned(
    "open",
    "family-not-empty",
    "that the family is not empty for every pair of degrees, H > 4",
    uses=("family",),
    proof="docs/learned.md, Theorem 3",
)
