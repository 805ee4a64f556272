"""CPM-3 by one or two heads of linear attention on the paper's own input [x, I], content in the keys (docs/cpm3.md).

With content x_j (width 1) and one-hot positions e_j:

- head 1 has query 1, key x_j and value e_j, so every token gets sum_j x_j e_j = (x_1, ..., x_N), the whole sequence;
- head 2 has query e_i, key e_j and value x_j, so token i gets x_i. (A residual connection would do.)

Then the paper's MLP counts, with x_i in place of slot 0 (`constructions.cpm3.mlp.PairCount`). Nothing is rounded: every
sum has one addend that is not 0. Values of width N are what it pays: the total value width, H d_v = 2N, is that of the
workspace within a factor of 2.

One head is enough. With query e_i, key x_j (1, .., 1) + e_j / 2 and value e_j token i gets y = x + e_i / 2: whole
numbers but for its own. Then m = 2 (y mod 1) = e_i, x = y - m / 2, and sum_u ReLU((x_u mod M) - M (1 - m_u)) is x_i
mod M: for u not i what is in the ReLU is at most M - 1 - M. Training finds one head as well (docs/learning.md).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.cpm3.mlp import PairCount
from constructions.cpm3.workspace import CountPairsNetwork
from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.rounding import require_count


def whole_sequence(n: int) -> MultiHeadAttention:
    """The layer for N tokens: columns 0 .. N-1 of every token hold the sequence, column N the token itself."""
    layer = MultiHeadAttention(
        n + 1, 2, head_dim=n, value_head_dim=n, out_proj=False, pattern="linear", scale=1.0, dtype=torch.float64
    )
    query, key, value = (p.weight.view(2, n, n + 1) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    positions = torch.eye(n, dtype=torch.float64)
    with torch.no_grad():
        for weight in (query, key, value):
            weight.zero_()
        query[0, 0, 1:] = 1  # whatever the position
        key[0, 0, 0] = 1
        value[0, :, 1:] = positions
        query[1, :, 1:] = key[1, :, 1:] = positions
        value[1, 0, 0] = 1
    return layer


@blueprint.construction(
    "two-heads",
    "two heads of linear attention on [x, I], content in the keys of one, and the paper's MLP solve CPM-3",
    uses=("mha", "pair-count"),
    check="exact",
    proof="docs/cpm3.md, Theorem 5",
)
def two_heads(tokens: int, modulus: int, coefficient: int) -> CountPairsNetwork:
    """The whole construction, for sequences of N integers.

    Args:
        tokens: N.
        modulus: M.
        coefficient: G, any integer.

    Raises:
        ValueError: N or M below 1.
    """
    layer = whole_sequence(require_count("tokens", tokens))
    mlp = PairCount([*range(tokens)], layer.out_dim, modulus, coefficient, own=tokens)
    return CountPairsNetwork(
        Construction("two-heads/mha", "docs/results.md T18", layer, blocks("x_{}", tokens), 1), mlp
    )


def marked_sequence(n: int) -> MultiHeadAttention:
    """One head for N tokens: token i gets the sequence, with 1/2 more at its own place."""
    layer = MultiHeadAttention(
        n + 1, 1, head_dim=n, value_head_dim=n, out_proj=False, pattern="linear", scale=1.0, dtype=torch.float64
    )
    positions = torch.eye(n, dtype=torch.float64)
    with torch.no_grad():
        for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
            linear.weight.zero_()[:, 1:] = positions
        layer.k_proj.weight[:, 0] = 1
        layer.k_proj.weight[:, 1:] /= 2
    return layer


class MarkedPairCount(PairCount):
    """`PairCount` of a sequence whose own token carries a half: finds that token, with units "mod 1", "mod M" and ReLU.

    Args:
        tokens: N, as many columns.
        modulus: M.
        coefficient: G, any integer.

    Raises:
        ValueError: N or M below 1.
    """

    def __init__(self, tokens: int, modulus: int, coefficient: int) -> None:
        super().__init__([*range(tokens)], tokens + 1, modulus, coefficient, own=tokens)

    def forward(self, workspace: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch"]:
        """The counts, (...,), for x + e_i / 2, (..., N)."""
        mark = 2 * workspace.remainder(1)
        x = workspace - mark / 2
        own = torch.relu(x.remainder(self.modulus) - self.modulus * (1 - mark)).sum(-1, keepdim=True)
        return super().forward(torch.cat((x, own), dim=-1))


@blueprint.construction(
    "one-head",
    "one head of linear attention on [x, I], content in its keys, and an MLP solve CPM-3",
    uses=("mha", "pair-count"),
    check="exact",
    proof="docs/cpm3.md, Theorem 5",
)
def one_head(tokens: int, modulus: int, coefficient: int) -> CountPairsNetwork:
    """The same with one head.

    Args:
        tokens: N.
        modulus: M.
        coefficient: G, any integer.

    Raises:
        ValueError: N or M below 1.
    """
    layer = marked_sequence(require_count("tokens", tokens))
    return CountPairsNetwork(
        Construction("one-head/mha", "docs/results.md T18", layer, blocks("x_{}", tokens), 1),
        MarkedPairCount(tokens, modulus, coefficient),
    )
