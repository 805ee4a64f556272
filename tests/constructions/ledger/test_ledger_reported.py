"""The ledger on the paper's reported numbers: E13."""

from constructions.ledger.reported import STATEMENTS
from constructions.ledger.statement import judge, refused


def test_the_abstract_and_section_5_2_disagree():
    (statement,) = STATEMENTS
    found = judge(statement)
    assert found.verdict == "does-not-hold-as-printed"
    assert found.sound
    assert found.counterexample[0] == {"tokens": 4096, "gain": 27}
    assert len(found.evidence[0].failures) == 3
    assert refused(statement.repaired, "ten times the points") is not None
