"""How far two layers are from each other, exactly and in float64: MHA inside IHA, and the witness that it is strict."""

from typing import Any

import numpy as np
import torch
from sympy import QQ
from torch import Tensor

from constructions.targets.inclusion import repeated
from iha_theory import exact
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import read
from iha_theory.rounding import gamma, largest_ratio

TOKENS, WIDTH = 5, 2
WITNESS_WIDTH = 6


def integer_mha(heads: int, pattern: str, generator: torch.Generator) -> MultiHeadAttention:
    """A position-only MHA on [X, I_N] with small random integer weights, which exact arithmetic can compare."""
    layer = MultiHeadAttention(
        WIDTH + TOKENS,
        heads,
        head_dim=3,
        value_head_dim=2,
        out_dim=4,
        pattern=pattern,  # type: ignore[arg-type]
        scale=1.0,
        dtype=torch.float64,
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-3, 4, parameter.shape, generator=generator))
        for linear in (layer.q_proj, layer.k_proj):
            linear.weight[:, :WIDTH] = 0
        layer.v_proj.weight[:, WIDTH:] = 0
    return layer


def real_mha(heads: int, generator: torch.Generator) -> MultiHeadAttention:
    """A softmax MHA with random real weights: ordinary self-attention, content everywhere."""
    layer = MultiHeadAttention(4 * heads, heads, bias=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def operators_error(mha: MultiHeadAttention, iha: InterleavedHeadAttention) -> float:
    """0.0 if and only if two position-only layers on [X, I_N] are equal for every X."""
    pairs = zip(columns(read(mha, WIDTH)), columns(read(iha, WIDTH)), strict=True)
    return max(exact.difference(a, b) for a, b in pairs)


def copies_error(mha: MultiHeadAttention, iha: InterleavedHeadAttention) -> float:
    """0.0 if the pseudo-heads of head h are all exactly head h of the MHA, and the collapse reads each head once.

    Then all copies of a token have the key and value of the MHA, for every input: the P copies share its softmax
    weight, and every row returns the MHA's output. Differences are over the rationals, of the projections after mixing.
    """
    for name in ("pattern", "scale", "rotary", "rotary_base", "window"):
        if getattr(mha, name) != getattr(iha, name):
            raise ValueError(f"the layers differ in {name}: {getattr(mha, name)} and {getattr(iha, name)}")
    worst = 0.0
    for name, alpha in (("q_proj", iha.alpha_q), ("k_proj", iha.alpha_k), ("v_proj", iha.alpha_v)):
        for kind in ("weight", "bias"):
            own, mixed = (_blocks(layer, f"{name}.{kind}") for layer in (mha, iha))
            for h in range(mha.num_heads):
                for j in range(iha.num_pseudo_heads):
                    coefficients = [exact.element(QQ, x) for x in alpha[:, h, j].tolist()]
                    worst = max(worst, exact.difference([exact.combination(coefficients, mixed)], [own[h]]))
    pseudo = [exact.matrix(rows, QQ) for rows in iha.collapse.unbind(-1)]
    read_out = exact.combination([QQ(1)] * len(pseudo), pseudo)
    worst = max(worst, exact.difference([read_out], [exact.identity(mha.num_heads, QQ)]))
    for kind in ("weight", "bias"):
        own, new = (exact.matrix(layer.get_parameter(f"out_proj.{kind}").reshape(1, -1), QQ) for layer in (mha, iha))
        worst = max(worst, exact.difference([own], [new]))
    return worst


def _blocks(layer: torch.nn.Module, name: str) -> list[Any]:
    heads: int = layer.num_heads  # type: ignore[assignment]
    return [exact.matrix(block.reshape(1, -1), QQ) for block in layer.get_parameter(name).chunk(heads)]


def outputs_error(mha: MultiHeadAttention, iha: InterleavedHeadAttention, seed: int = 0) -> tuple[float, float]:
    """Largest difference of two softmax layers on normal inputs, relative to the sizes behind it, and the bound to
    meet.

    An error delta in the logits changes softmax weights by a factor of at most e^(2 delta), and delta is at most
    gamma_(2E + d_k + H) |q||k| with the norms of absolute weights; then come averages over N P values and the
    projection.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(8, TOKENS, mha.embed_dim, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        gap = iha(x, x, x) - mha(x, x, x)
        q, k, v = (
            x.abs() @ linear.weight.abs().T + linear.bias.abs() for linear in (mha.q_proj, mha.k_proj, mha.v_proj)
        )
        heads, d = mha.num_heads, mha.head_dim
        logits = mha.scale * float((q.amax((0, 1)) * k.amax((0, 1))).view(heads, d).sum(-1).max())
        assert mha.out_proj is not None
        largest = v.amax((0, 1)) @ mha.out_proj.weight.abs().T + mha.out_proj.bias.abs()
    operations = 2 * mha.embed_dim + d + heads
    bound = 2 * (2 * gamma(operations) * (1 + logits) + gamma(TOKENS * iha.num_pseudo_heads * 2 + operations))
    return largest_ratio(gap, largest.expand_as(gap)), bound


def witness_weights(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random W_Q, W_K, W_V for the witness."""
    shape = (3, WITNESS_WIDTH, WITNESS_WIDTH)
    query, key, value = torch.from_numpy(np.random.default_rng(seed).standard_normal(shape) / WITNESS_WIDTH**0.5)
    return query, key, value


def witness_error(
    layer: InterleavedHeadAttention, weights: tuple[Tensor, Tensor, Tensor]
) -> tuple[float, float, float]:
    """Of the witness on repeated tokens: error against the closed form, the bound to meet, and how far it is from
    linear.

    The closed form 2 sinh(s) / (2 cosh(s) + P - 2) v is computed from `weights`, not from the layer; errors are
    relative to the size of v. The last number is the largest |f(2x) - 2 f(x)| of the layer's outputs.
    """
    wq, wk, wv = weights
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((16, WITNESS_WIDTH)))
    pseudo = layer.num_pseudo_heads
    s = ((x @ wq.T) * (x @ wk.T)).sum(-1, keepdim=True)
    formula = 2 * s.sinh() / (2 * s.cosh() + pseudo - 2) * (x @ wv.T)
    with torch.no_grad():
        once, twice = (layer(*[repeated(t * x, TOKENS)] * 3) for t in (1, 2))
    scale = (x.abs() @ wv.abs().T).unsqueeze(1).expand_as(once)
    error = largest_ratio(once - formula.unsqueeze(1), scale)
    logits = float(((x.abs() @ wq.abs().T) * (x.abs() @ wk.abs().T)).sum(-1).max())
    bound = 4 * gamma(3 * WITNESS_WIDTH + 2 * TOKENS * pseudo + 16) * (1 + logits)
    return error, bound, float((twice - 2 * once).abs().max())


def repeated_mha_error(layer: MultiHeadAttention, seed: int = 0) -> tuple[float, float]:
    """Of a softmax MHA without biases on repeated tokens: largest error against W_O W_V x, and the bound to meet."""
    assert layer.out_proj is not None
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((16, layer.embed_dim)))
    with torch.no_grad():
        out = layer(*[repeated(x, TOKENS)] * 3)
        linear = x @ layer.v_proj.weight.T @ layer.out_proj.weight.T
        scale = x.abs() @ layer.v_proj.weight.abs().T @ layer.out_proj.weight.abs().T
    error = largest_ratio(out - linear.unsqueeze(1), scale.unsqueeze(1).expand_as(out))
    return error, gamma(4 * layer.embed_dim + 4 * TOKENS)
