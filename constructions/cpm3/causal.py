"""CPM-3 under the causal mask: token i counts the pairs with j1, j2 <= i (ledger E3). Indices from 0.

The workspace for these pairs is [X, L X, ..., L^{N-1} X], with L the
nilpotent shift, (L X)_n = X_{n-1} and (L X)_0 = 0. Hard attention does not make it from X: with n < t no key matches
row n of L^t, the row ties over all it sees, and whatever it picks has weights that sum to 1, not to 0. In IHA the
number of matches would even change from row to row. So a token with content 0, flag included, begins the sequence
(BOS), and the shift stops there: C maps position n to max(n - 1, 0). C^t takes n to max(n - t, 0), so that
C^a C^b = C^{a+b}, and

    C^t [0; X] = [0; L^t X]    (n - t >= 1: token n - t; else BOS, which is 0).

Every row of C^t has one match, at a position max(n - t, 0) <= n that is seen. So MHA's head t has queries C^t and keys
I; IHA's base queries are C^{mH} and base keys (C^m)^T, and row n of head h matches once in each pseudo-key j, at
max(n - hH - j, 0): always H matches, as for the cyclic shift, so that values with a factor H are exact. A slot t
without a token shows the flag 0 of BOS, and the MLP leaves it out (`constructions.cpm3.mlp.PairCount`); so it does with
padding, at the end (which no token before it sees), in front or between. Heads: N_max, and ceil(sqrt N_max).
"""

import numpy as np
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.construction import Construction, blocks
from constructions.cpm3 import workspace as cpm3
from constructions.filter_bank.causal import under_mask
from constructions.filter_bank.layers import PAPER
from iha_theory import blueprint, exact
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.operators.weights import to_layer
from iha_theory.rounding import require_count, require_one_of


def clamped_shift(tokens: int, by: int) -> DomainMatrix:
    """C^by over the rationals: row n picks token max(n - by, 0)."""
    rows = np.arange(tokens)
    return exact.matrix((np.maximum(rows - by, 0)[:, None] == rows).astype(np.int64), QQ)


@blueprint.construction(
    "cpm3-causal",
    "the workspace under the causal mask, with a token of content 0 in front",
    uses=("workspace", "pair-count"),
    check="exact",
)
def workspace(layer: str, n_max: int, width: int = 2, causality: Causality = "token") -> Construction:
    """[X, L X, ..., L^{N_max-1} X] on the N_max + 1 positions of BOS and the tokens; for
    `constructions.cpm3.workspace.network`.

    Args:
        layer: "mha", N_max heads, or "iha", ceil(sqrt N_max).
        n_max: N_max, the most tokens and the number of blocks, at least 1.
        width: the content's width; 2 for values and presence flags.
        causality: "token" or "virtual".

    Raises:
        ValueError: n_max or width below 1, or another layer.
    """
    require_one_of("layer", layer, PAPER)
    require_count("tokens", n_max)
    require_count("width", width)
    weights = cpm3.workspace_weights(layer, lambda t: clamped_shift(n_max + 1, t), n_max, width)
    readout = blocks("L^{} X", n_max, width)
    built = Construction(f"causal-workspace/{layer}", "ledger E3", to_layer(weights), readout, width)
    return under_mask(built, causality, "last")
