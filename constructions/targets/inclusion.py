"""MHA is strictly inside IHA (Sec. 4.1, App. B.1): weights for the inclusion, and a witness that it is strict.

Inclusion: alpha_q = alpha_k = alpha_v = 1[m = h] for every pseudo-head, and the collapse picks one row of the own head.
The P copies of a token have the same key and value, so normalised attention over the copies is attention over the
tokens. Linear attention sums the copies, so there all pseudo-values but one are 0. The paper picks row 1. With causal
attention by virtual position only row P sees every copy of its own token (ledger E4).

Strictness: on repeated tokens, X = 1 x^T, all keys and all values of an MHA head are equal, so its output is W_O W_V x:
linear in x. An IHA head with pseudo-keys k, -k and pseudo-values v, -v, and P - 2 pseudo-heads that are zero, returns

    2 sinh(s) / (2 cosh(s) + P - 2) v,     s = scale <q, k>,

from the row of pseudo-query q: tanh(s) v for P = 2. This is not linear in x. The paper's printed witness has
pseudo-value +v in place of -v; then P = 2 returns v, which is linear (ledger E8).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention


@blueprint.construction(
    "inclusion",
    "an IHA that equals a given MHA: copied heads, a collapse that reads one row of the own head",
    uses=("mha", "iha"),
    check="numerical",
)
def inclusion(layer: MultiHeadAttention, num_pseudo_heads: int, pick: int = 0) -> InterleavedHeadAttention:
    """The IHA of App. B.1 that equals an MHA.

    Args:
        layer: the MHA.
        num_pseudo_heads: P.
        pick: the row, from 0, that the collapse reads; negative counts from the end.
    """
    iha = InterleavedHeadAttention.from_mha(layer, num_pseudo_heads, noise=0.0)
    with torch.no_grad():
        iha.collapse.zero_()
        iha.collapse[..., pick] = torch.eye(layer.num_heads)
        if layer.pattern == "linear":
            iha.alpha_v[..., 1:] = 0
    return iha


@blueprint.construction(
    "strict-witness",
    "one head of IHA that is tanh(<q, k>) v on repeated tokens, on which MHA is linear",
    uses=("mha", "iha"),
    check="numerical",
)
def witness(
    query: Float[Tensor, "width width"],
    key: Float[Tensor, "width width"],
    value: Float[Tensor, "width width"],
    num_pseudo_heads: int,
) -> InterleavedHeadAttention:
    """One IHA head of P >= 2 that is not linear on repeated tokens, in float64.

    Args:
        query: W_Q, so that q = W_Q x; key and value likewise.
        key: W_K.
        value: W_V.
        num_pseudo_heads: P.

    Raises:
        ValueError: P < 2, with which IHA is an MHA.
    """
    if num_pseudo_heads < 2:
        raise ValueError(f"the witness needs P >= 2, got {num_pseudo_heads}")
    layer = InterleavedHeadAttention(
        query.shape[1], 1, num_pseudo_heads=num_pseudo_heads, out_proj=False, scale=1.0, dtype=torch.float64
    )
    with torch.no_grad():
        for linear, weight in ((layer.q_proj, query), (layer.k_proj, key), (layer.v_proj, value)):
            linear.weight.copy_(weight)
        for alpha, second in ((layer.alpha_q, 0), (layer.alpha_k, -1), (layer.alpha_v, -1)):
            alpha.zero_()
            alpha[0, 0, :2] = torch.tensor([1, second], dtype=torch.float64)
        layer.collapse.zero_()
        layer.collapse[..., 0] = 1
    return layer


def repeated(x: Float[Tensor, "batch width"], tokens: int) -> Float[Tensor, "batch tokens width"]:
    """The input X = 1 x^T, for each x of the batch."""
    return x.unsqueeze(1).expand(-1, tokens, -1)


blueprint.unowned(
    "proof only",
    "row-sums",
    "softmax MHA with any number of heads makes only banks of constant row sums; one head of IHA with"
    " P = 2 makes others",
    uses=("mha", "iha"),
    proof="docs/exact_heads_more.md, M4",
)
