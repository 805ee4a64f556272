"""Parity at a query token, read linearly, content anywhere: how many bits a layer can do, how many inputs go wrong.

- `parity_bits`, `least_errors`, `least_endpoint_errors`: by proof.
- `parity_capacity`: the first, measured: a layer with random weights and a fitted read-out does so many bits, and on
  one bit more the sum of `iha_theory.bounds.obstruction` is 0.
- `bits_reached`: of any module.

Proofs: docs/parity.md, whose setting holds here: tokens that see at most one bit each, the query token none; no MLP.
"""

import itertools
from dataclasses import dataclass
from math import comb
from typing import get_args

import torch
from torch import nn

from iha_theory.attention import kinds
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import Pattern
from iha_theory.bounds import obstruction
from iha_theory.capacity import KINDS, SEED, Kind, generic
from iha_theory.operators.numerical import call, frozen
from iha_theory.rounding import UNIT, require_count, require_one_of

MOST_BITS = 9
"""Measured up to here; the sum up to one bit more."""
WIDTH = 4
"""Of tokens, keys and values in the measured layers."""
OUT = 24
"""Width of their output: more than the rows that so many bits need."""
LAYERS = 4
"""With random weights, for the sum."""


@dataclass(frozen=True)
class ParityCapacity:
    """The most bits whose parity a layer computes.

    Attributes:
        bits: by proof; None where there is no bound.
        reached: measured, at most `MOST_BITS`: so many bits are computed with the weights at hand and a read-out that
            is fitted. A lower bound on what other weights do. None if the module cannot be run so.
        sum: largest |sum_x (-1)^|x| D g| / (G sum_x D) of some layers on bits + 1 bits; None if it was not computed.
        rounding: what `sum` may be by rounding.
        unbounded: whether the layer computes the parity of any number of bits, with other weights for each.
    """

    bits: int | None
    reached: int | None
    sum: float | None = None
    rounding: float | None = None
    unbounded: bool = False

    @property
    def holds(self) -> bool:
        """Whether nothing measured contradicts the proof: the bits are reached as far as measured, the sum is 0."""
        as_proved = self.bits is None or self.reached == min(self.bits, MOST_BITS)
        return as_proved and (self.sum is None or self.rounding is None or self.sum <= self.rounding)


def parity_bits(kind: Kind, heads: int, pseudo_heads: int | None = None, pattern: str = "softmax") -> int | None:
    """The most bits whose parity the layer can compute: the total degree R of its rows (docs/parity.md, Theorem 1).

    Softmax and hard: H; 2 H for Differential and 2-simplicial; H P for IHA. Linear: the degree of one term, 1, and 2
    for 2-simplicial and two layers (`TwoLayerAttention`, whose second layer's keys see the inputs). None for two layers
    of softmax, which compute the parity of any number of bits, and for hard ones, where no bound is known.

    Args:
        kind: the layer.
        heads: H.
        pseudo_heads: P, for "iha" only.
        pattern: "softmax", "linear" or "hard".

    Raises:
        ValueError: an unknown kind or pattern, a number below 1, P without IHA or IHA without P.
    """
    require_one_of("kind", kind, KINDS)
    require_one_of("pattern", pattern, get_args(Pattern))
    if (pseudo_heads is None) != (kind != "iha"):
        raise ValueError(f"pseudo_heads goes with iha, and only with it; got {pseudo_heads!r} for {kind}")
    rows = require_count("heads", heads) * (1 if pseudo_heads is None else require_count("pseudo_heads", pseudo_heads))
    if pattern == "linear":
        return 2 if kind in ("simplicial", "two-layer") else 1
    if kind == "two-layer":
        return None
    return 2 * rows if kind in ("differential", "simplicial") else rows


def least_errors(bits: int, rows: int) -> int:
    """E(n, R): on so many of the 2^n inputs at least, a layer of total degree R has a wrong sign (Theorem 4).

        E(n, R) = sum_{i <= (n-R-1)/2} C(n, i)  (n - R odd),   2 sum_{i <= (n-R-2)/2} C(n-1, i)  (even),   0  (R >= n)

    Args:
        bits: n.
        rows: R.

    Raises:
        ValueError: a number below 1.
    """
    missing = require_count("bits", bits) - require_count("rows", rows)
    if missing <= 0:
        return 0
    if missing % 2:
        return sum(comb(bits, i) for i in range((missing + 1) // 2))
    return 2 * sum(comb(bits - 1, i) for i in range(missing // 2))


def least_endpoint_errors(pointers: int, rows: int) -> int:
    """The same for endpoint selection with k pointers, 2^(2k-1) inputs (docs/parity.md, Section 8; not known as tight).

        E(k, R) + sum_{j < k} 2^(2k-1-2j) E(j, R)

    A layer of pointers is a permutation if its two pointers differ, and else forgets the path. Inputs whose last j - 1
    layers are permutations, the one before not, fall into families of 2^j on which the answer is a parity of j bits.

    Args:
        pointers: k.
        rows: R.

    Raises:
        ValueError: a number below 1.
    """
    k = require_count("pointers", pointers)
    return least_errors(k, rows) + sum(2 ** (2 * k - 1 - 2 * j) * least_errors(j, rows) for j in range(1, k))


def parity_capacity(
    kind: Kind,
    heads: int,
    pseudo_heads: int | None = None,
    collapse: str | None = None,
    pattern: str = "softmax",
) -> ParityCapacity:
    """`parity_bits`, measured with random weights.

    Args:
        kind: the layer.
        heads: H.
        pseudo_heads: P, for "iha" only.
        collapse: "global" or "per_head", for "iha" only.
        pattern: "softmax" or "linear".

    Raises:
        ValueError: as `parity_bits` and the layers.
    """
    bits = parity_bits(kind, heads, pseudo_heads, pattern)
    own = {} if pseudo_heads is None else {"pseudo_heads": pseudo_heads, "collapse": collapse}
    options = kinds.KINDS[kind](heads=heads, head_dim=WIDTH, **own)
    sizes = {"content": WIDTH, "tokens": 1, "pattern": pattern, "out": OUT}
    layer = generic(lambda: options.make(WIDTH, WIDTH, WIDTH, **sizes))
    reached = bits_reached(layer, WIDTH)
    if bits is None or bits > MOST_BITS:
        return ParityCapacity(bits, reached, unbounded=bits is None)
    runs = obstruction.run(layer, bits + 1, weights=LAYERS)  # type: ignore[arg-type]
    at = int((runs.sums / runs.bound).argmax())
    return ParityCapacity(bits, reached, float(runs.sums[at]), float(runs.bound[at]))


@torch.no_grad()
def bits_reached(module: nn.Module, embed_dim: int) -> int:
    """The most bits up to `MOST_BITS` whose parity a module computes as it is, by self-attention and a linear read-out.

    A bit is one of two random tokens, the query token a third, behind them; the output there is read, and u, theta are
    fitted to (-1)^|x| on all x. They count if every sign is right, with a margin of 1/2 and rounding below 1/10.

    Args:
        module: with the call (query, key, value); of a tuple the first output counts. Its widths are embed_dim.
        embed_dim: of the tokens.

    Raises:
        ValueError: an output of another shape or dtype.
    """
    tokens = torch.randn(3, embed_dim, generator=torch.Generator().manual_seed(SEED), dtype=torch.float64)
    copied = frozen(module)
    for bits in range(1, MOST_BITS + 1):
        x = torch.tensor(list(itertools.product((0, 1), repeat=bits)))
        signs = 1 - 2 * (x.sum(1) % 2).double()
        inputs = tokens[torch.cat((x, torch.full((len(x), 1), 2)), 1)]
        query = inputs[:, -1:] if isinstance(module, AttentionLayer) else inputs
        outputs = call(copied, query, inputs, inputs, {})[:, -1]
        features = torch.cat((torch.ones_like(signs)[:, None], outputs), 1)
        features = features / features.norm(dim=0).clamp_min(UNIT)
        u = torch.linalg.lstsq(features, signs[:, None], rcond=UNIT, driver="gelsd").solution[:, 0]
        noise = float((features.abs() @ u.abs()).max()) * 10 * UNIT
        if float((features @ u * signs).min()) < 0.5 or noise > 0.1:
            return bits - 1
    return MOST_BITS
