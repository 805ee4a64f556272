"""The steps of docs/cpm3.md, Theorem 1: its equations at the base point and after the move, against counted pairs."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from synthetic.tasks.count_pairs import CountPairs

MODULI = range(3, 9)
ENDS = list(product(range(3), repeat=2))
"""(a, b): how many differences are M - 1, and -(M - 1)."""


def gaps(modulus, coefficient, inner, ends):
    """count(0; z) - count(0; z') at the base point, and the same after the first of `inner` has moved."""
    delta = np.array([*inner, *[modulus - 1] * ends[0], *[1 - modulus] * ends[1]])
    z = np.maximum(delta, 0)
    moved = z + (np.arange(len(z)) == 0)
    x = np.insert([z, z - delta, moved, moved - delta], 0, 0, axis=1)
    assert ((x >= 0) & (x < modulus)).all()
    counts = CountPairs(modulus, coefficient).target(x)[:, 0]
    return counts[0] - counts[1], counts[2] - counts[3]


def cases(size):
    """M, G != 0, the differences in J with a positive one first, and (a, b)."""
    for m in MODULI:
        values = [d for d in range(2 - m, m - 1) if d]
        for inner in combinations_with_replacement(reversed(values), size):
            if inner[0] > 0:
                for g in range(1, m):
                    for ends in ENDS:
                        yield m, g, inner, ends


def test_one_in_j():  # 2.4
    for m, g, (d,), (a, b) in cases(1):

        def zero(x, m=m):
            return x % m == 0

        tau = zero(g + 1)
        base = (
            (b + 1) ** 2 + a * a * tau + (b + 1) * zero(g * d) + zero((1 + g) * d) + a * (zero(g - d) + zero(g * d - 1))
        )
        move = (b + 1) * (zero(g * d) - int(zero(g * (d + 1)))) + zero((1 + g) * d) - int(zero((1 + g) * (d + 1)))
        move += a * (zero(g - d) + zero(g * d - 1) - zero(g - d - 1) - zero(g * (d + 1) - 1))
        before, after = gaps(m, g, (d,), (a, b))
        assert before == base - (a + 2) ** 2 - b * b * tau
        assert before - after == move - (2 * a + 3 - tau - 2 * b * zero(g - 1))


@pytest.mark.parametrize("size", [2, 3])
def test_one_residue(size):  # 2.5
    for m, g, inner, (a, b) in cases(size):
        d = inner[0]
        if any((e - d) % m for e in inner) or (1 + g) * d % m:
            continue
        before, after = gaps(m, g, inner, (a, b))
        change = 2 + 2 * a + (b + 1 - a) * (g == d) + 2 * a * (g == d + 1) - 2 * b * (g == 1)
        assert after - before == change
        if g == 1 and b == a + 1:
            assert before % 2 == 1


def test_two_residues():  # 2.6
    for m, g, (d, e), (a, b) in cases(2):
        if (g * d + e) % m or (g * e + d) % m or (d - e) % m == 0:
            continue
        before, after = gaps(m, g, (d, e), (a, b))
        own = int((1 + g) * (d + 1) % m == 0)
        common = a * (g == d) - a * ((g - e - 1) % m == 0) - a * (g == d + 1) - own
        same = (g - e) % m == 0
        if e > 0:
            left, right = 2 + common - (b + 1) * same, 2 * a + 5 - 2 * b * (g == 1)
        else:
            left, right = a * (e == -1) + common - (b + 2) * same, 2 * a + 3 - 2 * b * (g == 1) - same
        assert before - after == left - right
        if g == 1 and e > 0:
            assert before == (b + 1) ** 2 + 2 - (a + 3) ** 2
        if g == 1 and e < 0:
            assert e == -d
            assert before == (b + 2) ** 2 + 2 * a * (d == 1) - (a + 2) ** 2 - 2 * b * (d == 1)


def test_opposite_differences():  # 2.7
    for m, g, (d, e), (a, b) in cases(2):
        if (d, e) != (m - 2, 2 - m):
            continue
        tau, half = g == m - 1, 2 * g % m == 0
        ends = (2 * g + 1) % m == 0, g == m - 2

        def f(s, tau=tau, half=half, ends=ends):
            return (s + 2) ** 2 - s * s * tau + (s + 2) * half - s * sum(ends)

        before, after = gaps(m, g, (d, e), (a, b))
        assert before == f(b) - f(a)
        if a == b and not tau:
            right = (a + 1) * half + a * sum(ends) + ((2 * g + 2) % m == 0) + 2 * a * (g == 1)
            right += (g == 2) + ((2 * g - 1) % m == 0)
            assert after - before == 2 * a + 3 - right
        if a == b and tau and m > 3:
            assert after - before == 4 * a + 2


@pytest.mark.parametrize("size", [3, 4])
def test_three_and_more(size):  # 2.8
    for m, (a, b), m1 in product(MODULI, ENDS, range(1, size)):
        for g in range(1, m):
            if (2 * g + 2) % m == 0 and m > 3:
                tau, m2 = g == m - 1, size - m1
                inner = (m - 2,) * m1 + (2 - m,) * m2
                before, after = gaps(m, g, inner, (a, b))
                assert after - before == 2 + 2 * a + 2 * a * tau - 2 * b * (g == 1) - m2 * (g == 2)


@pytest.mark.parametrize("a", range(4))
def test_the_last_case(a):  # 2.8, M = 6 and G = 2, t = 3
    two = 2 * a + 2
    x = [3, *[0] * (two + a), *[5] * (a + 1), *[4] * (two - 1)]
    other = [3, *[0] * (two - 1 + a), 1, *[5] * a, *[4] * two]
    assert len(x) == len(other)
    counts = [int(CountPairs(6, 2).target(np.array(s))[0]) for s in (x, other)]
    assert counts == [a * a + 5 * a + 4, a * a + 5 * a + 5]


def test_pairs():  # 2.3: the only pairs of differences for which (1) can hold
    for m in MODULI:
        y = np.exp(2j * np.pi / m)
        values = range(2 - m, m - 1)
        for g, d, e in product(range(1, m), values, values):
            x = y**g
            rooms = [range(max(0, s), m - 1 + min(0, s)) for s in (d, e)]
            sums = [x**u * y**v * (1 - x**-d * y**-e) + x**v * y**u * (1 - x**-e * y**-d) for u, v in product(*rooms)]
            kinds = (g * d + e) % m == 0 == (g * e + d) % m, e == -d and abs(d) == m - 2
            if d or e:
                assert (max(map(abs, sums)) < 1e-9) == any(kinds), (m, g, d, e)
