"""Whether order matters in CPM-3."""

import pytest

from constructions.ledger.cpm3.order import symmetric, worked_example


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
    assert symmetric(modulus, coefficient) == by_definition == expected


def test_the_worked_example():
    assert worked_example(10, order=False).values == {"fits": [3], "order_matters": []}
