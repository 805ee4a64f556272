"""CPM-3 without a workspace: one head of uniform attention and a ReLU MLP (docs/results.md T8).

With c the histogram of the residues, CPM_i = f[-x_i mod M], f[r] = sum_a c[a] c[(r - G a) mod M].

**Attention.** The tokens are one-hot residues e in R^M. One head of MHA has the same score for every pair of tokens and
values e, so every token gets the histogram: c from linear attention, c/N from softmax or hard attention. The MLP reads
it beside the token's own e, as through a residual connection.

**MLP.** Two hidden layers.

1. Squares of c_a and of c_a + c_b, a < b: on the integers 0 .. N, s^2 = ReLU(s) + 4 sum_{j=1}^{floor(N/2)}
   ReLU(s - 2j + 1/2). *Proof.* On [2j - 1/2, 2j + 3/2] the right side has slope 4j + 1, as the line through
   (2j, 4j^2) and (2j + 1, (2j + 1)^2) has, and both are 0 at 0. ∎ (With knots between the integers, half as many units
   as with a knot at each.) No argument is above N, since c sums to N. Then c_a c_b =
   ((c_a + c_b)^2 - c_a^2 - c_b^2)/2, and f is a sum of such products. M more units carry e.
2. For each r a gate ReLU(f[r] - N^2 (1 - e[-r mod M])): f[r] if -x_i = r mod M, else 0, since 0 <= f <= N^2.

The output sums the gates. Hidden units: M(M+1)/2 (1 + floor(N/2)) + 2M, and one head for every N and M.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.attention.patterns import Pattern
from iha_theory.rounding import UNIT, require_count


class HistogramCount(nn.Module):
    """The MLP: (…, 2M) -> (…,), from a token's one-hot residue and the histogram.

    Args:
        tokens: N, the largest number of tokens.
        modulus: M >= 1.
        coefficient: G, any integer.
        factor: the histogram's columns hold c / factor.

    Raises:
        ValueError: N or M below 1.
    """

    def __init__(self, tokens: int, modulus: int, coefficient: int, factor: int = 1) -> None:
        super().__init__()
        require_count("tokens", tokens)
        require_count("modulus", modulus)
        pairs = [(a, b) for a in range(modulus) for b in range(a, modulus)]
        knots = torch.tensor([0.0, *(2 * j - 0.5 for j in range(1, tokens // 2 + 1))], dtype=torch.float64)
        heights = torch.tensor([1.0, *([4.0] * (tokens // 2))], dtype=torch.float64)
        squares = len(pairs) * len(knots)
        self.squares = nn.Linear(2 * modulus, squares + modulus, dtype=torch.float64)
        self.select = nn.Linear(squares + modulus, modulus, dtype=torch.float64)
        self.total = nn.Linear(modulus, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            for linear in (self.squares, self.select):
                linear.weight.zero_()
                linear.bias.zero_()
            self.total.weight.fill_(1)
            own = torch.eye(modulus, dtype=torch.float64)
            self.squares.weight[squares:, :modulus] = own
            sums = self.squares.weight[:squares].view(len(pairs), len(knots), 2 * modulus)
            self.squares.bias[:squares] = -knots.repeat(len(pairs))
            at = {pair: p for p, pair in enumerate(pairs)}
            products = self.select.weight[:, :squares].view(modulus, len(pairs), len(knots))
            for p, (a, b) in enumerate(pairs):
                sums[p, :, modulus + a] = factor
                sums[p, :, modulus + b] = factor
            for r in range(modulus):
                for a in range(modulus):
                    b = (r - coefficient * a) % modulus
                    if a == b:
                        products[r, at[a, a]] += heights
                    else:
                        products[r, at[min(a, b), max(a, b)]] += heights / 2
                        products[r, at[a, a]] -= heights / 2
                        products[r, at[b, b]] -= heights / 2
                self.select.weight[r, squares + -r % modulus] = tokens**2
            self.select.bias.fill_(-(tokens**2))

    @property
    def hidden_units(self) -> int:
        """Number of ReLUs, counted."""
        return self.squares.out_features + self.select.out_features

    def forward(self, inputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """The counts, (…,), for [one-hot residue, histogram], (…, 2M)."""
        hidden = torch.relu(self.squares(inputs))
        return self.total(torch.relu(self.select(hidden))).squeeze(-1)


@dataclass(frozen=True)
class HistogramNetwork:
    """One head of MHA, then the MLP: sequences of at most `tokens` integers in, counts out."""

    attention: MultiHeadAttention
    mlp: HistogramCount
    modulus: int
    tokens: int

    @property
    def module(self) -> nn.ModuleList:
        """All parameters, for counting and saving."""
        return nn.ModuleList([self.attention, self.mlp])

    @torch.no_grad()
    def outputs(self, x: Integer[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens"]:
        """The MLP's outputs, before rounding.

        Raises:
            ValueError: no integers, more tokens than N; or fewer, unless the attention is linear.
        """
        if x.is_floating_point() or x.dtype == torch.bool:
            raise ValueError(f"tokens of dtype {x.dtype}: accepted are integers")
        least = 1 if self.attention.pattern == "linear" else self.tokens
        if not least <= x.shape[-1] <= self.tokens:
            raise ValueError(f"sequences of {x.shape[-1]} tokens: accepted are {least} to {self.tokens}")
        e = nn.functional.one_hot(x.long() % self.modulus, self.modulus).double()
        return self.mlp(torch.cat((e, self.attention(e, e, e)), dim=-1))

    def __call__(self, x: Integer[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
        """The counts (batch, tokens) of integer sequences (batch, tokens): the outputs rounded."""
        return self.outputs(x).round().long()


@blueprint.construction(
    "histogram",
    "one head of uniform attention and a ReLU MLP solve CPM-3 for every N and M",
    uses=("mha", "cpm3"),
    check="exact",
)
def network(tokens: int, modulus: int, coefficient: int, pattern: Pattern = "linear") -> HistogramNetwork:
    """The whole construction, for sequences of N tokens; with linear attention for shorter ones too.

    Linear attention gives c itself. Then every weight and partial sum is a multiple of 1/2, and float64 is exact while
    none exceeds 2^52: see `rounding_bound`. Softmax gives c/N to rounding; then the outputs, rounded to integers, are
    exact while `rounding_bound` is below 1/2.

    Args:
        tokens: N.
        modulus: M.
        coefficient: G, any integer.
        pattern: "linear", "softmax" or "hard".

    Raises:
        ValueError: N or M below 1, or so large that float64 may not give the right integers.
    """
    mlp = HistogramCount(tokens, modulus, coefficient, factor=1 if pattern == "linear" else tokens)
    if rounding_bound(tokens, modulus) >= 0.5:
        raise ValueError(f"N = {tokens} and M = {modulus} are too large for float64 to give integers")
    attention = MultiHeadAttention(
        modulus, 1, head_dim=1, value_head_dim=modulus, out_proj=False, pattern=pattern, scale=1.0, dtype=torch.float64
    )
    with torch.no_grad():
        attention.q_proj.weight.fill_(1)  # <1, e> = 1: every score is 1
        attention.k_proj.weight.fill_(1)
        attention.v_proj.weight.copy_(torch.eye(modulus))
    return HistogramNetwork(attention, mlp, modulus, tokens)


def rounding_bound(tokens: int, modulus: int) -> float:
    """A bound on the error of the outputs before rounding, with softmax or hard attention: M^2 N^3 (31 + 7 M^2) u.

    u = 2^-53. *Proof*, to first order; the constants are rounded up enough for the rest. N times an entry of the
    attention's output is c_a with a relative error of at most (N + 4) u: of 1/N, of a sum of N terms, of N times it. So
    an argument s <= N of a square is off by N (N + 4) u, and its square by 2N + 1 times that, the largest slope: by at
    most 15 N^3 u. The 1 + N/2 units of a square are positive terms that sum to s^2: up to 4 N^3 u more, which makes
    28.5 M N^3 u for the M products in f[r], of 3 halves of squares each. The sum has at most M^2 (1 + N) terms, whose
    sizes sum to at most 1.5 M N^2 + 2 N^2: rounding it adds at most 7 M^3 N^3 u. Every one of the M gates may be off by
    as much, and the last sum adds little, being of one number up to N^2 and of errors. ∎

    With linear attention nothing is rounded where this is below 1/2, for the sizes above are far below 2^52 then.
    """
    return modulus**2 * tokens**3 * (31 + 7 * modulus**2) * UNIT


def histogram_units(tokens: int, modulus: int) -> int:
    """Hidden units in closed form: M(M+1)/2 (1 + floor(N/2)) + 2M."""
    return modulus * (modulus + 1) // 2 * (1 + tokens // 2) + 2 * modulus


def histogram_parameters(tokens: int, modulus: int) -> int:
    """Parameters in closed form: M^2 + 2M + S (2M + 1) + M (S + 1) + M, with S = M(M+1)/2 (1 + floor(N/2)) + M."""
    first = histogram_units(tokens, modulus) - modulus
    return 2 * modulus + modulus**2 + first * (2 * modulus + 1) + modulus * (first + 1) + modulus
