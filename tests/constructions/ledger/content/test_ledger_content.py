"""Content: conditions that must decide, by an invariant of A that the code under test does not use."""

import pytest
import sympy
from sympy import QQ

from constructions.ledger.cases import matrix
from constructions.ledger.content import concatenated
from constructions.ledger.content import exact as content
from iha_theory import exact


@pytest.mark.parametrize(
    ("name", "degrees"),
    [
        ("cycle:6", [6]),  # one Jordan block for each eigenvalue
        ("complete:4", [2, 1, 1]),  # eigenvalue 3 once, -1 three times
        ("petersen", [3, 2, 2, 2, 1]),  # 3, 1 and -2, with 1, 5 and 4 eigenvectors
        ("binary:3:0", [1, 1, 1]),
    ],
)
def test_the_least_rank_from_the_degrees_of_the_invariant_factors(name, degrees):
    for degree in range(4):
        assert content._least_rank(matrix(name), degree) == sum(max(0, d - degree) for d in degrees)


def test_petersen_takes_another_argument(judged):
    """Theorem 4 proves nothing there, Theorem 2 of docs/exact_heads.md does."""
    found = {tuple(case.values()): finding.values["away"] for case, finding in judged("T14c").evidence[0].findings}
    assert not found["petersen", 3]
    assert not found["random:6", 4]  # N = 2 r - 2
    assert found["cycle:7", 4]
    anywhere = {tuple(case.values()): finding for case, finding in judged("T17b").evidence[0].findings}
    assert anywhere["petersen", 9, "none"].values["lower"] == 3


@pytest.mark.parametrize("slack", [1, 100])
def test_a_weaker_hypothesis_is_noticed(monkeypatch, slack):
    """needs_rank_heads that accepts rank p(A) >= r - slack: at N = 2 r - 2, and everywhere."""
    right = content.needs_rank_heads
    monkeypatch.setattr(content, "needs_rank_heads", lambda a, k: slack == 100 or right(a, k - slack))
    assert not content.two_fewer_stay_away("random:6", 4).holds
    assert not content.two_fewer_stay_away("petersen", 3).holds


def test_a_wrong_count_in_the_limit_is_noticed(monkeypatch, judged):
    """r - 1 heads come near path:3, k = 2 for d = 1 and not for d = 2."""
    found = {tuple(case.values()): finding.values["near"] for case, finding in judged("T14b").evidence[0].findings}
    assert (found["path:3", 2, 1], found["path:3", 2, 2]) == (True, False)
    assert (found["path:3", 3, 2], found["path:3", 3, 5]) == (True, False)
    for wrong in (10**6, 0):
        monkeypatch.setattr(content, "limit_heads", lambda *_, w=wrong: w)
        assert not content.queries_do_not_save("path:3", 2, 1).holds


@pytest.mark.parametrize(
    ("code", "matrix_"),
    [(27, [[-1, -1], [-1, 0]]), (1, [[0, -1], [-1, -1]]), (51, [[-1, 1], [1, 0]]), (25, [[0, 1], [1, -1]])],
)
def test_irrational_eigenvalues_are_tried(code, matrix_):
    """A - f I and A^2 - f^2 I share their columns for f = (-1 +- sqrt 5) / 2; no integer f has a rank-one part."""
    field, parts = concatenated._rank_one_parts([exact.matrix(matrix_, QQ)])
    assert field == QQ.algebraic_field(sympy.sqrt(5))
    assert len(parts[0]) == 2
    assert all(f**2 + f == field.one for f, _ in parts[0])
    assert concatenated.no_head_carries_two(2, code, 4).holds
    finding = concatenated.no_head_carries_two(2, code, 4, keys=False)
    assert not finding.holds
    assert finding.what.startswith(f"A = {matrix_}: one head carries")
