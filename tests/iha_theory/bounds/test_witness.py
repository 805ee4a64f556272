"""Witnesses: layers with too few heads have one, exact layers have none; any module can be asked."""

import pytest
import torch
from torch import nn

from constructions.filter_bank.layers import bank as build
from constructions.filter_bank.paper import powers
from constructions.targets.content.families import mha_family
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.bounds.witness import witness
from iha_theory.operators.weights import with_positions

N, WIDTH, TERMS = 6, 2, 4


@pytest.fixture(scope="module")
def bank():
    a = torch.randn(N, N, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) / N**0.5
    return torch.stack([torch.linalg.matrix_power(a, t) for t in range(TERMS)])


def self_attention(layer, **options):
    def call(x):
        z = with_positions(x)
        return layer(z, z, z, **options)

    return call


@pytest.mark.parametrize("layer", ["mha", "iha"])
def test_exact_layers_have_none(bank, layer):
    found = witness(build(layer, powers(bank[1]), TERMS, WIDTH), bank, WIDTH)
    assert found.error < 1e-12
    assert found.slope == 0


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_a_truncated_layer_has_one(bank, heads):
    """r - 1 heads that are exact for the first blocks: the error is that of the missing ones."""
    whole = build("mha", powers(bank[1]), TERMS, WIDTH)

    def fewer(x):
        out = whole(x).clone()
        out[..., heads * WIDTH :] = 0
        return out

    found = witness(fewer, bank, WIDTH)
    assert found.error > 0.5
    assert 0.3 < found.slope <= found.error * (1 + 1e-9)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", [MultiHeadAttention, InterleavedHeadAttention])
def test_rotary_layers_of_ours(bank, kind, causal):
    options = {"head_dim": 8, "value_head_dim": WIDTH, "out_dim": TERMS * WIDTH, "rotary": True, "dtype": torch.float64}
    more = {"num_pseudo_heads": 1} if kind is InterleavedHeadAttention else {}
    layer = kind(WIDTH + N, 2, **options, **more)
    found = witness(self_attention(layer, is_causal=causal), bank, WIDTH)
    assert found.slope > 0.1
    assert found.errors[-1] >= 0.99 * found.slope
    assert found.error >= found.errors[-1]
    assert found.x.shape == (N, WIDTH)


def test_torch_with_a_causal_mask(bank):
    module = nn.MultiheadAttention(16, 2, batch_first=True, dtype=torch.float64)
    before, after = nn.Linear(WIDTH, 16, dtype=torch.float64), nn.Linear(16, TERMS * WIDTH, dtype=torch.float64)
    mask = torch.triu(torch.ones(N, N, dtype=torch.bool), 1)

    def call(x):
        z = before(x)
        return after(module(z, z, z, attn_mask=mask, need_weights=False)[0])

    found = witness(call, bank, WIDTH)
    assert found.slope > 0.1
    assert found.error >= 0.99 * found.slope


def test_near_on_bounded_inputs_only(bank):
    """The family of docs/content.md with a head less: near at |X| = 1, far at large X."""
    layer = mha_family(bank[1], TERMS, WIDTH, 1e4).layer()
    found = witness(self_attention(layer), bank, WIDTH)
    assert found.errors[0] < 1e-3
    assert found.errors[-1] > 1


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda x: x, "expected"),
        (lambda x: torch.full((*x.shape[:2], TERMS * WIDTH), torch.nan), "NaN"),
        (lambda _: None, "NoneType"),
        (lambda x, y: x, rf"cannot be called with one float64 tensor \({4 * N}, {N}, {WIDTH}\): .* 'y'"),
    ],
)
def test_outputs_of_another_kind_are_refused(bank, call, word):
    with pytest.raises(ValueError, match=word):
        witness(call, bank, WIDTH)


def test_other_banks_are_refused(bank):
    with pytest.raises(ValueError, match="a bank of shape"):
        witness(lambda x: x, bank[0])
    with pytest.raises(ValueError, match="a bank of shape"):
        witness(lambda x: x, bank[:, :-1])
    with pytest.raises(ValueError, match=r"^width must be"):
        witness(lambda x: x, bank, 0)
    with pytest.raises(ValueError, match=r"^directions must be"):
        witness(lambda x: x, bank, directions=0)
    for entry in (0.0, torch.nan, 1e300):
        with pytest.raises(ValueError, match="a bank of norm"):
            witness(lambda x: 0 * x, [[[entry] * 2] * 2])


def test_a_small_term_that_is_missing_counts():
    eye = torch.eye(N, dtype=torch.float64)
    found = witness(lambda x: torch.cat((x, 0 * x), -1), torch.stack((eye, 0.01 * eye)))
    assert found.slope == pytest.approx(0.01, rel=1e-3)
    assert found.error >= 0.99 * found.slope


def test_what_is_returned_is_an_input_with_its_error_and_depends_on_the_seed_alone(bank):
    def call(x):
        return torch.cat((x, 0 * x, 0 * x, 0 * x), -1) + x.tanh().repeat(1, 1, TERMS)

    found = witness(call, bank, WIDTH)
    target = torch.cat([power @ found.x for power in bank], -1)
    error = float((call(found.x[None])[0] - target).norm() / target.norm())
    assert found.error == max(found.errors) == pytest.approx(error)
    assert float(found.x.norm()) == pytest.approx(found.scale)
    torch.manual_seed(7)
    assert torch.equal(witness(call, bank, WIDTH).x, found.x)
    assert not torch.equal(witness(call, bank, WIDTH, seed=1).x, found.x)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_units_change_nothing(bank, scale):
    def layer(unit):
        return lambda x: unit * torch.cat((x, 0 * x, 0 * x, 0 * x), -1)

    found, same = witness(layer(1.0), bank, WIDTH), witness(layer(scale), scale * bank, WIDTH)
    assert same.error == pytest.approx(found.error)
    assert same.slope == pytest.approx(found.slope)
    assert found.slope > 0


def test_a_bank_of_one_number():
    found = witness(lambda x: 2 * x, [[[1.0]]])
    assert found.error == pytest.approx(1)
    assert found.slope == 0
