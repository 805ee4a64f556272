"""Convolutions: every construction against the definition, the oracle against it too, bounds, mutants, refusals."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.checks.bounds import lower_bound
from constructions.checks.operators import exact_operator_gap, float64_operator_gap
from constructions.construction import Construction, blocks
from constructions.filter_bank.layers import PAPER
from constructions.filter_bank.products import iha_products, mha_products
from constructions.suite import convolution as suite
from constructions.targets.convolution import PADDINGS, convolution
from iha_theory.bounds.certificates import Certificate, bank_refusal
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import read, to_layer


def by_definition(kernel, grid, padding):
    """d Y[(r, c), o] / d X[(r', c'), i], (N, D, N, d), place by place."""
    outputs, width, size, _ = kernel.shape
    rows, columns_ = grid
    p = size // 2
    array = np.zeros((rows, columns_, outputs, rows, columns_, width))
    for r, c, u, v in product(range(rows), range(columns_), range(size), range(size)):
        at = (r + u - p, c + v - p)
        if padding == "circular":
            at = (at[0] % rows, at[1] % columns_)
        elif not (0 <= at[0] < rows and 0 <= at[1] < columns_):
            continue
        array[r, c, :, *at, :] += kernel[:, :, u, v].numpy()
    return array.reshape(rows * columns_, outputs, rows * columns_, width)


def integer_kernel(seed, outputs, width, size):
    return torch.from_numpy(np.random.default_rng(seed).integers(-5, 6, (outputs, width, size, size))).double()


@settings(max_examples=40, deadline=None)
@given(
    layer=st.sampled_from(sorted(PAPER)),
    padding=st.sampled_from(PADDINGS),
    half=st.integers(0, 2),
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    seed=st.integers(0, 2**16),
)
def test_equals_the_definition_for_every_image(layer, padding, half, grid, channels, seed):
    size = 2 * half + 1
    kernel = integer_kernel(seed, *channels, size)
    construction = convolution(layer, kernel, grid, padding)
    assert construction.heads == {"mha": size**2, "iha": size}[layer]
    assert construction.pseudo_heads == {"mha": 1, "iha": size}[layer]
    assert [block.name for block in construction.readout] == [f"channel {o}" for o in range(channels[0])]
    array = by_definition(kernel, grid, padding)
    assert exact_operator_gap(construction, suite.exact_target(array)) == 0
    array[-1, 0, -1, 0] += 1
    assert exact_operator_gap(construction, suite.exact_target(array)) == 1


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize(("size", "grid"), [(1, (1, 1)), (3, (2, 3)), (5, (5, 2))])
def test_conv2d_is_the_definition(padding, size, grid):
    kernel = integer_kernel(size, 3, 2, size)
    array = suite.operator_array(suite.conv2d(kernel, grid, padding), grid[0] * grid[1], 2)
    assert np.array_equal(array, by_definition(kernel, grid, padding))


def test_a_worked_example():
    """Row [1, 2, 3] by the kernel's middle row (1, 0, -1): left neighbour minus right neighbour."""
    kernel = torch.zeros(1, 1, 3, 3, dtype=torch.float64)
    kernel[0, 0, 1] = torch.tensor([1.0, 0, -1])
    x = torch.tensor([[[1.0], [2], [3]]], dtype=torch.float64)
    for layer in PAPER:
        assert convolution(layer, kernel, (1, 3), "zero")(x).flatten().tolist() == [-2, -2, 2]
        assert convolution(layer, kernel, (1, 3), "circular")(x).flatten().tolist() == [1, -2, 1]


def test_exact_only():
    assert {result.tier for result in suite.checks(3, exact_only=True)} == {"exact"}


@pytest.mark.parametrize(("channels", "rank"), [((1, 1), 1), ((2, 2), 4), ((3, 3), 9), ((4, 3), 9)])
def test_the_rank_is_that_of_the_taps(channels, rank):
    """Fewer than K^2 independent taps need fewer heads; a kernel with one channel is one operator."""
    kernel = integer_kernel(0, *channels, 3)
    array = suite.operator_array(suite.conv2d(kernel, (4, 3), "zero"), 12, channels[1])
    certificate = suite.certified(suite.responses(array, 4))
    assert lower_bound("mha", certificate) == certificate.rank == rank
    assert lower_bound("iha", certificate) == int(np.ceil(np.sqrt(rank)))
    full = array.transpose(0, 2, 1, 3).reshape(144, -1)  # of all tokens: the one in the middle shows all there is
    assert np.linalg.matrix_rank(full) == rank


def test_a_certificate_in_a_setting_can_be_verified():
    """From the JSON, against conv2d's operator itself: rows are (token, 0) of the middle token's responses."""
    result = next(iter(suite.checks(3, exact_only=True)))
    kernel = torch.from_numpy(np.random.default_rng(3).integers(0, 2**53, (3, 3, 3, 3))).double()
    responses = suite.responses(suite.operator_array(suite.conv2d(kernel, suite.GRID, "circular"), 63, 3), 31)
    data = json.loads(json.dumps(result.setting["certificate"]))
    assert bank_refusal(Certificate.from_json(data), responses) is None
    data["minor"] += 1
    assert bank_refusal(Certificate.from_json(data), responses) is not None


def test_no_certificate_for_nothing():
    assert suite.certified([np.zeros((4, 1))]) is None
    assert lower_bound("iha", None) == 1


@pytest.mark.parametrize(("a", "b"), [(2, 3), (3, 1), (1, 1)])
def test_any_bank_of_products(a, b):
    """T12 in general: max(#a, #b) IHA heads, #a #b MHA heads."""
    generator = torch.Generator().manual_seed(0)
    tokens, width, outputs = 4, 2, 3

    def integers(*shape):
        return torch.randint(-3, 4, shape, generator=generator).double()

    queries, keys, contents = integers(a, tokens, 5), integers(b, tokens, 5), integers(a, b, width, outputs)
    array = torch.einsum("aix,bjx,abco->iojc", queries, keys, contents).numpy()
    readout = blocks("{}", outputs)
    for weights, heads in ((mha_products, a * b), (iha_products, max(a, b))):
        built = weights(queries, keys, contents)
        assert built.num_heads == heads
        construction = Construction("products", "", to_layer(built), readout, width)
        assert exact_operator_gap(construction, suite.exact_target(array)) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": torch.zeros(1, 1, 2, 2, dtype=torch.float64)}, "K odd, got 2 x 2"),
        ({"kernel": torch.zeros(1, 1, 3, 5, dtype=torch.float64)}, "K odd, got 3 x 5"),
        ({"kernel": torch.zeros(1, 1, 3, 3)}, "must be float64"),
        ({"kernel": torch.zeros(0, 1, 3, 3, dtype=torch.float64)}, "must be at least 1"),
        ({"grid": (0, 3)}, "must be at least 1"),
        ({"layer": "gqa"}, "unknown layer 'gqa'"),
    ],
)
def test_refusals(change, message):
    arguments = {"layer": "iha", "kernel": integer_kernel(0, 1, 1, 3), "grid": (3, 3), "padding": "zero", **change}
    with pytest.raises(ValueError, match=message) as info:
        convolution(**arguments)
    assert "\n" not in str(info.value)


def test_unknown_padding():
    with pytest.raises((ValueError, TypeError), match="reflect"):  # TypeError: signatures are checked in tests
        convolution("iha", integer_kernel(0, 1, 1, 3), (3, 3), "reflect")


class TestJudges:
    """What the judges must not let pass."""

    kernel = integer_kernel(0, 3, 2, 3)
    grid = (4, 3)

    def target(self):
        return suite.exact_target(suite.operator_array(suite.conv2d(self.kernel, self.grid, "zero"), 12, 2))

    def build(self):
        return convolution("iha", self.kernel, self.grid, "zero")

    def test_as_many_coordinates_as_the_readout(self):
        for target in (self.target()[:-1], [], [column[:-1] for column in self.target()]):
            with pytest.raises(ValueError, match=r"coordinates|zip"):
                exact_operator_gap(self.build(), target)

    def test_targets_never_broadcast(self):
        apply = suite.conv2d(self.kernel, self.grid, "zero")
        majorant = suite.conv2d(self.kernel.abs(), self.grid, "zero")
        with pytest.raises(ValueError, match="cannot compare shapes"):
            float64_operator_gap(self.build(), 12, lambda x: apply(x)[..., :1], majorant)
        with pytest.raises(ValueError, match="cannot compare shapes"):
            float64_operator_gap(self.build(), 12, apply, lambda x: majorant(x)[..., :1])

    def test_nan_never_passes(self):
        apply = suite.conv2d(self.kernel, self.grid, "zero")
        assert np.isnan(float64_operator_gap(self.build(), 12, lambda x: apply(x) * np.nan, apply))
        assert np.isnan(float64_operator_gap(self.build(), 12, apply, lambda x: apply(x) * np.nan))

    @pytest.mark.parametrize("probes", [None, 4])
    def test_an_error_in_one_entry_is_seen(self, probes):
        apply = suite.conv2d(self.kernel, self.grid, "zero")
        majorant = suite.conv2d(self.kernel.abs(), self.grid, "zero")
        construction = self.build()
        assert float64_operator_gap(construction, 12, apply, majorant, probes=probes) < 1e-14

        def off(x):
            out = apply(x).clone()
            out[:, 5, 1] += 1e-6 * x[:, 6, 0]
            return out

        assert float64_operator_gap(construction, 12, off, majorant, probes=probes) > 1e-9

    def test_the_exact_judge_reads_the_torch_layer(self):
        construction = self.build()
        with torch.no_grad():
            construction.layer.out_proj.weight[2, 3] += 2.0**-40
        assert exact_operator_gap(construction, self.target()) == 2.0**-40


def test_zero_padding_multiplies_shifts_as_the_torus_does():
    """Row shift times column shift is the shift of both, off the grid too: the K^2 operators are exactly these."""
    kernel = torch.zeros(9, 1, 3, 3, dtype=torch.float64)
    for t in range(9):
        kernel[t, 0, t // 3, t % 3] = 1
    weights = convolution("iha", kernel, (3, 3), "zero")
    maps = [column[0].to_Matrix() for column in columns(read(weights.layer, 1))]
    for t, found in enumerate(maps):
        u, v = t // 3 - 1, t % 3 - 1
        for i, j in product(range(9), range(9)):
            assert found[i, j] == (j // 3 - i // 3 == u and j % 3 - i % 3 == v)
