"""The CPM-3 oracle against the definition, over every dtype, modulus and way of counting."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synthetic.tasks import count_pairs as cpm3
from synthetic.tasks.count_pairs import CountPairs, all_sequences


def by_definition(x, modulus, coefficient):
    x = [int(v) for v in x]
    return [sum((a + coefficient * b + c) % modulus == 0 for b in x for c in x) for a in x]


@pytest.mark.parametrize(
    ("x", "coefficient", "modulus", "expected"),
    [  # case 7
        (np.array([200, 100], dtype=np.uint8), 3, 7, [1, 0]),
        (np.array([1, 4, 2]), -1, 5, [1, 1, 2]),
        (np.array([3, 1]), 2**62, 7, [0, 1]),
        (np.array([5, 0, -3, 9]), 11, 1, [16] * 4),
        (np.array([0, 1, 2]), 2, 3, [3, 3, 3]),
        (np.array([2]), 1, 6, [1]),
    ],
)
def test_stated_values(x, coefficient, modulus, expected):
    assert by_definition(x, modulus, coefficient) == expected
    counts = CountPairs(modulus, coefficient).target(x)
    assert counts.tolist() == expected
    assert counts.dtype == np.int64
    assert CountPairs(modulus, coefficient).target(np.stack([x, x[::-1]])).tolist() == [expected, expected[::-1]]


MODULI = [1, 2, 3, 7, 12, 101, 2**14, 2**14 + 1, 2**31, 2**31 + 1, 2**62, 2**63 - 1, 2**63, 10**30]


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(MODULI),
    st.one_of(st.integers(-20, 20), st.integers(-(2**70), 2**70)),
    st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**70), 2**70)), min_size=1, max_size=8),
    st.sampled_from(["correlated", "few", "convolution", "distinct"]),
)
def test_the_count_is_the_definition(modulus, coefficient, x, way):
    with pytest.MonkeyPatch.context() as patch:
        if way != "correlated":
            patch.setattr(cpm3, "CORRELATED", 0)
        if way in ("convolution", "distinct"):
            patch.setattr(cpm3, "FEW", 0)
        if way == "distinct":
            patch.setattr(cpm3, "LARGEST_CONVOLUTION", 0)
        got = CountPairs(modulus, coefficient).target(np.array(x, dtype=object))
    assert got.tolist() == by_definition(x, modulus, coefficient)


def causal_by_definition(x, modulus, coefficient):
    return [
        sum((x[i] + coefficient * x[j1] + x[j2]) % modulus == 0 for j1 in range(i + 1) for j2 in range(i + 1))
        for i in range(len(x))
    ]


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(MODULI),
    st.one_of(st.integers(-20, 20), st.integers(-(2**70), 2**70)),
    st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**70), 2**70)), min_size=1, max_size=8),
)
def test_the_causal_count_is_the_definition(modulus, coefficient, x):
    got = CountPairs(modulus, coefficient, causal=True).target(np.array([x, x[::-1]], dtype=object))
    assert got.tolist() == [causal_by_definition(y, modulus, coefficient) for y in (x, x[::-1])]
    assert got[0, -1] == CountPairs(modulus, coefficient).target(np.array(x, dtype=object))[-1]


@pytest.mark.parametrize(("batch", "tokens"), [(5000, 3), (3, 70)])
def test_causal_counts_of_many_and_of_long_sequences(batch, tokens):
    x = np.random.default_rng(0).integers(-20, 20, (batch, tokens))
    got = CountPairs(6, 13, causal=True).target(x)
    for i in (0, batch // 2, batch - 1):
        assert got[i].tolist() == causal_by_definition(x[i].tolist(), 6, 13)
    assert CountPairs(6, 13, causal=True).target(x[:0]).shape == (0, tokens)


@settings(deadline=None)
@given(st.data(), st.sampled_from([np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64]))
def test_every_integer_dtype(data, dtype):
    limits = np.iinfo(dtype)
    x = data.draw(st.lists(st.integers(int(limits.min), int(limits.max)), min_size=1, max_size=6))
    modulus, coefficient = data.draw(st.sampled_from(MODULI)), data.draw(st.integers(-(2**64), 2**64))
    got = CountPairs(modulus, coefficient).target(np.array(x, dtype=dtype))
    assert got.tolist() == by_definition(x, modulus, coefficient)


@pytest.mark.parametrize("modulus", [1, 2, 9, 40])
@pytest.mark.parametrize("coefficient", [0, 1, -7, 10**20 + 3])
def test_long_sequences_use_the_convolution(modulus, coefficient, monkeypatch):
    monkeypatch.setattr(cpm3, "CORRELATED", 0)
    x = np.random.default_rng(0).integers(-50, 50, (3, 70))
    got = CountPairs(modulus, coefficient).target(x)
    assert got.tolist() == [by_definition(row, modulus, coefficient) for row in x]


def test_ways_agree_beyond_the_reach_of_the_definition(monkeypatch):
    x = np.random.default_rng(1).integers(0, 5000, (2, 3000))
    task = CountPairs(5000, 12_347)
    got = task.target(x)
    monkeypatch.setattr(cpm3, "LARGEST_CONVOLUTION", 0)
    assert (task.target(x) == got).all()
    # Every pair fits exactly one residue of x_i, so over all residues the f of T8 sums to N^2.
    residues = CountPairs(5000, 12_347).target(np.concatenate([x[0], np.arange(5000)]))[3000:]
    assert residues.sum() == 8000**2


def test_the_largest_counts():
    x = np.zeros(100_000, dtype=np.uint8)
    assert (CountPairs(2**61, -3).target(x) == 10**10).all()
    assert (CountPairs(3, 5).target(x) == 10**10).all()


def test_token_order_does_not_matter():  # docs/results.md T8
    generator = np.random.default_rng(0)
    x = generator.integers(0, 11, 100)
    order = generator.permutation(100)
    task = CountPairs(11, 25)
    assert (task.target(x[order]) == task.target(x)[order]).all()


def test_a_batch_is_counted_in_parts(monkeypatch):
    x = np.random.default_rng(0).integers(0, 2**14, (1000, 3))
    got = CountPairs(2**14, 5).target(x)
    assert (got[700:] == CountPairs(2**14, 5).target(x[700:])).all()
    assert CountPairs(5, 2).target(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)
    assert CountPairs(5, 2).target(np.zeros((0, 300), dtype=np.int64)).shape == (0, 300)


@pytest.mark.parametrize(("modulus", "batch", "tokens"), [(16, 4500, 5), (7, 3, 200), (128, 300, 64), (1, 2, 3)])
def test_batches_are_correlated_in_parts(modulus, batch, tokens, monkeypatch):
    x = np.random.default_rng(2).integers(-300, 300, (batch, tokens))
    task = CountPairs(modulus, 2 * modulus - 7)
    got = task.target(x)
    monkeypatch.setattr(cpm3, "CORRELATED", 0)
    assert (task.target(x) == got).all()


@pytest.mark.parametrize(("modulus", "tokens"), [(1, 5), (3, 1), (3, 4), (10, 3)])
@pytest.mark.parametrize("chunk", [1, 7, 2**16])
def test_all_sequences(modulus, tokens, chunk):
    got = list(all_sequences(modulus, tokens, chunk))
    assert all(1 <= len(part) <= chunk for part in got)
    expected = np.stack(np.meshgrid(*[range(modulus)] * tokens, indexing="ij"), axis=-1).reshape(-1, tokens)
    assert (np.concatenate(got) == expected).all()


@pytest.mark.parametrize(("modulus", "tokens", "chunk"), [(0, 3, 5), (3, 0, 5), (3, -1, 5), (3, 3, 0), (2, 63, 5)])
def test_bad_ranges_of_sequences_are_refused(modulus, tokens, chunk):
    with pytest.raises(ValueError, match=r"^modulus [^\n]*at least 1"):
        next(all_sequences(modulus, tokens, chunk))


def test_all_sequences_are_counted_right():
    for M, G, N in ((2, 5, 3), (3, 7, 4), (4, 9, 2)):
        for x in all_sequences(M, N):
            assert CountPairs(M, G).target(x).tolist() == [by_definition(row, M, G) for row in x]


def test_samples_depend_on_the_seed_alone():
    task = CountPairs(7, 15)
    whole = task.sample(np.random.default_rng(3), 9, 5, 20)
    generator = np.random.default_rng(3)
    assert (np.concatenate([task.sample(generator, size, 5, 20) for size in (1, 5, 3)]) == whole).all()
    assert whole.min() >= 0
    assert whole.max() < 20
    train, test = np.random.default_rng(3).spawn(2)
    assert (task.sample(train, 9, 5, 20) != task.sample(test, 9, 5, 20)).any()


@pytest.mark.parametrize("modulus", [0, -3, True])
def test_bad_moduli_are_refused(modulus):
    with pytest.raises(ValueError, match=r"^modulus must be [^\n]+$"):
        CountPairs(modulus, 2)


@pytest.mark.parametrize(
    ("x", "word"),
    [
        (np.array([1.0, 2.0]), "float64"),
        (np.array([True, False]), "bool"),
        (np.array([1, 2.5], dtype=object), "object"),
        (np.array([1, True], dtype=object), "object"),
        (np.array(["1"]), "dtype"),
        (np.zeros((0,), dtype=np.int64), "at least one token"),
        (np.zeros((3, 0), dtype=np.int64), "at least one token"),
        (np.zeros((2, 2, 2), dtype=np.int64), "shape"),
        (np.array(3), "shape"),
        (np.broadcast_to(np.int64(0), (2**32,)), "shape"),
    ],
)
def test_bad_sequences_are_refused(x, word):
    with pytest.raises(ValueError, match=rf"^[^\n]*{word}[^\n]*$"):
        CountPairs(5, 2).target(x)
