"""The verdicts on parameters and compute, the smallest counterexamples, and the mutants."""

from functools import cache

import pytest

from constructions.ledger.costs import STATEMENTS
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "E2": "does-not-hold-as-printed",
    "E11": "holds",
    "E12": "does-not-hold-as-printed",
    "P-bank-parameters-mha": "holds",
    "P-bank-parameters-iha": "holds",
    "P-savings": "holds-under-assumptions",
    "P-mixing-parameters": "holds-under-assumptions",
    "P-cpm3-parameters-iha": "holds",
    "P-cpm3-mlp-parameters": "does-not-hold-as-printed",
    "P-cpm3-savings": "holds-under-assumptions",
    "P-attention-cost": "holds",
    "P-schedule": "holds-under-assumptions",
    "T-compute": "holds",
}
COUNTEREXAMPLES = {
    "E2": ({"tokens": 1}, "4 is not 8"),
    "E12": ({"width": 1, "terms": 2}, "4.57 times"),
    "P-savings": ({"tokens": 1, "width": 1, "terms": 1}, "IHA has 10 parameters, MHA 6"),
    "P-mixing-parameters": ({"collapse": "per_head", "heads": 2, "pseudo_heads": 1}, "16 is not 14"),
    "P-cpm3-mlp-parameters": ({"layer": "iha", "tokens": 1}, "1 printed, 2 built"),
    "P-cpm3-savings": ({"part": "attention", "sizes": (1, 1)}, "IHA has 10 parameters, MHA 6"),
    "P-schedule": ({"counted": "causal", "pseudo_heads": 1, "tokens": 128}, "6176 pairs"),
}


@cache
def judgement(identifier):
    return judge(BY_ID[identifier])


def test_all_statements_have_an_expected_verdict():
    assert len(STATEMENTS) == len(BY_ID)
    assert BY_ID.keys() == VERDICTS.keys()


@pytest.mark.parametrize("identifier", VERDICTS)
def test_verdicts_and_counterexamples(identifier):
    found = judgement(identifier)
    assert found.verdict == VERDICTS[identifier]
    assert found.sound
    if identifier in COUNTEREXAMPLES:
        case, part = COUNTEREXAMPLES[identifier]
        assert found.counterexample[0] == case
        assert part in found.counterexample[1].what
    else:
        assert found.counterexample is None


MUTANTS = [
    (identifier, role, mutant)
    for identifier, statement in BY_ID.items()
    for role, claim in statement.claims.items()
    for mutant in claim.mutants
]


@pytest.mark.parametrize(("identifier", "role", "mutant"), MUTANTS)
def test_mutants_are_refused(identifier, role, mutant):
    assert refused(BY_ID[identifier].claims[role], mutant) is not None


@pytest.mark.parametrize("identifier", VERDICTS)
def test_claims_that_hold_somewhere_have_mutants(identifier):
    for evidence in judgement(identifier).evidence:
        assert evidence.claim.mutants or len(evidence.failures) == len(evidence.findings)


def test_the_least_constant_of_e11():
    by_count = {case["counts"]: finding for case, finding in judgement("E11").evidence[0].findings}
    assert by_count["printed"].values["least_constant"] == pytest.approx(72 / 2**2.5)
    assert by_count["built"].values["least_constant"] == pytest.approx(80 / 2**2.5)
    assert {finding.values["attained_at"] for finding in by_count.values()} == {2}


def test_the_schedule_tends_to_what_the_note_says():
    for case, finding in judgement("P-schedule").evidence[0].findings:
        p, n = case["pseudo_heads"], case["tokens"]
        exact = 3 / 5 - 1 / (10 * p * p) + 1 / (5 * n) if case["counted"] == "square" else 1 - 1 / (5 * p * p)
        assert finding.values["ratio"] == pytest.approx(exact, abs=1e-9 if case["counted"] == "square" else 1 / n)
