"""The polynomial filter bank [X, A X, ..., A^{k-1} X] as one layer of linear attention (Sec. 4.2, App. B.2).

MHA, k heads. Head h (from 0) has queries A^h and keys I, so (Q K^T) V = A^h X.

IHA, H = P = ceil(sqrt k) heads. Base query m is A^{mH}, base key m is (A^m)^T, base value m is X in block m of H. Head
h keeps its own query in pseudo-head 0 (the other pseudo-queries are 0) and takes base key j and base value j as
pseudo-head j, so row (n, 0) of its attention is

    sum_j A^{hH} ((A^j)^T)^T X e_j = [A^{hH} X, A^{hH+1} X, ..., A^{hH+H-1} X].

The collapse picks that row. H^2 >= k blocks come out; those from k on are padding, which the readout leaves out.
"""

from collections.abc import Callable

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from iha_theory import blueprint, exact
from iha_theory.attention.patterns import Pattern
from iha_theory.operators.weights import Matrix, Mixing, PositionWeights
from iha_theory.rounding import ceil_sqrt

Powers = Callable[[int], Matrix]
"""i -> A^i, over any domain or as float64."""


def powers(a: Matrix) -> Powers:
    """i -> A^i, each computed once, by repeated multiplication."""
    one = exact.identity(a.shape[0], a.domain) if isinstance(a, DomainMatrix) else torch.eye(len(a), dtype=a.dtype)
    known = [one]

    def power(i: int) -> Matrix:
        while len(known) <= i:
            last = known[-1]
            known.append(last @ a if isinstance(last, Tensor) else last * a)  # type: ignore[operator]
        return known[i]

    return power


def selectors(width: int, count: int, factor: int = 1) -> tuple[np.ndarray, ...]:
    """L_0 .. L_{count-1} in R^{d x d count}: L_m puts `factor` times the content into block m."""
    blocks = factor * np.eye(width * count, dtype=np.int64)
    return tuple(blocks[m * width : (m + 1) * width] for m in range(count))


def routing(heads: int) -> Mixing:
    """IHA's mixing with P = H: pseudo-query 0 of head h is query h, pseudo-key and -value j are key and value j."""
    own = np.eye(heads, dtype=np.int64)
    own_first = np.zeros((heads, heads, heads), dtype=np.int64)
    own_first[:, :, 0] = own
    base = np.repeat(own[:, None, :], heads, axis=1)  # [m, h, j] = 1[m = j]
    return Mixing(alpha_q=own_first, alpha_k=base, alpha_v=base, collapse=own_first)


@blueprint.construction(
    "bank-mha",
    "k heads of MHA, queries A^h and keys I, make the filter bank (App. B.2)",
    uses=("mha", "filter-bank"),
    check="exact",
)
def mha_weights(power: Powers, terms: int, width: int, pattern: Pattern = "linear") -> PositionWeights:
    """MHA with k = terms heads; for hard attention A picks one token in each row."""
    return PositionWeights(
        query=tuple(power(h) for h in range(terms)),
        key=(power(0),) * terms,
        value=selectors(width, 1) * terms,
        pattern=pattern,
    )


@blueprint.construction(
    "bank-iha",
    "ceil(sqrt k) heads of IHA, base queries A^(mH) and base keys (A^m)^T, make the filter bank (App. B.2)",
    uses=("iha", "filter-bank"),
    check="exact",
)
def iha_weights(
    power: Powers, terms: int, width: int, pattern: Pattern = "linear", factor: int | None = None
) -> PositionWeights:
    """IHA with ceil(sqrt k) heads and as many pseudo-heads.

    factor: of the values; default H for hard attention, the number of keys that a live row ties over, otherwise 1.
    """
    heads = ceil_sqrt(terms)
    return PositionWeights(
        query=tuple(power(m * heads) for m in range(heads)),
        key=tuple(transpose(power(m)) for m in range(heads)),
        value=selectors(width, heads, factor or (heads if pattern == "hard" else 1)),
        pattern=pattern,
        mixing=routing(heads),
    )


def transpose(m: Matrix) -> Matrix:
    """The transpose."""
    return m.T if isinstance(m, Tensor) else m.transpose()
