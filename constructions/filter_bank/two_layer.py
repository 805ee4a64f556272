"""The filter bank by two layers of MHA with ceil(sqrt k) heads each (docs/results.md T7).

H = ceil(sqrt k). Layer 1 has heads m = 0 .. H-1 with queries A^m, keys I and values X: it outputs
Z = [X, A X, ..., A^{H-1} X]. Layer 2 has heads h with queries A^{hH}, keys I and all of Z as values: head h outputs
[A^{hH} X, ..., A^{hH+H-1} X], and block h H + m of the concatenated heads is A^{hH+m} X. Those from k on are padding.

Both layers are linear attention on positions, without residual, norm or MLP in between. Layer 2's values have no
positions in them. IHA does the same in one layer with as many heads, and has half the query and key parameters
(2 N (N + d) H against 4 N (N + d) H); its attention maps are at least k, where the two layers form 2 H.

**Least.** Two layers with H heads have operators sum_{g,h} S2_g S1_h X B_gh, of Schmidt rank at most H^2
(docs/results.md T1), so H >= ceil(sqrt r), r = dim span{I, A, ..., A^{k-1}}.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from constructions.filter_bank.paper import Powers, powers, selectors
from iha_theory import blueprint
from iha_theory.attention import TwoLayerAttention
from iha_theory.operators.weights import Matrix, PositionWeights, few_entries, to_layer, untouched_zeros, write_block
from iha_theory.rounding import ceil_sqrt


def weights(
    outer: Sequence[Matrix], inner: Sequence[Matrix], width: int, out: Matrix | None = None
) -> tuple[PositionWeights, PositionWeights]:
    """Both layers of X -> [S_h T_m X], blocks in the order of h H + m, over any domain.

    Args:
        outer: S_0 .. S_{H-1}, each (N, N).
        inner: T_0 .. T_{H-1}.
        width: the content's width d; the second layer's content is the first's output, of width H d.
        out: an output projection of the H^2 blocks, (H^2 d, D); None for none.
    """
    heads, one = len(inner), powers(inner[0])(0)
    first = PositionWeights(
        query=tuple(inner),
        key=(one,) * heads,
        value=selectors(width, 1) * heads,
        pattern="linear",
    )
    second = PositionWeights(
        query=tuple(outer),
        key=(one,) * heads,
        value=(np.eye(heads * width, dtype=np.int64),) * heads,
        pattern="linear",
        out=out,
    )
    return first, second


@blueprint.construction(
    "bank-two-layer",
    "two layers of MHA with ceil(sqrt k) heads each make the filter bank",
    uses=("two-layer", "filter-bank"),
    check="exact",
)
def bank_weights(power: Powers, terms: int, width: int) -> tuple[PositionWeights, PositionWeights]:
    """The bank, over any domain: S_h = A^{hH}, T_m = A^m."""
    heads = ceil_sqrt(terms)
    return weights([power(h * heads) for h in range(heads)], [power(m) for m in range(heads)], width)


def products(
    queries: Float[Tensor, "H N N"], keys: Float[Tensor, "H N N"], contents: Float[Tensor, "H H d D"]
) -> tuple[PositionWeights, PositionWeights]:
    """X -> sum_{a,b} Q_a K_b^T X B_ab: S_a = Q_a, T_b = K_b^T, and the B_ab in the output projection."""
    return weights(list(queries), list(keys.mT), contents.shape[2], contents.flatten(0, 2))


def to_two_layers(first: PositionWeights, second: PositionWeights) -> TwoLayerAttention:
    """The torch module, in float64, on the input [X, I_N].

    Raises:
        OverflowError: an exact weight that float64 cannot hold.
    """
    width, inner = first.width, second.width
    layers = to_layer(first), to_layer(second)
    with torch.device("meta"):
        module = TwoLayerAttention(
            layers[0].embed_dim,
            first.num_heads,
            head_dim=layers[0].head_dim,
            pattern="linear",
            scale=1.0,
            dtype=torch.float64,
            first={"value_head_dim": layers[0].value_head_dim},
            second={
                "value_head_dim": layers[1].value_head_dim,
                "out_proj": second.out is not None,
                "out_dim": None if second.out is None else second.out.shape[1],
            },
        )
    module.first.load_state_dict(layers[0].state_dict(), assign=True)
    own = layers[1].state_dict()  # made for the input [Z, I_N]
    with torch.no_grad():
        for name in ("q_proj.weight", "k_proj.weight"):
            wide, own[name] = own[name], untouched_zeros(len(own[name]), first.tokens + width)
            write_block(own[name][:, width:], wide[:, inner:], few_entries(wide[:, inner:]))
        own["v_proj.weight"] = own["v_proj.weight"][:, :inner].clone()
    module.second.load_state_dict(own, assign=True)
    return module
