"""Constructions under the causal mask: row i sees tokens up to i (ledger E3). Indices from 0.

**Filter bank.** The mask keeps a map's lower triangle: block t of MHA becomes tril(A^t) X. So the bank
[X, A X, ..., A^{k-1} X] comes out if and only if every A^t, t < k, is lower-triangular, which for k >= 2 says that A
is: no edge goes to a later token. For another A no causal layer of any kind can do it: with A_ij != 0 and j > i, row i
of A X changes with x_j, and row i of a causal layer does not. The smallest case: N = 2, A = [[0, 1], [0, 0]], k = 2.

IHA with token causality masks like that too. In the paper's virtual order, token n is the virtual tokens (n, 0) ..
(n, P-1), and (n, j) sees (n', j') if n' < n, or n' = n and j' <= j. The construction reads row (n, 0), which misses
the pseudo-keys j >= 1 of its own token: block h H + j becomes A^{hH+j} without its diagonal. So for k >= 2 this needs
that A is *strictly* lower-triangular: then the diagonals of A, A^2, ... are 0, and else some A_nn != 0 is lost in block
1 (k >= 2 makes H >= 2). Row (n, P-1) sees all of its own token, hence what token causality lets it see. With the query
in the last pseudo-head instead of the first, and the collapse reading it (`under_mask`, row="last"), both causalities
need the same of A: that it is lower-triangular.

**CPM-3.** Token i counts the pairs with j1, j2 <= i, for which the workspace is [X, L X, ..., L^{N-1} X], with L the
nilpotent shift, (L X)_n = X_{n-1} and (L X)_0 = 0. Hard attention does not make it from X: with n < t no key matches
row n of L^t, the row ties over all it sees, and whatever it picks has weights that sum to 1, not to 0. In IHA the
number of matches would even change from row to row. So a token with content 0, flag included, begins the sequence
(BOS), and the shift stops there: C maps position n to max(n - 1, 0). C^t takes n to max(n - t, 0), so that
C^a C^b = C^{a+b}, and

    C^t [0; X] = [0; L^t X]    (n - t >= 1: token n - t; else BOS, which is 0).

Every row of C^t has one match, at a position max(n - t, 0) <= n that is seen. So MHA's head t has queries C^t and keys
I; IHA's base queries are C^{mH} and base keys (C^m)^T, and row n of head h matches once in each pseudo-key j, at
max(n - hH - j, 0): always H matches, as for the cyclic shift, so that values with a factor H are exact. A slot t
without a token shows the flag 0 of BOS, and the MLP leaves it out (`constructions.mlp.PairCount`); so it does with
padding, at the end (which no token before it sees), in front or between. Heads: N_max, and ceil(sqrt N_max).
"""

import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions import cpm3, polynomial
from constructions.construction import Block, Construction
from constructions.polynomial import Powers
from iha_theory import exact
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.interleaved import Causality
from iha_theory.position_only import to_layer

Row = Literal["first", "last"]
"""Which pseudo-query IHA reads."""


def under_mask(construction: Construction, causality: Causality = "token", row: Row = "first") -> Construction:
    """A copy of a construction that runs under the causal mask.

    Args:
        construction: of one layer.
        causality: of IHA, "token" or "virtual".
        row: "first" leaves IHA's weights as they are; "last" swaps the pseudo-queries' order, so that a construction
            that reads pseudo-query 0 reads pseudo-query P - 1.
    """
    layer = copy.deepcopy(construction.layer)
    if isinstance(layer, InterleavedHeadAttention):
        layer.causality = causality
        if row == "last":
            with torch.no_grad():
                layer.alpha_q.copy_(layer.alpha_q.flip(-1))
                layer.collapse.copy_(layer.collapse.flip(-1))
    return replace(construction, layer=layer, is_causal=True)


def bank(layer: str, power: Powers, terms: int, width: int, causality: Causality = "token") -> Construction:
    """The filter bank of a lower-triangular A under the causal mask, with as many heads as without it.

    Args:
        layer: "mha", k heads, or "iha", ceil(sqrt k).
        power: i -> A^i; see `constructions.polynomial.powers`. A[i, j] = 0 for j > i: edges go to earlier tokens.
        terms: k, the number of blocks.
        width: the content's width d.
        causality: "token" or "virtual".

    Raises:
        OverflowError, ValueError: as `constructions.polynomial.bank`; and an A that is not lower-triangular.
    """
    if terms > 1:
        above = np.argwhere(np.triu(_array(power(1)) != 0, 1))
        if len(above):
            i, j = above[0].tolist()
            raise ValueError(
                f"A[{i}, {j}] is not 0: token {i} would need token {j}, which a causal layer hides from it"
            )
    return under_mask(polynomial.bank(layer, power, terms, width), causality, "last")


def clamped_shift(tokens: int, by: int) -> DomainMatrix:
    """C^by over the rationals: row n picks token max(n - by, 0)."""
    rows = np.arange(tokens)
    return exact.matrix((np.maximum(rows - by, 0)[:, None] == rows).astype(np.int64), QQ)


def workspace(layer: str, n_max: int, width: int = 2, causality: Causality = "token") -> Construction:
    """[X, L X, ..., L^{N_max-1} X] on the N_max + 1 positions of BOS and the tokens; for `constructions.cpm3.network`.

    Args:
        layer: "mha", N_max heads, or "iha", ceil(sqrt N_max).
        n_max: N_max, the most tokens and the number of blocks, at least 1.
        width: the content's width; 2 for values and presence flags.
        causality: "token" or "virtual".

    Raises:
        ValueError: n_max or width below 1, or another layer.
    """
    cpm3.require_sizes(layer, n_max, width)
    weights = cpm3.WEIGHTS[layer](lambda t: clamped_shift(n_max + 1, t), n_max, width)
    readout = tuple(Block(f"L^{t} X", t * width, width) for t in range(n_max))
    built = Construction(f"causal-workspace/{layer}", "ledger E3", to_layer(weights), readout, width)
    return under_mask(built, causality, "last")


def _array(m: Any) -> np.ndarray:
    """A matrix as an array, of objects if it is exact."""
    if isinstance(m, DomainMatrix):
        array = np.empty(m.shape, dtype=object)
        array[:] = m.to_list()
        return array
    return m.numpy()
