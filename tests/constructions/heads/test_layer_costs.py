"""The closed forms of `iha_theory.costs` against the constructions as built."""

from itertools import product

import pytest
import torch

from constructions.cpm3 import workspace as cpm3
from constructions.cpm3.build import build
from constructions.heads.costs import layer_costs
from iha_theory.costs.formulas import LAYERS, workspace_width
from synthetic.tasks.count_pairs import CountPairs


@pytest.mark.parametrize("layer", LAYERS)
def test_the_bank_has_its_formulas(layer):
    for tokens, width, terms in product((1, 2, 5, 8), (1, 3), (1, 2, 3, 4, 5, 9, 10, 17, 50)):
        (row,) = layer_costs("bank", layer, tokens, width, terms)
        assert row.agrees, row
        assert row.parameters_paper in (None, row.parameters_counted)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 9, 10, 16, 17, 26])
def test_cpm3_has_its_formulas(layer, tokens):
    attention, total = layer_costs("cpm3", layer, tokens, 1, tokens)
    assert attention.agrees
    assert total.agrees
    w = workspace_width(layer, tokens)
    assert build("cpm3", layer, tokens, 1, tokens).layer.out_dim == w
    assert total.parameters_counted - attention.parameters_counted == tokens**2 * (w + 1)


@pytest.mark.parametrize("layer", LAYERS)
def test_what_is_costed_computes_the_task(layer):
    x = torch.tensor([[0, 1, 2, 3, 4, 0]])
    counts = cpm3.network(build("cpm3", layer, 6, 1, 6), 5, 11)(x)
    assert torch.equal(counts, torch.from_numpy(CountPairs(5, 11).target(x.numpy())))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bank", "mha", 0, 1, 1), "at least 1"),
        (("cpm3", "iha", 129, 1, 129), "up to 128 tokens"),
        (("bank", "iha", 10**5, 1, 4), "weights for"),
        (("bank", "gqa", 3, 1, 2), "accepted are mha"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(ValueError, match=message):
        build(*arguments)
