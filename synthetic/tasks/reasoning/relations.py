"""Composing Boolean relations: R o R and R o R o R of an m x m matrix (App. D; arXiv 2501.19215)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Bool, Int64, Shaped

from iha_theory import blueprint
from iha_theory.options import option
from synthetic.tasks.reasoning.base import NOTHING, Inputs, Labels, Ranged
from synthetic.tasks.reasoning.grids import cpu, others, paper, strassen, tuned
from synthetic.tasks.task import Sweep

TWO_HOPS = {"hops": 2, "smallest": 6, "largest": 10, "density": 0.325}
THREE_HOPS = {"hops": 3, "smallest": 5, "largest": 8, "density": 0.264}
STRASSEN = {"smallest": 6, "largest": 8, "density": 0.325, "width": 16, "mlp": 64, "steps": 3600}
"""The settings of App. D and of arXiv 2501.19215."""
Matrices = Shaped[np.ndarray, "samples m m"]


@dataclass(frozen=True)
class Relations(Ranged):
    """An m x m Boolean matrix R, row by row; label (i, j) says whether (i, j) is in R o R, or in R o R o R.

    (R o R)_ij = 1 if some k has R_ik = R_kj = 1. m is uniform in smallest .. largest, entries are independent.
    """

    summary: ClassVar[str] = "composing Boolean relations, R o R and R o R o R (App. D, docs/reasoning.md)"
    learned: ClassVar[tuple[str, ...]] = ("hops", "smallest", "largest", "density", "codes")
    sweeps: ClassVar[Mapping[str, Sweep]] = {
        "relations": Sweep(
            "composing Boolean relations, m = 4 or 5, on seven attentions",
            cpu({}, more=16, wide=92, longer=2300),
            seeds=3,
            presets={
                "others": others({}),
                "tuned": tuned({}, heads=(4, 16)),
                "paper": Sweep(
                    "App. D, two and three hops, for a GPU", (*paper(TWO_HOPS), *paper(THREE_HOPS)), seeds=1
                ),
                "strassen": Sweep("arXiv 2501.19215, R o R, for a GPU", strassen(STRASSEN, heads=1)),
            },
        )
    }

    hops: int = option(2, "relations composed", 2, 3)
    smallest: int = option(4, "least m", 1)
    largest: int = option(5, "largest m", 1)
    density: float = option(0.325, "probability that an entry is 1", 0, 1)
    codes: Literal["flat", "row-column"] = option("flat", "positions: one code, or a row's and a column's")

    @property
    def label(self) -> str:
        """What is composed, and m."""
        return f"{self.hops} hops, m={self.smallest}-{self.largest}"

    @property
    def tokens(self) -> int:
        """The largest m^2."""
        return self.largest**2

    @property
    def channels(self) -> tuple[int, ...]:
        """An entry; its place in the sequence, or its row and its column."""
        return (2, self.tokens) if self.codes == "flat" else (2, self.largest, self.largest)

    def examples(self, generator: np.random.Generator, count: int) -> tuple[Inputs, Labels]:
        """See the class."""
        m = generator.integers(self.smallest, self.largest + 1, count)
        entries = generator.random((count, self.largest, self.largest)) < self.density
        relation = entries & inside(m, self.largest)
        return coded(relation, m, self.codes), flat(compose(relation, self.hops), m)

    def guesses(self, x: Inputs) -> Mapping[str, Int64[np.ndarray, "samples N"]]:
        """The own entry; and how many ones its row and its column have."""
        relation, m = matrices(x)
        rows, columns = relation.sum(2), relation.sum(1)
        both = rows[:, :, None] * (self.largest + 1) + columns[:, None, :]
        return {"own token": x[..., 0].clip(0), "degrees": flat(both, m).clip(0)}

    def parts(self, x: Inputs) -> Mapping[str, Bool[np.ndarray, " samples"]]:
        """By m."""
        _, m = matrices(x)
        return {f"m={size}": m == size for size in range(self.smallest, self.largest + 1)}


@blueprint.definition(
    "relation",
    "a relation on m points: m^2 tokens (i, j) with a bit each; i is joined to j by h steps along its ones",
    check="exact",
    tests="tests/synthetic/tasks/reasoning/test_relation_task.py",
)
def compose(relation: Matrices, hops: int) -> Int64[np.ndarray, "samples m m"]:
    """R o ... o R of so many factors, by counting paths: 1 where there is one."""
    relation = relation.astype(np.int64)
    found = relation
    for _ in range(hops - 1):
        found = (found @ relation > 0).astype(np.int64)
    return found


def inside(m: Int64[np.ndarray, " samples"], largest: int) -> Bool[np.ndarray, "samples largest largest"]:
    """Which entries belong to each sample's m x m matrix."""
    own = np.arange(largest) < m[:, None]
    return own[:, :, None] & own[:, None, :]


def flat(x: Matrices, m: Int64[np.ndarray, " samples"]) -> Int64[np.ndarray, "samples N"]:
    """Matrices row by row, the first m rows and columns of each, padded on the right with `NOTHING`."""
    largest = x.shape[1]
    out = np.full((len(x), largest**2), NOTHING, dtype=np.int64)
    for size in np.unique(m):
        out[m == size, : size**2] = x[m == size, :size, :size].reshape(-1, size**2)
    return out


def coded(relation: Matrices, m: Int64[np.ndarray, " samples"], codes: str, *more: Matrices) -> Inputs:
    """The entries and what else there is of each, row by row, with the codes of where they stand."""
    largest = relation.shape[1]
    at = np.broadcast_to(np.arange(largest), relation.shape)
    where: list[Any] = [at.transpose(0, 2, 1), at]
    found = [flat(own, m) for own in (relation, *more, *(where if codes == "row-column" else []))]
    if codes == "flat":
        found.append(np.broadcast_to(np.arange(largest**2), found[0].shape))
    return np.stack(found, axis=-1)


def matrices(x: Inputs) -> tuple[Int64[np.ndarray, "samples m m"], Int64[np.ndarray, " samples"]]:
    """The matrices that `flat` made rows of, 0 outside, and m."""
    m = np.sqrt((x[..., 0] != NOTHING).sum(1)).astype(np.int64)
    largest = int(np.sqrt(x.shape[1]))
    out = np.zeros((len(x), largest, largest), dtype=np.int64)
    for size in np.unique(m):
        out[m == size, :size, :size] = x[m == size, : size**2, 0].reshape(-1, size, size)
    return out, m
