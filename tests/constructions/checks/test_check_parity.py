"""Exact errors of parity by layers that are nearly right, and Theorem 1 over the rationals."""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from constructions.checks.parity import ExactRuns, exact_errors, exact_runs, float64_run, rational_layer
from constructions.targets.parity import parity
from iha_theory.bounds.obstruction import sizes


@pytest.mark.parametrize(("layer", "name"), [("mha", "out_proj.weight"), ("iha", "collapse")])
def test_a_weight_one_rounding_off_is_not_the_exact_one(layer, name):
    construction = parity(layer, 4)
    weight = construction.layer.get_parameter(name)
    with torch.no_grad():
        weight.view(-1)[0] = torch.nextafter(weight.view(-1)[0], torch.tensor(torch.inf, dtype=torch.float64))
    exact, stored = exact_errors(construction.layer, 4)
    assert 0 < exact < 1e-14
    assert 0 < stored < 1e-14


def test_more_rows_than_bits_are_read_as_they_stand():
    layer = parity("iha", 3, 4).layer
    assert exact_errors(layer, 3)[0] == 0
    with torch.no_grad():
        layer.get_parameter("collapse")[0, 3] = 2.0**-20  # a fourth row
    assert exact_errors(layer, 3)[0] > 2.0**-24


def test_a_wrong_sign_is_no_small_error():
    found = float64_run(replace(parity("mha", 3), bits=2), torch.tensor([[0, 0], [0, 1], [1, 1]]))
    assert found.error == float("inf")
    assert found.margin < 0


def test_the_margin_on_every_input_is_within_a_small_bound():
    found = float64_run(parity("iha", 9), torch.eye(9, dtype=torch.long))
    assert 0 < found.bound < 1e-12
    assert 0.999 < found.least < 1 - 1e-9  # terms of size 1e5
    assert found.least < found.margin
    tokens = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    assert found.bound == float(sizes(parity("iha", 9).layer, tokens, 10).error) + 2.0**-52  # 9 bits and the query


def test_one_bit_more_sums_to_zero_with_either_collapse():
    for kind in ("global", "per_head"):
        generator = torch.Generator().manual_seed(5)
        runs = exact_runs(rational_layer(kind, 1, 2, generator), 3, generator)
        assert runs.error == 0
        assert len(set(runs.outputs)) > 1


def test_a_sum_of_zero_without_a_wrong_sign_is_refused():
    one = Fraction(1)
    assert ExactRuns((one, -one), ((one,), (one,))).error == float("inf")
    assert ExactRuns((one, one), ((one,), (one,))).error == 0
