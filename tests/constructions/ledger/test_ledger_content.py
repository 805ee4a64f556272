"""The verdicts on content in queries and keys, the smallest counterexample, and every mutant refused."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from constructions.ledger.content import STATEMENTS
from constructions.ledger.statement import judge, refused

BY_ID = {s.id: s for s in STATEMENTS}
VERDICTS = {"E6": "does-not-hold-as-printed"} | dict.fromkeys(
    ("T14", "T14a", "T14b", "T14c", "T14d", "T14e", "T14f"), "holds"
)


def test_all_are_here():
    assert BY_ID.keys() == VERDICTS.keys()


@pytest.mark.parametrize("name", VERDICTS)
def test_verdict(name):
    judgement = judge(BY_ID[name])
    assert judgement.verdict == VERDICTS[name]
    assert judgement.sound


def test_one_token_and_content_in_the_query_break_the_implication():
    found = judge(BY_ID["E6"]).counterexample
    assert found is not None
    case, finding = found
    assert case == {"tokens": 1, "query": "content"}
    assert finding.values["constants"] == [1]
    assert finding.values["content"] == 1


MUTANTS = [(s.id, role, m) for s in STATEMENTS for role, claim in s.claims.items() for m in claim.mutants]


@pytest.mark.parametrize(("name", "role", "mutant"), MUTANTS)
def test_mutants_are_refused(name, role, mutant):
    assert refused(BY_ID[name].claims[role], mutant) is not None


@pytest.mark.parametrize("name", ["E6", "T14", "T14e"])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_wider_cases_hold(name, data):
    claim = BY_ID[name].repaired or BY_ID[name].claim
    case = {key: data.draw(st.sampled_from(values), label=key) for key, values in (claim.wider or claim.cases).items()}
    if claim.given(**case):
        assert claim.test(**case).holds
