"""How many heads a graph's filter bank takes, against the error that is allowed; as a picture.

    uv run python examples/plot_heads.py karate karate.svg
    uv run python examples/plot_heads.py my.graphml mine.png

Lower bounds, from the singular values of the powers, scaled to Frobenius norm 1, of the symmetric-normalised matrix (of
the matrix itself if it is directed or has negative weights): docs/bounds.md, Theorem 3. `iha-theory heads` has weights
that reach them.
"""

import sys
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import torch

from iha_theory import least_heads, least_rank, spectrum, unit_norm
from synthetic.graphs import load, normalise

TERMS = 16
TOLERANCES = tuple(10.0**-e for e in np.linspace(0.25, 10, 40))


def counts(spec: str) -> dict[str, list[int]]:
    """The heads of MHA and IHA at each of `TOLERANCES`, for [X, AX, ..., A^15 X]."""
    graph = load(spec)
    plain = graph.directed or bool((graph.adjacency < 0).any())
    A = torch.tensor(normalise(graph, "none" if plain else "symmetric").adjacency.astype(float))
    powers = torch.stack([torch.linalg.matrix_power(A, t) for t in range(TERMS)])
    values = spectrum(unit_norm(powers))
    ranks = [least_rank(values, tolerance) for tolerance in TOLERANCES]
    return {kind: [least_heads(kind, rank) for rank in ranks] for kind in ("mha", "iha")}


def draw(spec: str, file: str) -> None:
    """Writes the picture."""
    matplotlib.use("Agg")  # no screen is needed
    from matplotlib import pyplot as plt

    axes: Any
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for (kind, heads), marker in zip(counts(spec).items(), "os", strict=True):
        axes.step(TOLERANCES, heads, where="mid", marker=marker, markersize=4, label=kind.upper())
    axes.set(xscale="log", xlabel="relative error allowed", ylabel="heads, at least", title=f"{spec}, {TERMS} powers")
    axes.invert_xaxis()
    axes.legend()
    figure.savefig(file)
    plt.close(figure)


def main(words: Sequence[str]) -> None:
    """GRAPH and FILE."""
    if len(words) != 2:
        raise SystemExit(f"usage: plot_heads.py GRAPH FILE, got {len(words)} arguments")
    draw(*words)


if __name__ == "__main__":
    main(sys.argv[1:])
