"""Parity by one layer of softmax attention, read linearly at a query token (docs/results.md T16, docs/parity.md).

**Task.** k bit tokens and a query token, last. The output at the query token is (-1)^c, c the number of ones.

**Input.** [b, q, 1 - q]: the bit (0 at the query token), whether it is the query token, whether it is not; 3 wide. No
positions are needed: parity does not depend on them.

**A softmax row.** Queries log(rho) q and keys b: from the query token, a token with bit 1 has weight rho and any other
1, so that values b average to

    f_rho(c) = rho c / (k + 1 + c (rho - 1)).

For k different rho > 0 the functions f_rho on c = 1, ..., k are independent: divided by rho c they are 1 / (x_c + rho),
x_c = (k + 1)/c - 1, and the Cauchy matrix of different x_c >= 1/k and different rho is invertible. So there are unique
a_1, ..., a_k with sum_m a_m f_{rho_m}(c) = (-1)^c - 1 for c = 1, ..., k, hence for c = 0 too, and

    (-1)^c = 1 + sum_m a_m f_{rho_m}(c),       c = 0, ..., k.                                                       (1)

- MHA, k heads: head m has rho_m, and a_m in the output projection.
- IHA, H heads and P pseudo-heads with H P >= k: base query, key and value are the same in every head, pseudo-query
  (h, p) is scaled by log rho_{hP+p} (alpha_q), keys and values are copied to all pseudo-heads, which leaves every
  average as it is, and the per-head collapse has a_{hP+p}. With P = H, ceil(sqrt k) heads.

The constant is the average of q + (1 - q) = 1, in a second value coordinate of the first head.

**Nodes.** rho = 2, ..., k + 1 would do, with |a| up to 1e4 for k = 4; at 16 bits float64 loses the sign. The a have to
be large anyway, since (1) alternates. `nodes` takes rho between 1/32 and 32 in a geometric sequence, of which the poles
of f_rho lie on both sides of 0, ..., k: about 2e10 for k = 16.

**Least.** No layer with fewer softmax rows does it, whatever its width, precision and embedding: docs/parity.md.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import flint
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.rounding import ceil_sqrt, require_count

MOST_BITS = 16
"""`nodes` keeps the sign right in float64 up to here."""
DENOMINATOR = 64
LAYERS = ("mha", "iha")


def nodes(rows: int) -> tuple[Fraction, ...]:
    """rho_1 < ... < rho_r, rationals near a geometric sequence from 1/32 to 32; (2,) for r = 1."""
    if require_count("rows", rows) == 1:
        return (Fraction(2),)
    exponents = [Fraction(10 * m, rows - 1) - 5 for m in range(rows)]
    large = [Fraction(2.0 ** float(abs(e))).limit_denominator(DENOMINATOR) for e in exponents]
    found = [1 / x if e < 0 else x for x, e in zip(large, exponents, strict=True)]
    assert len(set(found)) == rows
    return tuple(found)


def average(rho: Fraction, ones: int, bits: int) -> Fraction:
    """f_rho(c), exactly."""
    return rho * ones / (bits + 1 + ones * (rho - 1))


def residues(bits: int, rhos: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """a_1, ..., a_k of (1), exactly, for k different rho > 0."""
    entries = [average(rho, c, bits) for c in range(1, bits + 1) for rho in rhos]
    matrix = flint.fmpq_mat(bits, bits, [flint.fmpq(x.numerator, x.denominator) for x in entries])
    right = flint.fmpq_mat(bits, 1, [flint.fmpq((-1) ** c - 1) for c in range(1, bits + 1)])
    return tuple(Fraction(int(x.p), int(x.q)) for x in matrix.solve(right).entries())


@dataclass(frozen=True)
class ParityLayer:
    """A layer with the weights of the module docstring. layer: in float64, on inputs of width 3. bits: k."""

    layer: MultiHeadAttention | InterleavedHeadAttention
    bits: int

    @property
    def heads(self) -> int:
        """H."""
        return self.layer.num_heads

    @property
    def pseudo_heads(self) -> int:
        """P; 1 for MHA."""
        return getattr(self.layer, "num_pseudo_heads", 1)

    @torch.no_grad()
    def __call__(self, bits: Integer[Tensor, "batch k"]) -> Float[Tensor, " batch"]:
        """The output at the query token, near (-1)^c.

        Raises:
            ValueError: another number of bits than k, or values other than 0 and 1.
        """
        x = inputs(bits)
        if bits.shape[1] != self.bits:
            raise ValueError(f"{bits.shape[1]} bits for a layer of {self.bits}")
        return self.layer(x, x, x)[:, -1, 0]


def inputs(bits: Integer[Tensor, "batch k"]) -> Float[Tensor, "batch tokens 3"]:
    """[b, q, 1 - q] for the bits and the query token behind them, float64."""
    if not bool(((bits == 0) | (bits == 1)).all()):
        raise ValueError("bits are 0 and 1")
    x = torch.zeros(len(bits), bits.shape[1] + 1, 3, dtype=torch.float64)
    x[:, :-1, 0], x[:, :-1, 2], x[:, -1, 1] = bits.double(), 1, 1
    return x


def parity(layer: str, bits: int, pseudo_heads: int | None = None) -> ParityLayer:
    """Parity of k bits by "mha" with k heads, or by "iha" with H = P = ceil(sqrt k), or H = ceil(k / P) for a given P.

    Args:
        layer: "mha" or "iha".
        bits: k, from 1 to 16.
        pseudo_heads: P of IHA.

    Raises:
        ValueError: another layer, k or P below 1, k above 16, where float64 may not give the sign.
    """
    if layer not in LAYERS:
        raise ValueError(f"unknown layer {layer!r}: accepted are {', '.join(LAYERS)}")
    if require_count("bits", bits) > MOST_BITS:
        raise ValueError(f"parity is built for up to {MOST_BITS} bits, got {bits}")
    rhos = nodes(bits)
    scales = torch.tensor([math.log(rho) for rho in rhos], dtype=torch.float64)
    weights = torch.tensor([float(a) for a in residues(bits, rhos)], dtype=torch.float64)
    common = {"head_dim": 1, "value_head_dim": 2, "out_dim": 1, "scale": 1.0, "dtype": torch.float64}
    if layer == "mha":
        built: MultiHeadAttention | InterleavedHeadAttention = MultiHeadAttention(3, bits, **common)
    else:
        heads = pseudo = ceil_sqrt(bits)
        if pseudo_heads is not None:
            pseudo = require_count("pseudo_heads", pseudo_heads)
            heads = -(-bits // pseudo)
        built = InterleavedHeadAttention(3, heads, num_pseudo_heads=pseudo, collapse="per_head", **common)
    assert built.out_proj is not None
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
        built.q_proj.weight[:, 1] = 1
        built.k_proj.weight[:, 0] = 1
        built.v_proj.weight[0::2, 0] = 1  # the bit
        built.v_proj.weight[1, 1:] = 1  # the constant, in the first head
        if isinstance(built, InterleavedHeadAttention):
            rows = built.num_heads * built.num_pseudo_heads
            pad = (0, rows - bits)
            shape = built.num_heads, built.num_pseudo_heads
            own = torch.eye(built.num_heads, dtype=torch.float64)[:, :, None]
            built.alpha_q.copy_(own * torch.nn.functional.pad(scales, pad).view(shape))
            built.alpha_k.copy_(own.expand_as(built.alpha_k))
            built.alpha_v.copy_(own.expand_as(built.alpha_v))
            built.collapse.copy_(torch.nn.functional.pad(weights, pad).view(shape))
            built.out_proj.weight[:, 0::2] = 1
            built.out_proj.weight[:, 1] = 1 / built.collapse[0].sum()  # it comes scaled by the first head's sum
        else:
            built.q_proj.weight.mul_(scales[:, None])
            built.out_proj.weight[:, 0::2] = weights
            built.out_proj.weight[:, 1] = 1
    return ParityLayer(built, bits)
