"""Mutants: every check of the suite notices every damage that changes what its construction computes."""

from dataclasses import replace

import pytest

from constructions import suite
from constructions.checks.mutants import MutantResult, damage

SUBJECTS = suite.subjects()
FAMILIES = """
    bank bank-every-matrix cpm3-workspace cpm3 cpm3-one-head cpm3-two-heads cpm3-packed causal-bank causal-workspace
    inclusion strictness tiled-bank tiled-workspace two-layer-bank reduced-mha reduced-iha reduced-iha-tiled
    reduced-mha-two-layer within convolution state-space state-space-feedthrough fir parity parity-more
    relations relations-copied relation-paths
"""


def test_no_family_is_left_out():
    assert len({subject.check for subject in SUBJECTS}) == len(SUBJECTS)
    assert {subject.check.partition("/")[0] for subject in SUBJECTS} == set(FAMILIES.split())
    assert len(SUBJECTS) >= 80


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.check)
def test_every_mutant_that_changes_a_function_is_killed(subject):
    changing = [result for result in damage(subject) if result.changes]
    assert [result.mutant for result in changing if not result.killed] == []
    assert len(changing) >= 6


def test_a_check_that_fails_for_the_intact_construction_is_no_test():
    with pytest.raises(ValueError, match="intact"):
        next(damage(replace(SUBJECTS[0], error=lambda _: (1.0, 0.0))))


def test_a_result_as_json():
    expected = {"check": "bank/mha/exact", "mutant": "noise", "killed": False}
    assert MutantResult("bank/mha/exact", "noise", changes=True, killed=False).to_json() == expected
