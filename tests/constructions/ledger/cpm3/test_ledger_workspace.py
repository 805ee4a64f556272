"""CPM-3 by a workspace: heads and ties."""

from constructions.ledger.cpm3.workspace import suffices


def test_numbers_that_users_read():
    iha = suffices(17, 5, 11, layer="iha")
    assert iha.values["heads"] == 5
    assert iha.values["ties"] == [5]
    assert "a live row ties over 5 keys" in iha.what
