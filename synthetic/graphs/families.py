"""Graphs by name: networkx's built-in ones, and families by size."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from synthetic.graphs.adjacency import MAX_NODES, Graph


def builtin(name: str) -> Graph:
    """A graph by name. Weights are 0 and 1, networkx's own being left out, but for `random` and `orthogonal`.

    - `karate`, `les_miserables`, `florentine`, `davis`, `petersen`: networkx's;
    - `cycle:N`, `path:N`: directed, with edges i -> i+1;
    - `ring:N` (the undirected cycle), `complete:N`, `star:N` (N nodes in all, the first one the centre),
      `grid:RxC`, `hypercube:D`;
    - `gnp:N:p[:seed]`: each undirected edge with probability p; `regular:N:d[:seed]`: random, every degree d;
    - `random:N[:seed]`: directed, weights ±1, ±2, ±3 on about 0.3 of the entries and on the N-cycle, which keeps
      every power from vanishing;
    - `orthogonal:N[:seed]`: a Haar-random orthogonal matrix in float64 (the same on every machine up to rounding).

    The default seed is 0.

    Raises:
        ValueError: an unknown name, or parameters outside their range.
    """
    base, *texts = name.split(":")
    if base not in NAMES:
        raise ValueError(f"unknown graph {name!r}: accepted are {', '.join(NAMES.values())}, or a file")
    form = NAMES[base]
    parameters = re.findall(r"\w+", form)[1:]
    required = [parameter for parameter in parameters if parameter != "seed"]
    try:
        if not len(required) <= len(texts) <= len(parameters):
            raise ValueError(f"wrong number of parameters, {len(texts)}")
        graph = GRAPHS[form](*(PARSERS[p](text) for p, text in zip(parameters, texts, strict=False)))
    except ValueError as error:
        raise ValueError(f"graph {name!r}: {error}; the form is {form}") from None
    if isinstance(graph, np.ndarray):
        return Graph(name, tuple(range(len(graph))), graph, directed=base in DIRECTED)
    return Graph.from_edges(graph.edges(), nodes=graph.nodes, name=name)


def family_size(name: str) -> int | None:
    """N of a family, without making the graph; None for another name, or parameters that `builtin` refuses."""
    base, *texts = name.split(":")
    form = NAMES.get(base, "").split(":")
    try:
        return SIZES[form[1]](PARSERS[form[1]](texts[0]))
    except (IndexError, KeyError, ValueError):
        return None


def _networkx(name: str) -> Callable[..., Any]:
    """networkx's function of that name; networkx takes most of a second to import, so only when called."""
    return lambda *arguments, **options: getattr(import_module("networkx"), name)(*arguments, **options)


def _cycle(n: int) -> np.ndarray:
    return np.roll(np.eye(n, dtype=np.int64), 1, axis=1)


def _star(n: int) -> np.ndarray:
    centre = np.arange(n) == 0
    return centre[:, None] ^ centre


def _gnp(n: int, p: float, seed: int = 0) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).random((n, n)) < p, 1)
    return upper | upper.T


def _regular(n: int, d: int, seed: int = 0) -> Any:
    if d >= n or n * d % 2:
        raise ValueError(f"there is no {d}-regular graph on {n} nodes (d must be below N, and N d even)")
    if d > n // 2:  # networkx's sampler gets stuck on dense graphs
        return _networkx("complement")(_regular(n, n - 1 - d, seed))
    return _networkx("random_regular_graph")(d, n, seed=seed)


def _random(n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    weights = generator.integers(1, 4, (n, n)) * generator.choice([-1, 1], (n, n))
    return weights * ((generator.random((n, n)) < 0.3) | (_cycle(n) == 1))


def _orthogonal(n: int, seed: int = 0) -> np.ndarray:
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return q * np.sign(np.diag(r))


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not least <= int(text) <= most:
            raise ValueError(f"{text!r} is not an integer from {least} to {most}")
        return int(text)

    return parse


def _sides(text: str) -> tuple[int, int]:
    rows, *columns = (_size(side) for side in text.split("x"))
    if len(columns) != 1 or rows * columns[0] > MAX_NODES:
        raise ValueError(f"{text!r} is not two sizes with a product of at most {MAX_NODES}")
    return rows, columns[0]


def _probability(text: str) -> float:
    try:
        p = float(text)
    except ValueError:
        p = -1.0
    if not 0 <= p <= 1:
        raise ValueError(f"{text!r} is not a probability from 0 to 1")
    return p


_size = _integer(1, MAX_NODES)
PARSERS: dict[str, Callable[[str], Any]] = {
    "N": _size,
    "D": _integer(1, MAX_NODES.bit_length() - 1),
    "RxC": _sides,
    "p": _probability,
    "d": _integer(0, MAX_NODES - 1),
    "seed": _integer(0, 10**9 - 1),
}
SIZES: dict[str, Callable[[Any], int]] = {"N": int, "D": lambda d: 2**d, "RxC": lambda sides: sides[0] * sides[1]}
GRAPHS: dict[str, Callable[..., Any]] = {
    "karate": _networkx("karate_club_graph"),
    "les_miserables": _networkx("les_miserables_graph"),
    "florentine": _networkx("florentine_families_graph"),
    "davis": _networkx("davis_southern_women_graph"),
    "petersen": _networkx("petersen_graph"),
    "cycle:N": _cycle,
    "path:N": lambda n: np.eye(n, k=1),
    "ring:N": lambda n: _cycle(n) | _cycle(n).T,
    "complete:N": lambda n: 1 - np.eye(n),
    "star:N": _star,
    "grid:RxC": lambda sides: _networkx("grid_2d_graph")(*sides),
    "hypercube:D": _networkx("hypercube_graph"),
    "gnp:N:p[:seed]": _gnp,
    "regular:N:d[:seed]": _regular,
    "random:N[:seed]": _random,
    "orthogonal:N[:seed]": _orthogonal,
}
DIRECTED = ("cycle", "path", "random", "orthogonal")
NAMES = {form.split(":")[0]: form for form in GRAPHS}
"""From the name of a graph or family to its form."""
