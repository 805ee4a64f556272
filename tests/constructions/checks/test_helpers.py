"""Damaged helpers: no target comes out of what it judges, and no head is counted that is not claimed."""

from collections import defaultdict

import pytest

from constructions import suite
from constructions.checks.helpers import UNDAMAGED, damage_helpers, damaged, helpers, recorded
from constructions.checks.oracles.workspace import slots
from constructions.construction import Counted
from constructions.cpm3.workspace import shift
from constructions.suite import cpm3


@pytest.fixture(scope="module")
def results():
    return [result for module in suite.MODULES for result in damage_helpers(module.subjects)]


def test_every_helper_that_builds_a_construction_is_caught(results):
    assert [(r.check, r.mutant) for r in results if r.changes and not r.killed] == []
    by_helper = defaultdict(list)
    for result in results:
        by_helper[result.mutant.partition(" ")[0]].append(result.changes)
    assert [name for name, changes in by_helper.items() if not any(changes)] == []
    assert len(by_helper) >= 45
    assert not by_helper.keys() & UNDAMAGED.keys()


def test_helpers_that_are_not_damaged_exist():
    assert UNDAMAGED.keys() <= helpers().keys()


def test_a_target_by_the_construction_s_own_shift_is_noticed(monkeypatch):
    """Reversed, P^t is P^-t in the workspace and in such a target."""
    monkeypatch.setattr(cpm3, "slots", lambda tokens: [vars(cpm3)["shift"](tokens, t) for t in range(tokens)])
    monkeypatch.setattr(cpm3, "shift", shift, raising=False)
    survivors = {r.mutant for r in damage_helpers(cpm3.subjects) if r.changes and not r.killed}
    assert survivors == {"cpm3.workspace.shift transposed"}


def test_helpers_are_themselves_again_afterwards():
    before = helpers()
    with pytest.raises(ZeroDivisionError), recorded():
        raise ZeroDivisionError
    assert helpers() == before
    assert cpm3.slots(3) == slots(3)


def test_a_result_without_a_damage_is_an_error():
    with pytest.raises(TypeError, match="nothing for a set"):
        damaged(set())


def test_heads_are_claimed_and_not_counted(monkeypatch):
    """Where the construction counts one head too many, no result may hold; layers alone count their own."""
    monkeypatch.setattr(Counted, "heads", property(lambda construction: construction.layer.num_heads + 1))
    results = [r for step in suite.small_steps() for r in step.run()]
    layers = {"bank-every-matrix", "inclusion", "strictness", "parity-more"}
    assert {r.id.partition("/")[0] for r in results if r.holds} == layers


def test_one_head_more_is_caught_in_every_family():
    results = list(suite.miscounted())
    assert [result.check for result in results if not result.killed] == []
    assert len({result.check.partition("/")[0] for result in results}) == 32
