"""The ledger on the filter bank: verdicts, smallest counterexamples, mutants."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.bank import STATEMENTS, matrix, needs_as_many
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "P-bank-mha": "holds",
    "P-bank-iha": "holds",
    "P-bank-needs-k": "holds-under-assumptions",
    "P-rank-additivity": "does-not-hold-as-printed",
    "E5": "does-not-hold-as-printed",
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


def test_smallest_counterexamples():
    case, finding = judged("E5").counterexample
    assert case == {
        "graph": "binary:2:9",
        "terms": 2,
    }  # the identity: the 2 x 2 matrices before it are no counterexample
    assert finding.values["heads"] == 1
    case, finding = judged("P-rank-additivity").counterexample
    assert case == {"size": 1, "left": 1, "right": 2}
    assert "rank([[1]] + [[-1]]) = 0" in finding.what
    assert judged("P-bank-needs-k").counterexample[0] == {"graph": "path:2", "terms": 3, "projected": False}


def test_petersen_is_named():
    """Full rank, degree 3: k = 9 takes 3 MHA heads and 2 IHA heads; with heads concatenated it takes 9."""
    for evidence in judged("E5").evidence:
        case, finding = evidence.findings[-1]
        assert case == {"graph": "petersen", "terms": 9}
        assert finding.values == {
            "size": 10,
            "rank": 10,
            "degree": 3,
            "certified": 3,
            "certified_iha": 2,
            "heads": 3,
            "iha_heads": 2,
            "error": 0.0,
        }
    assert "petersen" in str(judged("E5").to_json()["evidence"])
    found = {tuple(case.values()): finding for case, finding in judged("P-bank-needs-k").evidence[0].findings}
    assert not found["petersen", 9, True].holds
    assert found["petersen", 9, False].holds
    assert found["complete:3", 9, True].values["achieved"] == 2


def test_concatenated_heads_share_a_direction():
    """Powers of the 2-cycle are I and A in turn: 2 heads, whose values repeat; a zero power needs no head."""
    for graph, terms, heads in (("cycle:2", 5, 2), ("path:3", 6, 3), ("complete:3", 4, 4), ("path:1", 4, 1)):
        finding = needs_as_many(graph, terms, False)
        assert finding.values == {"lower": heads, "achieved": heads, "error": 0.0}


def test_names_of_matrices():
    assert [[int(x) for x in row] for row in matrix("binary:2:6").to_list()] == [[0, 1], [1, 0]]
    assert [[int(x) for x in row] for row in matrix("path:2").to_list()] == [[0, 1], [0, 0]]
