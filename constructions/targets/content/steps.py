"""The steps of the proofs in docs/content.md as exact ranks, on real layers.

A head of linear attention on Xh = [X, I_N] is (Xh W Xh^T)(X B + C), with any W in R^{(d+N) x (d+N)}: its blocks are G
(content with content), M (content in the query), N (content in the key), S (positions). For given values it is linear
in W, so that "only W = 0 makes this vanish" is a rank: one head of width 1 for each entry of W, all in one torch layer,
run on integer inputs, where float64 is exact. A function f is affine in X if and only if f(X + U) - f(X) - f(U) + f(0)
is 0 for all X and U. A full rank modulo a prime is a full rank; nothing is decided by a tolerance.
"""

from collections.abc import Collection

import flint
import torch
from jaxtyping import Float
from torch import Tensor

from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.operators.weights import with_positions

PRIME = 2**31 - 1
BLOCKS = {"G": (0, 0), "M": (0, 1), "N": (1, 0), "S": (1, 1)}
"""For each block of W whether its rows and columns are of positions."""


@blueprint.definition(
    "content-layer",
    "linear attention on [X, I] with content anywhere: head h is (S_h + X M_h + N_h X^T + X G_h "
    "X^T)(X B_h + C_h); IHA is such a layer with H^2 heads",
    uses=("mha", "iha"),
    check="exact",
    proof="docs/content.md, Setting",
    tests="tests/constructions/targets/test_content.py",
)
def pattern_outputs(
    values: Float[Tensor, "d D"], constants: Float[Tensor, "N D"], inputs: Float[Tensor, "T N d"]
) -> Float[Tensor, "samples rows columns"]:
    """Outputs of the head with W = e_p e_q^T for all p, q: (T N D, d + N, d + N)."""
    tokens, size = len(constants), len(constants) + len(values)
    layer = MultiHeadAttention(
        size,
        size**2,
        head_dim=1,
        value_head_dim=values.shape[1],
        out_proj=False,
        pattern="linear",
        dtype=torch.float64,
    )
    unit = torch.eye(size, dtype=torch.float64)
    with torch.no_grad():
        layer.q_proj.weight.copy_(unit.repeat_interleave(size, 0))
        layer.k_proj.weight.copy_(unit.repeat(size, 1))
        layer.v_proj.weight.copy_(torch.cat((values, constants)).T.repeat(size**2, 1))
        x = with_positions(inputs)
        out = layer(x, x, x)
    return (
        out.unflatten(2, (size, size, -1))
        .permute(0, 1, 4, 2, 3)
        .reshape(len(inputs) * tokens * values.shape[1], size, size)
    )


@blueprint.theorem(
    "content-degrees",
    "which sums over the heads vanish if the parts of degree 2 and 3 in X of such a layer do",
    uses=("content-layer",),
    check="exact",
    proof="docs/content.md, Setting, Lemma",
    tests="tests/constructions/targets/test_content.py",
)
def beyond_affine(
    values: Float[Tensor, "H d D"], constants: Float[Tensor, "H N D"], blocks: Collection[str], seed: int = 0
) -> tuple[int, int]:
    """(rank, number) of the unknown entries of W_1, ..., W_H as functions of X, modulo affine functions.

    The rank is the number if and only if sum_h (Xh W_h Xh^T)(X B_h + C_h) is affine in X only where the unknown blocks
    of all W_h are 0.

    Args:
        values: B_h, of integers.
        constants: C_h, of integers.
        blocks: the unknown blocks of W_h, of `BLOCKS`; the others are 0.
        seed: of the inputs.
    """
    heads, tokens, out = constants.shape
    width = values.shape[1]
    mask = torch.zeros(width + tokens, width + tokens, dtype=torch.bool)
    for name in blocks:
        rows, columns = (slice(width, None) if at else slice(0, width) for at in BLOCKS[name])
        mask[rows, columns] = True
    unknown = heads * int(mask.sum())
    samples = 2 + 2 * unknown // (tokens * out)
    generator = torch.Generator().manual_seed(seed)
    x, u = torch.randint(-9, 10, (2, samples, tokens, width), generator=generator).double()
    found = []
    for b, c in zip(values, constants, strict=True):
        at = [pattern_outputs(b, c, inputs)[:, mask] for inputs in (x + u, x, u, torch.zeros_like(x))]
        found.append(at[0] - at[1] - at[2] + at[3])
    table = torch.cat(found, dim=1).long()
    return int(flint.nmod_mat(len(table), unknown, table.flatten().tolist(), PRIME).rank()), unknown
