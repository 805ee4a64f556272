"""Every statement of the ledger: its verdict, its mutants, and a search for counterexamples."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from constructions.ledger import check, judge, page, refused, select, statements
from constructions.ledger.statement import Assumption, Claim, Finding, Statement, size

ROOT = Path(__file__).parents[3]
STATEMENTS = statements()
CLAIMS = {f"{s.id}/{role}": (s, role, claim) for s in STATEMENTS for role, claim in s.claims.items()}

HOLDS = "holds"
ASSUMING = "holds-under-assumptions"
FAILS = "does-not-hold-as-printed"
HOLDING = [
    *("E11", "P-attention-cost", "P-bank-iha", "P-bank-mha", "P-bank-parameters-iha", "P-bank-parameters-mha"),
    *("P-cpm3-iha", "P-cpm3-mha", "P-cpm3-parameters-iha", "T-compute"),
    *(f"T{n}" for n in range(1, 16)),
    *("T9-counts", "T9-tokens", "T14a", "T14b", "T14c", "T14e", "T14f", "T16", "T16a", "T17a", "T17c", "T18"),
    *(f"T15{part}" for part in "bcdefg"),
    *(f"T19{part}" for part in "abcdefgh"),
    *(f"T20{part}" for part in "abcde"),
]
EXPECTED = dict.fromkeys(HOLDING, (HOLDS, None, "")) | {
    "E1": (FAILS, {"modulus": 2, "coefficient": 5}, "M = 2, G = 5: the predicate is the same for all residues"),
    "E2": (FAILS, {"tokens": 1}, "4 is not 8"),
    "E3": (
        ASSUMING,
        {"causality": "virtual", "layer": "iha", "tokens": 1, "terms": 2, "code": 1},
        "A = [[1]], k = 2, iha, virtual causality: under the mask [X, .., A^(k-1) X] is off by 1; row 1",
    ),
    "E3-cpm3": (FAILS, {"layer": "mha", "modulus": 1, "n_max": 2}, "[0, 0] gives [4.0, 4.0], not [1, 4]"),
    "E4": (
        FAILS,
        {"rotary": "none", "pseudo": 2, "tokens": 2},
        "j = 1 gives [1, 5/3], row j = P [1, 2], the MHA [1, 2]",
    ),
    "E5": (FAILS, {"graph": "binary:2:9", "terms": 2}, "A = [[1, 0], [0, 1]]: rank 2 of 2"),
    "E6": (FAILS, {"tokens": 1, "query": "content"}, "Att C = [0.0] at X = 0, Att = [[1]] at X = 1"),
    "E7": (FAILS, {"layer": "mha", "tokens": 4}, "is 1, 4, 3, 2, and not 1, 2, 3, 4"),
    "E8": (FAILS, {"pseudo": 2, "seed": 0}, "it is linear to rounding"),
    "E9": (ASSUMING, {"layer": "mha", "modulus": 1, "n_max": 2, "tokens": 1}, "[0, 0] has counts 4, not 1"),
    "E10": (
        ASSUMING,
        {"activation": "ReLU", "tokens": 2, "modulus": 2, "coefficient": 5},
        "1[x + 2 y = 0 mod 2] takes 2 ReLU units in a hidden layer",
    ),
    "E12": (FAILS, {"tokens": 1, "width": 1, "terms": 2}, "6.00 times"),
    "E13": (FAILS, {"tokens": 4096, "gain": 27}, "+27% in Sec. 5.2"),
    "P-bank-needs-k": (ASSUMING, {"graph": "path:1", "terms": 2, "projected": False}, "at least 1 MHA heads, and 1"),
    "P-cpm3-example": (FAILS, {"coefficient": 10}, "so (3, 3, 3) fits M = 3, where order does not matter"),
    "P-cpm3-mlp-parameters": (FAILS, {"layer": "iha", "tokens": 1}, "1 printed, 2 built"),
    "P-cpm3-savings": (ASSUMING, {"part": "attention", "sizes": (1, 1)}, "IHA has 10 parameters, MHA 6"),
    "P-cpm3-separation": (FAILS, {"n_max": 2}, "one head of MHA counts 9 of 9 sequences right"),
    "P-inclusion": (
        ASSUMING,
        {"pattern": "linear", "heads": 1, "pseudo": 2, "seed": 0},
        "the IHA is 2 times the MHA",
    ),
    "P-mixing-parameters": (ASSUMING, {"collapse": "per_head", "heads": 2, "pseudo_heads": 1}, "16 is not 14"),
    "P-rank-additivity": (FAILS, {"size": 1, "left": 1, "right": 2}, "rank([[1]] + [[-1]]) = 0"),
    "P-repeated-linear": (
        ASSUMING,
        {"pattern": "softmax", "reads": "values", "heads": 1, "tokens": 1},
        "softmax, positions in values",
    ),
    "P-savings": (ASSUMING, {"tokens": 1, "width": 1, "terms": 1}, "IHA has 10 parameters, MHA 6"),
    "P-schedule": (ASSUMING, {"counted": "causal", "pseudo_heads": 1, "tokens": 4}, "7 pairs"),
    "P-strict": (ASSUMING, {"pattern": "linear", "heads": 1, "pseudo": 2}, "off the MHA head with values times"),
    "T17b": (
        ASSUMING,
        {"bank": "diagonal:3", "terms": 2, "mask": "causal"},
        "rank 2, at least 2 heads without a mask; 1 MHA heads have error 0",
    ),
    "P-two-definitions": (
        ASSUMING,
        {"causal": "virtual", "collapse": "global", "pattern": "softmax", "heads": 1, "pseudo": 2},
        "causal by virtual, global collapse",
    ),
}
"""id: verdict, the smallest counterexample, and a piece of its sentence."""

SUFFICIENT = {"E10", "P-savings", "P-schedule"}
"""Statements that hold in some cases outside their assumption too."""


def test_every_statement_is_expected():
    assert len({s.id for s in STATEMENTS}) == len(STATEMENTS)
    assert {s.id for s in STATEMENTS} == EXPECTED.keys()
    assert {f"E{n}" for n in range(1, 14)} <= EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
def test_verdict(name, judged):
    judgement, (verdict, case, piece) = judged(name), EXPECTED[name]
    assert judgement.verdict == verdict
    assert judgement.sound, page.page(judgement)
    if case is None:
        assert judgement.counterexample is None
    else:
        assert judgement.counterexample is not None
        assert judgement.counterexample[0] == case
        assert piece in judgement.counterexample[1].what
    entry = json.loads(json.dumps(judgement.to_json(), allow_nan=False))
    assert {"id", "statement", "source", "assumptions", "verdict", "evidence"} <= entry.keys()
    assert all(found["what"] for e in entry["evidence"] for found in e["found"])


@pytest.mark.parametrize("name", [s.id for s in STATEMENTS if s.assumption is not None])
def test_the_assumption_is_what_decides(name, judged):
    """Every finding holds where the assumption is met, and nowhere else unless it is only sufficient."""
    judgement = judged(name)
    findings = [
        (finding.holds, judgement.statement.assumption.met(**case)) for case, finding in judgement.evidence[0].findings
    ]
    assert all(holds for holds, met in findings if met)
    assert any(holds and not met for holds, met in findings) == (name in SUFFICIENT)


@pytest.mark.parametrize(("file", "part"), [("docs/ledger.md", "table"), ("README.md", "digest")])
def test_the_pages_have_the_ledger_as_it_is(file, part, judged):
    text = (ROOT / file).read_text(encoding="utf-8")
    judgements = [judged(s.id) for s in STATEMENTS]
    assert f"<!-- claims, {part}: made by `iha-theory claims --update {file}` -->" in text
    assert page.updated(text, judgements) == text, f"run: iha-theory claims --update {file}"


def test_the_digest_has_the_telling_rows(judged):
    lines = page.digest([judged(s.id) for s in STATEMENTS]).splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith(f"{len(STATEMENTS)} statements: ")
    assert [line.split(" | ")[0] for line in lines[-len(page.TELLING) :]] == [f"| {name}" for name in page.TELLING]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_table_has_no_digits_of_rounding(name, judged):
    assert not re.search(r"\de-1\d", page.remark(judged(name)))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda s: s.id)
def test_texts_fit_the_table(statement):
    for claim in statement.claims.values():
        assert len(claim.text) <= 210
        assert not claim.text.endswith(".")


@pytest.mark.parametrize("name", CLAIMS)
def test_every_mutant_is_refused(name, judged):
    statement, role, claim = CLAIMS[name]
    evidence = next(e for e in judged(statement.id).evidence if e.role == role)
    for mutant in claim.mutants:
        assert refused(evidence, mutant) is not None, mutant


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_mutants_or_if_it_holds_nowhere_mends(name, judged):
    """A mend is what the claim should say: then the test says yes in every case."""
    statement, role, claim = CLAIMS[name]
    evidence = next(e for e in judged(statement.id).evidence if e.role == role)
    holds_nowhere = len(evidence.failures) == len(evidence.findings)
    assert bool(claim.mends) == holds_nowhere != bool(claim.mutants)
    for constants in claim.mends.values():
        assert not check(role, claim, **constants).failures


SAID_TO_HOLD = [name for name, (s, role, _) in CLAIMS.items() if role != "printed" or EXPECTED[s.id][0] != FAILS]


SLOW = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)


@pytest.mark.parametrize("name", SAID_TO_HOLD)
def test_a_search_finds_no_counterexample_to_what_is_said_to_hold(name):
    statement, role, claim = CLAIMS[name]
    assumption = statement.assumption if role == "printed" else None
    box = claim.cases if claim.wider is None else claim.wider
    cases = st.fixed_dictionaries(
        {
            key: st.integers(values[0], values[-1]) if _whole(values) else st.sampled_from(list(values))
            for key, values in box.items()
        }
    )

    @settings(max_examples=20, deadline=None, suppress_health_check=SLOW, derandomize=True)
    @given(cases)
    def search(case):
        assume(claim.given(**case) and (assumption is None or assumption.met(**case)))
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
    assert judge(Statement("P-x", "nowhere", small)).to_json()["counterexample"]["case"] == {"n": 4}
    assert not judge(Statement("T99", "ours", small, repaired=always)).sound


def test_a_mutant_that_changes_nothing_is_not_refused():
    """Neither where it holds with the claim, nor where both fail; only where the claim alone holds."""
    mutants = {"no change": {"least": 0}, "fails with the claim": {"least": 1}, "two and more": {"least": 2}}
    claim = Claim("n is no 1", lambda n, least=0: Finding(n >= least and n != 1, ""), {"n": (1, 2, 3)}, mutants)
    assert [refused(check("printed", claim), name) for name in mutants] == [None, None, None]
    claim = Claim(
        "n is no 1", lambda n, least=0: Finding(n >= least and n != 1, ""), {"n": (1, 2, 3)}, {"3": {"least": 3}}
    )
    assert refused(check("printed", claim), "3") == {"n": 2}


def test_findings_are_shown_without_the_digits_of_rounding():
    assert [size(e) for e in (3.1e-16, 2e-10, 0.12345)] == [0, 2e-10, 0.12]
    shown = judge(Statement("P-x", "nowhere", _claim(lambda n: Finding(False, "", {"a": [n / 3, {"b": 1 / 7e12}]}))))
    assert shown.to_json()["counterexample"]["values"] == {"a": [0.333333, {"b": 1.42857e-13}]}


def test_a_claim_without_a_case_is_refused():
    with pytest.raises(ValueError, match="no case"):
        judge(Statement("P-x", "nowhere", _claim(lambda n: Finding(True, ""), given=lambda n: n > 9)))


def test_ids_are_found_whatever_their_case_and_unknown_ones_are_refused():
    assert [s.id for s in select(["e1", "T2"])] == ["E1", "T2"]
    with pytest.raises(ValueError, match="unknown statement 'E99'"):
        select(["E99"])
