"""The ledger's statements about counting: E10 and T8."""

import pytest

from constructions.ledger.counting import MOD, RELU, STATEMENTS, one_unit_a_pair
from constructions.ledger.statement import judge, refused

BY_ID = {statement.id: statement for statement in STATEMENTS}
MUTANTS = [(s.id, role, name) for s in STATEMENTS for role, claim in s.claims.items() for name in claim.mutants]


@pytest.mark.parametrize(("id", "verdict"), [("E10", "holds-under-assumptions"), ("T8", "holds")])
def test_verdicts(id, verdict):
    judgement = judge(BY_ID[id])
    assert judgement.verdict == verdict
    assert judgement.sound


def test_e10_smallest_counterexample():
    failing = next(case for case in BY_ID["E10"].claim if not one_unit_a_pair(**case).holds)
    assert failing == {"activation": RELU, "tokens": 3, "modulus": 2, "coefficient": 5}
    finding = one_unit_a_pair(**failing)
    assert finding.values == {"knots": 2}
    assert one_unit_a_pair(**failing | {"activation": MOD}).holds


@pytest.mark.parametrize(("id", "role", "name"), MUTANTS)
def test_mutants_are_refused(id, role, name):
    assert refused(BY_ID[id].claims[role], name) is not None
