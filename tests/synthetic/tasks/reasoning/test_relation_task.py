"""Boolean relations: the oracle against the definition, padding, label balance, what a task refuses."""

import itertools

import numpy as np
import pytest

from synthetic.tasks.reasoning import relations
from synthetic.tasks.reasoning.relations import STRASSEN, THREE_HOPS, TWO_HOPS, Relations


def by_definition(relation, hops):
    """Every path of so many steps, one by one."""
    m = len(relation)
    found = np.zeros((m, m), dtype=int)
    for i, j in itertools.product(range(m), repeat=2):
        for between in itertools.product(range(m), repeat=hops - 1):
            path = (i, *between, j)
            if all(relation[a][b] for a, b in itertools.pairwise(path)):
                found[i, j] = 1
    return found


@pytest.mark.parametrize("hops", [2, 3])
def test_all_relations_on_three_things(hops):
    every = np.array(list(itertools.product((0, 1), repeat=9))).reshape(-1, 3, 3)
    found = relations.compose(every, hops)
    assert all(np.array_equal(own, by_definition(relation, hops)) for own, relation in zip(found, every, strict=True))


@pytest.mark.parametrize(("hops", "largest"), [(2, 7), (3, 5)])
def test_a_thousand_larger_ones_with_padding(hops, largest):
    task = Relations(hops=hops, smallest=4, largest=largest, codes="row-column")
    x, y = task.examples(np.random.default_rng(hops), 1000)
    assert {int(m) for m in (x[..., 0] >= 0).sum(1)} == {m * m for m in range(4, largest + 1)}
    for sample, labels in zip(x, y, strict=True):
        size = (sample[:, 0] >= 0).sum()
        assert (sample[size:, 0] == -1).all()
        assert (labels[size:] == -1).all()
        m = int(size**0.5)
        assert sample[:size, 1:].tolist() == [[i, j] for i in range(m) for j in range(m)]
        assert np.array_equal(labels[:size].reshape(m, m), by_definition(sample[:size, 0].reshape(m, m), hops))


def test_guesses_are_features_of_the_relation():
    task = Relations(smallest=2, largest=3)
    x = np.full((1, 9, 2), -1)
    x[0, :4, 0] = (1, 1, 0, 1)
    found = task.guesses(x)
    assert found["own token"][0, :4].tolist() == [1, 1, 0, 1]
    assert found["degrees"][0, :4].tolist() == [2 * 4 + 1, 2 * 4 + 2, 1 * 4 + 1, 1 * 4 + 2]
    assert [name for name, own in task.parts(x).items() if own[0]] == ["m=2"]


@pytest.mark.parametrize(
    ("options", "share"), [(TWO_HOPS, 0.609), (THREE_HOPS, 0.5), (STRASSEN, 0.554)], ids=["two", "three", "strassen"]
)
def test_label_balance_of_the_papers_settings(options, share):
    own = {name: options[name] for name in Relations.names() if name in options}
    _, y = Relations(**own).examples(np.random.default_rng(0), 4000)
    assert y[y >= 0].mean() == pytest.approx(share, abs=0.01)


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="smallest 5 is above largest 4"):
        Relations(smallest=5, largest=4)
