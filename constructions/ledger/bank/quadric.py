"""When H heads of d_k = N make H^2 maps of one matrix: two heads and a quadric (T19g), low degrees (T19h).

Proofs: docs/bounds.md, Theorem 6; weights: `constructions.filter_bank.polynomials`.
"""

from itertools import combinations_with_replacement

import numpy as np
import torch
from scipy.optimize import minimize
from sympy import QQ
from torch import Tensor

from constructions.checks.operators import exact_gap, frobenius_error
from constructions.filter_bank import polynomials
from constructions.filter_bank.approximate import decompose, floor, product_bank, unit_powers
from constructions.ledger.cases import FIELD, random_matrix
from constructions.ledger.statement import Claim, Finding, Statement
from iha_theory import exact
from iha_theory.blueprint import Place
from synthetic import systems

# T19g

STARTS = 2


def two_heads_at_floor(tokens: int, terms: int, seed: int, *, signature: bool = True, forgotten: int = 0) -> Finding:
    """Powers of a random orthogonal matrix: a layer at the floor of capacity 4 where there is a split form, fits that
    stay above it where there is none. signature: looked at. forgotten: points left out.
    """
    a = torch.from_numpy(np.linalg.qr(np.random.default_rng((tokens, seed)).standard_normal((tokens, tokens)))[0])
    bank = unit_powers(a, terms)
    svd = decompose(bank)
    at = polynomials.points(svd.maps[:4])
    found, clear = polynomials.forms(at[forgotten:])
    form = polynomials.split_form(found) if signature else next(iter(found), None)
    least = floor(svd.values, 4) ** 2
    what = f"orthogonal A, N = {tokens}, k = {terms}: {len(found)} forms are 0 at all eigenvalues, "
    if form is None:
        excess = min(_fitted(at, svd.coefficients[:4], start) for start in range(STARTS)) / float(bank.square().sum())
        what += f"none of signature (2, 2); {STARTS} fits of two heads stay above the floor of capacity 4"
        return Finding(bool(excess > 1e-8 and clear > 1e-6), what, {"forms": len(found), "excess": excess})
    built = product_bank("iha", polynomials.products_of(form, bank))
    excess = abs(frobenius_error(built, bank) ** 2 - least)
    what += f"one of signature (2, 2); {built.heads} heads of d_k = N {'are' if excess < 1e-10 else 'are not'} at the "
    what += "floor of capacity 4"
    return Finding(excess < 1e-10 and built.heads == 2, what, {"forms": len(found)})


def _fitted(at: np.ndarray, coefficients: Tensor, start: int) -> float:
    """Least squares of the four leading maps, weighted, by products of values p_a, q_b at a normal A's eigenvalues."""
    values = torch.from_numpy(at)
    other = torch.from_numpy(np.argmin(np.abs(at[:, None] - at.conj()[None]).sum(-1), axis=1))  # of conjugates
    wanted = torch.einsum("st,ns->nt", coefficients.to(values.dtype), values)
    target = torch.cat((wanted.real, wanted.imag))

    def misfit(x: np.ndarray) -> tuple[float, np.ndarray]:
        given = torch.from_numpy(x).requires_grad_()
        free = torch.view_as_complex(given.view(2, 2, len(at), 2))
        p, q = (free + free[..., other].conj()) / 2
        made = torch.einsum("an,bn->nab", p, q).flatten(1)
        basis = torch.linalg.qr(torch.cat((made.real, made.imag))).Q
        loss = (target - basis @ (basis.T @ target)).square().sum()
        loss.backward()
        assert given.grad is not None
        return loss.item(), given.grad.numpy()

    first = np.random.default_rng(start).standard_normal(8 * len(at))
    return float(minimize(misfit, first, jac=True, method="L-BFGS-B", options={"maxiter": 300, "ftol": 1e-9}).fun)


# T19h


def low_degree(heads: int, above: int, tokens: int, *, more: int = 0, fewer: int = 0) -> Finding:
    """H^2 random polynomials of degree H^2 - 1 + c of a random matrix, modulo a prime, against their values at it.

    more: degrees of the target's last polynomial more. fewer: heads claimed less.
    """
    generator = np.random.default_rng((heads, above, tokens))
    given = exact.matrix(generator.integers(0, systems.PRIME, (heads**2, heads**2 + above)), FIELD)
    a = random_matrix(tokens, above)
    what = f"H = {heads}, {heads**2} polynomials of degree {heads**2 + above - 1}"
    try:
        built = polynomials.bank(a, given)
    except ValueError as error:
        return Finding(False, f"{what}: {error}")
    power, last = exact.identity(tokens, FIELD), exact.zeros((tokens, tokens), FIELD)
    target = [last] * heads**2
    for column in zip(*given.to_list(), strict=True):
        target = [t + power * c for t, c in zip(target, column, strict=True)]
        power = power * a
    target[-1] += power * FIELD(more)
    wrong = exact_gap(built, target, FIELD)
    claimed = heads - fewer
    return Finding(
        wrong == 0 and built.heads == claimed,
        f"{what}, N = {tokens}: {built.heads} heads of d_k = N, {wrong:g} wrong entries modulo a prime",
        {"heads": built.heads, "wrong": wrong},
    )


def high_degree(degree: int, seed: int, *, tokens: int | None = None, repeated: bool = False) -> Finding:
    """Four random integer polynomials at as many points as determine a form: none is 0 at all of them, exactly.

    tokens: points, if fewer. repeated: the polynomials are 1, x, x^2, x^3.
    """
    count = 2 * degree + 1 if tokens is None else tokens
    v = np.random.default_rng((degree, seed)).integers(-9, 10, (4, degree + 1)).tolist()
    if repeated:
        v = np.eye(4, degree + 1, dtype=int).tolist()
    at = [[sum(c * x**e for e, c in enumerate(p)) for p in v] for x in range(1 - count // 2, count - count // 2 + 1)]
    monomials = [[y[i] * y[j] for i, j in combinations_with_replacement(range(4), 2)] for y in at]
    rank = exact.matrix(np.array(monomials, dtype=object), QQ).rank()
    what = f"four polynomials of degree {degree} at {count} points: {10 - rank} quadratic forms are 0 at all"
    return Finding(rank == 10, what, {"forms": 10 - rank})


STATEMENTS = (
    Statement(
        id="T19g",
        source="docs/bounds.md, Theorem 6",
        place=Place("numerical", ("quadric", "error-floor")),
        claim=Claim(
            text="two IHA heads of d_k = N reach the floor of capacity 4 for powers of a diagonalisable A if and only "
            "if a real quadratic form of signature (2, 2) is 0 at the 4 leading maps' values at all N eigenvalues",
            test=two_heads_at_floor,
            cases={"tokens": (9, 12), "terms": (5, 7, 9), "seed": (0,)},
            mutants={"any signature": {"signature": False}, "3 points left out": {"forgotten": 3}},
            wider={"tokens": range(8, 10), "terms": range(5, 10), "seed": range(9)},
        ),
        note="10 coefficients, so generic maps at N <= 9 at most; k = 5 always has one (T19h). Proved; the check is "
        "numerical, of singular values in float64, and a fit that stays above the floor only does not contradict. "
        "Orthogonal A: N = 9, k = 7 reaches it, N = 12, k = 9 does not.",
    ),
    Statement(
        id="T19h",
        source="docs/bounds.md, Theorem 6",
        place=Place("exact", ("low-degree", "quadric")),
        claim=Claim(
            text="almost every H^2 polynomials of A of degree at most H^2 + H - 2 take H heads of d_k = N, any A; "
            "almost none of a larger degree D do, if the minimal polynomial's degree is above 2 D",
            test=low_degree,
            cases={"heads": (1, 2, 3, 4), "above": (0, 1, 2, 3), "tokens": (2, 5)},
            given=lambda heads, above, tokens: above < heads,
            mutants={"another polynomial": {"more": 1}, "a head less": {"fewer": 1}},
        ),
        needed=True,
        least=Claim(
            text="no quadratic form is 0 at the values of four random polynomials of degree 5 or more, so they take "
            "three heads (T19g): exact",
            test=high_degree,
            cases={"degree": (5, 6, 7), "seed": (0, 1, 2)},
            mutants={"9 points": {"tokens": 9}, "1, x, x^2, x^3": {"repeated": True}},
            wider={"degree": range(5, 10), "seed": range(20)},
        ),
        note="So for k <= H^2 + H - 1 powers the floor of capacity H^2 is reached by H heads of d_k = N, if their "
        "leading maps are no exception. The other direction for all H is by counting dimensions.",
    ),
)
