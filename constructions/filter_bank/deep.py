"""The filter bank by L layers one behind the other, with k^(1/L) MHA heads or k^(1/(2L)) IHA heads in each.

A layer with capacity c (c = H for MHA, H^2 for IHA) makes Z -> [Z, B Z, ..., B^{c-1} Z] for any B (App. B.2). Layer
l = 0, 1, ... applies it with B = A^{c^l}: from the c^l blocks A^i X of the layers before it makes A^{c^l j + i} X, in
this order, j < c. So L layers make the first c^L powers, and c = ceil(k^(1/L)) is enough; blocks from k on are padding.
The content of layer l has width d c^l, as have the values of a head of MHA; of IHA they have H times that.

All layers are linear attention on positions, without residual, norm or MLP in between: layer l's input is [Z, I_N].
Two layers of MHA are `constructions.filter_bank.two_layer`.

**Least**, for independent powers: `iha_theory.bounds.heads.least_heads`, Depth.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.filter_bank.layers import EXACT, LAYERS
from constructions.filter_bank.paper import Powers
from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer
from iha_theory.bounds.heads import least_heads
from iha_theory.exact import Domain
from iha_theory.operators.exact import composed, layer_columns
from iha_theory.operators.weights import to_layer, with_positions
from iha_theory.rounding import require_count, require_one_of

ONE_LAYER = tuple(layer for layer in EXACT if LAYERS[layer].kind != "two-layer")


@blueprint.construction(
    "bank-deep",
    "L layers with ceil(k^(1/L)) heads of MHA or ceil(k^(1/(2L))) of IHA each make the filter bank",
    uses=("bank-mha", "bank-iha"),
    check="exact",
)
def bank(layer: str, power: Powers, terms: int, depth: int, width: int = 1) -> list[AttentionLayer]:
    """L torch layers, in float64, whose composition is [X, A X, ..., A^{K-1} X] with the least K = c^L >= k.

    Args:
        layer: "mha", "iha" or "iha-tiled".
        power: i -> A^i; see `constructions.filter_bank.paper.powers`.
        terms: k, at least 1.
        depth: L, at least 1.
        width: of the content, d, at least 1.

    Raises:
        OverflowError: A is exact and a weight is not a float64.
        ValueError: another layer, or a number below 1.
    """
    require_one_of("layer", layer, ONE_LAYER)
    require_count("width", width)
    heads = least_heads(LAYERS[layer].kind, terms, depth=depth)
    count = heads if layer == "mha" else heads**2
    return [
        to_layer(LAYERS[layer].weights(lambda i, step=count**l: power(i * step), count, width * count**l))
        for l in range(depth)  # noqa: E741
    ]


def run(layers: Sequence[AttentionLayer], x: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens out"]:
    """The layers as self-attention on [Z, I_N], one behind the other."""
    with torch.no_grad():
        for layer in layers:
            inputs = with_positions(x)
            x = layer(inputs, inputs, inputs)
    return x


def columns(layers: Sequence[AttentionLayer], width: int, domain: Domain) -> Iterator[list[DomainMatrix | None]]:
    """The composition's operator, read from the torch weights; see `iha_theory.operators.exact.columns`."""
    found = list(layer_columns(layers[0], width, domain))
    for layer in layers[1:]:
        found = list(composed(layer_columns(layer, len(found), domain), found))
    yield from found
