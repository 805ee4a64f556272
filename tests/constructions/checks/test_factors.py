"""Factors: which are rows of I."""

import torch

from constructions.checks.factors import Factor


def test_windows_are_rows_of_the_identity():
    eye = torch.eye(64, dtype=torch.float64)
    assert Factor.of(eye[3:40]).window == 3
    assert Factor.of(eye).identity
    two_in_a_row, scaled, reversed_rows = torch.zeros(2, 64, dtype=torch.float64), 2 * eye, eye.flip(0)
    two_in_a_row[0, :2] = 1
    for other in (two_in_a_row, scaled, reversed_rows, torch.ones(2, 2, dtype=torch.float64)):
        assert Factor.of(other).window is None
