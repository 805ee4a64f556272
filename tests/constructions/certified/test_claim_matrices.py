"""The matrices and numbers of a claim as its check reads them."""

from fractions import Fraction

import numpy as np
import pytest

from constructions.certified.intervals import DIGITS, Refused, number
from constructions.certified.matrices import given
from synthetic.graphs import load, normalise
from synthetic.training.certified.spectrum import LONGEST, quotient, written

WEIGHTS = np.array([[0, 0.1, 1e-9], [0.1, 0, 0.7], [1e-9, 0.7, 0]])


@pytest.fixture
def config(tmp_path):
    np.savez(tmp_path / "floats.npz", WEIGHTS)

    def of(graph="floats.npz", kind="none"):
        graph = str(tmp_path / graph) if graph.endswith("npz") else graph
        return {"task": "polynomial", "mode": "position-only", "graph": graph, "normalise": kind}

    return of


@pytest.mark.parametrize(
    ("graph", "kind", "off"),
    [
        ("floats.npz", "none", 0),
        ("floats.npz", "row", 1e-12),
        ("floats.npz", "symmetric", 1e-12),
        ("karate", "row", 0),
        ("karate", "symmetric", 1e-12),
        ("random:4", "none", 0),
        ("orthogonal:4", "none", 1e-12),
    ],
)
def test_only_what_is_computed_in_floating_point_may_differ(config, graph, kind, off):
    own = config(graph, kind)
    matrix = written(normalise(load(own["graph"]), kind).adjacency)
    assert given(own, [matrix]) == [[[Fraction(x) for x in row] for row in matrix]]
    places = [(i, j) for i, row in enumerate(matrix) for j, x in enumerate(row) if x]
    for i, j in (places[0], min(places, key=lambda at: abs(Fraction(matrix[at[0]][at[1]])))):
        exact = Fraction(matrix[i][j])
        size = exact if graph != "orthogonal:4" else max(abs(Fraction(x)) for row in matrix for x in row)
        for by, right in ((Fraction(off) * Fraction(9, 10), True), (Fraction(off or 1e-300) * Fraction(11, 10), False)):
            other = [list(row) for row in matrix]
            other[i][j] = quotient(exact + size * by)
            if right:
                given(own, [other])
            else:
                with pytest.raises(Refused, match="another graph"):
                    given(own, [other])


@pytest.mark.parametrize("x", [Fraction(0), Fraction(-7, 3), Fraction(10**6000 + 1, 10**5000 + 3)])
def test_fractions_of_any_length_are_read_as_written(x):
    assert number(quotient(x)) == x


def test_numbers_have_a_bound():
    assert DIGITS == LONGEST
    for text in ("1" * (DIGITS + 1), "1/" + "1" * (DIGITS + 1), "0." + "1" * DIGITS):
        with pytest.raises(Refused, match="more than 100000 digits"):
            number(text)
    with pytest.raises(ValueError, match="claims have numbers of at most 100000"):
        quotient(Fraction(1, 10**DIGITS))
    assert written(np.array([[2**63, 2**64, Fraction(10**5000, 3)]], dtype=object))[0][:2] == [2**63, f"{2**64}/1"]
