"""The ledger on strictness: verdicts, smallest counterexamples, mutants."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger.statement import judge, refused
from constructions.ledger.strictness import STATEMENTS, diagonal

BY_ID = {statement.id: statement for statement in STATEMENTS}
VERDICTS = {
    "P-repeated-linear": "holds-under-assumptions",
    "E8": "does-not-hold-as-printed",
    "P-strict": "holds-under-assumptions",
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


def test_mha_on_repeated_tokens():
    """Cubic with linear attention; affine where values read positions, even with one token."""
    found = {tuple(case.values()): finding.values for case, finding in judged("P-repeated-linear").evidence[0].findings}
    assert found["linear", "none", 1, 3]["degree"] == pytest.approx(3, abs=1e-12)
    assert judged("P-repeated-linear").counterexample[0] == {
        "pattern": "softmax",
        "reads": "values",
        "heads": 1,
        "tokens": 1,
    }


def test_the_printed_witness():
    """P = 2 returns v; from P = 3 on the zeroed pseudo-heads make it non-linear after all."""
    case, finding = judged("E8").counterexample
    assert case == {"pseudo": 2, "seed": 0}
    assert finding.values["gap_to_v"] < 1e-14
    assert finding.values["departure"] < 1e-14
    assert {c["pseudo"] for c, f in judged("E8").evidence[0].findings if f.holds} == {3}


def test_one_linear_head_is_an_mha_head():
    assert {case["heads"] for case, _ in judged("P-strict").evidence[0].failures} == {1}
    assert judged("P-strict").counterexample[0] == {"pattern": "linear", "heads": 1, "pseudo": 2}


@pytest.mark.parametrize(("heads", "pseudo"), [(2, 2), (2, 4), (3, 3)])
def test_diagonal(heads, pseudo):
    """sum_j sum_a X[i,a] X[j,a]^2, in integers."""
    x = torch.randint(-5, 6, (3, 4, heads**2), generator=torch.Generator().manual_seed(0)).double()
    out = diagonal(heads, pseudo)(x, x, x)[..., 0]
    assert torch.equal(out, (x * x.square().sum(1, keepdim=True)).sum(-1))
