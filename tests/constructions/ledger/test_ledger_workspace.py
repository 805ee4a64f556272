"""The ledger's statements on CPM-3 by a workspace and on the causal mask: verdicts, counterexamples, mutants."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constructions.ledger import causal, workspace
from constructions.ledger.statement import judge, refused

STATEMENTS = {s.id: s for s in (*workspace.STATEMENTS, *causal.STATEMENTS)}

VERDICTS = {
    "E1": "does-not-hold-as-printed",
    "P-cpm3-example": "does-not-hold-as-printed",
    "E7": "does-not-hold-as-printed",
    "P-cpm3-mha": "holds",
    "P-cpm3-iha": "holds",
    "P-cpm3-separation": "construction-only",
    "E9": "holds-under-assumptions",
    "E3": "holds-under-assumptions",
    "E3-cpm3": "does-not-hold-as-printed",
}

COUNTEREXAMPLES = {
    "E1": ({"modulus": 2, "coefficient": 5}, "M = 2, G = 5: the predicate is the same for all residues"),
    "P-cpm3-example": ({"coefficient": 10}, "so (3, 3, 3) fits M = 3, where order does not matter"),
    "E7": ({"layer": "mha", "tokens": 4}, "is 1, 4, 3, 2, and not 1, 2, 3, 4"),
    "E9": ({"layer": "mha", "n_max": 2, "tokens": 1}, "[0, 0] has counts 4, not 1"),
    "E3": (
        {"causality": "token", "layer": "mha", "tokens": 2, "terms": 2, "code": 2},
        "A = [[0, 1], [0, 0]], k = 2, mha, token causality",
    ),
    "E3-cpm3": ({"layer": "mha", "n_max": 2}, "[0, 0] gives [4.0, 4.0], not [1, 4]"),
}


def test_every_statement_is_expected():
    assert STATEMENTS.keys() == VERDICTS.keys()


@pytest.mark.parametrize("name", VERDICTS)
def test_verdicts(name):
    judgement = judge(STATEMENTS[name])
    assert judgement.verdict == VERDICTS[name]
    assert judgement.sound
    json.dumps(judgement.to_json(), allow_nan=False)
    if name in COUNTEREXAMPLES:
        case, what = COUNTEREXAMPLES[name]
        assert judgement.counterexample is not None
        assert judgement.counterexample[0] == case
        assert what in judgement.counterexample[1].what
    else:
        assert judgement.counterexample is None


def test_where_the_virtual_order_loses_the_own_token():
    """N = 1, A = 1, k = 2: read in query row 1, block A X is 0; in row P it is right."""
    printed = STATEMENTS["E3"].claim.test
    assert printed("token", "iha", 1, 2, 1).holds
    assert not printed("virtual", "iha", 1, 2, 1).holds
    assert printed("virtual", "iha", 1, 1, 1).holds
    assert printed("virtual", "iha", 2, 2, 4).holds  # A = [[0, 0], [1, 0]]
    assert "row 1 of A^1 X is wrong in token 1" in printed("virtual", "iha", 1, 2, 1).what


def test_numbers_that_users_read():
    iha = STATEMENTS["P-cpm3-iha"].claim.test(17, 5, 11)
    assert iha.values["heads"] == 5
    assert iha.values["ties"] == [5]
    assert "a live row ties over 5 keys" in iha.what
    both = STATEMENTS["P-cpm3-separation"].claim.test(17)
    assert (both.values["mha"], both.values["iha"]) == (17, 5)
    assert STATEMENTS["P-cpm3-example"].claim.test(10).values == {"fits": [3], "order_matters": []}


@pytest.mark.parametrize(
    ("modulus", "coefficient", "expected"),
    [
        (1, 0, True),
        (2, 5, True),
        (2, 6, False),
        (3, 7, True),
        (3, 8, False),
        (5, -4, True),
        (5, -5, False),
        (7, 2**62 + 4, True),  # 2^62 = 4 mod 7
        (7, 2**62, False),
    ],
)
def test_symmetry_by_hand(modulus, coefficient, expected):
    tried = range(modulus)
    by_definition = all(
        ((x + coefficient * a + b) % modulus == 0) == ((x + coefficient * b + a) % modulus == 0)
        for x in tried
        for a in tried
        for b in tried
    )
    assert workspace.symmetric(modulus, coefficient) == by_definition == expected


MUTANTS = [
    (name, role, mutant)
    for name, statement in STATEMENTS.items()
    for role, claim in statement.claims.items()
    for mutant in claim.mutants
]


@pytest.mark.parametrize(("name", "role", "mutant"), MUTANTS)
def test_mutants_are_refused(name, role, mutant):
    assert refused(STATEMENTS[name].claims[role], mutant) is not None


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_claims_hold_beyond_their_boxes(data):
    """Claims said to hold, on the wider boxes."""
    name = data.draw(st.sampled_from([n for n, s in STATEMENTS.items() for c in s.claims.values() if c.wider]))
    statement = STATEMENTS[name]
    claim = statement.repaired or statement.claim
    assert claim.wider is not None
    case = {key: data.draw(st.sampled_from(values)) for key, values in claim.wider.items()}
    if claim.given(**case):
        assert claim.test(**case).holds, case
