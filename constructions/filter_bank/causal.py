"""The filter bank under the causal mask: row i sees tokens up to i (ledger E3). Indices from 0.

The mask keeps a map's lower triangle: block t of MHA becomes tril(A^t) X. So the bank
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
"""

import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix

from constructions.construction import Construction
from constructions.filter_bank import layers as filter_bank
from constructions.filter_bank.layers import PAPER
from constructions.filter_bank.paper import Powers
from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.rounding import require_one_of

Row = Literal["first", "last"]
"""Which pseudo-query IHA reads."""


@blueprint.construction(
    "bank-causal",
    "under the causal mask the filter bank is right if and only if A is lower-triangular",
    uses=("bank-mha", "bank-iha"),
    check="exact",
)
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
        power: i -> A^i; see `constructions.filter_bank.paper.powers`. A[i, j] = 0 for j > i: edges go to earlier
            tokens.
        terms: k, the number of blocks.
        width: the content's width d.
        causality: "token" or "virtual".

    Raises:
        OverflowError, ValueError: as `constructions.filter_bank.layers.bank`; and an A that is not lower-triangular.
    """
    require_one_of("layer", layer, PAPER)
    if terms > 1:
        above = np.argwhere(np.triu(_array(power(1)) != 0, 1))
        if len(above):
            i, j = above[0].tolist()
            raise ValueError(
                f"A[{i}, {j}] is not 0: token {i} would need token {j}, which a causal layer hides from it"
            )
    return under_mask(filter_bank.bank(layer, power, terms, width), causality, "last")


def _array(m: Any) -> np.ndarray:
    """A matrix as an array, of objects if it is exact."""
    if isinstance(m, DomainMatrix):
        array = np.empty(m.shape, dtype=object)
        array[:] = m.to_list()
        return array
    return m.numpy()
