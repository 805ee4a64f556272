"""Operators, realignments and Schmidt ranks: known ones, index conventions, and what must be refused."""

import math
from inspect import unwrap

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.numerical import (
    EPS,
    NotLinearError,
    Operator,
    position_only,
    realignment,
    singular_values,
    spectrum,
)
from iha_theory.operators.rank import CLEAR_GAP, ROUNDING, rank


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def orthonormal(count: int, rows: int, columns: int, seed: int = 0) -> Tensor:
    """`count` matrices (rows, columns) that are orthonormal as vectors."""
    return torch.linalg.qr(normal(rows * columns, count, seed=seed)).Q.T.reshape(count, rows, columns)


class Terms(nn.Module):
    """The operator sum_r S_r X B_r + constant, whose rank and spectrum are known."""

    def __init__(self, s: Tensor, b: Tensor, constant: float = 0.0) -> None:
        super().__init__()
        self.s, self.b = nn.Buffer(s), nn.Buffer(b)
        self.constant = constant

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        assert len(query) == len(key) == len(value)
        return torch.einsum("rij,nja,rab->nib", self.s, value, self.b) + self.constant


def terms(weights: list[float], queries: int = 7, keys: int = 6, width: int = 3, out: int = 5) -> Operator:
    """An operator with this Schmidt spectrum."""
    s = orthonormal(len(weights), queries, keys) * torch.tensor(weights, dtype=torch.float64)[:, None, None]
    module = Terms(s, orthonormal(len(weights), width, out, seed=1))
    return position_only(module, normal(queries, 2), normal(keys, 2), width=width)


def generic(layer: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) / math.sqrt(p.shape[-1]))
    return layer


LAYERS = {
    "ours": lambda: MultiHeadAttention(8, 2, vdim=3, dtype=torch.float64),
    "biased": lambda: MultiHeadAttention(8, 2, vdim=3, bias=True, dtype=torch.float64),
    "iha": lambda: InterleavedHeadAttention(8, 2, vdim=3, dtype=torch.float64),
    "torch": lambda: nn.MultiheadAttention(8, 2, vdim=3, dtype=torch.float64),
    "torch-batch-first": lambda: nn.MultiheadAttention(8, 2, vdim=3, batch_first=True, dtype=torch.float64),
}


def jacobian(function, at: Tensor) -> np.ndarray:
    """Rl by torch's own Jacobian and four explicit loops over its indices."""
    j = torch.autograd.functional.jacobian(function, at)
    assert isinstance(j, Tensor)
    queries, out, keys, width = j.shape
    rl = np.empty((queries * keys, width * out))
    for i in range(queries):
        for b in range(out):
            for k in range(keys):
                for a in range(width):
                    rl[i * keys + k, a * out + b] = j[i, b, k, a]
    return rl


# Known operators.


def test_the_identity_has_rank_one_and_its_realignment():
    n, d = 4, 3
    operator = position_only(Terms(torch.eye(n).double()[None], torch.eye(d).double()[None]), normal(n, 2), width=d)
    expected = torch.outer(torch.eye(n).double().flatten(), torch.eye(d).double().flatten())
    assert torch.equal(realignment(operator), expected)
    assert rank(operator).rank == 1
    torch.testing.assert_close(spectrum(operator)[0].item(), math.sqrt(n * d))


def test_a_shift_points_the_way_it_says():
    shift = torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]).double()  # row i takes token i + 1
    operator = position_only(Terms(shift[None], torch.eye(1).double()[None]), normal(3, 2), width=1)
    rl = realignment(operator)
    assert rl.shape == (9, 1)
    assert [divmod(int(row), 3) for row in rl.flatten().nonzero()] == [(0, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize("r", range(8))
def test_a_sum_of_r_terms_has_rank_r(r: int):
    operator = position_only(Terms(normal(r, 5, 6), normal(r, 4, 3, seed=1)), normal(5, 2), normal(6, 2), width=4)
    found = rank(operator)
    assert (found.rank, found.limit) == (r, 12)
    assert found.clear


def test_fewer_terms_than_written_are_seen():
    s, b = normal(4, 5, 5), normal(4, 4, 4, seed=1)
    s[3] = s[0] - 2 * s[1]  # dependent maps: four terms written, three needed
    assert rank(position_only(Terms(s, b), normal(5, 2), width=4)).rank == 3


def test_the_spectrum_is_that_of_orthonormal_terms():
    weights = [5.0, 2.0, 1.0, 0.25]
    values = spectrum(terms(weights))
    torch.testing.assert_close(values[:4], torch.tensor(weights).double())
    assert float(values[4:].max()) < 1e-14


def test_singular_values_of_tall_wide_and_square_matrices():
    for shape in ((9, 4), (4, 9), (6, 6)):
        matrix = normal(*shape)
        torch.testing.assert_close(singular_values(matrix), torch.linalg.svdvals(matrix))


# Index conventions, on layers.


@pytest.mark.parametrize("name", LAYERS)
def test_the_realignment_is_that_of_autograd(name: str):
    layer = generic(LAYERS[name]())
    query, key = normal(4, 8), normal(5, 8, seed=1)

    def function(x: Tensor) -> Tensor:
        inputs = query[None], key[None], x[None]
        if name == "torch":
            return layer(*(i.transpose(0, 1) for i in inputs))[0][:, 0]
        out = layer(*inputs)
        return (out[0] if isinstance(out, tuple) else out)[0]

    expected = jacobian(function, normal(5, 3, seed=2))
    rl = realignment(position_only(layer, query, key))
    assert rl.shape == expected.shape == (20, 24)
    np.testing.assert_allclose(rl.numpy(), expected, atol=1e-13)


def test_a_mask_reaches_the_layer():
    layer = generic(MultiHeadAttention(8, 2, dtype=torch.float64))
    rl = realignment(position_only(layer, normal(5, 8), is_causal=True)).unflatten(0, (5, 5))
    later = torch.ones(5, 5).triu(1).bool()
    assert not rl[later].any()
    assert rl[~later].any(-1).all()


def test_torch_mha_has_rank_h_whether_batch_first_or_not():
    for heads in (1, 2, 4):
        layer = generic(nn.MultiheadAttention(16, heads, dtype=torch.float64))
        first = nn.MultiheadAttention(16, heads, batch_first=True, dtype=torch.float64)
        first.load_state_dict(layer.state_dict())
        pos = normal(12, 16)
        operators = [position_only(m, pos) for m in (layer, first)]
        torch.testing.assert_close(*(realignment(o) for o in operators))
        assert [rank(o).rank for o in operators] == [heads, heads]


# Affine modules.


def test_biases_are_subtracted():
    with_bias, without = generic(LAYERS["biased"]()), LAYERS["ours"]()
    state = with_bias.state_dict()
    without.load_state_dict({name: state[name] for name in without.state_dict()})
    for part in ("q_proj", "k_proj"):  # these shape the maps; only the others add a constant
        with_bias.get_parameter(f"{part}.bias").data.zero_()
    pos = normal(6, 8)
    affine, linear = position_only(with_bias, pos), position_only(without, pos)
    assert affine.constant > 0.1
    assert linear.constant == 0
    torch.testing.assert_close(realignment(affine), realignment(linear))


def test_rounding_beside_a_large_constant_is_not_rank():
    s, b = normal(1, 6, 6), normal(1, 3, 3, seed=1)
    noise = position_only(Terms(0 * s, b, constant=1e6 / 3), normal(6, 2), width=3)
    assert rank(noise).rank == 0
    assert rank(position_only(Terms(s, b, constant=1e6 / 3), normal(6, 2), width=3)).rank == 1


# The gap.


def test_the_gap_is_the_ratio_that_decides():
    found = rank(terms([1.0, 1e-6, 1e-15]))
    assert found.rank == 2
    assert 1e8 < found.gap < 1.1e9  # 1e-6 / 1e-15, where 1e-15 is read with an error of a few 1e-16
    assert found.clear


def test_one_more_small_term_is_seen():
    assert [rank(terms(w)).rank for w in ([1.0, 0.5], [1.0, 0.5, 1e-9])] == [2, 3]


def test_a_spectrum_without_a_gap_is_not_clear():
    found = rank(terms([10.0**-k for k in range(15)], width=4))
    assert 10 < found.rank < 15
    assert not found.clear
    assert found.gap < CLEAR_GAP


def test_full_rank_is_judged_by_its_distance_from_the_threshold():
    threshold = ROUNDING * EPS * math.sqrt(42 * 15)
    found = rank(terms([1.0] * 14 + [1e-12]))
    assert found.rank == found.limit == 15
    assert found.gap == pytest.approx(1e-12 / threshold, rel=1e-2)
    assert not found.clear
    assert rank(terms([1.0] * 15)).clear


def test_the_zero_operator_has_rank_zero_and_a_finite_gap():
    found = rank(position_only(Terms(torch.zeros(1, 4, 4).double(), normal(1, 3, 3)), normal(4, 2), width=3))
    assert (found.rank, found.gap, found.clear) == (0, 1 / EPS, True)


def test_a_realignment_beyond_memory_is_refused_in_one_line():
    with pytest.raises(ValueError, match="larger than 268435456 numbers: take fewer heads"):
        rank(Operator(lambda content: content, 4096, 64, 4096, 64))


# What is refused.


class Valued(nn.Module):
    """Calls a function of (query, key, value)."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.function(query, key, value)


NOT_LINEAR = {
    "self-attention": lambda q, k, v: torch.softmax(v @ v.mT, -1) @ v,
    "content in the query": lambda q, k, v: torch.softmax((q + v) @ k.mT, -1) @ v,
    "a little content in the query": lambda q, k, v: torch.softmax((q + 1e-8 * v) @ k.mT, -1) @ v,
    "normalised values": lambda q, k, v: nn.functional.layer_norm(v, v.shape[-1:]),
    "relu": lambda q, k, v: v.relu(),
    "homogeneous and odd": lambda q, k, v: v * v.abs() / v.norm(dim=(1, 2), keepdim=True),
    "square": lambda q, k, v: v * v,
    "additive but for a random part": lambda q, k, v: v + 1e-9 * torch.rand_like(v),
    "overflow": lambda q, k, v: v * v.exp(),
    "float32 inside": lambda q, k, v: (v.float() / 3).double(),
    "nan": lambda q, k, v: v * math.nan,
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_a_module_that_is_not_linear_is_refused_in_one_line(name: str):
    with pytest.raises(NotLinearError, match="not linear in its value at fixed query and key") as error:
        position_only(Valued(NOT_LINEAR[name]), normal(5, 4))
    assert "\n" not in str(error.value)


def test_the_same_functions_without_content_are_accepted():
    operator = position_only(Valued(lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v + 1), normal(5, 4))
    assert rank(operator).rank == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda q, k, v: v.float(), "expected float64"),
        (lambda q, k, v: v.sum(-1), "expected float64 of 3 dimensions"),
        (lambda q, k, v: v[:, :2], r"gives \(batch, tokens\) \(1, 2\), not \(1, 5\)"),
        (lambda q, k, v: v.mean(0, keepdim=True), r"gives \(batch, tokens\) \(1, 5\), not"),
        (lambda q, k, v: {"out": v}, "gives dict"),
    ],
)
def test_outputs_of_the_wrong_kind_are_refused(function, message: str):
    with pytest.raises(ValueError, match=message):
        position_only(Valued(function), normal(5, 4))


def test_positions_have_two_axes():
    layer = LAYERS["ours"]()
    for wrong in (normal(1, 5, 8), normal(5, 8)[:0], normal(8)):
        with pytest.raises(ValueError, match=r"query of shape .* expected \(tokens, width\)"):
            unwrap(position_only)(layer, wrong)  # past the tests' shape checks


# The caller's module.


def test_the_callers_module_stays_as_it_was():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, dropout=0.5)  # float32, in training mode
    state = {name: p.clone() for name, p in layer.state_dict().items()}
    random = torch.get_rng_state()
    pos = normal(6, 8)
    operator = position_only(layer, pos)
    rl = realignment(operator)
    assert layer.training
    assert all(p.dtype == torch.float32 and p.requires_grad for p in layer.parameters())
    assert all(torch.equal(p, state[name]) for name, p in layer.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)

    reference = nn.MultiheadAttention(8, 2, dropout=0.0, dtype=torch.float64)
    reference.load_state_dict(layer.state_dict())
    assert torch.equal(rl, realignment(position_only(reference.eval(), pos)))
    with torch.no_grad():
        layer.out_proj.weight.zero_()  # a later change does not reach the operator
    assert torch.equal(rl, realignment(operator))


# Mutants of a layer: the rank notices.


def test_a_duplicated_head_lowers_the_rank_and_a_residual_raises_it():
    heads = 4
    layer = generic(MultiHeadAttention(16, heads, dtype=torch.float64))
    pos = normal(12, 16)
    assert rank(position_only(layer, pos)).rank == heads

    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return value + self.inner(query, key, value)

    assert rank(position_only(Residual(), pos)).rank == heads + 1
    with torch.no_grad():
        for name in ("q_proj", "k_proj"):
            weight = layer.get_parameter(f"{name}.weight").unflatten(0, (heads, -1))
            weight[1] = weight[0]
    assert rank(position_only(layer, pos)).rank == heads - 1


def test_the_threshold_scales_with_the_operator():
    for scale in (1e-30, 1.0, 1e30):
        assert rank(terms([scale, 1e-5 * scale])).rank == 2
