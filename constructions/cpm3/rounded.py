"""CPM-3 with positions only and numbers that are rounded: fewer bits than exact ones take, for large M.

docs/cpm3.md, Theorem 6. A number is rounded by a step function that does not decrease. One number for each pair (i, j),

    y = x_0 + g x_i + x_j,    g = G mod M,    rounded to floor(y / M) + ceil(y / M),

which is even if and only if M divides y. As 0 <= y <= (g + 2)(M - 1), that takes 2 g + 4 values, whatever M is. The
pair (0, 0) is known from the own token, and equal numbers are there once: N - 1 of 2 bits for g = 0, (N - 1)(N + 2) / 2
of 3 bits for g = 1, at most N^2 - 1. An MLP adds up the pairs.

Each head, of linear attention, has queries I and as keys the transposed circulant matrix that writes y at every token.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from jaxtyping import Int, Integer
from sympy import QQ
from torch import Tensor

from constructions.construction import Construction, blocks
from constructions.cpm3.workspace import shift
from constructions.filter_bank.paper import selectors
from iha_theory import blueprint, exact
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import require_count


@dataclass(frozen=True)
class RoundedNetwork:
    """The layer and what counts behind it: sequences in, counts out.

    pairs: how many pairs each number stands for. alone: how many (g + 2) x_0 does. modulus, coefficient: M and G.
    """

    attention: Construction
    pairs: tuple[int, ...]
    alone: int
    modulus: int
    coefficient: int

    @property
    def values(self) -> int:
        """2 g + 4, how many values a rounded number takes at most."""
        return 2 * (self.coefficient % self.modulus) + 4

    @torch.no_grad()
    def numbers(self, x: Integer[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens r"]:
        """The rounded numbers, from 0 on, for sequences of residues 0 .. M-1.

        Raises:
            ValueError: other numbers, another N.
        """
        tokens = self.attention.layer.embed_dim - 1
        if x.shape[-1] != tokens or not bool(((x >= 0) & (x < self.modulus)).all()):
            raise ValueError(f"accepted are sequences of {tokens} residues 0 .. {self.modulus - 1}")
        y = self.attention(x.unsqueeze(-1).double())
        below = torch.div(y, self.modulus, rounding_mode="floor")
        return (below + -torch.div(-y, self.modulus, rounding_mode="floor")).long()

    def counts(
        self, numbers: Int[Tensor, "batch tokens r"], own: Integer[Tensor, "batch tokens"]
    ) -> Int[Tensor, "batch tokens"]:
        """Counts from the rounded numbers and the own tokens."""
        alone = (self.coefficient % self.modulus + 2) * own % self.modulus == 0
        return ((numbers % 2 == 0) * torch.tensor(self.pairs)).sum(-1) + self.alone * alone

    def __call__(self, x: Integer[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
        """Counts (batch, N) for sequences (batch, N) of residues 0 .. M-1."""
        return self.counts(self.numbers(x), x)


@blueprint.construction(
    "rounded-numbers",
    "(N - 1)(N + 2)/2 rounded numbers of 3 bits count for G = 1, and N - 1 of 2 bits for G = 0",
    uses=("mha", "cpm3"),
    check="exact",
    proof="docs/cpm3.md, Theorem 6",
)
def network(tokens: int, modulus: int, coefficient: int) -> RoundedNetwork:
    """The whole construction.

    Args:
        tokens: N >= 2.
        modulus: M >= 1.
        coefficient: G, any integer.

    Raises:
        ValueError: fewer than 2 tokens; M below 1, or so large that float64 does not hold (g + 2) M.
    """
    if require_count("tokens", tokens) < 2:
        raise ValueError(f"accepted are at least 2 tokens, got {tokens}: with one the own token is all")
    g = coefficient % require_count("modulus", modulus)
    if (g + 2) * modulus >= exact.LARGEST_INTEGER:
        raise ValueError(f"M = {modulus} and G = {coefficient} are too large for float64: (G mod M + 2) M < 2^53")
    forms: Counter[tuple[int, ...]] = Counter()
    for i, j in product(range(tokens), repeat=2):
        form = np.zeros(tokens, dtype=np.int64)
        np.add.at(form, [0, i, j], [1, g, 1])
        forms[tuple(form.tolist())] += 1
    alone = forms.pop((g + 2, *[0] * (tokens - 1)))
    behind = (np.arange(tokens) - np.arange(tokens)[:, None]) % tokens  # [n, m]: token m is n's own, the next, ...
    weights = PositionWeights(
        query=(shift(tokens, 0),) * len(forms),
        key=tuple(exact.matrix(np.array(form)[behind].T, QQ) for form in forms),
        value=selectors(1, 1) * len(forms),
        pattern="linear",
    )
    layer = Construction("rounded/mha", "docs/cpm3.md", to_layer(weights), blocks("y_{}", len(forms)), 1)
    return RoundedNetwork(layer, tuple(forms.values()), alone, modulus, coefficient)
