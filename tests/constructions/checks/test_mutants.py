"""Mutants: every check of the suite notices every damage that changes what its construction computes."""

from collections import Counter
from dataclasses import replace

import pytest

from constructions import suite
from constructions.checks.mutants import damage

SUBJECTS = suite.subjects()
FAMILIES = {
    "bank": 18,
    "bank-every-matrix": 2,
    "cpm3-workspace": 4,
    "cpm3": 4,
    "causal-bank": 3,
    "causal-workspace": 3,
    "inclusion": 4,
    "strictness": 2,
    "tiled-bank": 4,
    "tiled-workspace": 2,
    "two-layer-bank": 4,
    "reduced-mha": 2,
    "reduced-iha": 2,
    "reduced-iha-tiled": 2,
    "reduced-mha-two-layer": 2,
    "within": 2,
    "convolution": 8,
    "state-space": 4,
    "state-space-feedthrough": 4,
    "fir": 4,
}
"""The first part of a check's id: how many subjects have it."""


def test_no_family_is_left_out():
    assert len({subject.check for subject in SUBJECTS}) == len(SUBJECTS)
    families = Counter(subject.check.partition("/")[0] for subject in SUBJECTS)
    assert families == FAMILIES


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.check)
def test_every_mutant_that_changes_a_function_is_killed(subject):
    changing = [result for result in damage(subject) if result.changes]
    assert [result.mutant for result in changing if not result.killed] == []
    assert len(changing) >= 6


def test_a_check_that_fails_for_the_intact_construction_is_no_test():
    with pytest.raises(ValueError, match="intact"):
        next(damage(replace(SUBJECTS[0], error=lambda _: (1.0, 0.0))))
