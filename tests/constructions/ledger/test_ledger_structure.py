"""The ledger on structure (T5): verdict, numbers, mutants."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.statement import judge, refused
from constructions.ledger.structure import STATEMENTS, dimension
from iha_theory.bounds import unstructured_heads

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "T5": "holds",
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


def test_dimension_of_the_banks():
    """The count of the docstring, where it is below k N^2."""
    for terms, tokens, heads in ((3, 4, 1), (4, 6, 2), (5, 8, 2), (7, 7, 3)):
        assert dimension(terms, tokens, heads) == tokens**2 * (2 * heads - 1) + (terms - 2) * heads**2 + 1
    assert dimension(4, 7, 3) == 4 * 7**2


def test_structure():
    found = {case["terms"]: finding.values for case, finding in judged("T5").evidence[1].findings}
    assert found[4] == {"heads": 2, "dimension": 84, "counted": 84, "all": 100}
    for values in found.values():
        assert values["heads"] < unstructured_heads(values["all"] // 25, 49)
