"""Content in the queries: the families against their exact error, the exact runner against torch, training, steps."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from sympy import QQ

from constructions.targets.content.exact_layer import ExactLayer, rationals
from constructions.targets.content.exact_layer import with_positions as exact_input
from constructions.targets.content.families import (
    ContentWeights,
    iha_family,
    mha_family,
    predicted_error,
    softmax_family,
)
from constructions.targets.content.steps import beyond_affine
from constructions.targets.content.training import population_error, train
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.bounds.content import content_floor
from iha_theory.bounds.heads import error_floor, spectrum
from iha_theory.operators.weights import with_positions

FAMILIES = {"mha": lambda *args: mha_family(*args).layer(), "iha": iha_family}


def integers(*shape: int, seed: int = 0, most: int = 3) -> torch.Tensor:
    return torch.randint(-most, most + 1, shape, generator=torch.Generator().manual_seed(seed)).double()


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def bank(a: torch.Tensor, terms: int) -> torch.Tensor:
    return torch.stack([torch.linalg.matrix_power(a, t) for t in range(terms)])


def error(layer, maps: torch.Tensor, x: torch.Tensor) -> float:
    target, inputs = torch.cat([m @ x for m in maps], dim=2), with_positions(x)
    with torch.no_grad():
        return float((layer(inputs, inputs, inputs) - target).square().sum() / target.square().sum())


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("tokens", "terms", "width"), [(2, 3, 1), (3, 3, 2), (4, 5, 2), (3, 6, 3), (5, 10, 1)])
@pytest.mark.parametrize("scale", [10, 10**3, 10**6])
def test_the_output_is_the_bank_and_one_quadratic_term(name, tokens, terms, width, scale):
    """Equation (1) of the module, exactly: at a random integer X, through the weights of the torch layer."""
    a, x = integers(tokens, tokens), integers(tokens, width, seed=1, most=99)
    layer = FAMILIES[name](a, terms, width, scale)
    assert layer.num_heads == (terms - 1 if name == "mha" else max(2, int(np.ceil(np.sqrt(terms - 1)))))
    out = ExactLayer(layer)(exact_input(x))
    exact_a, exact_x = rationals(a), rationals(x)
    eps = Fraction(1 / scale)
    powers, last = [], exact_x
    for _ in range(terms):
        powers.append(last)
        last = exact_a @ last
    difference = out - np.concatenate(powers, axis=1)
    blocks = np.split(difference, terms, axis=1)
    delta, eps = (QQ(q.numerator, q.denominator) for q in (eps * scale - 1, eps))
    assert (blocks[0] == delta * exact_x).all()
    assert (blocks[2] == eps * (exact_x @ exact_x[:width])).all()
    assert not any((block != 0).any() for t, block in enumerate(blocks) if t not in (0, 2))


@pytest.mark.parametrize("scale", [10**i for i in range(1, 7)])
def test_the_squared_error_falls_as_eps_squared_down_to_1e_6(scale):
    a = integers(5, 5)
    predicted = predicted_error(a, 4, 2, scale)
    assert float(population_error(mha_family(a, 4, 2, scale), bank(a, 4))) == pytest.approx(float(predicted), rel=1e-6)
    assert float(predicted) * scale**2 == pytest.approx(float(predicted_error(a, 4, 2, 1)), rel=1e-12)


@pytest.mark.parametrize(
    ("nodes", "weights", "kurtosis"),
    [((-1.0, 1.0), (1 / 2, 1 / 2), 1.0), ((-(3**0.5), 0.0, 3**0.5), (1 / 6, 2 / 3, 1 / 6), 3.0)],
)
def test_the_closed_form_is_the_mean_over_all_inputs(nodes, weights, kurtosis):
    """Signs, and the three points that have the moments of a normal entry up to the fifth: every X, by its weight."""
    layer = ContentWeights(normal(2, 3, 3), normal(2, 2, 3, seed=1), normal(2, 2, 4, seed=2), normal(2, 3, 4, seed=3))
    maps = bank(normal(3, 3, seed=4), 2)
    x = torch.cartesian_prod(*[torch.tensor(nodes, dtype=torch.float64)] * 6).unflatten(1, (3, 2))
    mass = torch.cartesian_prod(*[torch.tensor(weights, dtype=torch.float64)] * 6).prod(1)
    inputs, target = with_positions(x), torch.cat([m @ x for m in maps], dim=2)
    with torch.no_grad():
        squares = (layer.layer()(inputs, inputs, inputs) - target).square().sum((1, 2))
    exact = float(mass @ squares / (mass @ target.square().sum((1, 2))))
    assert float(population_error(layer, maps, kurtosis)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("tokens", "terms", "width"), [(4, 3, 1), (6, 4, 2), (8, 5, 3)])
def test_softmax_heads_come_near(tokens, terms, width):
    a = torch.softmax(normal(tokens, tokens), dim=1)
    maps, x = bank(a, terms), normal(300, tokens, width, seed=1)
    errors = [error(softmax_family(a, terms, width, s), maps, x) for s in (1e2, 1e3, 1e4)]
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.01)
    assert errors[2] < error_floor(spectrum(maps), terms - 1)


def test_families_refuse():
    a = integers(3, 3)
    for bad, match in (((a, 2, 1, 10), "3 terms"), ((a, 3, 4, 10), "width"), ((a, 3, 1, 0), "scale")):
        for family in (mha_family, iha_family):
            with pytest.raises(ValueError, match=match):
                family(*bad)
    with pytest.raises(ValueError, match="integers"):
        predicted_error(a / 2, 3, 1, 10)
    with pytest.raises(ValueError, match="softmax"):
        softmax_family(a, 3, 1, 10)
    with pytest.raises(ValueError, match="make the identity"):
        softmax_family(torch.softmax(normal(6, 6), dim=1), 3, 3, 10.0)


@pytest.mark.parametrize("kind", [MultiHeadAttention, InterleavedHeadAttention])
@pytest.mark.parametrize("out_proj", [True, False])
def test_the_exact_runner_is_the_layer(kind, out_proj):
    options = {"init": "random", "num_pseudo_heads": 3} if kind is InterleavedHeadAttention else {}
    layer = kind(6, 2, head_dim=3, out_proj=out_proj, pattern="linear", scale=0.5, dtype=torch.float64, **options)
    x = normal(1, 4, 6)
    exact = ExactLayer(layer)(rationals(x[0]))
    floats = np.array([[int(e.numerator) / int(e.denominator) for e in row] for row in exact])
    with torch.no_grad():
        assert np.allclose(layer(x, x, x)[0].numpy(), floats, rtol=1e-12, atol=1e-12)


def test_the_exact_runner_refuses():
    for layer, match in (
        (MultiHeadAttention(4, 2), "linear"),
        (MultiHeadAttention(4, 2, pattern="linear", bias=True), "biases"),
        (InterleavedHeadAttention(4, 2, pattern="linear", collapse="per_head"), "collapse"),
    ):
        with pytest.raises(ValueError, match=match):
            ExactLayer(layer)


def test_training_lands_on_the_position_only_floor_and_goes_below_it_with_content():
    a = torch.linalg.qr(normal(6, 6)).Q
    maps = bank(a, 3)
    for heads in (1, 2):
        floor, own = error_floor(spectrum(maps), heads), content_floor(maps, heads)
        weights, plain = train(maps, 1, heads, content=False, steps=100)
        assert floor - 1e-12 <= plain <= floor + 1e-6
        assert not bool(weights.constants.any())
        assert not bool(weights.content.any())
        assert own - 1e-12 <= train(maps, 1, heads, content=True, steps=100)[1] < floor - 0.02


@pytest.mark.parametrize("tokens", [2, 3])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_steps_of_the_proofs(tokens, width):
    """Lemma of docs/content.md: ranks are full with two tokens; each hypothesis is needed."""
    b, c = integers(1, width, 1, seed=1) + 4, integers(1, tokens, 1, seed=2) + 4
    for blocks, content in (("GMN", width**2 + 2 * width * tokens), ("G", width**2), ("M", width * tokens)):
        assert beyond_affine(b, c, blocks) == (content, content)
    assert beyond_affine(0 * b, c, "GMN")[0] == width**2  # M and N are free if the values are constant
    assert beyond_affine(b, c, "S")[0] == 0
    two = torch.cat((b, 2 * b))
    assert beyond_affine(two, torch.cat((c, c)) * 0, "M") == (width * tokens, 2 * width * tokens)  # dependent values


def test_one_token_hides_content():
    b = integers(1, 2, 1, seed=1) + 4
    rank, unknown = beyond_affine(b, torch.zeros(1, 1, 1, dtype=torch.float64), "GMN")
    assert rank < unknown


def test_rotary_positions_void_the_count_of_linear_attention():
    """docs/exact_heads.md, what breaks Theorem 2: one head, keys with u^T R_(j-i) k_j = 1[i = j], for a diagonal A."""
    a = torch.tensor([1.0, 2.0, 3.0, -1.0, 0.5], dtype=torch.float64)
    tokens, options = len(a), {"pattern": "linear", "rotary": True, "scale": 1.0, "dtype": torch.float64}
    layer = MultiHeadAttention(1 + tokens, 1, head_dim=6, value_head_dim=tokens, out_dim=tokens, **options)
    x = torch.randn(3, tokens, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def logits(keys):  # of X = 1
        layer.k_proj.weight[:, 1:] = keys
        ones = with_positions(torch.ones(1, tokens, 1, dtype=torch.float64))
        return layer(ones, ones, ones)[0]

    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.q_proj.weight[:, 0] = 1
        layer.out_proj.weight.copy_(torch.eye(tokens))
        layer.v_proj.weight[:, 1:] = torch.eye(tokens)  # so that the output is the logits
        basis = torch.stack([logits(torch.eye(6)[c][:, None].expand(-1, tokens)) for c in range(6)])  # [c, i, j]
        keys = torch.stack(
            [
                torch.linalg.lstsq(basis[:, :, j].T, torch.eye(tokens)[j].double()[:, None]).solution[:, 0]
                for j in range(tokens)
            ],
            1,
        )
        assert torch.allclose(logits(keys), torch.eye(tokens, dtype=torch.float64), atol=1e-9)
        layer.v_proj.weight[:, 1:] = torch.stack([a**t for t in range(tokens)])
        inputs = with_positions(x)
        wanted = torch.cat([a[:, None] ** t * x for t in range(tokens)], -1)
        assert torch.allclose(layer(inputs, inputs, inputs), wanted, atol=1e-8)
