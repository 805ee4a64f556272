"""What the filter bank needs: Petersen's graph, and heads that share a direction."""

from constructions.ledger.bank.rank import needs_as_many


def test_petersen_is_named(judged):
    """Full rank, degree 3: k = 9 takes 3 MHA heads and 2 IHA heads; with heads concatenated it takes 9."""
    for evidence, heads in zip(judged("E5").evidence, ({"mha": 3}, {"mha": 3, "iha": 2}), strict=True):
        case, finding = evidence.findings[-1]
        assert case == {"graph": "petersen", "terms": 9}
        assert finding.values == {
            "size": 10,
            "rank": 10,
            "degree": 3,
            "certified": 3,
            "heads": heads,
            "error": 0.0,
        }
    assert "petersen" in str(judged("E5").to_json()["evidence"])  # and is among what is shown
    found = {tuple(case.values()): finding for case, finding in judged("P-bank-needs-k").evidence[0].findings}
    assert not found["petersen", 9, True].holds
    assert found["petersen", 9, False].holds
    assert found["complete:3", 9, True].values["heads"] == {"mha": 2}


def test_concatenated_heads_share_a_direction():
    """Powers of the 2-cycle are I and A in turn: 2 heads, whose values repeat; a zero power needs no head."""
    for graph, terms, heads in (
        ("cycle:2", 5, 2),
        ("binary:2:15", 5, 2),
        ("path:3", 6, 3),
        ("complete:3", 4, 4),
        ("path:1", 4, 1),
    ):
        finding = needs_as_many(graph, terms, False)
        assert finding.values == {"lower": heads, "achieved": heads, "error": 0.0}
