"""CPM-3 by rounded numbers, against the task; and how few cells there can be, by going through all."""

import math
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from constructions.cpm3.injective import confusion
from constructions.cpm3.rounded import network
from constructions.ledger.cpm3.rounded import own_token
from synthetic.tasks.count_pairs import CountPairs, all_sequences


@pytest.mark.parametrize(
    ("tokens", "modulus", "coefficient"),
    [(2, 1, 0), (2, 128, 1), (2, 65, 0), (3, 7, 1), (3, 4, 2), (4, 3, -1), (4, 5, 11), (3, 16, 2**62 + 1)],
)
def test_all_sequences(tokens, modulus, coefficient):
    x = np.concatenate(list(all_sequences(modulus, tokens)))
    net = network(tokens, modulus, coefficient)
    assert np.array_equal(net(torch.from_numpy(x)).numpy(), CountPairs(modulus, coefficient).target(x))
    assert int(net.numbers(torch.from_numpy(x)).max()) < net.values


@pytest.mark.parametrize(("coefficient", "numbers", "bits"), [(0, 4, 2), (1, 14, 3), (2, 24, 3), (-1, 24, 11)])
def test_how_many_bits(coefficient, numbers, bits):
    net = network(5, 1021, coefficient)
    assert (net.attention.heads, math.ceil(math.log2(net.values))) == (numbers, bits)


def test_fewer_bits_than_numbers_that_are_not_rounded():
    """Theorem 2's bound is (N - 1) log2 M; and these layers carry the whole sequence before they are rounded."""
    for coefficient, bits in ((0, 2), (1, 6)):
        net = network(2, 128, coefficient)
        assert net.attention.heads * math.ceil(math.log2(net.values)) == bits < math.log2(128)
        assert confusion(net.attention, 128, coefficient) is None


def test_large_tokens_are_divided_exactly():
    modulus = 2**25 - 39
    x = np.random.default_rng(0).integers(0, modulus, (200, 3))
    x[:100, 2] = -x[:100, :2].sum(1) % modulus  # some pair is counted
    counts = network(3, modulus, 1)(torch.from_numpy(x)).numpy()
    assert np.array_equal(counts, CountPairs(modulus, 1).target(x))
    assert counts[:100].all()


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least 2 tokens"):
        network(1, 3, 1)
    with pytest.raises(ValueError, match="modulus"):
        network(2, 0, 1)
    with pytest.raises(ValueError, match="too large for float64"):
        network(2, 2**30, -1)
    with pytest.raises(ValueError, match="sequences of 3 residues"):
        network(3, 5, 1)(torch.tensor([[0, 1, 5]]))


@pytest.mark.parametrize("coefficient", [0, 1, 2])
def test_fewest_convex_cells_of_equal_counts(coefficient):
    """n = 2, M = 3: of all partitions into cells that hold the lattice points of their hull, none has below 4 cells."""
    points = list(product(range(3), repeat=2))
    t = own_token(3, coefficient)
    counts = [sum((t + coefficient * a + b) % 3 == 0 for a in (t, *z) for b in (t, *z)) for z in points]

    def between(p, q, r):
        """r strictly inside the segment p q."""
        return 2 * r[0] == p[0] + q[0] and 2 * r[1] == p[1] + q[1]

    def cell(mask):
        inside = [i for i in range(9) if mask >> i & 1]
        middles = [
            k for i in inside for j in inside for k in range(9) if i < j and between(points[i], points[j], points[k])
        ]
        return len({counts[i] for i in inside}) == 1 and all(mask >> k & 1 for k in middles)

    cells = [mask for mask in range(1, 2**9) if cell(mask)]

    @cache
    def fewest(left):
        if not left:
            return 0
        low = left & -left
        return 1 + min(fewest(left & ~mask) for mask in cells if mask & low and not mask & ~left)

    assert fewest(2**9 - 1) >= 4


@pytest.mark.parametrize(("others", "rank", "numbers", "values"), [(5, 1, 3, 4), (6, 2, 5, 3), (5, 3, 8, 2)])
def test_cells_of_few_dimensions(others, rank, numbers, values):
    """m = D (2^p - 1) steps in rank dimensions: at most sum_i C(m, i) cells."""
    generator = np.random.default_rng(others)
    z = np.concatenate(list(all_sequences(3, others)))
    y = z @ generator.standard_normal((others, rank)) @ generator.standard_normal((rank, numbers))
    steps = np.sort(generator.choice(y.ravel(), (numbers, values - 1)), axis=1)
    codes = np.stack([np.searchsorted(s, column) for s, column in zip(steps, y.T, strict=True)])
    most = sum(math.comb(numbers * (values - 1), i) for i in range(rank + 1))
    assert len(np.unique(codes, axis=1).T) <= most < 3**others
