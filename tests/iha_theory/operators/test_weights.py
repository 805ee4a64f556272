"""The exact operator of a layer is the torch layer's own: on every basis input, for random integer weights."""

import numpy as np
import pytest
import torch
from sympy import QQ

from iha_theory import exact
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import Mixing, NotPositionOnlyError, PositionWeights, read, to_layer, with_positions

TOKENS, WIDTH = 4, 2


def integers(layer, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randint(-2, 3, parameter.shape, generator=generator))
        for linear in (layer.q_proj, layer.k_proj):
            linear.weight[:, :WIDTH] = 0
        layer.v_proj.weight[:, WIDTH:] = 0
    return layer


def options(pattern, out_proj=True):
    return {
        "head_dim": 3, "value_head_dim": 2, "pattern": pattern, "scale": 1.0, "dtype": torch.float64,
        "out_proj": out_proj, "out_dim": 3 if out_proj else None,
    }  # fmt: skip


LAYERS = [
    *(lambda pattern, out, h=h: MultiHeadAttention(WIDTH + TOKENS, h, **options(pattern, out)) for h in (1, 3)),
    *(
        lambda pattern, out, h=h, p=p, c=c: InterleavedHeadAttention(
            WIDTH + TOKENS, h, num_pseudo_heads=p, collapse=c, **options(pattern, out)
        )
        for h, p, c in ((1, 2, "global"), (2, 3, "global"), (3, 2, "per_head"), (2, 1, "global"))
    ),
]


@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize("pattern", ["linear", "hard"])
@pytest.mark.parametrize("out_proj", [True, False])
def test_operator_is_the_torch_layers(make, pattern, out_proj):
    layer = integers(make(pattern, out_proj), seed=1)
    basis = with_positions(torch.eye(TOKENS * WIDTH, dtype=torch.float64).view(-1, TOKENS, WIDTH))
    out = layer(basis, basis, basis).detach()  # (N d, N, D)
    assert layer.out_dim == out.shape[-1]
    for c, column in enumerate(columns(read(layer, WIDTH))):
        for a, m in enumerate(column):
            dense = (
                torch.zeros(TOKENS, TOKENS)
                if m is None
                else torch.tensor([[float(x.numerator) / float(x.denominator) for x in row] for row in m.to_list()])
            )
            expected = out[:, :, c].view(TOKENS, WIDTH, TOKENS)[:, a].T
            assert torch.allclose(dense.double(), expected, atol=1e-5)


def test_weights_survive_the_way_through_torch():
    generator = np.random.default_rng(0)
    heads, pseudo = 2, 3

    def m(*shape):
        return exact.matrix(generator.integers(-5, 6, shape), QQ)

    weights = PositionWeights(
        query=tuple(m(TOKENS, 3) for _ in range(heads)),
        key=tuple(m(TOKENS, 3) for _ in range(heads)),
        value=tuple(m(WIDTH, 2) for _ in range(heads)),
        pattern="linear",
        mixing=Mixing(*(generator.integers(-2, 3, (heads, heads, pseudo)) for _ in range(4))),
        out=m(4, 5),
    )
    again = read(to_layer(weights), WIDTH)
    for before, after in zip(columns(weights), columns(again), strict=True):
        assert exact.difference(before, after) == 0
    assert again.query == weights.query
    assert again.out == weights.out


def test_softmax_has_no_exact_operator():
    layer = integers(MultiHeadAttention(WIDTH + TOKENS, 1, **options("softmax")), 0)
    with pytest.raises(ValueError, match="softmax"):
        next(columns(read(layer, WIDTH)))


def test_what_is_not_position_only_is_refused():
    def plain(**more):
        return integers(MultiHeadAttention(WIDTH + TOKENS, 1, **{**options("linear"), **more}), 0)

    for layer, word in (
        (plain(bias=True), "bias"),
        (plain(window=2), "window"),
        (plain(head_dim=4, rotary=True), "rotary"),
    ):
        with pytest.raises(NotPositionOnlyError, match=word):
            read(layer, WIDTH)
    layer = plain()
    with torch.no_grad():
        layer.v_proj.weight[0, -1] = 1
    with pytest.raises(NotPositionOnlyError, match="values"):
        read(layer, WIDTH)
    with pytest.raises(ValueError, match="scale"):
        read(plain(scale=0.5), WIDTH)
    with pytest.raises(ValueError, match="cannot read"):
        read(torch.nn.Linear(2, 2), WIDTH)
    with pytest.raises(ValueError, match="2 base keys and 4 heads"):
        read(InterleavedHeadAttention(WIDTH + 4, 4, num_kv_heads=2, head_dim=2), WIDTH)
