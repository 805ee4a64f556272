"""T5: the dimension of the banks that IHA makes."""

from constructions.ledger.bank.structure import dimension, large_enough
from iha_theory.bounds.heads import unstructured_heads


def test_dimension_of_the_banks():
    """The count of the docstring, where it is below k N^2."""
    for terms, tokens, heads in ((3, 4, 1), (4, 6, 2), (5, 8, 2), (7, 7, 3)):
        assert dimension(terms, tokens, heads) == tokens**2 * (2 * heads - 1) + (terms - 2) * heads**2 + 1
    assert dimension(4, 7, 3) == 4 * 7**2


def test_structure(judged):
    findings = judged("T5").evidence[1].findings
    found = {case["terms"]: finding.values for case, finding in findings if case["tokens"] == 5}
    assert found[4] == {"heads": 2, "dimension": 84, "counted": 84, "all": 100}
    for values in found.values():
        assert values["heads"] < unstructured_heads(values["all"] // 25, 49)


def test_for_few_tokens_a_head_less_is_enough():
    for terms, tokens in ((4, 2), (5, 2), (4, 3), (6, 3), (6, 4), (7, 4), (8, 5)):
        assert not large_enough(terms, tokens)
        assert dimension(terms, tokens, terms // 2) == terms * tokens**2
