"""Results and errors: what must never pass."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sympy import QQ

from constructions import suite
from constructions.checks.operators import exact_gap, float64_gap
from constructions.checks.result import CheckResult
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from iha_theory import exact
from iha_theory.operators.weights import NotPositionOnlyError
from iha_theory.rounding import gamma, largest_ratio
from synthetic.graphs import builtin
from synthetic.tasks.filter_bank import power_blocks

A = exact.matrix([[0, 1], [1, 1]], QQ)
BLOCKS = list(power_blocks(A, 4))
LABELS = (
    "every matrix",
    "causal bank, k = 4",
    "causal CPM-3, N_max = 2",
    "inclusion",
    "strictness",
    "tiles, two layers, k = 4",
    "reduced, petersen",
    "heads at a tolerance",
    "convolution, K = 3",
    "state space, order 4",
    "FIR filter, 4 taps",
    "state space, special",
)
"""A step of every family, the fastest."""


def result(error: float) -> CheckResult:
    return CheckResult(
        id="x/iha/exact",
        claim="claim",
        layer="iha",
        heads=1,
        pseudo_heads=1,
        parameters=1,
        tier="exact",
        error=error,
        bound=0.0,
        claimed_heads=1,
    )


def test_nan_never_passes_and_json_stays_strict():
    for error in (math.nan, math.inf, 1e-300):
        assert result(error).verdict == "fails"
        json.dumps(result(error).to_json(), allow_nan=False)
        assert result(error).to_json()["error"] == (error if math.isfinite(error) else None)
    assert result(0.0).verdict == "holds"
    setting = {"sizes": [1, math.nan], "bounds": {"least": -math.inf, "most": 2.5}}
    written = replace(result(0.0), setting=setting).to_json()
    assert written["setting"] == {"sizes": [1, None], "bounds": {"least": None, "most": 2.5}}
    assert (written["id"], written["verdict"], written["error"]) == ("x/iha/exact", "holds", 0.0)


def test_ratios():
    one, zero, nan = torch.ones(2), torch.zeros(2), torch.tensor([0.0, math.nan])
    assert largest_ratio(zero, zero) == 0
    assert largest_ratio(one, zero) == math.inf
    assert math.isnan(largest_ratio(nan, one))
    assert math.isnan(largest_ratio(one, nan))
    with pytest.raises(ValueError, match="negative"):
        largest_ratio(one, -one)
    with pytest.raises(ValueError, match="compare"):
        largest_ratio(one, torch.ones(1, 2))
    with pytest.raises(ValueError, match="compare"):
        largest_ratio(one[:0], one[:0])


def test_gamma_is_the_standard_bound():
    assert gamma(1) == pytest.approx(2**-53, rel=1e-12, abs=0)
    assert gamma(1000) > 1000 * 2**-53


def test_a_nan_weight_fails_both_tiers():
    construction = bank("iha", powers(A), 4, 1)
    with torch.no_grad():
        construction.layer.q_proj.weight[0, 1] = math.nan
    with pytest.raises(ValueError, match="NaN"):
        exact_gap(construction, BLOCKS)
    targets = np.stack([np.linalg.matrix_power([[0.0, 1], [1, 1]], t) for t in range(4)])
    assert math.isnan(float64_gap(construction, targets, targets))


def test_the_number_of_blocks_must_fit():
    construction = bank("mha", powers(A), 4, 1)
    for blocks in (BLOCKS[:3], []):
        with pytest.raises(ValueError, match="block"):
            exact_gap(construction, blocks)


@pytest.mark.parametrize("change", [{"width": 1}, {"start": 1, "width": 2}])
def test_readouts_of_another_width_are_refused(change):
    construction = bank("iha", powers(A), 4, 2)
    blocks = tuple(replace(block, **change) if block.start == 0 else block for block in construction.readout)
    if change["width"] == 1:
        with pytest.raises(ValueError, match="width"):
            exact_gap(replace(construction, readout=blocks), BLOCKS)
    else:
        assert exact_gap(replace(construction, readout=blocks), BLOCKS) > 0


@pytest.mark.parametrize("change", [{"start": -2}, {"width": 0}, {"start": 7}])
def test_readouts_outside_the_layer_are_refused(change):
    construction = bank("iha", powers(A), 4, 2)
    with pytest.raises(ValueError, match="output coordinates"):
        replace(construction, readout=(replace(construction.readout[0], **change),))


def test_the_last_coordinate_counts():
    construction = bank("mha", powers(A), 4, 1)
    with torch.no_grad():
        construction.layer.v_proj.weight[-1] = 0
    assert exact_gap(construction, BLOCKS) > 0


@pytest.mark.parametrize("name", ["q_proj", "k_proj"])
def test_content_in_queries_or_keys_is_refused(name):
    construction = bank("iha", powers(A), 4, 1)
    with torch.no_grad():
        getattr(construction.layer, name).weight[0, 0] = 1e-3
    with pytest.raises(NotPositionOnlyError, match="content"):
        exact_gap(construction, BLOCKS)


ONE_OF_EACH = (
    *suite.steps(("bank",), graphs=[builtin("petersen")], terms=[4]),
    *suite.steps(("cpm3",), n_max=[4]),
    *(step for step in suite.steps() if step.label in LABELS),
)


@pytest.mark.parametrize("step", ONE_OF_EACH, ids=lambda step: step.label)
def test_heads_that_nobody_claimed_fail_every_check(step):
    results = list(step.run())
    assert results
    for result in results:
        assert result.holds, result.id
        assert not replace(result, heads=999).holds, result.id
