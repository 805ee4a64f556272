"""CPM-3 by a workspace: hard attention writes all N tokens at every position, an MLP counts pairs (Sec. 4.3, App. B.3).

With P the cyclic shift, (P X)_n = X_{n+1 mod N}, the workspace is [X, P X, ..., P^{N-1} X]: token n sees x_n first,
then its successors. Shift t maps by attention: queries P^t, keys I, one match a row, which hard attention picks.

MHA: N heads, head h shifts by h. IHA: H = P = ceil(sqrt N) heads. As in the filter bank, P^{hH} (P^{jT})^T = P^{hH+j},
but row (n, 0) of head h now has H matches, one in each pseudo-key j, among which hard attention averages with weight
1/H; the values carry a factor H. Block h H + j of the output is P^{hH+j} X; those from N on are padding.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor, nn

from constructions.construction import Block, Construction
from constructions.mlp import PairCount
from constructions.polynomial import routing, selectors, transpose
from iha_theory import exact
from iha_theory.costs import ceil_sqrt
from iha_theory.position_only import PositionWeights, to_layer, with_positions


def shift(tokens: int, by: int) -> DomainMatrix:
    """P^by over the rationals: row n picks token n + by mod N."""
    return exact.matrix(np.roll(np.eye(tokens, dtype=np.int64), by, axis=1), QQ)


def mha_weights(tokens: int, width: int) -> PositionWeights:
    """N heads."""
    return PositionWeights(
        query=tuple(shift(tokens, h) for h in range(tokens)),
        key=(shift(tokens, 0),) * tokens,
        value=selectors(width, 1) * tokens,
        pattern="hard",
    )


def iha_weights(tokens: int, width: int) -> PositionWeights:
    """ceil(sqrt N) heads and as many pseudo-heads."""
    heads = ceil_sqrt(tokens)
    return PositionWeights(
        query=tuple(shift(tokens, m * heads) for m in range(heads)),
        key=tuple(transpose(shift(tokens, m)) for m in range(heads)),
        value=selectors(width, heads, factor=heads),
        pattern="hard",
        mixing=routing(heads),
    )


WEIGHTS = {"mha": mha_weights, "iha": iha_weights}


def workspace(layer: str, tokens: int, width: int = 1) -> Construction:
    """The workspace [X, P X, ..., P^{N-1} X] by "mha" or "iha".

    Args:
        layer: "mha" or "iha".
        tokens: N = N_max, at least 1.
        width: the content's width: 1 for values alone, 2 with presence flags.

    Raises:
        ValueError: tokens or width below 1.
    """
    if tokens < 1 or width < 1:
        raise ValueError(f"tokens and width must be at least 1, got {tokens} and {width}")
    readout = tuple(Block(f"P^{t} X", t * width, width) for t in range(tokens))
    return Construction(f"workspace/{layer}", "App. B.3", to_layer(WEIGHTS[layer](tokens, width)), readout, width)


BATCH = 2**18
"""Sequences go through the attention as many at a time as make so many entries of the workspace."""


@dataclass(frozen=True)
class CountPairsNetwork:
    """Attention that writes the workspace, then the MLP that counts: tokens in, counts out."""

    attention: Construction
    mlp: PairCount

    @property
    def module(self) -> nn.ModuleList:
        """All parameters, for counting and saving."""
        return nn.ModuleList([self.attention.layer, self.mlp])

    def __call__(
        self, x: Int[Tensor, "batch tokens"], present: Float[Tensor, "batch tokens"] | None = None
    ) -> Int[Tensor, "batch tokens"]:
        """Counts (batch, tokens) for integer sequences (batch, tokens), by self-attention.

        Args:
            x: the tokens, N_max to a sequence.
            present: 1 where there is a token, 0 where there is padding; only for a network built with flags.

        Raises:
            ValueError: as `workspaces` and `counts`.
        """
        return self.counts(self.workspaces(x, present))

    @torch.no_grad()
    def workspaces(
        self,
        x: Int[Tensor, "batch tokens"],
        present: Float[Tensor, "batch tokens"] | None = None,
        *,
        share_pattern: bool = False,
    ) -> Float[Tensor, "batch tokens width"]:
        """The attention's outputs.

        Args:
            x: as in a call.
            present: as in a call.
            share_pattern: form the attention pattern once, from the positions, for all sequences; the same function for
                a position-only layer, and much faster. Otherwise plain self-attention.

        Raises:
            ValueError: tokens so large that a sum might not be an exact float64.
        """
        if x.numel() == 0:
            raise ValueError(f"no sequences: x has shape {tuple(x.shape)}")
        largest, factor = max(int(x.max()), -int(x.min())), max(self.mlp.modulus + 2, self.attention.heads)
        if largest * factor >= exact.LARGEST_INTEGER:
            raise ValueError(f"tokens up to {largest} overflow float64 with M = {self.mlp.modulus}: reduce them mod M")
        content = x.double().unsqueeze(-1)
        if present is not None:
            content = torch.cat((content, present.double().unsqueeze(-1)), dim=-1)
        layer, step = self.attention.layer, max(1, BATCH // content[0].numel() ** 2)
        positions = with_positions(torch.zeros_like(content[:1]))
        rows = torch.empty(*x.shape, layer.out_dim, dtype=torch.float64)
        for part, out in zip(content.split(step), rows.split(step), strict=True):
            inputs = with_positions(part)
            at = positions if share_pattern else inputs
            out.copy_(layer(at, at, inputs))
        return rows

    @torch.no_grad()
    def counts(self, workspaces: Float[Tensor, "batch tokens width"]) -> Int[Tensor, "batch tokens"]:
        """The MLP's counts (batch, tokens) for workspaces (batch, tokens, width).

        Raises:
            ValueError: an output that is not an integer.
        """
        counts = self.mlp_of(workspaces.flatten(0, 1)).view(workspaces.shape[:2])
        if not torch.equal(counts, counts.round()):
            raise ValueError("the network's output is not an integer")
        return counts.long()

    def mlp_of(self, rows: Float[Tensor, "rows width"]) -> Float[Tensor, " rows"]:
        """The MLP of every row, run once for rows that are equal: a token's count depends on its workspace alone."""
        generator = torch.Generator().manual_seed(0)
        codes = rows @ torch.rand(rows.shape[1], dtype=rows.dtype, generator=generator)
        _, first, inverse = np.unique(codes.numpy(), return_index=True, return_inverse=True)
        distinct, at = rows[torch.from_numpy(first)], torch.from_numpy(inverse)
        if not torch.equal(distinct[at], rows):  # two different rows of one code, or NaN
            return self.mlp(rows)
        return self.mlp(distinct)[at]


def network(attention: Construction, modulus: int, coefficient: int, *, flags: bool = False) -> CountPairsNetwork:
    """The whole construction: N_max or ceil(sqrt N_max) heads, then the MLP of N_max^2 hidden units.

    Args:
        attention: the workspace, of width 2 with flags.
        modulus: M, at least 1.
        coefficient: G, any integer.
        flags: use presence flags, so that sequences shorter than N_max, padded anywhere, are counted right too.
    """
    starts = [block.start for block in attention.readout]
    mlp = PairCount(starts, attention.layer.out_dim, modulus, coefficient, [s + 1 for s in starts] if flags else None)
    return CountPairsNetwork(attention, mlp)
