"""Polynomials of A whose products are near a bank of powers: heads of d_k = N at a tolerance (docs/results.md T4).

    T_t ~ sum_{a,b} c[a,b,t] p_a(A) q_b(A),      a, b < H.

p_a = sum_i P[a,i] T_i, q_b likewise, in Chebyshev polynomials T_i of A / |A|_2, i <= m;
T_i T_j = (T_{i+j} + T_{|i-j|}) / 2. A QR decomposition of the N^2 x (2 m + 1) matrix of all T_i(A / |A|_2) gives
orthonormal coordinates, in which everything has sizes independent of N. For given P and Q the best coefficients are
least squares, so the error is a function of P and Q only (variable projection), which L-BFGS makes small. It starts
from p_a = T_{aH}, q_b = T_b, whose products span all polynomials of degree below H^2: exact if H^2 >= k.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import OptimizeResult, minimize
from torch import Tensor

from iha_theory import blueprint

RIDGE = 1e-11
"""Weight of the coefficients' size in the least squares of `fit`, where products have norm 1: without it the
coefficients, and the gradient, have no limit where products become dependent."""
MARGIN = 0.99
"""`fit` stops at this fraction of the tolerance: the rest is for rounding."""
STEPS, LEAST_GAIN = 1000, 1e-6
"""L-BFGS steps, and the part by which each must make the squared misfit smaller."""


@dataclass(frozen=True)
class Products:
    """T_t ~ sum_{a,b} coefficients[a, b, t] outer[a] inner[b].

    outer, inner: (H, N, N). coefficients: (H, H, k). error: relative, as fitted.
    """

    outer: Float[Tensor, "H N N"]
    inner: Float[Tensor, "H N N"]
    coefficients: Float[Tensor, "H H k"]
    error: float


@dataclass(frozen=True)
class Series:
    """`Products` of polynomials by their Chebyshev coefficients, p and q: (H, m + 1)."""

    p: Float[Tensor, "H i"]
    q: Float[Tensor, "H i"]
    coefficients: Float[Tensor, "H H k"]
    error: float


@blueprint.construction(
    "product-fit",
    "fitted polynomials of A whose products are near the bank, for heads of width N",
    uses=("products",),
    check="numerical",
    tests="tests/constructions/filter_bank/test_approximate.py",
)
def fit(a: Float[Tensor, "N N"], bank: Float[Tensor, "k N N"], heads: int, tolerance: float, seed: int = 0) -> Products:
    """Products of polynomials of A near the bank; see the module docstring.

    Args:
        a: A.
        bank: k matrices in the span of the first k powers of A.
        heads: H.
        tolerance: where to stop.
        seed: of a small step away from the starting point.
    """
    degree = least_degree(len(bank), heads)
    chebyshev = chebyshev_maps(a, 2 * degree)
    triangle = torch.linalg.qr(torch.cat((chebyshev, bank)).flatten(1).T, mode="r").R
    size = len(chebyshev)
    found = fit_series(triangle[:size, :size], triangle[:size, size:], heads, tolerance, seed)
    lower = chebyshev[: degree + 1]
    return Products(
        outer=torch.einsum("ai,ijk->ajk", found.p, lower),
        inner=torch.einsum("ai,ijk->ajk", found.q, lower),
        coefficients=found.coefficients,
        error=found.error,
    )


def least_degree(terms: int, heads: int) -> int:
    """m, the degree of the polynomials p_a and q_b: of those that it starts from, and half of the bank's at least."""
    return max(terms // 2, (heads - 1) * heads)


def fit_series(
    coordinates: Float[Tensor, "n m"], target: Float[Tensor, "n k"], heads: int, tolerance: float, seed: int = 0
) -> Series:
    """`fit` in orthonormal coordinates.

    Args:
        coordinates: of T_0, ..., T_{2m}, in its columns, m = `least_degree`.
        target: coordinates of the bank.
        heads: H.
        tolerance: where to stop.
        seed: of a small step away from the starting point.
    """
    terms = target.shape[1]
    degree = least_degree(terms, heads)
    ridge = RIDGE * torch.eye(heads**2, dtype=torch.float64)
    wanted = torch.cat((target, target.new_zeros(heads**2, terms)))

    def system(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """The least squares' matrix, of products scaled to norm 1, and their norms."""
        columns = coordinates @ times(p, q).flatten(0, 1).T
        norms = columns.norm(dim=0).clamp_min(torch.finfo(columns.dtype).tiny)
        return torch.cat((columns / norms, ridge)), norms

    def misfit(p: Tensor, q: Tensor) -> Tensor:
        span = torch.linalg.qr(system(p, q)[0]).Q
        return (wanted - span @ (span.T @ wanted)).norm() / target.norm()

    p, q = (torch.zeros(heads, degree + 1, dtype=torch.float64) for _ in range(2))
    for h in range(heads):
        p[h, h * heads], q[h, h] = 1, 1
    if float(misfit(p, q)) > MARGIN * tolerance:
        generator = torch.Generator().manual_seed(seed)
        p, q = (x + 1e-3 * torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in (p, q))
        p, q = _descend(misfit, p, q, MARGIN * tolerance)
    matrix, norms = system(p, q)
    solution = torch.linalg.lstsq(matrix, wanted).solution
    error = float((matrix @ solution - wanted)[: len(target)].norm() / target.norm())
    return Series(p, q, (solution / norms[:, None]).unflatten(0, (heads, heads)), error)


def power_products(bank: Float[Tensor, "k N N"], heads: int) -> Products:
    """A^{aH} A^b for A^{aH+b}, where H^2 >= k: the paper's, up to scale.

    `fit` has them among its polynomials, but its Chebyshev coordinates tell powers of a very asymmetric A badly apart.
    """
    terms, tokens = bank.shape[:2]
    outer, inner = bank.new_zeros(2, heads, tokens, tokens)
    coefficients = bank.new_zeros(heads, heads, terms)
    outer[: -(-terms // heads)], inner[: min(heads, terms)] = bank[::heads], bank[:heads]
    squares = 0.0
    for t, target in enumerate(bank):
        a, b = divmod(t, heads)
        product = outer[a] @ inner[b]
        square = float(product.square().sum())
        coefficients[a, b, t] = float((product * target).sum()) / square if square else 0.0
        squares += float((coefficients[a, b, t] * product - target).square().sum())
    return Products(outer, inner, coefficients, math.sqrt(squares / float(bank.square().sum())))


def _descend(misfit: Callable[[Tensor, Tensor], Tensor], p: Tensor, q: Tensor, goal: float) -> tuple[Tensor, Tensor]:
    """L-BFGS on the squared misfit until it meets the goal, stops getting better, or steps run out.

    By scipy: torch's takes seconds to import its compiler.
    """

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        both = torch.from_numpy(x).view(2, *p.shape).requires_grad_()
        loss = (misfit(*both) / goal) ** 2  # above 1 until the end, where scipy takes gains as parts
        loss.backward()
        assert both.grad is not None
        return float(loss.detach()), both.grad.flatten().numpy()

    def stop(intermediate_result: OptimizeResult) -> None:
        if intermediate_result.fun <= 1:
            raise StopIteration

    options = {"maxiter": STEPS, "maxfun": 2 * STEPS, "maxcor": 30, "ftol": LEAST_GAIN, "gtol": 0}
    start = torch.stack((p, q)).flatten().numpy()
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=stop, options=options)
    p, q = torch.from_numpy(found.x).view(2, *p.shape)
    return p, q


def chebyshev_maps(a: Float[Tensor, "N N"], degree: int) -> Float[Tensor, "n N N"]:
    """T_0, ..., T_degree of A / |A|_2."""
    norm = float(torch.linalg.matrix_norm(a, 2))
    unit = a / norm if norm else a
    maps = [torch.eye(len(a), dtype=torch.float64), unit]
    while len(maps) <= degree:
        maps.append(2 * unit @ maps[-1] - maps[-2])
    return torch.stack(maps[: degree + 1])


def times(p: Float[Tensor, "H n"], q: Float[Tensor, "G n"]) -> Float[Tensor, "H G m"]:
    """p_a q_b for polynomials in the Chebyshev basis, m = 2 n - 1: T_i T_j = (T_{i+j} + T_{|i-j|}) / 2."""
    n = p.shape[1]
    outer = torch.einsum("ai,bj->abij", p, q).flatten(2) / 2
    i, j = torch.arange(n)[:, None], torch.arange(n)
    product = outer.new_zeros(*outer.shape[:2], 2 * n - 1)
    product = product.index_add(2, (i + j).flatten(), outer)
    return product.index_add(2, (i - j).abs().flatten(), outer)
