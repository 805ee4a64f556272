"""Relations: how many paths of two steps there are, and how two rows overlap. Which pairs a path joins: the task,
`synthetic.tasks.reasoning.relations.compose`."""

import numpy as np
from jaxtyping import Float, Integer


def two_step_paths(relations: Integer[np.ndarray, "batch m m"]) -> Integer[np.ndarray, "batch m m"]:
    """The number of k with R_ik = R_kj = 1."""
    return np.sum(relations[:, :, :, None] & relations[:, None, :, :], axis=2)


def overlap(
    first: Integer[np.ndarray, "batch m m"], second: Integer[np.ndarray, "batch m m"]
) -> Float[np.ndarray, "batch m m"]:
    """sum_k min(a_k, b_k) of the uniform distributions on the ones of row i and of column j; 1 - m c where c of these
    have no ones."""
    m = first.shape[1]
    rows, columns = first.sum(2)[:, :, None], second.sum(1)[:, None, :]
    a = first[:, :, :, None] / np.maximum(rows, 1)[..., None]
    b = second[:, None, :, :] / np.maximum(columns, 1)[:, :, None, :]
    missing = (rows == 0).astype(int) + (columns == 0)
    return np.where(missing == 0, np.minimum(a, b).sum(2), 1.0 - m * missing)
