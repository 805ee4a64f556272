"""What composed relations are compared with, and on which relations."""

from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor

from constructions.checks.oracles import relations as oracle
from constructions.construction import Construction
from constructions.targets.copying import Copying
from constructions.targets.relations import Composition
from iha_theory.rounding import UNIT
from synthetic.tasks.reasoning.relations import compose

EXHAUSTIVE = 3
"""All relations on so many points; on more, some."""
SAMPLES = 60
DENSITIES = (0.2, 0.325, 0.5)


@cache
def relations(points: int) -> Tensor:
    """(batch, m, m): all of them, or none, all, one, a cycle, a star, an empty row and column, and random ones."""
    m = points
    if m <= EXHAUSTIVE:
        return torch.tensor(list(product((0, 1), repeat=m * m))).view(-1, m, m)
    generator = np.random.default_rng(m)
    found = np.zeros((6 + SAMPLES, m, m), dtype=int)
    found[1], found[2], found[3] = 1, np.eye(m), np.roll(np.eye(m), 1, axis=1)
    found[4, 0], found[4, :, 0] = 1, 1
    density = np.resize(DENSITIES, SAMPLES)[:, None, None]
    found[5], found[6:] = 1, generator.random((SAMPLES, m, m)) < density
    found[5, 1], found[5, :, 2] = 0, 0
    return torch.from_numpy(found)


def wrong_bits(net: Composition | Copying, x: Tensor, hops: int) -> float:
    """How many bits are not exactly those of the task."""
    return float((net(x) != torch.from_numpy(compose(x.numpy(), hops))).sum())


def scores_error(net: Composition, x: Tensor, hops: int) -> tuple[float, float]:
    """The largest difference of s from the overlap, and what rounding may do: m + 2 sums of at most m terms up to m."""
    before = compose(x.numpy(), hops - 1)
    error = (net.scores(x) - torch.from_numpy(oracle.overlap(x.numpy(), before))).abs().max()
    return float(error), 4 * (net.mlp.points + 2) ** 2 * UNIT


@torch.no_grad()
def paths_error(construction: Construction, x: Tensor) -> float:
    """The largest difference from the number of paths."""
    found = construction(x.flatten(1).unsqueeze(-1).double())[..., 0].view(x.shape)
    return float((found - torch.from_numpy(oracle.two_step_paths(x.numpy()))).abs().max())
