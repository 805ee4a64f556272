"""Every statement of the ledger: its verdict, its mutants, and a search for counterexamples."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from constructions.ledger import judge, page, refused, select, statements
from constructions.ledger.statement import Assumption, Claim, Finding, Statement

ROOT = Path(__file__).parents[3]
STATEMENTS = statements()
CLAIMS = {f"{s.id}/{role}": (s, role, claim) for s in STATEMENTS for role, claim in s.claims.items()}


@pytest.fixture(scope="module")
def judgements():
    return {s.id: judge(s) for s in STATEMENTS}


def test_the_ledger_has_every_statement_it_should():
    ids = [s.id for s in STATEMENTS]
    assert len(ids) == len(set(ids)) >= 35
    assert {f"E{n}" for n in range(1, 14)} | {f"T{n}" for n in range(1, 15)} <= set(ids)


def test_verdicts_are_sound_and_strict_json(judgements):
    for judgement in judgements.values():
        assert judgement.sound, page.page(judgement)
        entry = json.loads(json.dumps(judgement.to_json(), allow_nan=False))
        assert {"id", "statement", "source", "assumptions", "verdict", "evidence"} <= entry.keys()
        assert entry["evidence"]
        assert all(found["what"] for e in entry["evidence"] for found in e["found"])


def test_the_readme_has_the_ledger_as_it_is(judgements):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page.updated(text, list(judgements.values())) == text, "run: iha-theory claims --update README.md"


@pytest.mark.parametrize("name", CLAIMS)
def test_every_mutant_is_refused(name):
    _, _, claim = CLAIMS[name]
    for mutant in claim.mutants:
        assert refused(claim, mutant) is not None, mutant


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.id)
def test_every_statement_has_a_mutant(statement):
    assert any(claim.mutants for claim in statement.claims.values())


@pytest.mark.parametrize("name", CLAIMS)
def test_a_search_finds_no_counterexample_to_what_is_said_to_hold(name, judgements):
    statement, role, claim = CLAIMS[name]
    judgement = judgements[statement.id]
    if role == "printed" and judgement.verdict == "does-not-hold-as-printed":
        pytest.skip("it does not hold")
    assumption = statement.assumption if role == "printed" else None
    box = claim.cases if claim.wider is None else claim.wider
    cases = st.fixed_dictionaries(
        {
            key: st.integers(values[0], values[-1]) if _whole(values) else st.sampled_from(list(values))
            for key, values in box.items()
        }
    ).filter(lambda case: claim.given(**case) and (assumption is None or assumption.met(**case)))

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(cases)
    def search(case):
        finding = claim.test(**case)
        assert finding.holds, finding.what

    search()


def _whole(values):
    return isinstance(values, range) and values.step == 1


def _claim(test, cases=None, **more):
    return Claim("a claim", test, cases or {"n": range(1, 6)}, {}, **more)


def test_verdicts_follow_from_the_findings():
    small = _claim(lambda n: Finding(n < 4, f"n is {n}"))
    always = _claim(lambda n: Finding(True, "so"))
    never = _claim(lambda n: Finding(False, "not so"))

    def verdict(**fields):
        judgement = judge(Statement("P-x", "nowhere", **fields))
        return judgement.verdict, judgement.sound

    assert verdict(claim=always) == ("holds", True)
    assert verdict(claim=always, needed=True) == ("construction-only", True)
    assert verdict(claim=always, needed=True, least=never) == ("construction-only", False)
    assert verdict(claim=always, needed=True, least=always) == ("holds", True)
    assert verdict(claim=small, assumption=Assumption("n < 4", lambda n: n < 4)) == ("holds-under-assumptions", True)
    assert verdict(claim=small, assumption=Assumption("n < 5", lambda n: n < 5)) == ("does-not-hold-as-printed", False)
    assert verdict(claim=small, assumption=Assumption("n < 0", lambda n: n < 0)) == ("does-not-hold-as-printed", False)
    assert verdict(claim=small, repaired=always) == ("does-not-hold-as-printed", True)
    assert verdict(claim=small, repaired=never) == ("does-not-hold-as-printed", False)
    assert judge(Statement("P-x", "nowhere", small)).counterexample[0] == {"n": 4}
    assert not judge(Statement("T99", "ours", small, repaired=always)).sound


def test_a_claim_without_a_case_is_refused():
    with pytest.raises(ValueError, match="no case"):
        judge(Statement("P-x", "nowhere", _claim(lambda n: Finding(True, ""), given=lambda n: n > 9)))


def test_ids_are_found_whatever_their_case_and_unknown_ones_are_refused():
    assert [s.id for s in select(["e1", "T2"])] == ["E1", "T2"]
    with pytest.raises(ValueError, match="unknown statement 'E99'"):
        select(["E99"])
