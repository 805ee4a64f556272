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
from typing import Any

import torch
import torch.nn.functional as F
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.construction import Construction, blocks
from constructions.filter_bank.layers import EXACT, LAYERS, to_module
from constructions.filter_bank.paper import Powers, powers
from iha_theory import blueprint, exact
from iha_theory.bounds.exact_rank import ExactRank, power_rank
from iha_theory.rounding import gamma, require_count, require_one_of


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
        return LAYERS[layer].least_heads(self.rank)

    def residues(self, prime: int) -> "ReducedBank":
        """A and c modulo a prime that divides none of their denominators."""
        return ReducedBank(exact.residues(self.matrix, prime), exact.residues(self.coefficients, prime))


def reduce(a: DomainMatrix, terms: int, known: ExactRank | None = None) -> ReducedBank:
    """r and c of a matrix over the rationals.

    Args:
        a: A, (N, N). A float64 matrix is one too: `iha_theory.exact.matrix(tensor, QQ)`.
        terms: k.
        known: what `power_rank` says of them, where it has been asked.

    Raises:
        ValueError: as `iha_theory.bounds.exact_rank.power_rank`.
    """
    found = known or power_rank(a, terms)
    r = found.rank
    rows = [[QQ(int(s == t)) for s in range(r)] for t in range(r)]
    relation = [QQ(c.numerator, c.denominator) for c in found.relations.get(r, ())]  # A^r
    while len(rows) < terms:
        last = rows[-1]
        rows.append([below + last[-1] * c for below, c in zip([QQ(0), *last[:-1]], relation, strict=True)])
    return ReducedBank(a, DomainMatrix(rows, (terms, r), QQ).to_dense())


@blueprint.construction(
    "bank-reduced",
    "with an output projection r and ceil(sqrt r) heads make the filter bank of every A",
    uses=("exact-rank", "products", "bank-tiled", "bank-two-layer"),
    check="exact",
)
def bank(
    layer: str, given: ReducedBank, width: int, *, rounded: bool = False, power: Powers | None = None
) -> Construction:
    """[X, A X, ..., A^{k-1} X] by the least number of heads.

    Args:
        layer: of `constructions.filter_bank.layers.EXACT`.
        given: the matrix and its coefficients, over the rationals or a prime field.
        width: the content's width d, at least 1.
        rounded: round weights to the nearest float64: three factors of an addend, each by a relative 2^-53 as long as
            none underflows. The error bound is then relative to the sum of the addends' sizes.
        power: i -> A^i in float64, where they are known; None for the exact ones.

    Raises:
        OverflowError: a weight that float64 cannot hold (without `rounded`), or beyond its range.
        ValueError: another layer, or a width below 1.
    """
    require_one_of("layer", layer, EXACT)
    require_count("width", width)
    floats = exact.nearest_float64 if rounded else exact.to_float64
    exactly = powers(given.matrix) if power is None else None

    def block(s: int) -> Any:
        return power(s) if exactly is None else floats(exactly(s))  # type: ignore[arg-type, misc]

    heads = given.heads(layer)
    own = torch.eye(width, dtype=torch.float64)
    contents = torch.einsum("ts,ab->satb", floats(given.coefficients), own).flatten(2)
    if layer == "mha":
        queries, keys, contents = [block(s) for s in range(given.rank)], [block(0)], contents[:, None]
    else:  # B_{aH+b} in row a, column b; 0 from r on
        rows = heads if layer == "mha-two-layer" else -(-given.rank // heads)
        contents = F.pad(contents, (0, 0, 0, 0, 0, heads**2 - given.rank)).unflatten(0, (heads, heads))[:rows]
        queries, keys = [block(a * heads) for a in range(rows)], [block(b).T for b in range(heads)]
    module = to_module(LAYERS[layer].products(torch.stack(queries), torch.stack(keys), contents))
    readout = blocks("A^{} X", given.terms, width)
    bound = gamma(3) if rounded else None
    return Construction(f"reduced-bank/{layer}", "docs/results.md T2", module, readout, width, bound)
