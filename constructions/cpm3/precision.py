"""Which workspaces and counts are exact in float32 and bfloat16 (docs/results.md T9).

A type with a significand of p bits (unit roundoff u = 2^-p; p = 53, 24, 11, 8 for float64, float32, float16, bfloat16)
holds an integer n > 0 if and only if n / 2^v < 2^p, 2^v the largest power of two that divides n (within the type's
range); so all integers up to 2^p = 1/u, and 2^p + 1 is the first that it does not hold.

**Attention.** Hard attention at one-hot positions only copies: logits are 0 and 1 and every sum has one term that is
not 0, so the number of tokens N does not matter. MHA copies x, and is exact if and only if the type holds x. IHA's
values carry a factor H = ceil(sqrt N): it is exact if the type holds H x, since (H x)/H is then divided without a
remainder. So tokens up to 2^p/H are safe, and up to 2^p where H is a power of two.

The first x whose H x the type does not hold is copied wrong if H <= 2^((p-1)/2). *Proof.* Let H be odd: powers of two
change nothing. Of two x in a row one is odd, so x <= 2^p/H + 2; and H x, between 2^p and 2^{p+1}, is odd and rounded by
1, so the quotient is off by 1/H. It rounds back to x only if 1/H is at most half the spacing at x, 2^{a-p} with
2^a <= x < 2^{a+1}. Then 0 < H 2^a - 2^p <= 2H, so 2^a <= 2H / (H - 2^{p-a}) <= 2 + 2^{p-a+1}. This needs
a <= (p+1)/2, so H > 2^{p-a} >= 2^((p-1)/2). ∎ (Beyond that it can: bfloat16, H = 17, x = 17.)

**MLP.** Counts go up to N^2, which is reached for M = 1: all are exact if and only if N <= 2^(p/2): 4096 tokens in
float32, 16 in bfloat16. The integers z = x_0 + (G mod M) x_s + x_t, x >= 0, must be held too: safe up to
(2 + G mod M) max x <= 2^p.
"""

import copy
from dataclasses import replace
from itertools import count
from math import isqrt

import torch
from jaxtyping import Shaped
from torch import Tensor

from constructions.construction import Construction
from iha_theory import blueprint
from iha_theory.operators.weights import with_positions


def significand_bits(dtype: torch.dtype) -> int:
    """p: torch's eps is 2^(1 - p)."""
    return 1 - round(torch.tensor(torch.finfo(dtype).eps, dtype=torch.float64).log2().item())


def holds(integer: int, bits: int) -> bool:
    """Whether a significand of p bits holds an integer exactly."""
    n = abs(integer)
    return n == 0 or (n // (n & -n)).bit_length() <= bits


@blueprint.theorem(
    "precision",
    "which tokens and counts are exact with a significand of p bits",
    uses=("workspace", "pair-count"),
    check="exact",
)
def largest_token(heads: int, bits: int) -> int:
    """The largest X such that x and H x are held for all x <= X. heads: H for IHA, 1 for MHA.

    With o the odd part of H, that is up to 2^p / o, and perhaps the next x too, if it is even: o x is odd at the latest
    for the one after, and above 2^p.

    >>> largest_token(1, 8), largest_token(3, 8), largest_token(4, 8)
    (256, 86, 256)
    """
    odd = heads // (heads & -heads)
    return next(x for x in count(2**bits // odd) if not (holds(x + 1, bits) and holds(odd * (x + 1), bits)))


def largest_tokens_counted(bits: int) -> int:
    """The largest N such that all counts 0 .. N^2 are held: floor(2^(p/2))."""
    return isqrt(2**bits)


@torch.no_grad()
def first_wrong_token(construction: Construction, dtype: torch.dtype, tokens: range) -> int | None:
    """The first x of `tokens` that the workspace, run in a lower precision, does not copy to every slot; None if none.

    Measured: one sequence for each x, all of whose tokens are x.
    """
    layer = copy.deepcopy(construction.layer).to(dtype)
    low = replace(construction, layer=layer)
    n = layer.embed_dim - construction.width
    x = torch.tensor(list(tokens), dtype=torch.float64)
    wrong = _run(low, x.to(dtype)[:, None].expand(-1, n)).double() != x[:, None, None]
    bad = wrong.flatten(1).any(1)
    return tokens[int(bad.nonzero()[0])] if bool(bad.any()) else None


def _run(construction: Construction, x: Shaped[Tensor, "batch N"]) -> Shaped[Tensor, "batch N slots"]:
    inputs = with_positions(x.unsqueeze(-1))
    at = with_positions(torch.zeros_like(x[:1]).unsqueeze(-1))
    return construction.pick(construction.layer(at, at, inputs))
