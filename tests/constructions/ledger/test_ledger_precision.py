"""The ledger's statements about temperatures and number formats: T9 and T10."""

import json

import pytest

from constructions.ledger.precision import STATEMENTS, compact_keys, finite_temperature, tokens_in
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
MUTANTS = [(s.id, role, name) for s in STATEMENTS for role, claim in s.claims.items() for name in claim.mutants]


@pytest.mark.parametrize("id", BY_ID)
def test_verdicts(id):
    judgement = judge(BY_ID[id])
    assert judgement.verdict == "holds"
    assert judgement.sound
    json.dumps(judgement.to_json(), allow_nan=False)


@pytest.mark.parametrize(("id", "role", "name"), MUTANTS)
def test_mutants_are_refused(id, role, name):
    assert refused(BY_ID[id].claims[role], name) is not None


def test_findings_carry_the_numbers():
    assert finite_temperature("iha", 5, 3).values["b"] == pytest.approx(2.995732273553991)
    assert tokens_in("bfloat16", "iha", 9).values == {"largest": 86, "wrong": 87}
    finding = compact_keys("iha", 9, 1)
    assert (finding.values["heads"], finding.values["parameters"], finding.values["error"]) == (3, 318, 0.0)
