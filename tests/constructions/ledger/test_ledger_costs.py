"""Parameters: the least constant of E11."""

import pytest


def test_the_least_constant_of_e11(judged):
    by_count = {case["counts"]: finding for case, finding in judged("E11").evidence[0].findings}
    assert by_count["printed"].values["least_constant"] == pytest.approx(72 / 2**2.5)
    assert by_count["built"].values["least_constant"] == pytest.approx(80 / 2**2.5)
    assert {finding.values["attained_at"] for finding in by_count.values()} == {2}
