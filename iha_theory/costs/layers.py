"""Parameters and FLOPs of every layer of `iha_theory.attention.KINDS` in self-attention, in closed form.

FLOPs as in `formulas`: 2 for a multiplication and addition in a product of matrices, a masked entry like any other.
A product of tensors entry by entry counts 2 an entry, as in `iha_theory.costs.counted`; softmax, exponentials, scaling
and activations are left out. No biases, no rotary positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

from iha_theory.rounding import require_one_of


@dataclass(frozen=True)
class Sizes:
    """Sizes of a layer in self-attention.

    Attributes:
        tokens: N.
        width: w, of the input and, after the output projection, of the output.
        heads: H.
        head_dim: d_k.
        value_head_dim: d_v.
        pseudo_heads: P of IHA, with global collapse.
        kv_heads: G of GQA.
        base_heads: G of IHA; None: H.
        latent: c of MLA.
        ranks: R_Q, R_K, R_V of tensor-product attention.
        composition: R and the hidden width of composable heads.
        windows: c_q, c_k of multi-token attention.
        group: of its head mixing.
    """

    tokens: int
    width: int
    heads: int
    head_dim: int
    value_head_dim: int
    pseudo_heads: int = 2
    kv_heads: int = 2
    latent: int = 8
    ranks: tuple[int, int, int] = (6, 2, 2)
    composition: tuple[int, int] = (2, 8)
    windows: tuple[int, int] = (6, 11)
    group: int = 2
    base_heads: int | None = None

    @property
    def out(self) -> int:
        """The output projection's."""
        return self.heads * self.value_head_dim * self.width

    def projected(self, queries: int, keys: int, values: int) -> int:
        """Parameters of projections that make so many heads of queries, keys and values, and the output's."""
        heads = (queries + keys) * self.head_dim + values * self.value_head_dim
        return self.width * heads + self.out

    @property
    def maps(self) -> int:
        """FLOPs of forming H maps and applying them."""
        return 2 * self.heads * self.tokens**2 * (self.head_dim + self.value_head_dim)

    @property
    def mixed(self) -> int:
        """FLOPs of mixing H maps by a matrix of heads by heads."""
        return 2 * self.heads**2 * self.tokens**2


def parameters(kind: str, sizes: Sizes) -> int:
    """All parameters.

    Raises:
        ValueError: a kind that is not in the table.
    """
    return _costs(kind, sizes)[0]


def flops(kind: str, sizes: Sizes) -> int:
    """FLOPs of one sequence of N tokens.

    Raises:
        ValueError: as `parameters`.
    """
    return _costs(kind, sizes)[1]


def _costs(kind: str, sizes: Sizes) -> tuple[int, int]:
    require_one_of("kind", kind, COSTS)
    return COSTS[kind](sizes)


def _plain(s: Sizes, keys: int | None = None) -> tuple[int, int]:
    own = s.projected(s.heads, keys or s.heads, keys or s.heads)
    return own, 2 * s.tokens * own + s.maps


def _plus(s: Sizes, parameters: int, flops: int) -> tuple[int, int]:
    """MHA's and more."""
    own, spent = _plain(s)
    return own + parameters, spent + flops


def _latent(s: Sizes) -> tuple[int, int]:
    down, up = s.width * s.latent, s.latent * s.heads * (s.head_dim + s.value_head_dim)
    own = s.width * s.heads * s.head_dim + down + up + s.out
    return own, 2 * s.tokens * (own + down) + s.maps  # the latent is formed for keys and for values


def _tensor_product(s: Sizes) -> tuple[int, int]:
    queries, keys, values = s.ranks
    own = s.projected(*s.ranks) + s.width * s.heads * sum(s.ranks)
    products = 2 * s.tokens * s.heads * ((queries + keys) * s.head_dim + values * s.value_head_dim)
    return own, 2 * s.tokens * own + products + s.maps


def _composable(s: Sizes) -> tuple[int, int]:
    rank, hidden = s.composition
    network = s.width * hidden + hidden * 2 * s.heads * rank + s.width * s.heads
    each = 2 * s.tokens * (network + s.heads**2 * rank)
    return _plus(s, 4 * network + 2 * s.heads**2, 4 * (each + s.mixed))


def _multi_token(s: Sizes) -> tuple[int, int]:
    kernel = s.heads * s.windows[0] * s.windows[1]
    mixing = s.heads * s.group
    return _plus(s, kernel + mixing, 2 * s.tokens**2 * (kernel + mixing))


def _differential(s: Sizes) -> tuple[int, int]:
    own = s.projected(2 * s.heads, 2 * s.heads, s.heads)
    return own + s.heads, 2 * s.tokens * (own + s.heads * s.value_head_dim) + 2 * s.maps


def _iha(s: Sizes) -> tuple[int, int]:
    base, virtual = s.base_heads or s.heads, s.heads * s.pseudo_heads
    own, mixing = s.projected(s.heads, base, base), virtual * (s.heads + base)
    spent = 2 * s.tokens * (own + mixing * (s.head_dim + s.value_head_dim))
    return own + 2 * mixing, spent + s.pseudo_heads**2 * s.maps


def _pairs(s: Sizes, logits: int) -> tuple[int, int]:
    own = s.projected(s.heads, 2 * s.heads, 2 * s.heads)
    values = 2 * s.heads * s.tokens**2 * (s.tokens + 1) * s.value_head_dim
    return own, 2 * s.tokens * own + logits + values


def _simplicial(s: Sizes) -> tuple[int, int]:
    return _pairs(s, 2 * s.heads * s.tokens**2 * (s.tokens + 1) * s.head_dim)


def _strassen(s: Sizes) -> tuple[int, int]:
    return _pairs(s, 6 * s.heads * s.tokens**2 * s.head_dim)


def _two_layer(s: Sizes) -> tuple[int, int]:
    inner = s.heads * s.value_head_dim
    queries_and_keys = 4 * s.width * s.heads * s.head_dim
    own = queries_and_keys + s.width * inner + inner * inner + s.out
    return own, 2 * s.tokens * own + 2 * s.maps


def _gated(s: Sizes, gates: int) -> tuple[int, int]:
    return _plus(s, s.width * gates, 2 * s.tokens * (s.width * gates + s.heads * s.value_head_dim))


def _gated_linear(s: Sizes, multiplied: bool) -> tuple[int, int]:
    gates = s.width * s.heads
    return _plus(s, gates, 2 * s.tokens * gates + multiplied * 2 * s.heads * s.tokens**2)


COSTS: dict[str, Callable[[Sizes], tuple[int, int]]] = {
    "mha": _plain,
    "mqa": lambda s: _plain(s, 1),
    "gqa": lambda s: _plain(s, s.kv_heads),
    "mla": _latent,
    "tensor-product": _tensor_product,
    "talking-heads": lambda s: _plus(s, 2 * s.heads**2, 2 * s.mixed),
    "composable": _composable,
    "multi-token": _multi_token,
    "differential": _differential,
    "iha": _iha,
    "two-layer": _two_layer,
    "simplicial": _simplicial,
    "strassen": _strassen,
    "gated": lambda s: _gated(s, s.heads * s.value_head_dim),
    "gated-headwise": lambda s: _gated(s, s.heads),
    "gated-linear": lambda s: _gated_linear(s, True),
    "forgetting": lambda s: _gated_linear(s, False),
}
"""Parameters and FLOPs of each kind."""
