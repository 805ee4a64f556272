"""The names of the ledger's matrices."""

from constructions.ledger.cases import matrix


def test_names_of_matrices():
    assert [[int(x) for x in row] for row in matrix("binary:2:6").to_list()] == [[0, 1], [1, 0]]
    assert [[int(x) for x in row] for row in matrix("path:2").to_list()] == [[0, 1], [0, 0]]
