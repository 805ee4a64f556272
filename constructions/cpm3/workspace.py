"""CPM-3 by a workspace: hard attention writes all N tokens at every position, an MLP counts pairs (Sec. 4.3, App. B.3).

With P the cyclic shift, (P X)_n = X_{n+1 mod N}, the workspace is [X, P X, ..., P^{N-1} X]: token n sees x_n first,
then its successors. (The P printed in App. B.3 shifts the other way, to its predecessors: ledger E7.) Shift t maps by
attention: queries P^t, keys I, one match a row, which hard attention picks.

MHA: N heads, head h shifts by h. IHA: H = P = ceil(sqrt N) heads. As in the filter bank, P^{hH} (P^{jT})^T = P^{hH+j},
but row (n, 0) of head h now has H matches, one in each pseudo-key j, among which hard attention averages with weight
1/H; the values carry a factor H. Block h H + j of the output is P^{hH+j} X; those from N on are padding.

**Fewer tokens than N_max** (ledger E9). A slot without a token must not count, and no value can mark it, since 0 is a
token like any other. So the content is [x, f] with the presence flag f, 1 at tokens and 0 at padding, which the same
attention carries along, being linear in the content. Hidden unit (s, t) of the MLP then sees three flags and counts
only where all are 1. The shifts are cyclic over N_max slots, so every row sees every slot once, wherever the padding
is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Integer, Shaped
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor, nn

from constructions.construction import Construction, blocks
from constructions.cpm3.mlp import HIDDEN, PairCount, ReluPairCount
from constructions.filter_bank import layers as filter_bank
from constructions.filter_bank.layers import EXACT, PAPER
from constructions.filter_bank.paper import Powers
from iha_theory import blueprint, exact
from iha_theory.operators.weights import PositionWeights, to_layer, with_positions
from iha_theory.rounding import require_count, require_one_of


def shift(tokens: int, by: int) -> DomainMatrix:
    """P^by over the rationals: row n picks token n + by mod N."""
    return exact.matrix(np.roll(np.eye(tokens, dtype=np.int64), by, axis=1), QQ)


LAYERS = tuple(name for name in EXACT if name != "mha-two-layer")
"""The layers that write the workspace."""


@blueprint.construction(
    "workspace",
    "hard attention writes all N tokens at every position: N heads of MHA, ceil(sqrt N) of IHA (App. B.3)",
    uses=("bank-mha", "bank-iha", "pattern"),
    check="exact",
)
def workspace(layer: str, tokens: int, width: int = 1) -> Construction:
    """The workspace [X, P X, ..., P^{N-1} X]: the bank of the shift, by hard attention.

    Args:
        layer: "mha", "iha", or "iha-tiled", with about sqrt(H) pseudo-heads (`constructions.filter_bank.tiled`).
        tokens: N = N_max, at least 1.
        width: the content's width: 1 for values alone, 2 with presence flags.

    Raises:
        ValueError: tokens or width below 1, or another layer.
    """
    require_one_of("layer", layer, LAYERS)
    require_count("tokens", tokens)
    require_count("width", width)
    source = "App. B.3" if layer in PAPER else filter_bank.LAYERS[layer].source
    module = to_layer(workspace_weights(layer, lambda t: shift(tokens, t), tokens, width))
    return Construction(f"workspace/{layer}", source, module, blocks("P^{} X", tokens, width), width)


def workspace_weights(layer: str, power: Powers, slots: int, width: int, **options: Any) -> PositionWeights:
    """The bank's weights with hard attention; power(t) picks one token in each row. options: of the bank's weights."""
    return filter_bank.LAYERS[layer].weights(power, slots, width, "hard", **options)


BATCH = 2**18
"""Sequences go through the attention as many at a time as make so many entries of the workspace."""


@dataclass(frozen=True)
class CountPairsNetwork:
    """Attention that writes the workspace, then the MLP that counts: tokens in, counts out.

    A causal workspace (`constructions.cpm3.causal.workspace`) counts the pairs among the tokens so far.
    """

    attention: Construction
    mlp: PairCount | ReluPairCount

    @property
    def module(self) -> nn.ModuleList:
        """All parameters, for counting and saving."""
        return nn.ModuleList([self.attention.layer, self.mlp])

    @property
    def slots(self) -> int:
        """N_max."""
        return len(self.attention.readout)

    def __call__(
        self, x: Integer[Tensor, "batch tokens"], present: Shaped[Tensor, "batch tokens"] | None = None
    ) -> Int[Tensor, "batch tokens"]:
        """Counts (batch, N) for integer sequences (batch, N), by self-attention; 0 at padding.

        Args:
            x: the tokens: N = N_max, or with flags any N from 1 to N_max.
            present: 1 or True where there is a token, 0 or False where there is padding, whose x is then of no
                account; None for tokens everywhere. Only for a network built with flags.

        Raises:
            ValueError: as `workspaces` and `counts`.
        """
        return self.counts(self.workspaces(x, present))

    @torch.no_grad()
    def workspaces(
        self,
        x: Integer[Tensor, "batch tokens"],
        present: Shaped[Tensor, "batch tokens"] | None = None,
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
            ValueError: no token, or more than N_max, or fewer without flags; flags other than 0 and 1, or for a network
                without; tokens so large that a sum might not be an exact float64.
        """
        content, begin = self._content(x, present), int(self.attention.is_causal)
        layer, step = self.attention.layer, max(1, BATCH // content[0].numel() ** 2)
        positions = with_positions(torch.zeros_like(content[:1]))
        rows = torch.empty(*content.shape[:2], layer.out_dim, dtype=torch.float64)
        for part, out in zip(content.split(step), rows.split(step), strict=True):
            inputs = with_positions(part)
            at = positions if share_pattern else inputs
            out.copy_(layer(at, at, inputs, is_causal=self.attention.is_causal))
        return rows[:, begin : begin + x.shape[1]]

    def _content(self, x: Tensor, present: Tensor | None) -> Tensor:
        """[x], or [x, f] with flags, in float64, padded to N_max slots; a causal layer's begins with a row of 0."""
        tokens, flags = x.shape[1], self.mlp.presence is not None
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise ValueError(f"tokens of dtype {x.dtype}: accepted are integers")
        if x.numel() == 0:
            raise ValueError(f"no sequences: x has shape {tuple(x.shape)}")
        if tokens > self.slots or (tokens < self.slots and not flags):
            accepted = f"1 to {self.slots}" if flags else f"{self.slots}, and fewer for a network with flags"
            raise ValueError(f"{tokens} tokens: accepted are {accepted}")
        if flags:
            present = torch.ones_like(x) if present is None else present
            if present.shape != x.shape or not bool(((present == 0) | (present == 1)).all()):
                raise ValueError(f"present of shape {tuple(present.shape)}: expected 0 and 1 in shape {tuple(x.shape)}")
            x = x.masked_fill(present == 0, 0)
        elif present is not None:
            raise ValueError("present is for a network with flags, and this one has none")
        largest, factor = max(int(x.max()), -int(x.min())), max(self.mlp.modulus + 2, self.attention.heads)
        if largest * factor >= exact.LARGEST_INTEGER:
            raise ValueError(f"tokens up to {largest} overflow float64 with M = {self.mlp.modulus}: reduce them mod M")
        content = torch.stack([part.double() for part in (x, present) if part is not None], dim=-1)
        return F.pad(content, (0, 0, int(self.attention.is_causal), self.slots - tokens))

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
            distinct, at = rows, torch.arange(len(rows))
        parts = distinct.split(max(1, HIDDEN // self.slots**2))
        return torch.cat([self.mlp(part) for part in parts])[at]


@blueprint.construction(
    "cpm3-network",
    "workspace and MLP solve CPM-3, with presence flags for every N <= N_max",
    uses=("workspace", "pair-count"),
    check="exact",
)
def network(attention: Construction, modulus: int, coefficient: int, *, flags: bool = False) -> CountPairsNetwork:
    """The whole construction: N_max or ceil(sqrt N_max) heads, then the MLP of N_max^2 hidden units.

    Args:
        attention: the workspace, of width 2 with flags.
        modulus: M, at least 1.
        coefficient: G, any integer.
        flags: use presence flags, so that sequences shorter than N_max, padded anywhere, are counted right too.

    Raises:
        ValueError: M below 1; flags without a workspace of width 2, or the other way round; a causal workspace without
            flags, which BOS needs.
    """
    if attention.width != 1 + flags:
        raise ValueError(f"a workspace of width {attention.width} with flags={flags}: width 2 is for flags, 1 for none")
    if attention.is_causal and not flags:
        raise ValueError("a causal workspace needs flags=True: its first token must not be counted")
    starts = [block.start for block in attention.readout]
    mlp = PairCount(starts, attention.layer.out_dim, modulus, coefficient, [s + 1 for s in starts] if flags else None)
    return CountPairsNetwork(attention, mlp)
