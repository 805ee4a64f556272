"""The relations on which a check runs where not all are tried."""

import torch

from constructions.checks.relations import DENSITIES, EXHAUSTIVE, SAMPLES, relations


def test_relations_where_not_all_are_tried():
    m = EXHAUSTIVE + 1
    found = relations(m)
    none, every, one, cycle, star, holes = found[:6]
    ones = torch.ones(m, m, dtype=torch.long)
    assert found.shape == (6 + SAMPLES, m, m)
    assert torch.equal(none, 0 * ones)
    assert torch.equal(every, ones)
    assert torch.equal(one, torch.eye(m, dtype=torch.long))
    assert torch.equal(cycle, one.roll(1, 1))
    assert torch.equal(star.nonzero().amin(1), torch.zeros(2 * m - 1, dtype=torch.long))
    assert torch.equal(
        (1 - holes).nonzero(), torch.tensor([(i, j) for i in range(m) for j in range(m) if i == 1 or j == 2])
    )
    assert found.unique().tolist() == [0, 1]
    for at, density in enumerate(DENSITIES):
        sample = found[6 + at :: len(DENSITIES)].double()
        assert abs(float(sample.mean()) - density) < 4 * (density * (1 - density) / sample.numel()) ** 0.5
