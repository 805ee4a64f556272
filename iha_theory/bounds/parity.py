"""Parity at a query token, read linearly, content anywhere: how many bits a layer can do, how many inputs go wrong.

Proofs: docs/parity.md, whose setting holds here: tokens that see at most one bit each, the query token none; no MLP.
"""

from math import comb
from typing import get_args

from iha_theory.attention.patterns import Pattern
from iha_theory.capacity import KINDS, Kind
from iha_theory.rounding import require_count, require_one_of


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
