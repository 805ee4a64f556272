"""Banks of products: X -> sum_{a,b} Q_a K_b^T X B_ab as one layer of linear attention, Q_a, K_b in R^{N x N}.

- MHA, one head a pair: queries Q_a, keys K_b, values X, and B_ab in the head's d rows of the output projection.
- IHA, H = P = max(#a, #b) heads: base queries Q_a, base keys K_b, base value m is X in block m of H. With the filter
  bank's mixing (`constructions.filter_bank.paper.routing`) head a outputs [Q_a K_0^T X, ..., Q_a K_{H-1}^T X], so the
  concatenated heads hold block (a, b) in the d rows (a H + b) d ... of the output projection, which are B_ab.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from constructions.filter_bank.paper import routing, selectors
from iha_theory import blueprint
from iha_theory.operators.weights import PositionWeights

Bases = Float[Tensor, "count tokens dim"] | Sequence[Float[Tensor, "tokens dim"]]
"""Base queries or keys."""


def mha_products(queries: Bases, keys: Bases, contents: Float[Tensor, "a b d D"]) -> PositionWeights:
    """X -> sum_{a,b} Q_a K_b^T X B_ab by MHA with #a #b heads; head a #b + b has pair (a, b)."""
    pairs = [(q, k) for q in queries for k in keys]
    return PositionWeights(
        query=tuple(q for q, _ in pairs),
        key=tuple(k for _, k in pairs),
        value=selectors(contents.shape[2], 1) * len(pairs),
        pattern="linear",
        out=contents.flatten(0, 2),
    )


@blueprint.construction(
    "products",
    "X -> sum Q_a K_b^T X B_ab by one head of MHA a pair, or by max(#a, #b) heads of IHA",
    uses=("mha", "bank-iha"),
    check="exact",
    tests="tests/constructions/targets/test_convolution.py",
)
def iha_products(queries: Bases, keys: Bases, contents: Float[Tensor, "a b d D"]) -> PositionWeights:
    """X -> sum_{a,b} Q_a K_b^T X B_ab by IHA with max(#a, #b) heads and as many pseudo-heads; missing ones are 0."""
    heads = max(len(queries), len(keys))
    return PositionWeights(
        query=filled(queries, heads),
        key=filled(keys, heads),
        value=selectors(contents.shape[2], heads),
        pattern="linear",
        mixing=routing(heads),
        out=F.pad(contents, (0, 0, 0, 0, 0, heads - len(keys), 0, heads - len(queries))).flatten(0, 2),
    )


def filled(bases: Bases, heads: int) -> tuple[Tensor, ...]:
    """The base queries or keys of the heads; missing ones are 0."""
    missing = heads - len(bases)
    return (*bases, *[torch.zeros_like(bases[0])] * missing) if missing else tuple(bases)
