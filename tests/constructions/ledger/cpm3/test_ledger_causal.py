"""The bank under the causal mask."""

from constructions.ledger.cpm3.causal import bank_under_mask


def test_where_the_virtual_order_loses_the_own_token():
    """N = 1, A = 1, k = 2: read in query row 1, block A X is 0."""
    assert bank_under_mask("token", "iha", 1, 2, 1).holds
    assert not bank_under_mask("virtual", "iha", 1, 2, 1).holds
    assert bank_under_mask("virtual", "iha", 1, 1, 1).holds
    assert bank_under_mask("virtual", "iha", 2, 2, 4).holds  # A = [[0, 0], [1, 0]]
    assert "row 1 of A^1 X is wrong in token 1" in bank_under_mask("virtual", "iha", 1, 2, 1).what
