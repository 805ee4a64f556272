"""Constructions beyond the paper's: attention maps and lower bounds."""

from constructions.ledger.bank.beyond import tiles_make_bank


def test_attention_maps(judged):
    maps = {case["terms"]: finding.values["maps"] for case, finding in judged("T6").evidence[0].findings}
    assert {k: maps[k] / k for k in (16, 36, 64, 100)} == {16: 1.0, 36: 1.5, 64: 2.0, 100: 1.6}
    assert all(maps[k] >= k for k in maps)


def test_the_rule_is_not_the_least():
    """k = 9 and 49 take one pseudo-head less than the rule of T6 says."""
    for terms, pseudo in ((9, 2), (49, 3)):
        finding = tiles_make_bank(terms, 0)
        assert finding.values["pseudo_heads"] == pseudo
        assert f"(the rule says {pseudo + 1})" in finding.what


def test_counts(judged):
    lower = {tuple(c.values())[:3]: f.values["lower"] for c, f in judged("T12").evidence[1].findings}
    assert lower[5, "zero", "mha"] == 25
    assert lower[5, "circular", "iha"] == 5
    lower = {tuple(c.values())[:3]: f.values["lower"] for c, f in judged("T13").evidence[1].findings}
    assert lower[4, False, "mha"] == 4
    assert lower[4, True, "iha"] == 3
