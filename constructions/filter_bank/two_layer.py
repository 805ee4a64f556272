"""The filter bank by two layers of MHA with ceil(sqrt k) heads each (docs/results.md T7).

H = ceil(sqrt k). Layer 1 has heads m = 0 .. H-1 with queries A^m, keys I and values X: it outputs
Z = [X, A X, ..., A^{H-1} X]. Layer 2 has heads h with queries A^{hH}, keys I and all of Z as values: head h outputs
[A^{hH} X, ..., A^{hH+H-1} X], and block h H + m of the concatenated heads is A^{hH+m} X. Those from k on are padding.

Both layers are linear attention on positions, without residual, norm or MLP in between. Layer 2's values have no
positions in them. IHA does the same in one layer with as many heads, and has half the query and key parameters
(2 N (N + d) H against 4 N (N + d) H); its attention maps are at least k, where the two layers form 2 H.

**Least.** Two layers with H heads have operators sum_{g,h} S2_g S1_h X B_gh, of Schmidt rank at most H^2
(docs/results.md T1), so H >= ceil(sqrt r), r = dim span{I, A, ..., A^{k-1}}.

**Exactly.** The operator is the composition of two. With M1[c][a], M2[e][c] in R^{N x N} the maps from coordinate a of
X to coordinate c of Z, and on to e of the output, it is M[e][a] = sum_c M2[e][c] M1[c][a].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.construction import Block, Construction
from constructions.filter_bank.paper import Powers, powers, selectors
from iha_theory.attention import TwoLayerAttention
from iha_theory.exact import Domain
from iha_theory.operators import exact as operator
from iha_theory.operators.weights import Matrix, PositionWeights, read, to_layer
from iha_theory.rounding import ceil_sqrt, require_count


@dataclass(frozen=True)
class TwoLayerConstruction(Construction):
    """A construction in two layers."""

    layer: TwoLayerAttention  # type: ignore[assignment]

    @property
    def heads(self) -> int:
        """H, in each layer."""
        return self.layer.second.num_heads


def weights(
    outer: Sequence[Matrix], inner: Sequence[Matrix], width: int, out: Matrix | None = None
) -> tuple[PositionWeights, PositionWeights]:
    """Both layers of X -> [S_h T_m X], blocks in the order of h H + m, over any domain.

    Args:
        outer: S_0 .. S_{H-1}, each (N, N).
        inner: T_0 .. T_{H-1}.
        width: the content's width d; the second layer's content is the first's output, of width H d.
        out: an output projection of the H^2 blocks, (H^2 d, D); None for none.
    """
    heads, one = len(inner), powers(inner[0])(0)
    first = PositionWeights(
        query=tuple(inner),
        key=(one,) * heads,
        value=selectors(width, 1) * heads,
        pattern="linear",
    )
    second = PositionWeights(
        query=tuple(outer),
        key=(one,) * heads,
        value=(np.eye(heads * width, dtype=np.int64),) * heads,
        pattern="linear",
        out=out,
    )
    return first, second


def factors(power: Powers, heads: int) -> tuple[list[Matrix], list[Matrix]]:
    """A^{hH} and A^m, for h, m < H."""
    return [power(h * heads) for h in range(heads)], [power(m) for m in range(heads)]


def to_two_layers(first: PositionWeights, second: PositionWeights) -> TwoLayerAttention:
    """The torch module, in float64, on the input [X, I_N].

    Raises:
        OverflowError: an exact weight that float64 cannot hold.
    """
    width, inner = first.width, second.width
    layers = to_layer(first), to_layer(second)
    module = TwoLayerAttention(
        layers[0].embed_dim,
        first.num_heads,
        head_dim=layers[0].head_dim,
        pattern="linear",
        scale=1.0,
        dtype=torch.float64,
        first={"value_head_dim": layers[0].value_head_dim},
        second={
            "value_head_dim": layers[1].value_head_dim,
            "out_proj": second.out is not None,
            "out_dim": None if second.out is None else second.out.shape[1],
        },
    )
    module.first.load_state_dict(layers[0].state_dict())
    with torch.no_grad():
        for name, parameter in module.second.named_parameters():
            given = layers[1].get_parameter(name)  # made for the input [Z, I_N]
            if name in ("q_proj.weight", "k_proj.weight"):
                parameter.zero_()
                parameter[:, width:] = given[:, inner:]
            else:
                parameter.copy_(given[:, :inner] if name == "v_proj.weight" else given)
    return module


def bank(power: Powers, terms: int, width: int) -> TwoLayerConstruction:
    """[X, A X, ..., A^{k-1} X] by two layers of ceil(sqrt k) heads.

    Args and errors: `constructions.filter_bank.paper.bank`.
    """
    require_count("terms", terms)
    require_count("width", width)
    readout = tuple(Block(f"A^{t} X", t * width, width) for t in range(terms))
    layer = to_two_layers(*weights(*factors(power, ceil_sqrt(terms)), width))
    return TwoLayerConstruction("bank/mha-two-layer", "docs/results.md T7", layer, readout, width)


def columns(layer: TwoLayerAttention, width: int, domain: Domain = QQ) -> Iterator[list[DomainMatrix | None]]:
    """The exact operator, one output coordinate e at a time, as `iha_theory.operators.exact.columns`.

    Args:
        layer: two layers on the input [X, I_N].
        width: the content's width d.
        domain: QQ, or a prime field into which the weights are mapped.

    Raises:
        NotPositionOnlyError, ValueError: as `iha_theory.operators.weights.read` and `columns`.
    """
    first = read(layer.first, width, domain)
    second = read(layer.second, width, domain, value_width=layer.first.out_dim)
    inner = list(operator.columns(first))
    for outer in operator.columns(second):
        yield [_chain(outer, [column[a] for column in inner]) for a in range(width)]


def _chain(outer: list[DomainMatrix | None], inner: list[DomainMatrix | None]) -> DomainMatrix | None:
    """sum_c M2[c] M1[c]."""
    total = None
    for second, first in zip(outer, inner, strict=True):
        if second is not None and first is not None:
            total = second * first if total is None else total + second * first
    return total
