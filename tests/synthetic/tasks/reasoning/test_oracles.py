"""Right answers of the reasoning tasks against their definitions, on a thousand samples each, and what is refused."""

import itertools

import numpy as np
import pytest

from synthetic.tasks.reasoning import composition, match3, quotient
from synthetic.tasks.reasoning.composition import Composition
from synthetic.tasks.reasoning.hops import Hops, reached
from synthetic.tasks.reasoning.match3 import Match3
from synthetic.tasks.reasoning.quotient import Quotient
from synthetic.tasks.reasoning.retrieval import Retrieval


def samples(task, count=1000):
    return task.examples(np.random.default_rng(0), count)


def coloured(relation, colours, i, j):
    pairs = itertools.permutations(range(len(relation)), 2)  # k != l
    return int(any(relation[i][k] and relation[j][at] and colours[k] == colours[at] for k, at in pairs))


def test_quotients_of_all_relations_on_three_things():
    every = np.array(list(itertools.product((0, 1), repeat=9))).reshape(-1, 3, 3)
    for colours in ((0, 0, 0), (0, 1, 0), (0, 1, 2), (1, 1, 0)):
        found = quotient.through_colours(every, np.broadcast_to(colours, (len(every), 3)))
        for relation, own in zip(every.tolist(), found.tolist(), strict=True):
            assert own == [[coloured(relation, colours, i, j) for j in range(3)] for i in range(3)]


def test_quotients():
    x, y = samples(Quotient(smallest=3, largest=6))
    assert {int(n) for n in (x[..., 0] >= 0).sum(1)} == {9, 16, 25, 36}
    for sample, labels in zip(x.tolist(), y.tolist(), strict=True):
        size = sum(token[0] >= 0 for token in sample)
        m = int(size**0.5)
        relation = [[sample[i * m + j][0] for j in range(m)] for i in range(m)]
        colours = [token[1] for token in sample[:m]]
        assert all(token[1] == colours[at % m] for at, token in enumerate(sample[:size]))
        wanted = [-1 if i == j else coloured(relation, colours, i, j) for i in range(m) for j in range(m)]
        assert labels == wanted + [-1] * (len(labels) - size)


def matched(x, modulus):
    return [int(any((a + b + c) % modulus == 0 for b, c in itertools.product(x, repeat=2))) for a in x]


def test_match3():
    task = Match3()
    x, y = samples(task)
    for row, labels in zip(x[..., 0].tolist(), y.tolist(), strict=True):
        tokens = [residue for residue in row if residue >= 0]
        assert 10 <= len(tokens) <= 12
        assert labels == matched(tokens, 17) + [-1] * (12 - len(tokens))
    every = np.array(list(itertools.product(range(3), repeat=3)))
    assert match3.matches(every, 3).tolist() == [matched(row, 3) for row in every.tolist()]
    assert 0.4 < y[y >= 0].mean() < 0.6
    strassen = {name: value for name, value in match3.STRASSEN.items() if name in task.learned}
    _, long = samples(Match3(**strassen))
    assert 0.4 < long[long >= 0].mean() < 0.6


def test_orders_of_a_multiset_are_one_sample():
    task = Match3()
    x, _ = samples(task, 50)
    other = x.copy()
    other[..., 0] = np.random.default_rng(1).permuted(x[..., 0], axis=1)
    assert (task.canonical(x) == task.canonical(other)).all()
    assert not (x[..., 0] == other[..., 0]).all()
    counted = task.guesses(x)["different residues"][:, 0].tolist()
    assert counted == [len({residue for residue in row if residue >= 0}) for row in x[..., 0].tolist()]


def test_composition():
    x, y = samples(Composition(smallest=3, largest=9))
    ends = []
    for row, labels in zip(x[..., 0].tolist(), y.tolist(), strict=True):
        f = [value for value in row if value >= 0]
        assert all(value < len(f) for value in f)
        assert labels == [int(f[f[0]] == 0)] + [-1] * 8
        ends.append(labels[0])
    assert 0.45 < np.mean(ends) < 0.55
    every = np.array(list(itertools.product(range(4), repeat=4)))
    assert composition.ends_in_zero(every).tolist() == [int(f[f[0]] == 0) for f in every.tolist()]


def test_retrieval():
    task = Retrieval(length=21, keys=5, queries=3, key_symbols=8, value_symbols=4, distractors=2)
    x, y = samples(task)
    for row, labels in zip(x[..., 0].tolist(), y.tolist(), strict=True):
        context, asked = row[:18], row[18:]
        pairs = [(a, b - 8) for a, b in zip(context[::2], context[1::2], strict=True) if a < 8]
        assert len(pairs) == len(dict(pairs)) == 5
        assert all(0 <= value < 4 for _, value in pairs)
        assert sum(symbol >= 12 for symbol in context) == 8
        assert len(set(asked)) == 3
        assert labels == [-1] * 18 + [dict(pairs)[key] for key in asked]
        assert task.guesses(np.array(row)[None, :, None])["last value"][0, -1] == pairs[-1][1]


def hopped(word, k, at):
    for _ in range(k):
        earlier = [j for j in range(1, at + 1) if word[j - 1] == word[at]]
        if not earlier:
            return None
        at = max(earlier)
    return word[at]


def test_hops():
    x, y = samples(Hops(length=12, letters=3, most_hops=5))
    for row, labels in zip(x[..., 0].tolist(), y.tolist(), strict=True):
        k, word = row[0] - 3, row[1:]
        found = [hopped(word, k, at) for at in range(12)]
        assert labels == [-1] + [3 if letter is None else letter for letter in found]
    every = np.array(list(itertools.product(range(2), repeat=5)))
    for k in range(4):
        found = reached(every, np.full(len(every), k), 2).tolist()
        wanted = [[hopped(word, k, at) for at in range(5)] for word in every.tolist()]
        assert found == [[2 if letter is None else letter for letter in row] for row in wanted]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Match3(modulus=7, most_kinds=7), "most_kinds must be below the modulus 7, got 7"),
        (lambda: Match3(smallest=5, largest=4), "smallest 5 is above largest 4"),
        (lambda: Retrieval(keys=1), "keys must be from queries, 2, to what fits, 15, got 1"),
        (lambda: Retrieval(length=10, keys=5), "to what fits, 4, got 5"),
        (lambda: Composition(smallest=5, largest=4), "smallest 5 is above largest 4"),
        (lambda: Quotient(smallest=5, largest=4), "smallest 5 is above largest 4"),
    ],
)
def test_what_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
