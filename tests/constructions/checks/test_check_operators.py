"""The measured errors of `constructions.checks.operators`: right layers meet them, wrong ones do not."""

import math

import numpy as np
import pytest
import torch
from sympy import QQ

from constructions.checks import operators
from constructions.checks.operators import exact_gap, float64_gap, frobenius_error, settled
from constructions.construction import Block
from constructions.filter_bank import approximate
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from constructions.heads.exact import ExactTask
from iha_theory import exact
from iha_theory.bounds.heads import error_floor, spectrum
from iha_theory.operators.weights import NotPositionOnlyError
from synthetic.graphs import load
from synthetic.tasks.filter_bank import power_blocks

TERMS, WIDTH = 5, 2
GRAPH = load("random:6")
A = torch.tensor(GRAPH.adjacency, dtype=torch.float64)
BANK = np.stack([np.linalg.matrix_power(GRAPH.adjacency, t).astype(float) for t in range(TERMS)])
BLOCKS = list(power_blocks(exact.matrix(GRAPH.adjacency, QQ), TERMS))
MAJORANTS = np.stack([np.linalg.matrix_power(abs(GRAPH.adjacency), t).astype(float) for t in range(TERMS)])


def build(layer):
    return bank("mha-two-layer" if layer == "two" else layer, powers(A), TERMS, WIDTH)


def errors(construction):
    return (
        exact_gap(construction, BLOCKS),
        float64_gap(construction, BANK, MAJORANTS),
        frobenius_error(construction, torch.from_numpy(BANK)),
    )


def last_value(construction):
    """A weight that brings content to the output."""
    layer = construction.layer
    return (layer.second if construction.name.endswith("two-layer") else layer).v_proj.weight


@pytest.mark.parametrize("layer", ["mha", "iha", "two"])
def test_right_layers_and_wrong_ones(layer):
    construction = build(layer)
    assert errors(construction)[0] == 0
    assert max(errors(construction)) < 1e-13
    with torch.no_grad():
        weight = last_value(construction)
        at = tuple(weight.nonzero()[0])
        weight[at] += 1e-3
    assert min(errors(construction)) > 1e-7
    with torch.no_grad():
        weight[at] = math.nan
    assert math.isnan(float64_gap(construction, BANK, MAJORANTS))
    assert frobenius_error(construction, torch.from_numpy(BANK)) == math.inf
    with pytest.raises(ValueError, match="NaN"):
        exact_gap(construction, BLOCKS)


@pytest.mark.parametrize("layer", ["mha", "iha", "two"])
@pytest.mark.parametrize("projection", ["q_proj", "k_proj", "v_proj"])
def test_layers_that_are_not_position_only_are_refused(layer, projection):
    construction = build(layer)
    one = construction.layer.first if layer == "two" else construction.layer
    with torch.no_grad():
        getattr(one, projection).weight[0, -1 if projection == "v_proj" else 0] = 0.1
    for measure in (
        lambda: exact_gap(construction, BLOCKS),
        lambda: float64_gap(construction, BANK, MAJORANTS),
        lambda: frobenius_error(construction, torch.from_numpy(BANK)),
    ):
        with pytest.raises(NotPositionOnlyError):
            measure()


@pytest.mark.parametrize(
    "readout",
    [
        (),
        (Block("X", 0, WIDTH),),
        tuple(Block("wide", 0, 1) for _ in range(TERMS)),
        tuple(Block("outside", 2 * TERMS - 1, WIDTH) for _ in range(TERMS)),
        tuple(Block("before", -1, WIDTH) for _ in range(TERMS)),
    ],
)
def test_readouts_of_another_form_are_refused(readout):
    construction = build("mha")
    object.__setattr__(construction, "readout", readout)
    for measure in (exact_gap, lambda c, _: float64_gap(c, BANK, MAJORANTS)):
        with pytest.raises(ValueError, match="readout"):
            measure(construction, BLOCKS)


def test_the_relative_error_is_the_floor_of_the_truncated_svd_at_any_width():
    bank = approximate.unit_powers(A, 6)
    for heads in (1, 3):
        for width in (1, 3):
            construction = approximate.truncated_mha(bank, heads, width)
            floor = math.sqrt(error_floor(spectrum(bank), heads))
            assert frobenius_error(construction, bank) == pytest.approx(floor, rel=1e-9)


def test_the_relative_error_is_the_root_mean_square_error():
    """Over many normal contents, within 5 standard deviations of the mean of squares."""
    bank = approximate.unit_powers(A, 4)
    construction = approximate.truncated_mha(bank, 2, WIDTH)
    x = torch.randn(20_000, 6, WIDTH, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.einsum("tij,bja->bita", bank, x).flatten(2)
    with torch.no_grad():
        squares = (construction(x) - target).square().sum((1, 2)) / (WIDTH * float(bank.square().sum()))
    expected = frobenius_error(construction, bank) ** 2
    assert abs(float(squares.mean()) - expected) < 5 * float(squares.std()) / math.sqrt(len(x))


def test_exact_tasks_round_only_what_float64_cannot_hold():
    """Powers of integers are held as they are. Those of tenths are rounded on writing, and then checked in float64."""
    integers = ExactTask(load("karate"), 6)
    for layer in integers.layers:
        assert integers.judge(layer, integers.writable(layer)).tier == "exact"
    tenths = load("random:6")
    object.__setattr__(tenths, "adjacency", tenths.adjacency / 10)
    rounded = ExactTask(tenths, 6)
    for layer in rounded.layers:
        written = rounded.writable(layer)
        verdict = rounded.judge(layer, written)
        assert verdict.tier == "float64"
        assert verdict.holds
        assert rounded.count(layer).verdict.tier == "exact"
        with torch.no_grad():
            weight = last_value(written)
            weight[tuple(weight.nonzero()[0])] *= 1 + 1e-9
        assert not rounded.judge(layer, written).holds


@pytest.mark.parametrize(("many", "probes"), [(6, None), (5, 16)])
def test_a_bank_on_many_tokens_is_probed(monkeypatch, many, probes):
    seen = []
    monkeypatch.setattr(operators, "MANY", many)
    monkeypatch.setattr(operators, "float64_operator_gap", lambda *_, **options: seen.append(options["probes"]) or 0.0)
    float64_gap(build("mha"), BANK, MAJORANTS)
    assert seen == [probes]


def test_what_float64_holds_takes_no_prime():
    assert settled(lambda prime: (build("mha"), BLOCKS), list)[1:] == (0.0, 0)


def test_batches_of_one_content_make_the_same_error(monkeypatch):
    construction = build("mha")
    with torch.no_grad():
        last_value(construction)[:] *= 1.1
    whole = frobenius_error(construction, torch.from_numpy(BANK))
    monkeypatch.setattr(operators, "BATCH_BYTES", 1)
    assert frobenius_error(construction, torch.from_numpy(BANK)) == pytest.approx(whole)
