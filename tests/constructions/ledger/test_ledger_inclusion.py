"""The ledger on the inclusion and the two definitions: verdicts, smallest counterexamples, mutants."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.inclusion import STATEMENTS, causal_row, definition
from constructions.ledger.statement import judge, refused
from iha_theory.attention import InterleavedHeadAttention

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "P-inclusion": "holds-under-assumptions",
    "E4": "does-not-hold-as-printed",
    "P-two-definitions": "holds-under-assumptions",
    "T11": "holds",
}


@cache
def judged(name):
    return judge(BY_ID[name])


@pytest.mark.parametrize("name", BY_ID)
def test_verdict(name):
    judgement = judged(name)
    assert judgement.verdict == VERDICTS[name]
    assert judgement.sound
    assumption = BY_ID[name].assumption
    if assumption is not None:  # it is what decides, not more than that
        printed = judgement.evidence[0].findings
        assert all(finding.holds == assumption.met(**case) for case, finding in printed)


@pytest.mark.parametrize(
    ("claim", "mutant"),
    [
        pytest.param(claim, mutant, id=f"{s.id}-{role}-{mutant}")
        for s in STATEMENTS
        for role, claim in s.claims.items()
        for mutant in claim.mutants
    ],
)
def test_mutants_are_refused(claim, mutant):
    assert refused(claim, mutant) is not None


WIDER = [
    pytest.param(s, claim, id=f"{s.id}-{role}")
    for s in STATEMENTS
    for role, claim in s.claims.items()
    if claim.wider is not None and (role != "printed" or s.repaired is None)
]


@pytest.mark.parametrize(("statement", "claim"), WIDER)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_no_counterexample_in_a_wider_box(statement, claim, data):
    case = {name: data.draw(st.sampled_from(list(values)), label=name) for name, values in claim.wider.items()}
    within = claim is not statement.claim or statement.assumption is None or statement.assumption.met(**case)
    if claim.given(**case) and within:
        assert claim.test(**case).holds, claim.test(**case).what


def test_linear_attention_adds_the_copies():
    case, finding = judged("P-inclusion").counterexample
    assert case == {"pattern": "linear", "heads": 1, "pseudo": 2, "seed": 0}
    assert finding.what.endswith("the IHA is 2 times the MHA")


def test_the_causal_algorithm():
    """H = 1, P = 2, zero logits, V = [1, 3]."""
    case, finding = judged("E4").counterexample
    assert case == {"rotary": "none", "pseudo": 2, "tokens": 2}
    assert finding.values["first"] == pytest.approx([1, 5 / 3], abs=1e-15)
    assert finding.values["last"] == finding.values["mha"] == [1, 2]
    assert "j = 1 gives [1, 5/3], row j = P [1, 2], the MHA [1, 2]" in finding.what


def test_virtual_rotary_positions_break_both_rows():
    for pseudo in (2, 3):
        values = causal_row("virtual", pseudo, 2).values
        for row in ("first", "last"):
            assert values[row][1] != pytest.approx(values["mha"][1], abs=1e-3)


def test_definition_by_hand():
    """One token, one head, P = 2, linear: sum_{j,j'} R_j (Qt_j Kt_j') Vt_j', with Q = K = V = 1."""
    layer = InterleavedHeadAttention(1, 1, num_pseudo_heads=2, pattern="linear", out_proj=False, dtype=torch.float64)
    with torch.no_grad():
        for name, values in (("alpha_q", [1, 2]), ("alpha_k", [3, 4]), ("alpha_v", [5, 6]), ("collapse", [7, 8])):
            layer.get_parameter(name)[0, 0] = torch.tensor(values)
        for linear in (layer.q_proj, layer.k_proj, layer.v_proj):
            linear.weight.fill_(1)
        x = torch.ones(1, 1, 1, dtype=torch.float64)
        assert definition(layer, x, "none").item() == (7 * 1 + 8 * 2) * (3 * 5 + 4 * 6)
