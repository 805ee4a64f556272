"""Theorem 1 of docs/parity.md as a program: a layer of total degree R does not compute the parity of R + 1 bits.

With d_1, ..., d_r the denominators of the softmax rows at the query token, D = d_1 ... d_r and g the output there,
D g is a sum of functions of at most R bits each. Flipping a bit that a function does not see changes (-1)^|x| only, so

    sum_x (-1)^|x| D(x) g(x) = 0      over all x in {0, 1}^n, n > R,                                                 (1)

and as D > 0 there is an x with (-1)^|x| g(x) <= 0: a wrong sign. On n <= R bits (1) does not hold in general.

`run` has many random weights of a layer at once: g from its own forward, the d from the logits, written down again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.func import functional_call, vmap

from iha_theory import blueprint
from iha_theory.attention import (
    ComposableAttention,
    InterleavedHeadAttention,
    MultiHeadLatentAttention,
    MultiTokenAttention,
    StrassenAttention,
    TalkingHeadsAttention,
    TensorProductAttention,
    TwoLayerAttention,
)
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.higher_order.pairs import PairAttention
from iha_theory.capacity import fan_in
from iha_theory.operators.numerical import frozen
from iha_theory.rounding import UNIT, require_count

Layer = AttentionLayer | TwoLayerAttention

NUMBERS = 2**16
"""About how many logits are held at once, so that they stay in the processor's cache."""


@dataclass(frozen=True)
class Sizes:
    """What bounds rounding at the query token.

    Attributes:
        output: G, the sum of the absolute values of all terms of g, at most.
        logit: L, the same for the logits.
        chain: m, no logit, value or read-out has more operations in a row; sums over keys apart.
        keys: Z, over how many each row goes.
    """

    output: Tensor
    logit: Tensor
    chain: int
    keys: int

    @property
    def row(self) -> Tensor:
        """Relative error of a row's sums: a logit is off by m L u, its exponential by a factor 1 + (m L + 4) u, and Z
        of them are added; first order, 5 for 4 covers the rest."""
        return UNIT * (self.chain * self.logit + self.keys + 5)

    @property
    def error(self) -> Tensor:
        """|computed g - g| / G: a row divides two sums, and values and read-out have m operations."""
        return 2 * self.row + UNIT * self.chain


@dataclass(frozen=True)
class Runs:
    """W layers on all 2^n inputs.

    Attributes:
        outputs: g, x in the order of `itertools.product`.
        denominators: d_1, ..., d_r; none for the linear pattern.
        sizes: `Sizes` with `output` and `logit` of each layer.
    """

    outputs: Float[Tensor, "layers inputs"]
    denominators: Float[Tensor, "layers inputs rows"]
    sizes: Sizes

    @property
    def signs(self) -> Float[Tensor, " inputs"]:
        """(-1)^|x|."""
        return 1 - 2.0 * _inputs(self.outputs.shape[1].bit_length() - 1).sum(1).remainder(2).double()

    @property
    def sums(self) -> Float[Tensor, " layers"]:
        """|sum_x (-1)^|x| D g| / (G sum_x D)."""
        product = self.denominators.prod(-1)
        return (product * self.outputs @ self.signs).abs() / (self.sizes.output * product.sum(-1))

    @property
    def bound(self) -> Float[Tensor, " layers"]:
        """Of `sums` by rounding, where (1) holds: errors of g and of r denominators, r products, a sum over x."""
        rows, inputs = self.denominators.shape[-1], self.outputs.shape[1]
        return self.sizes.error + rows * self.sizes.row + UNIT * (rows + inputs)

    @property
    def worst(self) -> tuple[float, float]:
        """Sum and bound of the layer that comes closest to its bound, or exceeds it most."""
        at = int((self.sums / self.bound).argmax())
        return float(self.sums[at]), float(self.bound[at])

    @property
    def wrong(self) -> Integer[Tensor, " layers"]:
        """On how many inputs (-1)^|x| g(x) is not positive."""
        return (self.outputs * self.signs <= 0).sum(-1)

    @property
    def holds(self) -> bool:
        """Whether (1) holds to rounding for each of the layers, and each has a wrong sign."""
        return bool((self.sums <= self.bound).all()) and bool((self.wrong > 0).all())


@blueprint.theorem(
    "total-degree",
    "a layer of total degree R computes the parity of no more than R bits, and does not come near it",
    uses=(
        "softmax-rows",
        "parity-task",
        "mha",
        "gqa",
        "talking-heads",
        "differential",
        "iha",
        "simplicial",
        "strassen",
        "latent",
        "tensor-product",
    ),
    check="numerical",
    proof="docs/parity.md, Theorem 1",
)
def run(layer: Layer, bits: int, *, weights: int = 1000, seed: int = 0) -> Runs:
    """A layer with random weights on every input of n bits, each with random tokens, and the query token behind them.

    Tokens are normal: one for each bit and each of its values, and one of the query, so that content is anywhere. All
    parameters are normal, of variance 1 / fan-in. g is the first coordinate of the output at the query token.

    Args:
        layer: one of this project's, softmax or linear, two layers only linear; its parameters are not used. Run in
            evaluation mode (dropout off), on a copy.
        bits: n.
        weights: W.
        seed: of weights and tokens.

    Raises:
        ValueError: another pattern, rotary positions, a window, a number below 1.
    """
    first = layer.first if isinstance(layer, TwoLayerAttention) else layer
    if first.pattern == "hard" or first.rotary or first.window:
        raise ValueError("the sum is for softmax or linear attention without rotary positions or a window")
    if first is not layer and first.pattern != "linear":
        raise ValueError("two layers of softmax have no total degree")
    layer = frozen(layer)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(require_count("weights", weights), *shape, generator=generator, dtype=torch.float64)

    parameters = {name: normal(*p.shape) / fan_in(p) ** 0.5 for name, p in layer.named_parameters()}
    tokens = normal(2, require_count("bits", bits), first.embed_dim), normal(1, first.embed_dim)
    inputs = _inputs(bits)[..., None]

    def one(own: Mapping[str, Tensor], values: Tensor, query: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        seen = torch.cat((torch.where(inputs, values[1], values[0]), query.expand(len(inputs), 1, -1)), 1)
        out, scores = _at_query(layer, own, seen)
        return out, scores.exp().sum(-1), _sizes(layer, own, torch.cat((values.flatten(0, 1), query)), bits + 1)

    keys = _keys(layer, bits + 1)
    chunk = max(1, NUMBERS // (len(inputs) * keys))
    outputs, denominators, (output, logit) = vmap(one, chunk_size=chunk)(parameters, *tokens)
    return Runs(outputs, denominators, Sizes(output, logit, _chain(layer), keys))


def sizes(layer: Layer, tokens: Float[Tensor, "kinds width"], count: int) -> Sizes:
    """The sizes of a layer with its own weights, in evaluation mode.

    Args:
        layer: as in `run`.
        tokens: every kind of token there is, the query token last.
        count: N, how many tokens an input has.
    """
    layer = frozen(layer)
    found = _sizes(layer, dict(layer.named_parameters()), tokens, count)
    return Sizes(*found, _chain(layer), _keys(layer, count))


@blueprint.definition(
    "softmax-rows",
    "the softmax rows at a query token: ratios of sums over keys, each term seeing at most b bits; "
    "their degrees add up to the layer's total degree",
    uses=("pattern",),
    check="numerical",
    proof="docs/parity.md, Setting",
    tests="tests/iha_theory/bounds/test_obstruction.py",
)
def logits(layer: Layer, x: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch rows keys"]:
    """The logits of the softmax rows at the last token; no rows for the linear pattern."""
    if isinstance(layer, TwoLayerAttention) or layer.pattern == "linear":
        return x.new_zeros(len(x), 0, 1)
    q, k = _query_and_keys(layer, x)
    if isinstance(layer, InterleavedHeadAttention):
        q = torch.einsum("mhp,bmc->bhpc", layer.alpha_q, q)
        k = torch.einsum("mhp,bnmc->bnhpc", layer.alpha_k, k)
        found = torch.einsum("bhpc,bnhrc->bhpnr", q, k).flatten(3).flatten(1, 2)
    elif isinstance(layer, PairAttention):
        second = layer.second_keys(x).unflatten(-1, (-1, layer.head_dim))
        if isinstance(layer, StrassenAttention):
            qk, kk, kq = "bhc,bnhc->bhn", "bnhc,bmhc->bhnm", "bhc,bmhc->bhm"
            found = torch.einsum(qk, q, k)[..., None] + torch.einsum(kk, k, second)
            found = (found + torch.einsum(kq, q, second)[..., None, :]).flatten(2)
        else:
            found = torch.einsum("bhc,bnhc,bmhc->bhnm", q, k, second).flatten(2)
    else:
        found = torch.einsum("bhc,bnhc->bhn", q, k.repeat_interleave(q.shape[1] // k.shape[2], 2))
        if isinstance(layer, TalkingHeadsAttention) and layer.mix_logits is not None:
            found = torch.einsum("hg,bgn->bhn", layer.mix_logits, found)
        if isinstance(layer, ComposableAttention):
            of_query = layer.mix_logits + layer.compose["logits_query"](x[:, -1:])
            mixing = of_query + layer.compose["logits_key"](x)
            found = torch.einsum("bnhg,bgn->bhn", mixing, found)
        if isinstance(layer, MultiTokenAttention):
            before = layer.key_window // 2
            around = F.pad(found, (before, layer.key_window - 1 - before)).unfold(-1, layer.key_window, 1)
            found = torch.einsum("hc,bhnc->bhn", layer.kernel[:, -1], around)
    return layer.scale * found


def _query_and_keys(layer: AttentionLayer, x: Tensor) -> tuple[Tensor, Tensor]:
    """The last token's queries, (batch, heads, width), and all keys, (batch, tokens, heads, width)."""
    last, seen = x[:, -1], x
    if isinstance(layer, MultiHeadLatentAttention):
        last = last if layer.q_down is None else layer.q_down(last)
        seen = (layer.kv_down if layer.kdim == layer.vdim else layer.k_down)(x)
    q = layer.q_proj(last).unflatten(-1, (-1, layer.head_dim))
    k = layer.k_proj(seen).unflatten(-1, (-1, layer.head_dim))
    if isinstance(layer, TensorProductAttention):
        of_query = layer.q_heads(last).unflatten(-1, (layer.query_rank, -1)) / layer.query_rank
        of_keys = layer.k_heads(x).unflatten(-1, (layer.key_rank, -1)) / layer.key_rank
        q, k = torch.einsum("brh,brc->bhc", of_query, q), torch.einsum("bnrh,bnrc->bnhc", of_keys, k)
    return q, k


class _AtQuery(nn.Module):
    """The first output coordinate at the last token, and the logits of its rows."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Float[Tensor, "batch tokens width"]) -> tuple[Tensor, Tensor]:
        query = x if isinstance(self.layer, TwoLayerAttention) else x[:, -1:]
        return self.layer(query, x, x)[:, -1, 0], logits(self.layer, x)


def _at_query(layer: Layer, parameters: Mapping[str, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    return functional_call(_AtQuery(layer), {f"layer.{name}": p for name, p in parameters.items()}, (x,))


def _sizes(layer: Layer, parameters: Mapping[str, Tensor], tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """G and L, by runs of the layer of absolute values: on the tokens for L, on N copies of their maximum for G."""
    absolute = {name: -p.abs() if name == "lam" else p.abs() for name, p in parameters.items()}
    most = tokens.abs().amax(0).expand(1, count, -1)
    output, _ = _at_query(layer, absolute, most)
    _, scores = _at_query(layer, absolute, tokens.abs()[None])
    return output[0], scores.amax() if scores.shape[1] else 0 * output[0]


def _chain(layer: Layer) -> int:
    width = (layer.first if isinstance(layer, TwoLayerAttention) else layer).head_dim
    return sum(1 if p.ndim == 1 else fan_in(p) for p in layer.parameters()) + width + 1


def _keys(layer: Layer, tokens: int) -> int:
    return tokens**2 if isinstance(layer, PairAttention) else tokens * getattr(layer, "num_pseudo_heads", 1)


def _inputs(bits: int) -> Tensor:
    """{0, 1}^n as Booleans, (2^n, n)."""
    return torch.cartesian_prod(*[torch.tensor([False, True])] * bits).view(-1, bits)
