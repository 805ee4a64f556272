"""The error of a layer against [T_0 X, ..., T_{k-1} X], whether it is one layer of attention or two.

- `exact_gap`: the operator read from the weights, over the rationals or modulo a prime.
- `float64_gap`: the operator by running the layer, entry by entry, for a bound on rounding.
- `relative_error`: the operator by running the layer, |L - T|_F / |T|_F: the root mean square error for content with
  independent entries of mean 0 and variance 1 (docs/results.md T3).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.result import layer_operations
from constructions.construction import Construction
from constructions.filter_bank import two_layer
from iha_theory import exact
from iha_theory.attention import TwoLayerAttention
from iha_theory.exact import Domain
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import NotPositionOnlyError, read, with_positions
from iha_theory.rounding import largest_ratio, worse

MEASURE_BYTES = 2**29
"""Memory that one batch of contents may take. Each batch forms the attention maps anew, so few are better."""


def exact_gap(construction: Construction, blocks: Sequence[DomainMatrix], domain: Domain = QQ) -> float:
    """0.0 if and only if the layer's readout is [T_0 X, T_1 X, ...] for every X; otherwise as `exact.difference`.

    Args:
        construction: the layer; its readout has one block of the content's width for each T_t.
        blocks: T_t, (N, N), over the domain.
        domain: the rationals or a prime field.

    Raises:
        ValueError: a layer that is not position-only or holds NaN; a readout of another form.
    """
    require_blocks(construction, len(blocks))
    layer, width = construction.layer, construction.width
    if isinstance(layer, TwoLayerAttention):
        operator = list(two_layer.columns(layer, width, domain))
    else:
        operator = list(columns(read(layer, width, domain)))
    worst = 0.0
    for block, t in zip(construction.readout, blocks, strict=True):
        for b, c in enumerate(block.columns):
            worst = worse(worst, exact.difference(operator[c], [t if a == b else None for a in range(width)]))
    return worst


def float64_gap(
    construction: Construction,
    bank: Float[np.ndarray, "k N N"],
    majorants: Float[np.ndarray, "k N N"],
    probes: int | None = None,
) -> float:
    """The largest |L - T| over the majorant, entry by entry; NaN if anything is.

    Args:
        construction: the layer.
        bank: T_t.
        majorants: of the sum of the sizes of the addends behind an entry.
        probes: so many normal contents instead of all basis contents; errors are then relative to the majorant applied
            to the content's absolute values. What that misses: `constructions.checks.result.float64_operator_error`.

    Raises:
        ValueError: a readout of another form; content in queries or keys.
    """
    require_blocks(construction, len(bank))
    require_position_only(construction)
    target, scale = torch.from_numpy(bank), torch.from_numpy(majorants)
    tokens, width = bank.shape[1], construction.width
    if probes is None:
        inputs = torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)
    else:
        inputs = torch.from_numpy(np.random.default_rng(0).standard_normal((probes, tokens, width)))
    worst = 0.0
    for x, out in _outputs(construction, inputs):
        worst = worse(worst, largest_ratio(out - _apply(target, x), _apply(scale, x.abs())))
    return worst


def relative_error(construction: Construction, bank: Float[Tensor, "k N N"]) -> float:
    """sqrt(sum_t |L_t - T_t|_F^2 / sum_t |T_t|_F^2), from all basis contents; infinite if it is no number.

    Raises:
        ValueError: a readout of another form; content in queries or keys.
    """
    require_blocks(construction, len(bank))
    require_position_only(construction)
    tokens, width = bank.shape[1], construction.width
    own = torch.eye(width, dtype=torch.float64)
    total, start = 0.0, 0
    for x, out in _outputs(construction, torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)):
        at = torch.arange(start, start + len(x))
        start += len(x)
        target = torch.einsum("tib,ba->bita", bank[:, :, at // width], own[at % width])  # of basis content (j, a)
        total += float((out - target.flatten(2)).square().sum())
    error = math.sqrt(total / (width * float(bank.square().sum())))
    return error if math.isfinite(error) else math.inf


def operations(construction: Construction, tokens: int) -> int:
    """The longest chain of float64 operations behind an output: see `constructions.checks.result.layer_operations`."""
    return sum(layer_operations(one, tokens) for one in _layers(construction))


def require_blocks(construction: Construction, terms: int) -> None:
    """A ValueError unless the readout has k blocks of the content's width within the layer's output."""
    readout, width = construction.readout, construction.width
    inside = all(b.width == width and 0 <= b.start <= construction.layer.out_dim - width for b in readout)
    if len(readout) != terms or not inside:
        raise ValueError(f"the readout does not have {terms} blocks of width {width} within the output")


def _outputs(construction: Construction, inputs: Float[Tensor, "n N d"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Contents in batches, and the readout of layer(positions, positions, [x, I_N])."""
    tokens, width = inputs.shape[1:]
    layer = construction.layer
    widest = max(max(one.out_dim, one.num_heads * one.value_head_dim) for one in _layers(construction))
    rows = max(1, MEASURE_BYTES // (8 * tokens * (widest * (construction.pseudo_heads + 1) + layer.vdim)))
    positions = with_positions(torch.zeros(1, tokens, width, dtype=torch.float64))
    values = positions.repeat(min(rows, len(inputs)), 1, 1)  # once: copying I_N takes longer than the layer does
    with torch.no_grad():
        for x in inputs.split(rows):
            values[: len(x), :, :width] = x
            yield x, construction.pick(layer(positions, positions, values[: len(x)]))


def require_position_only(construction: Construction) -> None:
    """Refuses content in queries or keys and positions in values: the layer is then no linear map of the content.

    Runs at positions without content would not notice.

    Raises:
        NotPositionOnlyError: as said.
    """
    width = construction.width
    for one in _layers(construction):
        if bool(one.q_proj.weight[:, :width].any()) or bool(one.k_proj.weight[:, :width].any()):
            raise NotPositionOnlyError("the queries or keys use content")
    if bool(_layers(construction)[0].v_proj.weight[:, width:].any()):
        raise NotPositionOnlyError("the values use positions")


def _layers(construction: Construction) -> tuple:
    layer = construction.layer
    return (layer.first, layer.second) if isinstance(layer, TwoLayerAttention) else (layer,)


def _apply(bank: Tensor, x: Tensor) -> Tensor:
    return torch.einsum("tij,bja->bita", bank, x).flatten(2)
