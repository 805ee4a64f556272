"""The ledger on constructions beyond the paper's: verdicts, numbers, mutants."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.beyond import STATEMENTS, tiles_make_bank
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "T6": "holds",
    "T7": "holds",
    "T12": "holds",
    "T13": "holds",
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


def test_attention_maps():
    maps = {case["terms"]: finding.values["maps"] for case, finding in judged("T6").evidence[0].findings}
    assert {k: maps[k] / k for k in (16, 36, 64, 100)} == {16: 1.0, 36: 1.5, 64: 2.0, 100: 1.6}
    assert all(maps[k] >= k for k in maps)


def test_the_rule_is_not_the_least():
    """k = 9 and 49 take one pseudo-head less than the rule of T6 says."""
    for terms, pseudo in ((9, 2), (49, 3)):
        finding = tiles_make_bank(terms, 0)
        assert finding.values["pseudo_heads"] == pseudo
        assert f"(the rule says {pseudo + 1})" in finding.what


def test_counts():
    lower = {tuple(c.values())[:3]: f.values["lower"] for c, f in judged("T12").evidence[1].findings}
    assert lower[5, "zero", "mha"] == 25
    assert lower[5, "circular", "iha"] == 5
    lower = {tuple(c.values())[:3]: f.values["lower"] for c, f in judged("T13").evidence[1].findings}
    assert lower[4, False, "mha"] == 4
    assert lower[4, True, "iha"] == 3
