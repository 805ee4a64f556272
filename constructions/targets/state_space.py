"""Linear state-space models and causal FIR filters as one layer of linear attention (docs/results.md T13).

**Model.** Order n, input width d, output width D, from rest (x_{-1} = 0):

    x_t = A x_{t-1} + B u_t,    y_t = C x_t + D u_t,    so    y_t = sum_{j>=0} C A^j B u_{t-j} + D u_t.

**Rational form.** Let chi(x) = x^m + c_1 x^{m-1} + ... + c_m be the minimal polynomial of A, c_0 = 1, and
chi~(z) = z^m chi(1/z) = sum_s c_s z^s. By chi(A) = 0 the taps h_j = C A^j B obey sum_s c_s h_{j-s} = 0 for all j >= m,
so that chi~(z) sum_j h_j z^j is a polynomial, sum_{t<m} N_t z^t with N_t = sum_{s<=t} c_s h_{t-s}. Feedthrough adds
chi~(z) D, which is c_t D to N_t for t = 0, ..., m: one term more, unless chi(0) = c_m = 0. With k the number of terms
(trailing zeros left out), L the N x N causal shift (L_{i,i-1} = 1, nilpotent) and G = chi~(L)^{-1}, which exists since
chi~(0) = 1, the map of any N inputs is

    Y = sum_{t<k} L^t G X N_t^T.

G is lower-triangular Toeplitz, G_ij = s_{i-j} with 1 / chi~ = sum_t s_t z^t: s_0 = 1, s_t = - sum_{i>=1} c_i s_{t-i}.

- IHA, H = P = ceil(sqrt k) heads: L^{aH+b} G = L^{aH} (L^b G), so base queries L^{aH}, base keys (L^b G)^T, and the N_t
  in the output projection (`constructions.filter_bank.products.iha_products`).
- MHA, r heads, r = dim span{N_t}: with N_t = sum_q f_qt N_{t_q} for independent N_{t_1}, ..., N_{t_r}, head q has
  queries sum_t f_qt L^t, keys G^T, and N_{t_q} in the output projection. If all are independent, head t has L^t.
- IHA, H = P = ceil((r + 1) / 2) heads, where that is less (`constructions.filter_bank.unstructured` for power series):
  let f_q(z) = sum_t f_qt z^t, of which f_1 has the least order (in echelon form), so that it divides the others as a
  power series. Base keys (f_b(L) G)^T and the query L^0 give f_b(L) G, b <= H; queries (f_a / f_1)(L) with the key of
  f_1 give f_a(L) G, a > H: 2 H - 1 >= r maps. No map needs to be invertible. The quotients can grow with N like an
  unstable filter's response, so rounded weights are not made so.

Causal by nature, for every N. A causal FIR filter y_t = sum_{j<k} N_j u_{t-j} is the case chi~ = 1, G = I.

**Least.** The L^t G with t < k <= N are independent, so the operator Schmidt rank is r = dim span{N_t}, which is
dim span{h_0 + D, h_1, ..., h_{N-1}} since G is invertible: MHA needs r heads, which is tight, and IHA ceil(sqrt r),
tight where r = k, and for r = 1, 2, 3, 5. r = k takes d D >= k: a filter with d = D = 1 is one operator, and takes one
head.

**Numbers.** A float64 is a rational. All this is done over the rationals (or a prime field), chi included, so a
derogatory A needs no tolerance; where float64 cannot hold a weight, `rounded` asks for the nearest one.

MHA's side, r heads, is arXiv 2512.15115; IHA's side and the minimal polynomial in the keys are this project's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
import torch.nn.functional as F
from jaxtyping import Float
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.filter_bank import unstructured
from constructions.filter_bank.layers import LAYERS, PAPER, to_module
from iha_theory import blueprint, exact
from iha_theory.exact import Domain
from iha_theory.rounding import ceil_sqrt, gamma, require_count, require_one_of
from synthetic.systems import StateSpace


@dataclass(frozen=True)
class RationalFilter:
    """The causal filter (sum_t N_t z^t) / chi~(z), z the delay by one token.

    numerators: N_0, N_1, ..., each (D, d). denominator: chi~'s coefficients, of which the first is 1.
    """

    numerators: tuple[DomainMatrix, ...]
    denominator: tuple[Any, ...] = (1,)

    def __post_init__(self) -> None:
        shapes = {m.shape for m in self.numerators}
        if len(shapes) != 1:
            raise ValueError(f"a filter needs taps of one shape, got {sorted(shapes) or 'none'}")
        if self.denominator[0] != 1:
            raise ValueError(f"the denominator must start with 1, got {self.denominator[0]}")

    @property
    def domain(self) -> Domain:
        """The field."""
        return self.numerators[0].domain

    def series(self, tokens: int) -> list[Any]:
        """s_0 .. s_{N-1}, the power series of 1 / chi~."""
        c = self.denominator
        s = [self.domain.one]
        for t in range(1, tokens):
            s.append(-sum((c[i] * s[t - i] for i in range(1, min(t + 1, len(c)))), self.domain.zero))
        return s

    def independent(self) -> tuple[DomainMatrix, list[DomainMatrix]]:
        """f, (r, k), and the r independent ones among the numerators, so that N_t = sum_q f[q,t] N_{t_q}.

        For the filter that is 0, one numerator that is 0.
        """
        flat = [m.to_list_flat() for m in self.numerators]
        reduced, pivots = DomainMatrix(flat, (len(flat), len(flat[0])), self.domain).transpose().rref()
        if not pivots:
            reduced, pivots = exact.identity(len(flat), self.domain), (0,)
        return reduced.extract(range(len(pivots)), range(len(flat))), [self.numerators[t] for t in pivots]


def transfer(model: StateSpace) -> RationalFilter:
    """The model as a rational filter: chi~ and the N_t of the module docstring."""
    c = exact.minimal_polynomial(model.a)
    taps, state = [], model.b
    for _ in range(len(c) - 1):
        taps.append(model.c * state)
        state = model.a * state
    numerators = [_sum(c[s] * taps[t - s] for s in range(t + 1)) for t in range(len(taps))]
    if model.feedthrough is not None:
        numerators.append(exact.zeros(model.feedthrough.shape, model.a.domain))
        numerators = [n + c[t] * model.feedthrough for t, n in enumerate(numerators)]
    while len(numerators) > 1 and numerators[-1].is_zero_matrix:
        numerators.pop()
    return RationalFilter(tuple(numerators), tuple(c))


def state_space(layer: str, model: StateSpace, tokens: int, *, rounded: bool = False) -> Construction:
    """A state-space model by "mha" with r <= n heads or "iha" with ceil(sqrt n) (n + 1 for n with feedthrough).

    The content is (N, d), the output (N, D); see `rational_filter` for the arguments and errors.
    """
    return rational_filter(layer, transfer(model), tokens, rounded=rounded)


def fir(layer: str, taps: Sequence[Any] | np.ndarray, tokens: int, domain: Domain = QQ) -> Construction:
    """y_t = sum_{j<k} taps[j] u_{t-j} by "mha" with at most k heads or "iha" with at most ceil(sqrt k).

    taps: k matrices (D, d) of numbers; see `rational_filter` for the rest.
    """
    numerators = tuple(exact.matrix(tap, domain) for tap in taps)
    return rational_filter(layer, RationalFilter(numerators), tokens)


@blueprint.construction(
    "state-space",
    "a linear state-space model of order n by n heads of MHA or ceil(sqrt n) of IHA: a filter bank "
    "with a common factor",
    uses=("products", "half-heads", "state-space-model"),
    check="exact",
)
def rational_filter(layer: str, given: RationalFilter, tokens: int, *, rounded: bool = False) -> Construction:
    """A causal rational filter by "mha" with r heads, or "iha" with min(ceil((r + 1) / 2), ceil(sqrt k)).

    Args:
        layer: "mha" or "iha".
        given: k numerators, r of them independent.
        tokens: N, at least 1.
        rounded: round weights to the nearest float64: at most three factors of an addend, each by a relative 2^-53 as
            long as none of them underflows. The error bound is then relative to the sum of the addends' sizes. IHA then
            has min(r, ceil(sqrt k)) heads.

    Raises:
        OverflowError: a weight that float64 cannot hold (without `rounded`), or beyond its range.
        ValueError: tokens below 1, or another layer.
    """
    require_one_of("layer", layer, PAPER)
    require_count("tokens", tokens)
    floats = exact.nearest_float64 if rounded else exact.to_float64
    series = DomainMatrix([given.series(tokens)], (1, tokens), given.domain)
    inverse = toeplitz(floats(series)[0], tokens)
    combination, numerators = given.independent()
    heads = ceil_sqrt(len(given.numerators))
    half = unstructured.heads(len(numerators))
    if layer == "iha" and not rounded and half < min(heads, len(numerators)):
        shift, *rest = combination.to_list()
        divided = RationalFilter(given.numerators, tuple(shift[shift.index(1) :])).series(tokens)
        one, full = [given.domain.one], given.series(tokens)
        columns = [one, *(_product(row[shift.index(1) :], divided, tokens) for row in rest[half - 1 :])]
        queries, keys = (
            torch.stack([toeplitz(floats(DomainMatrix([c], (1, len(c)), given.domain))[0], tokens) for c in rows])
            for rows in (columns, [_product(row, full, tokens) for row in (shift, *rest[: half - 1])])
        )
        keys, taps = keys.mT, torch.stack([floats(n).T for n in numerators])
        contents = taps.new_zeros(len(columns), half, *taps.shape[1:])
        contents[0], contents[1:, 0] = taps[:half], taps[half:]
    elif tiled(layer, given):
        unit = torch.eye(heads * heads, dtype=torch.float64)
        queries = torch.stack([toeplitz(unit[a * heads], tokens) for a in range(heads)])
        keys = torch.stack([(toeplitz(unit[b], tokens) @ inverse).T for b in range(heads)])
        taps = torch.stack([floats(n).T for n in given.numerators])
        contents = F.pad(taps, (0, 0, 0, 0, 0, heads * heads - len(taps))).unflatten(0, (heads, heads))
    else:
        queries = torch.stack([toeplitz(row, tokens) for row in floats(combination)])
        keys = inverse.T[None]
        contents = torch.stack([floats(n).T for n in numerators])[:, None]
    outputs, width = given.numerators[0].shape
    readout = blocks("output {}", outputs)
    module = to_module(LAYERS[layer].products(queries, keys, contents))
    bound = gamma(3) if rounded else None
    return Construction(f"state-space/{layer}", "docs/results.md T13", module, readout, width, bound)


def tiled(layer: str, given: RationalFilter) -> bool:
    """Whether the layer, rounded, has a head for each L^{aH}, as against one for each independent numerator."""
    return layer == "iha" and ceil_sqrt(len(given.numerators)) <= len(given.independent()[1])


def toeplitz(column: Float[Tensor, " lags"], tokens: int) -> Float[Tensor, "tokens tokens"]:
    """The lower-triangular Toeplitz matrix whose entry (i, j) is column[i - j], or 0 past the column's end."""
    full = np.zeros(max(tokens, len(column)))
    full[: len(column)] = column.numpy()
    return torch.from_numpy(scipy.linalg.toeplitz(full[:tokens], np.zeros(tokens)))


def _product(x: list[Any], y: list[Any], tokens: int) -> list[Any]:
    """The first N coefficients of a product of power series."""
    return [
        sum((x[i] * y[t - i] for i in range(min(t + 1, len(x))) if t - i < len(y)), 0 * x[0]) for t in range(tokens)
    ]


def _sum(terms: Any) -> DomainMatrix:
    total = None
    for term in terms:
        total = term if total is None else total + term
    assert total is not None
    return total
