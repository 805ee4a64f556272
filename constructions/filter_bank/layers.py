"""The kinds of layers that make filter banks: one table, and the bank by any of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from constructions.construction import Construction, blocks
from constructions.filter_bank import paper, products, tiled, two_layer
from constructions.filter_bank.paper import Powers
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.capacity import Kind
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

Weights = PositionWeights | tuple[PositionWeights, PositionWeights]
"""Of one layer or of two."""

LARGEST = 2**28
"""Most query weights of an MHA that is built: 2 GiB."""


@dataclass(frozen=True)
class Layer:
    """A kind of layer.

    Attributes:
        kind: whose capacity bounds its heads (`iha_theory.capacity.capacity_bound`).
        source: of the weights.
        products: queries Q_a, keys K_b, contents B_ab -> weights of X -> sum_{a,b} Q_a K_b^T X B_ab; see
            `constructions.filter_bank.products`.
        weights: power, terms k, width d -> weights of the bank. None where wide queries and keys make any bank, and the
            powers gain nothing.
    """

    kind: Kind
    source: str
    products: Callable[..., Weights]
    weights: Any = None

    def least_heads(self, rank: int) -> int:
        """The heads that it needs, and has, for r independent maps: r or ceil(sqrt r) (docs/results.md T2)."""
        return rank if self.kind == "mha" else ceil_sqrt(rank)


LAYERS = {
    "mha": Layer("mha", "App. B.2", products.mha_products, paper.mha_weights),
    "iha": Layer("iha", "App. B.2", products.iha_products, paper.iha_weights),
    "iha-tiled": Layer("iha", "docs/results.md T6", tiled.products, tiled.weights),
    "iha-wide": Layer("iha", "docs/results.md T4", tiled.products),
    "mha-two-layer": Layer("two-layer", "docs/results.md T7", two_layer.products, two_layer.bank_weights),
}
EXACT = tuple(name for name, layer in LAYERS.items() if layer.weights is not None)
"""Those that make [X, A X, ..., A^{k-1} X] exactly from the powers of A."""
PAPER = tuple(name for name, layer in LAYERS.items() if layer.source == "App. B.2")
"""The paper's own."""


def bank(layer: str, power: Powers, terms: int, width: int) -> Construction:
    """[X, A X, ..., A^{k-1} X] by MHA with k heads, or by another layer with ceil(sqrt k).

    Args:
        layer: of `EXACT`.
        power: i -> A^i; see `constructions.filter_bank.paper.powers`.
        terms: k, the number of blocks, at least 1; the top power is k - 1.
        width: the content's width d, at least 1.

    Raises:
        OverflowError: A is exact and a weight is not a float64.
        ValueError: another layer, terms or width below 1, or an MHA with more than `LARGEST` query weights.
    """
    require_one_of("layer", layer, EXACT)
    require_count("terms", terms)
    require_count("width", width)
    if layer == "mha" and terms * power(0).shape[0] ** 2 > LARGEST:
        raise ValueError(f"{terms} heads for {power(0).shape[0]} nodes are more than {LARGEST} query weights")
    given = LAYERS[layer]
    module = to_module(given.weights(power, terms, width))
    return Construction(f"bank/{layer}", given.source, module, blocks("A^{} X", terms, width), width)


def to_module(weights: Weights) -> AttentionLayer | TwoLayerAttention:
    """The torch module, of one layer or of two; see `iha_theory.operators.weights.to_layer`."""
    return two_layer.to_two_layers(*weights) if isinstance(weights, tuple) else to_layer(weights)
