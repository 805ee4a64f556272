"""CPM-3 with positions only and few heads: many tokens in one exact number (docs/cpm3.md, Theorem 3).

Tokens are residues 0 .. M-1, M >= 2, of content width 1. With b = floor(p / log2 M), a number of p bits holds b tokens
as its digits to the base M. Number k = 0, 1, .. of token n holds the b tokens from n + 1 + k b on, in a circle,

    y_k = sum_{t < b} M^t x_{n + 1 + kb + t},        y_k = P^{1 + kb} W x,    W = sum_{t < b} M^t P^t,

P the cyclic shift. K = ceil((N - 1) / b) numbers hold all other tokens, and the token itself is beside the layer, as by
a residual connection. (Digits beyond the last token show tokens again, and are left out.)

- MHA, K heads of linear attention: queries P^{1 + kb}, keys W^T, values x.
- IHA, H = P = ceil(sqrt K): P^{1 + (uH + v) b} W = P^{1 + uHb} (P^{vb} W), so base queries P^{1 + uHb} and base keys
  (P^{vb} W)^T, mixed as for the filter bank.

**MLP.** ReLUs only. The digits from the top one on, at the weight w = M^{b-1}, .., M, 1: on integers 0 <= y < M w

    y >= k w  <=>  ReLU(1 - ReLU(y - k w + 1)) = 0,        digit = M - 1 - sum_{k=1}^{M-1} ReLU(1 - ReLU(y - k w + 1)),

and y - w digit goes on. The digits' steps make one-hot residues, these add up to the histogram, and
`constructions.cpm3.histogram.HistogramCount` counts. Nothing is rounded: every partial sum up to there is an integer of
size at most M^b <= 2^p, and `HistogramCount` says what it needs.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from sympy import QQ
from torch import Tensor, nn

from constructions.construction import Construction, blocks
from constructions.cpm3.histogram import HistogramCount, rounding_bound
from constructions.filter_bank.paper import routing, selectors
from iha_theory import blueprint, exact
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

LAYERS = ("mha", "iha")
BITS = 53
"""p of float64."""


def digits_held(modulus: int, bits: int) -> int:
    """b = floor(p / log2 M): the largest with M^b <= 2^p, for M >= 2."""
    b = 0
    while modulus ** (b + 1) <= 2**bits:
        b += 1
    return b


@blueprint.construction(
    "packing",
    "ceil((N - 1)/b) heads of MHA and the root of it of IHA write all other tokens into exact numbers"
    " of p bits, b = floor(p / log2 M) in each",
    uses=("bank-iha", "histogram"),
    check="exact",
    proof="docs/cpm3.md, Theorem 3",
)
def packed(layer: str, tokens: int, modulus: int, bits: int = BITS) -> Construction:
    """The layer: block k of token n holds y_k.

    Args:
        layer: "mha" or "iha".
        tokens: N >= 2.
        modulus: M >= 2.
        bits: p from log2 M to 53, of the numbers that the layer hands on.

    Raises:
        ValueError: another layer; sizes outside these.
    """
    require_one_of("layer", layer, LAYERS)
    if require_count("tokens", tokens) < 2 or require_count("modulus", modulus) < 2:
        raise ValueError(f"packing is for at least 2 tokens and M >= 2, got N = {tokens} and M = {modulus}")
    if not require_count("bits", bits) <= BITS or digits_held(modulus, bits) < 1:
        raise ValueError(f"bits must be at least log2 M and at most {BITS}, got {bits} for M = {modulus}")
    held = min(digits_held(modulus, bits), tokens - 1)
    numbers = -(-(tokens - 1) // held)
    heads = numbers if layer == "mha" else ceil_sqrt(numbers)
    across = 1 if layer == "mha" else heads  # keys that a query meets
    keys = [_digits(tokens, modulus, held, v * held).transpose() for v in range(across)]
    weights = PositionWeights(
        query=tuple(_shift(tokens, 1 + u * across * held) for u in range(heads)),
        key=tuple(keys * heads if layer == "mha" else keys),
        value=selectors(1, 1) * heads if layer == "mha" else selectors(1, heads),
        pattern="linear",
        mixing=None if layer == "mha" else routing(heads),
    )
    return Construction(f"packed/{layer}", "docs/results.md T15", to_layer(weights), blocks("y_{}", numbers), 1)


def _shift(tokens: int, by: int) -> Tensor:
    """P^by, in float64: as rationals, 64 heads at N = 256 would take most of a minute."""
    return torch.eye(tokens, dtype=torch.float64).roll(by, 1)


def _digits(tokens: int, modulus: int, held: int, first: int) -> exact.DomainMatrix:
    """P^first W."""
    rows = np.zeros((tokens, tokens), dtype=object)
    for t in range(held):
        rows[np.arange(tokens), (np.arange(tokens) + first + t) % tokens] += modulus**t
    return exact.matrix(rows, QQ)


class Digits(nn.Module):
    """The digits of integers 0 .. M^b - 1 by ReLUs, one-hot: (…,) -> (…, b, M), the lowest digit first.

    Args:
        modulus: M >= 2.
        held: b, with M^b <= 2^53.
    """

    def __init__(self, modulus: int, held: int) -> None:
        super().__init__()
        steps = torch.arange(1, modulus, dtype=torch.float64)
        self.weights = [modulus**t for t in range(held)]
        self.places = nn.ModuleList()
        for weight in self.weights:
            reach = nn.Linear(1, modulus - 1, dtype=torch.float64)  # y - k w + 1
            below = nn.Linear(modulus - 1, modulus - 1, dtype=torch.float64)
            digit = nn.Linear(modulus - 1, 1, dtype=torch.float64)
            with torch.no_grad():
                reach.weight.fill_(1)
                reach.bias.copy_(1 - weight * steps)
                below.weight.copy_(-torch.eye(modulus - 1))
                below.bias.fill_(1)
                digit.weight.fill_(-1)
                digit.bias.fill_(modulus - 1)
            self.places.append(nn.ModuleList([reach, below, digit]))
        self.one_hot = nn.Linear(modulus - 1, modulus, dtype=torch.float64)  # of 1[digit < k], k = 1 .. M - 1
        with torch.no_grad():
            self.one_hot.bias.zero_()
            self.one_hot.bias[-1] = 1
            self.one_hot.weight.zero_()
            self.one_hot.weight.diagonal().fill_(1)
            self.one_hot.weight.diagonal(-1).fill_(-1)

    def forward(self, numbers: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch digits modulus"]:
        """One-hot digits."""
        rest, found = numbers.unsqueeze(-1), []
        for weight, place in zip(reversed(self.weights), reversed(self.places), strict=True):
            reach, below, digit = place  # type: ignore[misc]
            steps = torch.relu(below(torch.relu(reach(rest))))
            rest = rest - weight * digit(steps)
            found.append(self.one_hot(steps))
        return torch.stack(found[::-1], dim=-2)


@dataclass(frozen=True)
class PackedNetwork:
    """The layer, and an MLP at every token that reads its numbers and the token itself: sequences in, counts out."""

    attention: Construction
    digits: Digits
    own: Digits
    count: HistogramCount

    @property
    def module(self) -> nn.ModuleList:
        """All parameters, for counting and saving."""
        return nn.ModuleList([self.attention.layer, self.digits, self.own, self.count])

    @property
    def largest(self) -> int:
        """M^b - 1, the largest number that the layer may hand on."""
        return self.digits.weights[-1] * self.own.one_hot.out_features - 1

    @torch.no_grad()
    def __call__(self, x: Integer[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
        """Counts (batch, N) for sequences (batch, N) of residues 0 .. M-1.

        Raises:
            ValueError: other numbers, another N; an output that is not an integer.
        """
        modulus, tokens = self.own.one_hot.out_features, self.attention.layer.embed_dim - 1
        if x.shape[-1] != tokens or not bool(((x >= 0) & (x < modulus)).all()):
            raise ValueError(f"accepted are sequences of {tokens} residues 0 .. {modulus - 1}")
        content = x.unsqueeze(-1).to(self.count.total.weight.dtype)
        others = self.digits(self.attention(content)).flatten(-3, -2)[..., : tokens - 1, :].sum(-2)
        own = self.own(content[..., 0]).squeeze(-2)
        counts = self.count(torch.cat((own, others + own), dim=-1))
        if not torch.equal(counts, counts.round()):
            raise ValueError("the network's output is not an integer")
        return counts.long()


def network(layer: str, tokens: int, modulus: int, coefficient: int, bits: int = BITS) -> PackedNetwork:
    """The whole construction.

    Args:
        layer: as `packed`.
        tokens: as `packed`.
        modulus: as `packed`.
        coefficient: G, any integer.
        bits: as `packed`.

    Raises:
        ValueError: as `packed`; so large that float64 may not hold the sums of `HistogramCount`.
    """
    attention = packed(layer, tokens, modulus, bits)
    if rounding_bound(tokens, modulus) >= 0.5:
        raise ValueError(f"N = {tokens} and M = {modulus} are too large for float64 to give integers")
    held = min(digits_held(modulus, bits), tokens - 1)
    return PackedNetwork(
        attention, Digits(modulus, held), Digits(modulus, 1), HistogramCount(tokens, modulus, coefficient)
    )
