"""Parity at a query token, read linearly, content anywhere: how many bits a layer can do.

- `parity_bits`: by proof; for hard attention upper bounds only.
- `parity_capacity`: the first, measured: a layer with random weights and a fitted read-out does so many bits, and on
  one bit more the sum of `iha_theory.bounds.obstruction` is 0.
- `bits_reached`: of any module.

Proofs: docs/parity.md, whose setting holds here: tokens that see at most one bit each, the query token none; no MLP.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention import GatedLinearAttention, kinds
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.patterns import Pattern
from iha_theory.bounds import obstruction
from iha_theory.capacity import KEY_WINDOW, KINDS, SEED, Kind, generic
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
PROBES, ORDER, STEP = 32, 8, 2.0**-10
"""On how many inputs noise is measured, the order of its differences, and the step between tokens of size 1."""
SAFETY = 10
"""How many times the measured noise a sign must exceed."""


@dataclass(frozen=True)
class ParityCapacity:
    """The most bits whose parity a layer computes.

    Attributes:
        bits: by proof; None where there is no bound.
        reached: measured, at most `MOST_BITS`: so many bits are computed with the weights at hand and a read-out that
            is fitted. A lower bound on what other weights do. None if the module cannot be run so.
        sum: |sum_x (-1)^|x| D g| / (G sum_x D) on bits + 1 bits, of the layer among some where it is largest beside
            `rounding`; None if it was not computed.
        rounding: what `sum` may be by rounding.
        unbounded: whether the layer computes the parity of any number of bits, with other weights for each. Without
            it and without bits the number is open.
        made: whether the bits need tokens made for it, several for a bit; the measured layers have one, and reach less.
    """

    bits: int | None
    reached: int | None
    sum: float | None = None
    rounding: float | None = None
    unbounded: bool = False
    made: bool = False

    @property
    def holds(self) -> bool:
        """Whether the bits are as proved: reached as far as measured, and the sum is 0. False where none are proved."""
        if self.bits is None or self.reached is None:
            return False
        most = min(self.bits, MOST_BITS)
        as_proved = self.reached <= most if self.made else self.reached == most
        return as_proved and (self.sum is None or self.rounding is None or self.sum <= self.rounding)


UNBOUNDED = ("two-layer", "gated-linear", "forgetting")
"""Kinds that compute the parity of any number of bits, by softmax in two layers, by either pattern with gates."""


@blueprint.theorem(
    "parity-doubled",
    "differential, 2-simplicial and Strassen attention compute the parity of 2 H bits",
    uses=("parity-rows", "differential", "simplicial", "strassen"),
    check="numerical",
    proof="docs/parity.md, Theorem 3",
    tests="tests/iha_theory/bounds/test_parity_bounds.py",
)
def parity_bits(
    kind: Kind,
    heads: int,
    pseudo_heads: int | None = None,
    pattern: str = "softmax",
    key_window: int | None = None,
) -> int | None:
    """An upper bound on the bits whose parity the layer computes: the total degree R of its rows (docs/parity.md).

    Softmax: H; 2 H for Differential, 2-simplicial and Strassen; H P for IHA. Linear: the degree of one term, 1, and 2
    for 2-simplicial, Strassen and two layers (`TwoLayerAttention`, whose second layer's keys see the inputs). Some
    weights reach these (Theorems 2 and 3). Hard: upper bounds only, those of softmax, and at most 3 for IHA with H = 1
    (no virtual causality or rotary positions, Section 5). Multi-token, the query token alone: H c_k, by several tokens
    for a bit; linear 2. None for two layers of softmax and for gates between tokens (docs/attentions.md), which compute
    the parity of any number of bits, and for hard ones of these, where no bound is known.

    Args:
        kind: the layer.
        heads: H.
        pseudo_heads: P, for "iha" only.
        pattern: "softmax", "linear" or "hard".
        key_window: c_k, for "multi-token" only.

    Raises:
        ValueError: an unknown kind or pattern, a number below 1, an option that the kind lacks or does not have.
    """
    require_one_of("kind", kind, KINDS)
    require_one_of("pattern", pattern, get_args(Pattern))
    if (pseudo_heads is None) != (kind != "iha"):
        raise ValueError(f"pseudo_heads goes with iha, and only with it; got {pseudo_heads!r} for {kind}")
    if (key_window is None) != (kind != "multi-token"):
        raise ValueError(f"key_window goes with multi-token, and only with it; got {key_window!r} for {kind}")
    rows = require_count("heads", heads) * (1 if pseudo_heads is None else require_count("pseudo_heads", pseudo_heads))
    seen = 1 if key_window is None else require_count("key_window", key_window)
    if kind in ("gated-linear", "forgetting"):
        return None
    if pattern == "linear" and kind == "multi-token":
        return min(2, seen)
    if pattern == "linear":
        return 2 if kind in ("simplicial", "strassen", "two-layer") else 1
    if kind == "two-layer":
        return None
    if pattern == "hard" and kind == "iha" and heads == 1:
        return min(rows, 3)
    return 2 * rows if kind in ("differential", "simplicial", "strassen") else rows * seen


@blueprint.theorem(
    "parity-attentions",
    "latent, tensor-product, composable and gated attention compute the parity of H bits; gates between tokens any "
    "function of any number of bits, with several tokens for a bit",
    uses=("total-degree", "latent", "tensor-product", "composable", "gated", "gated-linear"),
    check="numerical",
    proof="docs/attentions.md, Theorem 2; docs/attentions.md, Theorem 3",
    tests="tests/iha_theory/bounds/test_parity_of_gates.py",
)
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
    own = {} if pseudo_heads is None else {"pseudo_heads": pseudo_heads, "collapse": collapse}
    window = None
    if kind == "multi-token":
        window = KEY_WINDOW
        own |= {"query_window": window, "key_window": window}
    bits = parity_bits(kind, heads, pseudo_heads, pattern, window)
    options = kinds.KINDS[kind](heads=heads, head_dim=WIDTH, **own)
    sizes = {"content": WIDTH, "tokens": 1, "pattern": pattern, "out": OUT}
    layer = generic(lambda: options.make(WIDTH, WIDTH, WIDTH, **sizes))
    reached = bits_reached(layer, WIDTH)
    made = kind == "multi-token" and pattern == "softmax"
    if bits is None or bits > MOST_BITS:
        return ParityCapacity(bits, reached, unbounded=kind in UNBOUNDED and bits is None, made=made)
    runs = obstruction.run(layer, bits + 1, weights=LAYERS)  # type: ignore[arg-type]
    return ParityCapacity(bits, reached, *runs.worst, made=made)


@torch.no_grad()
def bits_reached(module: nn.Module, embed_dim: int) -> int:
    """The most bits up to `MOST_BITS` whose parity a module computes as it is, by self-attention and a linear read-out.

    A bit is one of two random tokens, the query token a third, behind them; the output there is read, and u, theta are
    fitted to (-1)^|x| on all x. They count if every sign is right by more than ten times sum_j |u_j| noise_j: what
    `_noise` measures of each output, and one rounding. Directions as small as noise are left out of the fit. So a
    softmax in float32 lowers the number, and is not read as bits.

    Args:
        module: with the call (query, key, value); of a tuple the first output counts. Its widths are embed_dim.
        embed_dim: of the tokens.

    Raises:
        ValueError: an output of another shape or dtype.
    """
    generator = torch.Generator().manual_seed(SEED)
    tokens, direction = torch.randn(2, 3, embed_dim, generator=generator, dtype=torch.float64)
    copied = frozen(module)
    alone = isinstance(module, AttentionLayer) and not isinstance(module, GatedLinearAttention)

    def at_query(x: Tensor, tokens: Tensor) -> Tensor:
        inputs = tokens[torch.cat((x, torch.full((len(x), 1), 2)), 1)]
        query = inputs[:, -1:] if alone else inputs
        return call(copied, query, inputs, inputs, {})[:, -1]

    for bits in range(1, MOST_BITS + 1):
        x = torch.tensor(list(itertools.product((0, 1), repeat=bits)))
        signs = 1 - 2 * (x.sum(1) % 2).double()
        some = x[torch.randperm(len(x), generator=generator)[:PROBES]]
        outputs = torch.cat((torch.ones_like(signs)[:, None], at_query(x, tokens)), 1)
        measured = F.pad(_noise(lambda t, some=some: at_query(some, tokens + t * direction)), (1, 0))  # of 1 none
        if not _fitted(outputs, signs, measured + UNIT * outputs.abs().amax(0)):
            return bits - 1
    return MOST_BITS


def _fitted(outputs: Tensor, signs: Tensor, noise: Tensor) -> bool:
    """Whether a combination of the columns, as it is fitted, has these signs by more than the columns' noise may do."""
    scale = outputs.norm(dim=0).clamp_min(UNIT)
    outputs, noise = outputs / scale, noise / scale
    u = torch.linalg.lstsq(outputs, signs[:, None], rcond=float(noise.norm()), driver="gelsd").solution[:, 0]
    return float((outputs @ u * signs).min()) > SAFETY * float(noise @ u.abs())


def _noise(outputs: Callable[[float], Tensor]) -> Tensor:
    """The rounding of each output: the largest difference of order k = `ORDER` of outputs(0), outputs(h), outputs(2h),
    ..., h = `STEP`, over C(2k, k)^(1/2). Smooth functions leave h^k times a derivative, noise of variance s^2 leaves s
    (More, Wild, Estimating computational noise, SIAM J. Sci. Comput. 33, 2011)."""
    terms = [(-1) ** j * comb(ORDER, j) * outputs(j * STEP) for j in range(ORDER + 1)]
    return torch.stack(terms).sum(0).abs().amax(0) / comb(2 * ORDER, ORDER) ** 0.5


blueprint.unowned(
    "proof only",
    "query-bit",
    "with a bit on the query token the bounds on parity are one more; reached with a residual connection",
    uses=("total-degree", "parity-rows"),
    proof="docs/parity.md, A bit on the query token",
)
blueprint.unowned(
    "proof only",
    "parity-depth",
    "two softmax layers of one head each compute the parity of any number of bits; two linear layers of at most 4",
    uses=("parity-rows", "two-layer"),
    proof="docs/parity.md, Depth, MLP",
)
blueprint.unowned(
    "proof only",
    "multi-token-parity",
    "multi-token attention computes the parity of H c_k bits, with several tokens for a bit",
    uses=("total-degree", "multi-token"),
    proof="docs/attentions.md, Theorem 4",
)
blueprint.unowned(
    "open",
    "one-token-parity",
    "of how many bits gates between tokens, or multi-token attention, compute the parity with one token for each",
    uses=("parity-attentions", "multi-token-parity"),
    proof="docs/attentions.md, What is open",
)
blueprint.unowned(
    "open",
    "hard-parity",
    "whether hard attention reaches H bits (IHA: more than 3 for H > 1) without tokens that carry no bit",
    uses=("total-degree",),
    proof="docs/parity.md, Theorem 3",
)
