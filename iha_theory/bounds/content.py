"""Lower bounds where attention sees content: linear attention on [X, I_N], values X B_h + C_h, an output projection.

Queries, keys and values may use content and positions, so head h is (S_h + X M_h + N_h X^T + X G_h X^T)(X B_h + C_h).
Theorems and proofs: docs/content.md. Numbers here, for the filter bank [X, A X, ..., A^{k-1} X], with
r = dim span{I, ..., A^{k-1}}:

- `content_floor`: the error below which content in the queries cannot help (docs/content.md, Theorem 1);
- `limit_heads`: the heads that come arbitrarily near with content in the queries: r - 1 or r (Theorem 3);
- `needs_rank_heads`: the condition of Theorem 4, on exact and near counts with content anywhere.

Both counts depend on the kernels of polynomials of A, which `eigenvalues` gives exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from iha_theory import blueprint
from iha_theory.bounds.heads import spectrum
from iha_theory.rounding import require_count


def identity_free_spectrum(bank: Any) -> Float[Tensor, " k"]:
    """The singular values of [vec T'_0, ..., vec T'_{k-1}] with T' = T - (tr T / N) I, largest first.

    Args:
        bank: (k, N, N), as in `iha_theory.bounds.heads.spectrum`.

    Raises:
        ValueError: as `iha_theory.bounds.heads.spectrum`; matrices that are not square.
    """
    matrices = _square(bank)
    traces = matrices.diagonal(dim1=1, dim2=2).mean(-1)
    return spectrum(matrices - traces[:, None, None] * torch.eye(matrices.shape[1], dtype=torch.float64))


@blueprint.theorem(
    "content-floor",
    "with content in the queries the floor is that of the singular values with the identity projected out",
    uses=("content-layer", "schmidt-rank"),
    check="numerical",
    proof="docs/content.md, Theorem 1",
)
def content_floor(bank: Any, rank: int) -> float:
    """sum_{i>R} s'_i^2 / sum_i s_i^2: no layer of capacity R with content in its queries has a smaller error.

    s' is `identity_free_spectrum` and s `iha_theory.bounds.heads.spectrum`. Let the entries of X be uncorrelated, with
    mean 0 and variance 1, and let -X be distributed as X. The error is E |f(X) - L(X)|^2 / E |L(X)|^2, of linear
    attention with keys of positions only, queries and values of both. R is H for MHA and H^2 for IHA.

    Proof. The parts of f of degree 0 and 2 in X are even and L is odd, so that they only add to the error. The part of
    degree 1 is sum_h S_h X B_h + X sum_h M_h C_h: a matrix of rank R plus vec(I) v^T, after realignment. Project
    vec(I) out on the left and use Eckart, Young and Mirsky. See docs/content.md, Theorem 1, also for where it is
    reached: with H >= 2 heads and d <= N (H - 1), in the limit.

    Args:
        bank: (k, N, N), not all 0.
        rank: R, at least 0.

    Raises:
        ValueError: as `identity_free_spectrum`; a negative rank; a bank of zeros.
    """
    if rank < 0:
        raise ValueError(f"a capacity is at least 0, got {rank}")
    matrices = _square(bank)
    total = float(matrices.square().sum())
    if total == 0:
        raise ValueError("a bank of zeros has no relative error")
    return float(identity_free_spectrum(matrices)[rank:].square().sum()) / total


@dataclass(frozen=True)
class Eigenvalues:
    """The eigenvalues that are the roots of one irreducible factor q of the characteristic polynomial over Q.

    count: how many, the degree of q. real: how many of them are real. growth: for each root z, and e = 1, 2, ...,
    dim ker (A - z)^e - dim ker (A - z)^{e-1} as long as it is not 0 (the Weyr characteristic, which never grows). All
    roots of q have the same, since field automorphisms exchange them.
    """

    count: int
    real: int
    growth: tuple[int, ...]


def eigenvalues(a: Any) -> tuple[Eigenvalues, ...]:
    """The kernels of powers of A - z for all eigenvalues z, exactly: dim ker q(A)^e = sum over the roots of q.

    Args:
        a: A, (N, N), numbers as in `iha_theory.bounds.exact_rank.power_rank`.

    Raises:
        ValueError: a matrix that is not square, or an entry that is not a finite number.
    """
    from sympy import QQ, Poly, Symbol  # takes a second, and the floor, all that training needs, does without
    from sympy.polys.matrices import DomainMatrix

    from iha_theory import exact

    m = a.convert_to(QQ).to_dense() if isinstance(a, DomainMatrix) else exact.matrix(a, QQ)
    size, columns = m.shape
    if size != columns:
        raise ValueError(f"expected a square matrix, got {size} x {columns}")
    x = Symbol("x")
    found = []
    for factor, _ in Poly(m.charpoly(), x, domain=QQ).factor_list()[1]:
        step, degree = m.eval_poly([QQ.convert(c) for c in factor.all_coeffs()]), int(factor.degree())
        kernels, power = [0], exact.identity(size, QQ)
        while len(kernels) < 2 or kernels[-1] > kernels[-2]:
            power = power * step
            kernels.append(size - power.rank())
        growth = tuple((after - before) // degree for before, after in pairwise(kernels) if after > before)
        found.append(Eigenvalues(degree, int(factor.count_roots()), growth))
    return tuple(found)


def largest_kernel(spectrum: Sequence[Eigenvalues], degree: int) -> int:
    """The largest dim ker p(A) over the polynomials p != 0 of at most this degree, with complex coefficients.

    p = prod_z (x - z)^{e_z} has a kernel of dimension sum_z sum_{e <= e_z} growth_z[e], and growth never grows with e:
    so it is the sum of the `degree` largest entries of all growths.
    """
    entries = chain.from_iterable(e.growth * e.count for e in spectrum)
    return sum(sorted(entries, reverse=True)[:degree])


@blueprint.theorem(
    "content-anywhere",
    "linear attention, content anywhere: r - 2 heads are not near the bank, if every polynomial of A "
    "of degree 1 to r - 1 has rank r or more",
    uses=("content-degrees",),
    check="exact",
    proof="docs/content.md, Theorem 4",
)
def needs_rank_heads(a: Any, terms: int) -> bool:
    """Whether Theorem 4 of docs/content.md holds: exact MHA needs r heads, content anywhere, and r - 2 are not near.

    So it does if r <= 2, or rank p(A) >= r for every real polynomial p that is not constant and has a degree below r.
    This decides a stricter condition, the same for complex p; the two differ only where A has eigenvalues that are not
    real. The stricter one holds if every eigenvalue has one Jordan block and N >= 2 r - 1. The exact count is r, and
    ceil(sqrt r) for IHA, without it too (docs/exact_heads.md, Theorem 2).

    Args:
        a: A, as in `eigenvalues`.
        terms: k.

    Raises:
        ValueError: as `iha_theory.bounds.exact_rank.power_rank`.
    """
    from iha_theory.bounds.exact_rank import power_rank

    r = power_rank(a, terms).rank
    return r <= 2 or len(_rows(a)) - largest_kernel(eigenvalues(a), r - 1) >= r


@blueprint.theorem(
    "content-limit",
    "r - 1 heads with content in the queries come near the bank if and only if d <= N(r - 2) + m(A)",
    uses=("content-degrees", "content-floor"),
    check="numerical",
    proof="docs/content.md, Theorem 3",
)
def limit_heads(a: Any, terms: int, width: int) -> int:
    """The least number of MHA heads that come arbitrarily near the bank, with content in queries and values.

    Theorem (docs/content.md, Theorem 3). It is r - 1 if d <= N (r - 2) + m(A), with m(A) the largest geometric
    multiplicity of a real eigenvalue (0 if there is none), and r otherwise. So it is r - 1 for r >= 3 and d <= N; for
    r = 2 one head is enough if and only if some real eigenvalue has d independent eigenvectors. For IHA the root of
    this, rounded up, is a lower bound, and reached for r >= 3 and d <= N
    (`constructions.targets.content.families.iha_family`).

    Args:
        a: A, as in `eigenvalues`.
        terms: k.
        width: d, the content's width.

    Raises:
        ValueError: as `iha_theory.bounds.exact_rank.power_rank`; a width below 1.
    """
    from iha_theory.bounds.exact_rank import power_rank

    require_count("width", width)
    r = power_rank(a, terms).rank
    free = len(_rows(a)) * (r - 2)
    if width > free:
        free += max((e.growth[0] for e in eigenvalues(a) if e.real), default=0)
    return r - 1 if width <= free else r


def _rows(a: Any) -> range:
    return range(a.shape[0] if hasattr(a, "shape") else len(a))


def _square(bank: Any) -> Tensor:
    matrices = torch.as_tensor(bank, dtype=torch.float64)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
        raise ValueError(f"a bank of shape {tuple(matrices.shape)}: expected (k, N, N)")
    return matrices


blueprint.unowned(
    "open",
    "near-softmax",
    "how many softmax heads come near a bank on bounded inputs, where values read positions",
    uses=("softmax-family", "values-without-positions"),
    proof="docs/content.md, Open",
)
