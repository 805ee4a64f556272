"""Parameters and FLOPs in closed form. N tokens, content width d, k terms, H heads, P pseudo-heads.

A FLOP is a multiplication or an addition in a product of matrices: (a x b)(b x c) takes 2abc. Softmax, scaling, masks
and activations are left out, and a masked entry is counted like any other, since the layers compute it; but for what
is outside a window, which they skip. Biases and rotary positions are not covered.

One formula serves integers, sympy symbols and arrays of numbers: `AttentionSizes` holds any of them. All terms are
products of sizes with positive coefficients.

Source: App. B.2 and B.3; for CPM-3 the paper's counts differ (ledger E2, P-cpm3-mlp-parameters): see `PAPER`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import sympy

from iha_theory import blueprint
from iha_theory.costs.cache import Number, cache_numbers
from iha_theory.rounding import ceil_sqrt

LAYERS = ("mha", "iha", "iha-tiled", "mha-two-layer")
"""MHA; IHA as in the paper, P = H; IHA with about sqrt(H) pseudo-heads (docs/results.md T6); two MHA layers (T7)."""


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of one attention layer. query_width: of queries' and keys' input. pseudo_heads: None for MHA.

    value_width: of the values' input; None: as the queries'. out_width: after the output projection; None: without one.
    collapse: IHA's, "global" (H x HP, Definition 3) or "per_head" (H x P, Algorithm 1).
    window: W of a causal layer, 1 to N, whose pairs outside it are not formed; None: every pair is, causal or not. So
        W = N, which is the same function as a causal layer without, counts N (N + 1) / 2 of its N^2 pairs.
    """

    tokens: Number
    query_width: Number
    heads: Number
    head_dim: Number
    value_head_dim: Number
    pseudo_heads: Number | None = None
    value_width: Number | None = None
    out_width: Number | None = None
    collapse: Literal["global", "per_head"] = "global"
    window: Number | None = None

    @property
    def pairs(self) -> Number:
        """Pairs of tokens that a map is formed of: N^2, or with a window N W - W (W - 1) / 2, the first rows' edge."""
        if self.window is None:
            return self.tokens**2
        return self.tokens * self.window - self.window * (self.window - 1) // 2

    @property
    def attention_maps(self) -> Number:
        """H P^2, tokens by tokens."""
        return self.heads * (1 if self.pseudo_heads is None else self.pseudo_heads**2)

    @property
    def cache(self) -> Number:
        """H (d_k + d_v) numbers that generation keeps of a token; IHA's base heads."""
        return cache_numbers(self.heads, self.head_dim, self.value_head_dim)

    @property
    def mixed_cache(self) -> Number:
        """H P (d_k + d_v), where IHA keeps its pseudo-heads."""
        return self.cache if self.pseudo_heads is None else self.cache * self.pseudo_heads

    @property
    def projections(self) -> Number:
        """Parameters of the projections: H (2 w d_k + w_v d_v) for inputs of widths w and w_v, + H d_v D with W_O."""
        values = self.query_width if self.value_width is None else self.value_width
        out = 0 if self.out_width is None else self.out_width
        return self.heads * (2 * self.query_width * self.head_dim + (values + out) * self.value_head_dim)

    @property
    def mixing(self) -> Number:
        """IHA's further parameters: 3 H^2 P for the alphas, and H^2 P or H P for the collapse; 0 for MHA."""
        if self.pseudo_heads is None:
            return 0
        return 3 * self.heads**2 * self.pseudo_heads + self._collapse

    @property
    def _collapse(self) -> Number:
        assert self.pseudo_heads is not None
        return self.heads * self.pseudo_heads * (self.heads if self.collapse == "global" else 1)

    @property
    def parameters(self) -> Number:
        """All parameters."""
        return self.projections + self.mixing

    @property
    def map_flops(self) -> Number:
        """Forming the maps and applying them to the values: 2 H P^2 (d_k + d_v) for each of the `pairs`."""
        return 2 * self.attention_maps * self.pairs * (self.head_dim + self.value_head_dim)

    @property
    def mixing_flops(self) -> Number:
        """2 N H^2 P (2 d_k + d_v), and 2 N d_v for every parameter of the collapse; 0 for MHA."""
        if self.pseudo_heads is None:
            return 0
        alphas = self.heads**2 * self.pseudo_heads * (2 * self.head_dim + self.value_head_dim)
        return 2 * self.tokens * (alphas + self._collapse * self.value_head_dim)

    @property
    def flops(self) -> Number:
        """Of one sequence: 2 N for every parameter of the projections, mixing, maps."""
        return 2 * self.tokens * self.projections + self.mixing_flops + self.map_flops


def bank(
    layer: str, tokens: Number, width: Number, heads: Number, pseudo_heads: Number | None = None
) -> tuple[AttentionSizes, ...]:
    """The layers of a filter bank's construction, on [X, I_N]; CPM-3's attention is the bank with d = 1 and k = N.

    Args:
        layer: one of `LAYERS`.
        tokens: N.
        width: d.
        heads: k for "mha", else H = ceil(sqrt k).
        pseudo_heads: P; not for "mha" and "mha-two-layer".

    Raises:
        ValueError: another layer; an IHA without pseudo-heads.
    """
    inputs = tokens + width
    if layer == "mha":
        return (AttentionSizes(tokens, inputs, heads, tokens, width),)
    if layer in ("iha", "iha-tiled"):
        if pseudo_heads is None:
            raise ValueError(f"{layer} needs a number of pseudo-heads")
        return (AttentionSizes(tokens, inputs, heads, tokens, width * heads, pseudo_heads),)
    if layer == "mha-two-layer":
        all_blocks = width * heads
        first = AttentionSizes(tokens, inputs, heads, tokens, width)
        return first, AttentionSizes(tokens, inputs, heads, tokens, all_blocks, value_width=all_blocks)
    raise ValueError(f"unknown layer {layer!r}: accepted are {', '.join(LAYERS)}")


def heads_of(layer: str, terms: Number) -> Number:
    """The construction's heads: k for "mha", else ceil(sqrt k)."""
    return terms if layer == "mha" else ceil_sqrt(terms)


def pseudo_heads_of(layer: str, terms: Number) -> Number | None:
    """The construction's P: H for "iha", `tiled_pseudo_heads` for "iha-tiled", None for MHA."""
    if layer == "iha":
        return ceil_sqrt(terms)
    if layer != "iha-tiled":
        return None
    if not isinstance(terms, np.ndarray):
        return tiled_pseudo_heads(terms)
    heads = ceil_sqrt(terms)
    keys = heads * (heads + 1) + -(-terms // heads)  # different for different (H, rows), since 1 <= rows <= H
    _, first, at = np.unique(keys, return_index=True, return_inverse=True)
    return np.array([tiled_pseudo_heads(int(k)) for k in terms[first]], dtype=terms.dtype)[at]


def tiled_pseudo_heads(terms: int) -> int:
    """P of the tiled IHA for k terms: `constructions.filter_bank.tiled.tiling`'s least side, without making the tiles.

    The least P with ceil(rows / P) ceil(H / P) <= H, rows = ceil(k / H) (docs/results.md T6); for H = 3 and 7 tiles
    that overlap do with ceil(sqrt H).
    """
    heads = ceil_sqrt(terms)
    return _side(-(-terms // heads), heads)


def _side(rows: int, heads: int) -> int:
    side = 1
    while -(-rows // side) * -(-heads // side) > heads:
        side += 1
    return min(side, ceil_sqrt(heads)) if heads in (3, 7) else side


def bank_sizes(layer: str, tokens: Number, width: Number, terms: Number) -> tuple[AttentionSizes, ...]:
    """The construction's layers for k terms: `bank` with its own H and P."""
    return bank(layer, tokens, width, heads_of(layer, terms), pseudo_heads_of(layer, terms))


def symbolic(layer: str) -> tuple[AttentionSizes, ...]:
    """`bank` in the symbols N, d and k, or H and P (P = H for "iha")."""
    n, d, k, h, p = sympy.symbols("N d k H P", positive=True, integer=True)
    return bank(layer, n, d, k if layer == "mha" else h, {"iha": h, "iha-tiled": p}.get(layer))


def workspace_width(layer: str, tokens: Number) -> Number:
    """W, the columns that the MLP of CPM-3 reads: N for "mha", else H^2 with the padding."""
    return tokens if layer == "mha" else ceil_sqrt(tokens) ** 2


def mixing_parameters(heads: Number, pseudo_heads: Number) -> Number:
    """3 H^2 P for the alphas and H (H P) for a global collapse: 4 H^2 P."""
    return 4 * heads**2 * pseudo_heads


def bank_parameters(layer: str, tokens: Number, width: Number, terms: Number) -> Number:
    """The filter bank on [X, I_N]. H = ceil(sqrt k).

    "mha": 2 N (N + d) k + d (N + d) k.    "iha": 2 N (N + d) H + d (N + d) H^2 + 4 H^3.
    "iha-tiled": with 4 H^2 P.    "mha-two-layer": 4 N (N + d) H + d (N + d) H + d^2 H^3.

    Raises:
        ValueError: another layer.
    """
    return sum(sizes.parameters for sizes in bank_sizes(layer, tokens, width, terms))


def workspace_parameters(layer: str, tokens: Number) -> Number:
    """CPM-3's attention on [x, I_N]: the filter bank's with d = 1 and k = N.

    "mha": 2 N^2 (N + 1) + N (N + 1).    "iha": 2 (N^2 + N) H + (N + 1) H^2 + 4 H^3.
    """
    return bank_parameters(layer, tokens, 1, tokens)


def pair_count_parameters(tokens: Number, workspace_width: Number) -> Number:
    """The MLP of CPM-3: N^2 hidden units over the workspace, and their sum: N^2 W + N^2."""
    return tokens**2 * (workspace_width + 1)


def pair_count_flops(tokens: Number, workspace_width: Number) -> Number:
    """The MLP at all N tokens: 2 N N^2 (W + 1)."""
    return 2 * tokens * pair_count_parameters(tokens, workspace_width)


@blueprint.definition(
    "cost",
    "parameters, FLOPs, attention maps and caches of the layers, as closed forms",
    uses=("mha", "iha", "two-layer"),
    check="exact",
    tests="tests/iha_theory/test_costs.py",
)
def cost(quantity: str, layer: str, tokens: Number, width: Number, terms: Number, mlp: bool = False) -> Number:
    """Parameters, FLOPs of a sequence, attention maps or cache of a construction.

    Args:
        quantity: "parameters", "flops", "maps", or numbers that generation keeps of a token: "cache", with base heads
            kept, "mixed_cache", with IHA's pseudo-heads kept.
        layer: one of `LAYERS`.
        tokens: N.
        width: d.
        terms: k.
        mlp: add CPM-3's MLP, N^2 units over the workspace; for "parameters" and "flops".

    Raises:
        ValueError: another layer; arrays of a fixed number of bits, which could overflow; maps or a cache of an MLP.
    """
    arrays = [n for n in (tokens, width, terms) if isinstance(n, np.ndarray)]
    if quantity != "maps" and any(n.dtype.kind in "iu" for n in arrays):
        raise ValueError("arrays of int64 overflow: accepted are Python integers, arrays of objects and of float64")
    if mlp and quantity not in ("parameters", "flops"):
        raise ValueError("an MLP has no attention maps and no cache: accepted with mlp are parameters and flops")
    attribute = "attention_maps" if quantity == "maps" else quantity
    attention = sum(getattr(sizes, attribute) for sizes in bank_sizes(layer, tokens, width, terms))
    if not mlp:
        return attention
    count = {"parameters": pair_count_parameters, "flops": pair_count_flops}[quantity]
    return attention + count(tokens, workspace_width(layer, tokens))


PAPER: dict[str, Callable[[Number], Number]] = {
    "mha attention": lambda n: 2 * n**3 + n**3,
    "mha mlp": lambda n: (n + 1) * n * (n - 1) + n**2,
    "iha attention": lambda n: 2 * (n**2 + n) * ceil_sqrt(n) + (n + 1) * ceil_sqrt(n) ** 2 + 4 * ceil_sqrt(n) ** 3,
    "iha mlp": lambda n: ceil_sqrt(n) ** 2 * n * (n - 1) + n**2,
}
"""The paper's parameter counts for CPM-3, as printed (App. B.3): of N."""
