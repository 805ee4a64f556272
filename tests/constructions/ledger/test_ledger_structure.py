"""T5: the dimension of the banks that IHA makes."""

from constructions.ledger.structure import dimension
from iha_theory.bounds import unstructured_heads


def test_dimension_of_the_banks():
    """The count of the docstring, where it is below k N^2."""
    for terms, tokens, heads in ((3, 4, 1), (4, 6, 2), (5, 8, 2), (7, 7, 3)):
        assert dimension(terms, tokens, heads) == tokens**2 * (2 * heads - 1) + (terms - 2) * heads**2 + 1
    assert dimension(4, 7, 3) == 4 * 7**2


def test_structure(judged):
    found = {case["terms"]: finding.values for case, finding in judged("T5").evidence[1].findings}
    assert found[4] == {"heads": 2, "dimension": 84, "counted": 84, "all": 100}
    for values in found.values():
        assert values["heads"] < unstructured_heads(values["all"] // 25, 49)
