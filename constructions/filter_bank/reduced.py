"""The filter bank by as few heads as there are independent powers (docs/results.md T2, last part).

Let r = dim span{I, A, ..., A^{k-1}} = min(k, degree of the minimal polynomial of A). If A^r is a combination of the
lower powers then so is A^{r+1} = A A^r, and so on; so the first r powers are a basis, A^t = sum_{s<r} c[t,s] A^s, with

    c[t] = e_t for t < r,     c[t+1, s] = c[t, s-1] + c[t, r-1] c[r, s]     (A^{t+1} = A A^t, with A^r put in).

A layer makes A^s X for s < r, and the output projection combines them, B_s = [c[0,s] I_d, ..., c[k-1,s] I_d]:

    [X, A X, ..., A^{k-1} X] = sum_{s<r} A^s X B_s.

- "mha": r heads, queries A^s and keys I (`constructions.filter_bank.products.mha_products`).
- "iha": H = ceil(sqrt r) heads and as many pseudo-heads, A^{aH+b} = A^{aH} A^b (`iha_products`).
- "iha-tiled": the same heads with at most ceil(sqrt H) pseudo-heads (`constructions.filter_bank.tiled.products`).
- "mha-two-layer": ceil(sqrt r) heads in each of two layers (`constructions.filter_bank.two_layer`).

**Least.** The operator Schmidt rank of the bank is r, and the capacities are H, H^2, H^2 and H^2 (docs/results.md T1):
so each of these head counts is the least, for every A. (If r = k the output projection is the identity.)

**Numbers.** r and c[r] are exact, by `iha_theory.bounds.exact_rank.power_rank`. c is an integer matrix if A is;
otherwise it need not fit into float64, and is checked modulo primes (`ReducedBank.residues`) or in float64 with rounded
weights.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.construction import Block, Construction
from constructions.filter_bank import tiled
from constructions.filter_bank.paper import powers
from constructions.filter_bank.products import iha_products, mha_products
from constructions.filter_bank.two_layer import factors, to_two_layers, weights
from iha_theory import exact
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.operators.weights import to_layer
from iha_theory.rounding import ceil_sqrt, gamma

LAYERS = ("mha", "iha", "iha-tiled", "mha-two-layer")


@dataclass(frozen=True)
class ReducedBank:
    """matrix: A, (N, N). coefficients: c, (k, r), with A^t = sum_s c[t, s] A^s; both over the same field."""

    matrix: DomainMatrix
    coefficients: DomainMatrix

    @property
    def terms(self) -> int:
        """k."""
        return self.coefficients.shape[0]

    @property
    def rank(self) -> int:
        """r."""
        return self.coefficients.shape[1]

    def heads(self, layer: str) -> int:
        """The heads of a layer, which are the least."""
        return self.rank if layer == "mha" else ceil_sqrt(self.rank)

    def residues(self, prime: int) -> "ReducedBank":
        """A and c modulo a prime that divides none of their denominators."""
        return ReducedBank(exact.residues(self.matrix, prime), exact.residues(self.coefficients, prime))


def reduce(a: DomainMatrix, terms: int) -> ReducedBank:
    """r and c of a matrix over the rationals.

    Args:
        a: A, (N, N). A float64 matrix is one too: `iha_theory.exact.matrix(tensor, QQ)`.
        terms: k.

    Raises:
        ValueError: as `iha_theory.bounds.exact_rank.power_rank`.
    """
    found = power_rank(a, terms)
    r = found.rank
    rows = [[QQ(int(s == t)) for s in range(r)] for t in range(r)]
    relation = [QQ(c.numerator, c.denominator) for c in found.relations.get(r, ())]  # A^r
    while len(rows) < terms:
        last = rows[-1]
        rows.append([below + last[-1] * c for below, c in zip([QQ(0), *last[:-1]], relation, strict=True)])
    return ReducedBank(a, DomainMatrix(rows, (terms, r), QQ).to_dense())


def bank(layer: str, given: ReducedBank, width: int, *, rounded: bool = False) -> Construction:
    """[X, A X, ..., A^{k-1} X] by the least number of heads.

    Args:
        layer: of `LAYERS`.
        given: the matrix and its coefficients, over the rationals or a prime field.
        width: the content's width d, at least 1.
        rounded: round weights to the nearest float64: three factors of an addend, each by a relative 2^-53 as long as
            none underflows. The error bound is then relative to the sum of the addends' sizes.

    Raises:
        OverflowError: a weight that float64 cannot hold (without `rounded`), or beyond its range.
        ValueError: another layer, or a width below 1.
    """
    if layer not in LAYERS:
        raise ValueError(f"unknown layer {layer!r}: accepted are {', '.join(LAYERS)}")
    if width < 1:
        raise ValueError(f"the width must be at least 1, got {width}")
    floats = exact.nearest_float64 if rounded else exact.to_float64
    power = powers(given.matrix)

    def block(s: int) -> Tensor:
        return floats(power(s))  # type: ignore[arg-type]

    heads = given.heads(layer)
    own = torch.eye(width, dtype=torch.float64)
    contents = torch.einsum("ts,ab->satb", floats(given.coefficients), own).flatten(2)
    if layer != "mha":  # B_{aH+b} in row a, column b; 0 from r on
        contents = F.pad(contents, (0, 0, 0, 0, 0, heads**2 - given.rank)).unflatten(0, (heads, heads))
    readout = tuple(Block(f"A^{t} X", t * width, width) for t in range(given.terms))
    described = (f"reduced-bank/{layer}", "docs/results.md T2")
    bound = gamma(3) if rounded else None
    if layer == "mha-two-layer":
        module = to_two_layers(*weights(*factors(block, heads), width, out=contents.flatten(0, 2)))
        return Construction(*described, module, readout, width, bound)
    if layer == "mha":
        queries = torch.stack([block(s) for s in range(given.rank)])
        built = mha_products(queries, block(0)[None], contents[:, None])
    else:
        rows = -(-given.rank // heads)
        queries = torch.stack([block(a * heads) for a in range(rows)])
        keys = torch.stack([block(b).T for b in range(heads)])
        built = (iha_products if layer == "iha" else tiled.products)(queries, keys, contents[:rows])
    return Construction(*described, to_layer(built), readout, width, bound)
