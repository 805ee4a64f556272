"""Parity by one layer of softmax attention, read linearly at a query token (docs/parity.md, docs/results.md T16).

**Task.** n bit tokens and a query token, last. The output at the query token is (-1)^c, c the number of ones.

**Input.** [s, q]: s = 1 for bit 1, -1 for bit 0 and 0 at the query token; q = 1 at the query token and 0 elsewhere. No
positions are needed: parity does not depend on them.

**A softmax row.** Queries log(r) q, keys s and values s: from the query token the bits have weights r and 1/r and the
query token 1, so that the row gives

    f_r(c) = (r c - (n - c)/r) / d_r(c),      d_r(c) = 1 + r c + (n - c)/r > 0.                                     (1)

For n different r > 0 the n + 1 functions 1, f_r on c = 0, ..., n are independent. *Proof.* d_r = (r - 1/r)(c + tau)
with tau = (r + n)/(r^2 - 1) for r != 1, and the tau differ: tau - tau' = (r' - r)(r r' + 1 + n (r + r')) / ((r^2 - 1)
(r'^2 - 1)). f_r is a constant plus a multiple of 1/(c + tau), not 0 since the numerator of (1) at c = -tau is
-(r^2 + 1 + 2 n r)/(r^2 - 1); f_1 = (2 c - n)/(n + 1). So a combination is p(c) / prod (c + tau) with deg p <= n. If it
is 0 at n + 1 points then p = 0, and then all coefficients are 0, as the poles differ and 1, c are independent. ∎ So
there are unique theta, w_1, ..., w_n with

    (-1)^c = theta + sum_m w_m f_{r_m}(c),       c = 0, ..., n.                                                     (2)

- MHA, n heads: head m has r_m, and w_m in the output projection.
- IHA, H heads and P pseudo-heads with H P >= n: base query, key and value are the same in every head, pseudo-query
  (h, p) is scaled by log r_{hP+p} (alpha_q), keys and values are copied to all pseudo-heads, which leaves every
  average as it is, and the per-head collapse has w_{hP+p}. With P = H, ceil(sqrt n) heads.

theta is the output projection's bias; the other biases are 0.

**Nodes.** (2) holds for any, but the w grow: w = 5e11 for r = 2, ..., 10 (with keys of 0 and 1). `nodes` are Chebyshev
nodes in the angle, tan(pi/4 (1 + cos((2 j - 1) pi / 2 n))), as rationals: |w| <= 1.3e4 for nine bits, 2e9 for sixteen.

**Least.** No layer with fewer softmax rows does it, whatever its width, precision and embedding: docs/parity.md,
Theorem 1.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import flint
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from constructions.construction import Counted
from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

MOST_BITS = 20
"""The sign is right in float64 up to here, with a margin above 0.99."""
DENOMINATOR = 8
LAYERS = ("mha", "iha")


def nodes(rows: int) -> tuple[Fraction, ...]:
    """r_1 > ... > r_n of the module docstring, with denominators (below 1: numerators) up to 8; r and 1/r in pairs."""
    angles = [math.pi / 4 * (1 + math.cos((2 * j - 1) * math.pi / (2 * rows))) for j in range(1, rows // 2 + 1)]
    large = [Fraction(math.tan(angle)).limit_denominator(DENOMINATOR) for angle in angles]
    middle = [Fraction(1)] if require_count("rows", rows) % 2 else []
    return (*large, *middle, *(1 / r for r in reversed(large)))


def row_output(r: Fraction, ones: int, bits: int) -> Fraction:
    """f_r(c) of (1), exactly."""
    up, down = r * ones, (bits - ones) / r
    return (up - down) / (1 + up + down)


def readout(bits: int, rs: tuple[Fraction, ...]) -> tuple[Fraction, tuple[Fraction, ...]]:
    """theta and w_1, ..., w_n of (2), exactly, for n different r > 0.

    For R < n of them: such that (2) holds at the R + 1 values of c in the middle, from ceil((n - R) / 2) on. The output
    is p(c) / prod (c + tau) with deg p <= R, so it changes its sign between these values and nowhere else, which is
    right on as many inputs as R rows can be (docs/parity.md, Theorem 4).
    """
    size, first = len(rs) + 1, (bits - len(rs) + 1) // 2
    values = range(first, first + size)
    rows = [[Fraction(1), *(row_output(r, c, bits) for r in rs)] for c in values]
    matrix = flint.fmpq_mat(size, size, [flint.fmpq(x.numerator, x.denominator) for row in rows for x in row])
    signs = flint.fmpq_mat(size, 1, [flint.fmpq((-1) ** c) for c in values])
    theta, *w = (Fraction(int(x.p), int(x.q)) for x in matrix.solve(signs).entries())
    return theta, tuple(w)


@dataclass(frozen=True)
class ParityLayer(Counted):
    """A layer with the weights of the module docstring. layer: in float64, on inputs of width 2. bits: n."""

    layer: MultiHeadAttention | InterleavedHeadAttention
    bits: int

    @torch.no_grad()
    def __call__(self, bits: Integer[Tensor, "batch n"]) -> Float[Tensor, " batch"]:
        """The output at the query token, near (-1)^c.

        Raises:
            ValueError: another number of bits than n, or values other than 0 and 1.
        """
        x = inputs(bits)
        if bits.shape[1] != self.bits:
            raise ValueError(f"{bits.shape[1]} bits for a layer of {self.bits}")
        return self.layer(x, x, x)[:, -1, 0]


def inputs(bits: Integer[Tensor, "batch n"]) -> Float[Tensor, "batch tokens 2"]:
    """[s, q] for the bits and the query token behind them, float64."""
    if not bool(((bits == 0) | (bits == 1)).all()):
        raise ValueError("bits are 0 and 1")
    x = torch.zeros(len(bits), bits.shape[1] + 1, 2, dtype=torch.float64)
    x[:, :-1, 0], x[:, -1, 1] = 2 * bits.double() - 1, 1
    return x


@blueprint.construction(
    "parity-rows",
    "parity of n bits by n softmax rows: n heads of MHA, ceil(n/P) of IHA",
    uses=("parity-task", "softmax-rows", "mha", "iha"),
    check="exact",
    proof="docs/parity.md, Theorem 2",
)
def parity(layer: str, bits: int, pseudo_heads: int | None = None, *, rows: int | None = None) -> ParityLayer:
    """Parity of n bits by "mha" with n heads, or by "iha" with H = P = ceil(sqrt n), or H = ceil(n / P) for a given P.

    With R < n rows asked for, the same with R in place of n: right on as many inputs as R rows can be (`readout`).

    Args:
        layer: "mha" or "iha".
        bits: n, from 1 to 20.
        pseudo_heads: P of IHA.
        rows: R, at most n, which it is by default.

    Raises:
        ValueError: another layer, n, P or R below 1, more rows than bits, or more than 20 bits, where float64 may not
            give the sign.
    """
    require_one_of("layer", layer, LAYERS)
    if require_count("bits", bits) > MOST_BITS:
        raise ValueError(f"parity is built for up to {MOST_BITS} bits, got {bits}")
    if (rows := bits if rows is None else rows) > bits:
        raise ValueError(f"{bits} bits take at most {bits} rows, got {rows}")
    rs = nodes(rows)
    theta, w = readout(bits, rs)
    scales, weights = (torch.tensor(x, dtype=torch.float64) for x in ([math.log(r) for r in rs], [*map(float, w)]))
    common = {"head_dim": 1, "value_head_dim": 1, "out_dim": 1, "bias": True, "scale": 1.0, "dtype": torch.float64}
    if layer == "mha":
        built: MultiHeadAttention | InterleavedHeadAttention = MultiHeadAttention(2, rows, **common)
    else:
        heads = pseudo = ceil_sqrt(rows)
        if pseudo_heads is not None:
            pseudo = require_count("pseudo_heads", pseudo_heads)
            heads = -(-rows // pseudo)
        built = InterleavedHeadAttention(2, heads, num_pseudo_heads=pseudo, collapse="per_head", **common)
    assert built.out_proj is not None
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.zero_()
        built.q_proj.weight[:, 1] = 1
        built.k_proj.weight[:, 0] = 1
        built.v_proj.weight[:, 0] = 1
        built.out_proj.bias.fill_(float(theta))
        if isinstance(built, InterleavedHeadAttention):
            shape = built.num_heads, built.num_pseudo_heads
            pad = (0, shape[0] * shape[1] - rows)
            own = torch.eye(built.num_heads, dtype=torch.float64)[:, :, None]
            built.alpha_q.copy_(own * torch.nn.functional.pad(scales, pad).view(shape))
            built.alpha_k.copy_(own.expand_as(built.alpha_k))
            built.alpha_v.copy_(own.expand_as(built.alpha_v))
            built.collapse.copy_(torch.nn.functional.pad(weights, pad).view(shape))
            built.out_proj.weight.fill_(1)
        else:
            built.q_proj.weight.mul_(scales[:, None])
            built.out_proj.weight.copy_(weights)
    return ParityLayer(built, bits)
