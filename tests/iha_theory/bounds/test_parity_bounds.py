"""Bits of parity and the least number of errors: docs/parity.md, Theorems 1 and 4."""

import itertools
from math import comb

import pytest

from iha_theory.bounds.parity import least_errors, parity_bits


def test_bits_of_each_layer():
    found = {
        kind: parity_bits(kind, 3) for kind in ("mha", "mqa", "gqa", "talking-heads", "differential", "simplicial")
    }
    assert found == {"mha": 3, "mqa": 3, "gqa": 3, "talking-heads": 3, "differential": 6, "simplicial": 6}
    assert [parity_bits("iha", 3, p) for p in (1, 2, 3)] == [3, 6, 9]
    assert parity_bits("two-layer", 3) is None
    assert [parity_bits(kind, 3, pattern="linear") for kind in ("mha", "simplicial", "two-layer")] == [1, 2, 4]
    assert parity_bits("mha", 3, pattern="hard") == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mhla", 2), "unknown kind"),
        (("mha", 0), "heads must be"),
        (("iha", 2), "pseudo_heads goes with iha"),
        (("mha", 2, 2), "pseudo_heads goes with iha"),
        (("iha", 2, 0), "pseudo_heads must be"),
        (("mha", 2, None, "cosine"), "unknown pattern"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        parity_bits.__wrapped__(*arguments)  # type: ignore[attr-defined]  # past the tests' type checks


def test_least_errors_is_reached_by_the_best_signs_with_so_many_changes():
    """Symmetric functions p(c)/Q(c), deg p <= R, have at most R changes of sign along c = 0..n; the best of them."""
    for n in range(1, 9):
        for r in range(1, n + 2):
            fewest = min(
                sum(comb(n, c) for c in range(n + 1) if signs[c] != (-1) ** c)
                for signs in itertools.product((1, -1), repeat=n + 1)
                if sum(a != b for a, b in itertools.pairwise(signs)) <= r
            )
            assert least_errors(n, r) == fewest
    assert [least_errors(9, r) for r in range(1, 11)] == [186, 130, 74, 46, 18, 10, 2, 1, 0, 0]
