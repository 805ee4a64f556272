"""Any K x K convolution as one layer of linear attention: MHA with K^2 heads, IHA with K (docs/results.md T12).

**Convolution.** Tokens are the R x C grid, row-major: N = R C, token r C + c at (r, c). With p = (K - 1) / 2,

    Y[(r, c), o] = sum_{i,u,v} kernel[o,i,u,v] X[(r + u - p, c + v - p), i],

cross-correlation as in torch's conv2d; "circular" takes places modulo R and C, "zero" leaves out those off the grid.
Let S_u in R^{R x R} have a 1 at (r, r + u - p), and T_v in R^{C x C} at (c, c + v - p); a row without such a place is
0, so that with zero padding both are nilpotent (or I, for u = p). Then

    Y = sum_{u,v} (S_u x T_v) X kernel[:,:,u,v]^T,      S_u x T_v = (S_u x I)(I x T_v),

by the mixed-product rule of the Kronecker product, with either padding: a token is read if and only if both its row and
its column are on the grid. So base queries are the K row shifts S_u x I, base keys the K transposed column shifts
(I x T_v)^T, and the kernel is the output projection: K heads.

**Least.** Where the K^2 shifts are linearly independent (K <= min(R, C) on a torus; K < 2 min(R, C) with zeros, where
they are matrices other than 0 on distinct diagonals), the operator Schmidt rank is the dimension of the span of the K^2
tap matrices kernel[:,:,u,v]. If those are independent, which needs d D >= K^2, MHA needs K^2 heads and IHA K
(docs/results.md T2). A kernel with fewer independent taps needs fewer: with d = D = 1 it is one operator.

MHA with K^2 heads is known: Cordonnier, Loukas, Jaggi, ICLR 2020, arXiv 1911.03584 (there with softmax in the limit).
"""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.filter_bank.layers import LAYERS, PAPER, to_module
from iha_theory import blueprint
from iha_theory.rounding import require_one_of

Padding = Literal["circular", "zero"]
PADDINGS = get_args(Padding)


def shifts(size: int, kernel_size: int, padding: Padding) -> Float[Tensor, "kernel_size size size"]:
    """The shifts of a line of `size` places: matrix u has a 1 at (r, r + u - (K - 1)/2), if need be modulo `size`."""
    offsets = range(-(kernel_size // 2), kernel_size // 2 + 1)
    if padding == "circular":
        return torch.stack([torch.eye(size, dtype=torch.float64).roll(t, 1) for t in offsets])
    return torch.stack([torch.ones(size, size, dtype=torch.float64).triu(t).tril(t) for t in offsets])


@blueprint.construction(
    "convolution",
    "any K x K convolution by K^2 heads of MHA or K of IHA: shifts are products of row and column shifts",
    uses=("products",),
    check="exact",
)
def convolution(
    layer: str, kernel: Float[Tensor, "D d K1 K2"], grid: tuple[int, int], padding: Padding = "circular"
) -> Construction:
    """A K x K convolution of the tokens' grid by "mha" with K^2 heads or "iha" with K.

    The content is (N, d) and the output (N, D), tokens row-major; stride 1, so the output has the input's grid.

    Args:
        layer: "mha" or "iha".
        kernel: (D, d, K, K) in float64, output channels first, as torch's conv2d takes it; K odd.
        grid: (R, C), each at least 1.
        padding: "circular" (a torus) or "zero".

    Raises:
        ValueError: an even or non-square kernel, another dtype, a grid without tokens, or another layer or padding.
    """
    require_one_of("layer", layer, PAPER)
    require_one_of("padding", padding, PADDINGS)
    if kernel.dtype != torch.float64:
        raise ValueError(f"the kernel must be float64, got {kernel.dtype}")
    outputs, width, size, other = kernel.shape
    if size != other or size % 2 == 0:
        raise ValueError(f"the kernel must be K x K with K odd, got {size} x {other}")
    rows, columns = grid
    if rows < 1 or columns < 1 or outputs < 1 or width < 1:
        raise ValueError(f"grid and channels must be at least 1, got {rows} x {columns}, {width} in, {outputs} out")
    row_shifts, column_shifts = shifts(rows, size, padding), shifts(columns, size, padding)
    queries = torch.stack([torch.kron(s, torch.eye(columns, dtype=torch.float64)) for s in row_shifts])
    keys = torch.stack([torch.kron(torch.eye(rows, dtype=torch.float64), t).T for t in column_shifts])
    module = to_module(LAYERS[layer].products(queries, keys, kernel.permute(2, 3, 1, 0)))
    readout = blocks("channel {}", outputs)
    return Construction(f"convolution/{layer}", "docs/results.md T12", module, readout, width)
