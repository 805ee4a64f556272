"""Training against the floors with content in the queries, on the exact population error (docs/results.md T14).

With independent entries of X of mean, variance and third and fourth moments 0, 1, 0, kappa, the error of
f(X) = sum_h (S_h + X M_h)(X B_h + C_h) against L(X) = [T_0 X, ..., T_{k-1} X] has a closed form. Its odd part is linear
in X, so its mean square is the sum of squared coefficients. Its even part is c_ib + sum_{a,j,e} T[a,j,e,b] X_ia X_je
with c = sum_h S_h C_h and T[a,j,e,b] = sum_h M_h[a,j] B_h[e,b]. For j != i all products are uncorrelated with mean
square 1; for j = i they are a quadratic form in row i, with matrix T_ib[a,e] = T[a,i,e,b] and

    E (c + x^T T x)^2 = (c + tr T)^2 + |T|_F^2 + tr(T T) + (kappa - 3) sum_a T[a,a]^2.

So nothing is sampled, and a trained error below a floor would be a counterexample to it.
"""

from math import prod

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize
from torch import Tensor

from constructions.targets.content.families import ContentWeights


def population_error(weights: ContentWeights, bank: Float[Tensor, "k N N"], kurtosis: float = 3.0) -> Float[Tensor, ""]:
    """E |f(X) - L(X)|^2 / E |L(X)|^2, exactly up to rounding: see the module."""
    s, m, b, c = weights.maps, weights.content, weights.values, weights.constants
    tokens, width, terms = bank.shape[1], b.shape[1], len(bank)
    blocks = torch.eye(terms * width, dtype=torch.float64).unflatten(0, (terms, width))
    free = torch.einsum("hkj,hjb->kb", m, c)
    linear = torch.einsum("hij,hab->ijab", s, b) - torch.einsum("tij,tab->ijab", bank, blocks)
    linear = linear + torch.einsum("ij,ab->ijab", torch.eye(tokens, dtype=torch.float64), free)
    quadratic = torch.einsum("haj,heb->ajeb", m, b)
    means = torch.einsum("hij,hjb->ib", s, c) + torch.einsum("aiab->ib", quadratic)
    squares = tokens * quadratic.square().sum() + torch.einsum("aieb,eiab->", quadratic, quadratic)
    fourth = (kurtosis - 3) * torch.einsum("aiab->aib", quadratic).square().sum()
    error = linear.square().sum() + means.square().sum() + squares + fourth
    return error / (width * bank.square().sum())


def train(
    bank: Float[Tensor, "k N N"], width: int, heads: int, *, content: bool, steps: int = 300, seed: int = 0
) -> tuple[ContentWeights, float]:
    """Weights trained by L-BFGS from random ones, and their population error for normal X.

    Args:
        bank: T_0, ..., T_{k-1}, float64.
        width: d.
        heads: H.
        content: whether queries may use content and values positions; otherwise M = C = 0, position-only.
        steps: of L-BFGS, each with a line search.
        seed: of the start.
    """
    tokens, out = bank.shape[1], len(bank) * width
    shapes = [(heads, tokens, tokens), (heads, width, out), (heads, width, tokens), (heads, tokens, out)]
    trained = shapes if content else shapes[:2]
    generator = np.random.default_rng(seed)
    start = np.concatenate([generator.normal(size=prod(s), scale=s[1] ** -0.5) for s in trained])

    def weights(flat: Tensor) -> ContentWeights:
        parts = flat.split([prod(s) for s in trained])
        maps, values, *free = (part.reshape(s) for part, s in zip(parts, trained, strict=True))
        queries, constants = free or (torch.zeros(s, dtype=torch.float64) for s in shapes[2:])
        return ContentWeights(maps, queries, values, constants)

    def error_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        variable = torch.from_numpy(flat.copy()).requires_grad_()
        error = population_error(weights(variable), bank)
        (gradient,) = torch.autograd.grad(error, variable)
        return error.item(), gradient.numpy()

    options = {"maxiter": steps, "maxfun": 10 * steps, "maxcor": 50, "ftol": 0.0, "gtol": 0.0}
    found = minimize(error_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    best = weights(torch.from_numpy(found.x))
    return best, float(population_error(best, bank))
