"""The ledger on bounds: verdicts, numbers, mutants."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.bounds import STATEMENTS
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "T1": "holds",
    "T2": "holds",
    "T3": "holds",
    "T4": "holds",
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


def test_capacities():
    ranks = {tuple(case.values()): finding.values["ranks"] for case, finding in judged("T1").evidence[0].findings}
    assert set(ranks["mha", 4]) == {4}
    assert ranks["iha, P = 2", 3] == [9, 9, 6, 6]  # global, then per-head collapse; softmax and linear each
    assert ranks["iha, P = 1", 4] == [4] * 4
    assert set(ranks["two-layer", 3]) == {9}
    assert set(ranks["gqa", 4]) == {4}


def test_heads_at_a_tolerance_are_the_least():
    for role in judged("T4").evidence:
        assert len(role.findings) == 16
