"""Where a construction needs fewer parameters or FLOPs than one-layer MHA, at every size up to a limit, exactly.

Sizes are compared in float64 first. A cost is a sum of products of positive integers (`formulas`), fewer than 40
operations and none that cancels, so float64 is right to a relative 40 * 2^-53 < `CLOSE`: where two costs differ by
more, the comparison is exact. Where they do not, both are computed again as Python integers.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import sympy
from jaxtyping import Bool

from iha_theory.costs.formulas import Number, bank, cost

CLOSE = 1e-13
LIMIT = 10**6
"""Sizes up to this are compared."""


@dataclass(frozen=True)
class Crossover:
    """Where `layer` has less of `quantity` than MHA with k heads, for k (bank) or N (bank, CPM-3) from 1 to `searched`.

    task: "bank" or "cpm3". quantity: "parameters" or "flops". mlp: with CPM-3's MLP. along: what varies, "terms" or
    "tokens". tokens, width, terms: the sizes that do not vary. first, last: smallest and largest size with less; None:
    at no size. run_from, run_to: the longest run of sizes that all have less. proved: "never" is proved for all sizes
    (`never_less`).
    """

    task: Literal["bank", "cpm3"]
    layer: str
    quantity: str
    mlp: bool
    along: Literal["terms", "tokens"]
    tokens: int | None
    width: int
    terms: int | None
    searched: int
    first: int | None
    run_from: int | None
    run_to: int | None
    last: int | None
    proved: bool


def bank_crossover(
    layer: str,
    quantity: str,
    *,
    width: int,
    tokens: int | None = None,
    terms: int | None = None,
    limit: int = LIMIT,
) -> Crossover:
    """Along k with `tokens` given, or along N with `terms` given.

    Raises:
        ValueError: both or none of tokens and terms.
    """
    if (tokens is None) == (terms is None):
        raise ValueError("give either tokens or terms: the other one varies")
    sizes = np.arange(1.0, limit + 1)
    less = fewer(quantity, layer, sizes if tokens is None else tokens, width, sizes if terms is None else terms)
    along = "tokens" if tokens is None else "terms"
    proved = never_less(quantity, layer)
    return Crossover("bank", layer, quantity, False, along, tokens, width, terms, limit, *_runs(less), proved)


def cpm3_crossover(layer: str, quantity: str, *, mlp: bool, limit: int = LIMIT) -> Crossover:
    """Along N = k, with d = 1."""
    sizes = np.arange(1.0, limit + 1)
    less = fewer(quantity, layer, sizes, 1, sizes, mlp)
    proved = never_less(quantity, layer)  # the MLP adds no less to it than to MHA, since W = H^2 >= N
    return Crossover("cpm3", layer, quantity, mlp, "tokens", None, 1, None, limit, *_runs(less), proved)


def fewer(
    quantity: str, layer: str, tokens: Number, width: int, terms: Number, mlp: bool = False
) -> Bool[np.ndarray, " sizes"]:
    """Whether cost(layer) < cost(MHA) for arrays of sizes (float64, holding integers), exactly; see the module."""
    tokens, terms = np.broadcast_arrays(np.asarray(tokens, np.float64), np.asarray(terms, np.float64))
    ours, theirs = (cost(quantity, name, tokens, float(width), terms, mlp) for name in (layer, "mha"))
    less = ours < theirs
    for i in np.flatnonzero(abs(ours - theirs) <= CLOSE * theirs):
        n, k = int(tokens[i]), int(terms[i])
        less[i] = cost(quantity, layer, n, width, k, mlp) < cost(quantity, "mha", n, width, k, mlp)
    return less


def never_less(quantity: str, layer: str) -> bool:
    """Whether it is proved that the layer never has less of the quantity than MHA, for any N, d, k >= 1.

    MHA's cost grows with k and the layer's depends on H = ceil(sqrt k) only, so k = H^2 is the worst case. Put H = 1,
    and H = 2 + h; N = 1 + n; d = 1 + e. If the difference has no negative coefficient as a polynomial in h, n, e >= 0,
    it is nowhere negative. True for the FLOPs and the maps of the paper's IHA: the FLOPs' leading term is
    2 H (H - 1) (H - 2) N^3. False: not proved.
    """
    if layer == "iha-tiled":  # its P is no polynomial of H
        return False
    n, e, h = sympy.symbols("n e h")
    attribute = "attention_maps" if quantity == "maps" else quantity

    def total(name: str, heads: Number, pseudo: Number) -> Number:
        return sum(getattr(sizes, attribute) for sizes in bank(name, 1 + n, 1 + e, heads, pseudo))

    for heads in (sympy.Integer(1), 2 + h):
        difference = sympy.Poly(total(layer, heads, heads) - total("mha", heads**2, None), n, e, h)
        if any(coefficient < 0 for coefficient in difference.coeffs()):
            return False
    return True


def _runs(less: Bool[np.ndarray, " sizes"]) -> tuple[int | None, int | None, int | None, int | None]:
    """first, run_from, run_to, last, counted from 1."""
    if not less.any():
        return None, None, None, None
    edges = np.flatnonzero(np.diff(np.concatenate(([0], less.astype(np.int8), [0]))))
    starts, stops = edges[::2] + 1, edges[1::2]
    longest = int(np.argmax(stops - starts))
    return int(starts[0]), int(starts[longest]), int(stops[longest]), int(stops[-1])
