"""The error of a layer's operator against a target, whether it is one layer of attention or two.

- `exact_gap`, `exact_operator_gap`: the operator read from the weights, over the rationals or modulo a prime.
  `settled`: over the rationals if float64 holds the weights, else modulo primes.
- `float64_gap`, `float64_operator_gap`: the operator by running the layer, relative to sizes entry by entry, for a
  bound on the rounding of so many `operations`.
- `frobenius_error`: the operator by running the layer, |L - T|_F / |T|_F: the root mean square error for content with
  independent entries of mean 0 and variance 1 (docs/results.md T3).

A target is a bank, X -> [T_0 X, ..., T_{k-1} X], or for the functions named `operator` any linear map.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.oracles import Operator
from constructions.construction import Construction
from iha_theory import exact
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.exact import Domain
from iha_theory.operators.exact import layer_columns
from iha_theory.operators.weights import NotPositionOnlyError, with_positions
from iha_theory.rounding import largest_ratio, worse

BATCH_BYTES = 2**29
"""Memory that one batch of contents may take. Each batch forms the attention maps anew, so few are better."""
MANY, PROBES = 256, 16
"""Beyond so many tokens a bank is run on so many normal contents, not on every basis content."""


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
    width = range(construction.width)
    return exact_operator_gap(
        construction, [[t if a == b else None for a in width] for t in blocks for b in width], domain
    )


def exact_operator_gap(
    construction: Construction, target: Sequence[Sequence[DomainMatrix | None]], domain: Domain = QQ
) -> float:
    """0.0 if and only if the layer's readout is the target operator, for every X; otherwise as `exact_gap`.

    Args:
        construction: the layer.
        target: for each coordinate c of the readout and each content coordinate a the (N, N) matrix
            M[i, j] = d out[i, c] / d X[j, a] over the domain; None for 0.
        domain: the rationals or a prime field.

    Raises:
        ValueError: a layer that is not position-only or holds NaN, or as many coordinates as the readout does not have.
    """
    read_out = [c for block in construction.readout for c in block.columns]
    if len(target) != len(read_out) or not read_out:
        raise ValueError(f"{len(target)} target coordinates against {len(read_out)} in the readout")
    operator = list(layer_columns(construction.layer, construction.width, domain, construction.causality))
    if any(c >= len(operator) for c in read_out):
        raise ValueError(f"the readout goes beyond the layer's {len(operator)} output coordinates")
    return max(exact.difference(operator[c], wanted) for c, wanted in zip(read_out, target, strict=True))


def settled(
    build: Callable[[int | None], tuple[Construction, Sequence[DomainMatrix]]],
    primes: Callable[[], Sequence[int]],
    most: float = math.inf,
) -> tuple[Construction, float, int]:
    """A construction and its exact gap, over the rationals where float64 holds every weight, otherwise modulo primes.

    Args:
        build: the construction and the blocks that it should have, over the rationals (None) or modulo a prime. It must
            be polynomial in its numbers, so that it can be made and read modulo any prime.
        primes: so many that what is 0 modulo all of them is 0; asked for only where they are needed.
        most: how many primes may be tried.

    Returns:
        The construction (modulo the first prime), its gap (the number of wrong entries, of all primes), and the number
        of primes, 0 for the rationals.

    Raises:
        OverflowError: it takes more primes than `most`.
    """
    try:
        construction, blocks = build(None)
        return construction, exact_gap(construction, blocks), 0
    except OverflowError:
        chosen = primes()
    if len(chosen) > most:
        raise OverflowError(f"float64 does not hold the weights, and to be sure takes {len(chosen)} primes")
    first, wrong = None, 0.0
    for prime in chosen:
        construction, blocks = build(prime)
        first, wrong = first or construction, wrong + exact_gap(construction, blocks, exact.gf(prime))
    assert first is not None
    return first, wrong, len(chosen)


def float64_gap(
    construction: Construction,
    bank: Float[np.ndarray, "k N N"],
    majorants: Float[np.ndarray, "k N N"],
    *,
    also_as_self_attention: bool = True,
) -> float:
    """`float64_operator_gap` against a bank of matrices, by `PROBES` contents for more than `MANY` tokens.

    Args:
        construction: the layer; its readout has one block of the content's width for each T_t.
        bank: T_t.
        majorants: |T_t| with every addend in absolute value (for A^t: |A|^t); errors are relative to these.
        also_as_self_attention: as `float64_operator_gap`.

    Raises:
        ValueError: a readout of another form; content in queries or keys.
    """
    require_blocks(construction, len(bank))
    tokens = bank.shape[-1]
    return float64_operator_gap(
        construction,
        tokens,
        *(_operator(torch.from_numpy(maps)) for maps in (bank, majorants)),
        probes=None if tokens <= MANY else PROBES,
        also_as_self_attention=also_as_self_attention,
    )


def float64_operator_gap(
    construction: Construction,
    tokens: int,
    target: Operator,
    majorant: Operator,
    *,
    probes: int | None = None,
    also_as_self_attention: bool = True,
) -> float:
    """Largest componentwise relative error of the torch layer's operator, and of its outputs for one normal X.

    The layer runs as layer(positions, positions, content) on every basis content, and once as self-attention.

    Where there are too many basis contents, s normal ones serve: let e hold the entries behind one output of the
    difference of the operators. A normal X gives |<e, X>| <= |e|_2 / 8 with probability below 1/10, so that all s do
    with probability below 10^-s: but for that, |e|_2 is at most 8 times what the s contents show.

    Args:
        construction: the layer.
        tokens: N.
        target: the operator.
        majorant: the operator with every addend in absolute value, on content in absolute value; errors are relative
            to it.
        probes: s; None for every basis content.
        also_as_self_attention: False leaves that run out.

    Returns:
        The error; NaN if anything is.

    Raises:
        NotPositionOnlyError: content in queries or keys, positions in values.
        ValueError: shapes that differ.
    """
    require_position_only(construction)
    width, generator = construction.width, np.random.default_rng(0)
    inputs = _basis(tokens, width) if probes is None else _normal(generator, probes, tokens, width)
    worst = 0.0
    for x, out in _outputs(construction, inputs):
        worst = worse(worst, componentwise_error(out, target(x), majorant(x.abs())))
    if also_as_self_attention:
        x = _normal(generator, 1, tokens, width)
        with torch.no_grad():
            worst = worse(worst, componentwise_error(construction(x), target(x), majorant(x.abs())))
    return worst


def componentwise_error(out: Tensor, target: Tensor, majorant: Tensor) -> float:
    """`largest_ratio` of out - target to the majorant.

    Raises:
        ValueError: shapes that differ.
    """
    if out.shape != target.shape:
        raise ValueError(f"cannot compare shapes {tuple(out.shape)} and {tuple(target.shape)}")
    return largest_ratio(out - target, majorant)


def frobenius_error(construction: Construction, bank: Float[Tensor, "k N N"]) -> float:
    """sqrt(sum_t |L_t - T_t|_F^2 / sum_t |T_t|_F^2), from all basis contents; infinite if it is no number.

    Raises:
        ValueError: a readout of another form; content in queries or keys.
    """
    require_blocks(construction, len(bank))
    require_position_only(construction)
    tokens, width = bank.shape[1], construction.width
    own = torch.eye(width, dtype=torch.float64)
    total, start = 0.0, 0
    for x, out in _outputs(construction, _basis(tokens, width)):
        at = torch.arange(start, start + len(x))
        start += len(x)
        target = torch.einsum("tib,ba->bita", bank[:, :, at // width], own[at % width])  # of basis content (j, a)
        total += float((out - target.flatten(2)).square().sum())
    error = math.sqrt(total / (width * float(bank.square().sum())))
    return error if math.isfinite(error) else math.inf


def operations(construction: Construction, tokens: int) -> int:
    """The longest chain of float64 operations behind an output entry, for linear attention without biases.

    In a layer: three projections (N + d each; the values of a second layer as many as the first puts out), three
    mixings (H each), scores (d_k), values (N P), collapse (H P), output projection (H d_v). Every output is a sum of
    products of weights and content; one entry's computed value is that sum with each addend times a product of at most
    so many factors 1 + delta, |delta| <= u (Higham 2002, Sec. 3.1).
    """
    total = 0
    for layer in layers_of(construction):
        heads, pseudo = layer.num_heads, getattr(layer, "num_pseudo_heads", 1)
        out = 0 if layer.out_proj is None else heads * layer.value_head_dim
        total += 2 * layer.embed_dim + layer.vdim + 3 * heads + layer.head_dim + tokens * pseudo + heads * pseudo + out
    return total


def require_blocks(construction: Construction, terms: int) -> None:
    """A ValueError unless the readout has k >= 1 blocks of the content's width within the layer's output."""
    readout, width = construction.readout, construction.width
    inside = all(b.width == width and 0 <= b.start <= construction.layer.out_dim - width for b in readout)
    if terms < 1 or len(readout) != terms or not inside:
        raise ValueError(f"the readout does not have {terms} blocks of width {width} within the output")


def require_position_only(construction: Construction) -> None:
    """Refuses content in queries or keys and positions in values: the layer is then no linear map of the content.

    Runs at positions without content would not notice.

    Raises:
        NotPositionOnlyError: as said.
    """
    width = construction.width
    for one in layers_of(construction):
        if bool(one.q_proj.weight[:, :width].any()) or bool(one.k_proj.weight[:, :width].any()):
            raise NotPositionOnlyError("the queries or keys use content")
    if bool(layers_of(construction)[0].v_proj.weight[:, width:].any()):
        raise NotPositionOnlyError("the values use positions")


def layers_of(construction: Construction) -> tuple[AttentionLayer, ...]:
    """Its one layer, or two."""
    layer = construction.layer
    return (layer.first, layer.second) if isinstance(layer, TwoLayerAttention) else (layer,)


def _outputs(construction: Construction, inputs: Float[Tensor, "n N d"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Contents in batches, and the readout of layer(positions, positions, [x, I_N])."""
    tokens, width = inputs.shape[1:]
    layer = construction.layer
    widest = max(max(one.out_dim, one.num_heads * one.value_head_dim) for one in layers_of(construction))
    rows = max(1, BATCH_BYTES // (8 * tokens * (widest * (construction.pseudo_heads + 1) + layer.vdim)))
    positions = with_positions(torch.zeros(1, tokens, width, dtype=torch.float64))
    values = positions.repeat(min(rows, len(inputs)), 1, 1)  # once: copying I_N takes longer than the layer does
    with torch.no_grad():
        for x in inputs.split(rows):
            values[: len(x), :, :width] = x
            out = layer(positions, positions, values[: len(x)], is_causal=construction.is_causal)
            yield x, construction.pick(out)


def _basis(tokens: int, width: int) -> Tensor:
    """Every basis content, (N d, N, d)."""
    return torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)


def _normal(generator: np.random.Generator, *shape: int) -> Tensor:
    return torch.from_numpy(generator.standard_normal(shape))


def _operator(bank: Tensor) -> Operator:
    """X -> [T_0 X, T_1 X, ...]."""
    return lambda x: torch.einsum("tij,bja->bita", bank, x).flatten(2)
