"""What several statements are checked on: matrices by name, sequences, random weights; and layers made for them."""

from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.operators import exact_gap
from constructions.filter_bank import reduced
from iha_theory import exact
from synthetic import systems
from synthetic.graphs import builtin
from synthetic.tasks.count_pairs import all_sequences
from synthetic.tasks.filter_bank import power_blocks

LAYERS = ("mha", "iha")
WIDTH = 2
"""Of the content."""
N_MAX = range(1, 18)
FIELD = exact.gf(systems.PRIME)
RANDOM = tuple(f"random:{n}:{seed}" for n in range(1, 7) for seed in range(10))


def matrix(name: str) -> DomainMatrix:
    """A over the rationals: a built-in graph's adjacency, "binary:N:C", whose entries are the N^2 bits of C,
    "diagonal:N", diag(1, ..., N), or "rotation", by 90 degrees.
    """
    if name == "rotation":
        return exact.matrix([[0, -1], [1, 0]], QQ)
    if name.startswith("diagonal:"):
        return exact.matrix(np.diag(range(1, int(name.split(":")[1]) + 1)), QQ)
    if not name.startswith("binary:"):
        return exact.matrix(builtin(name).adjacency, QQ)
    size, code = map(int, name.split(":")[1:])
    return exact.matrix([[code >> (size * (size - i) - 1 - j) & 1 for j in range(size)] for i in range(size)], QQ)


def random_matrix(size: int, seed: int) -> DomainMatrix:
    """Uniform in `FIELD`, where no power is too large for a float64 weight."""
    return exact.matrix(np.random.default_rng(seed).integers(0, systems.PRIME, (size, size)), FIELD)


def shown(a: DomainMatrix) -> str:
    """The entries of an integer matrix, row by row."""
    return str([[int(x) for x in row] for row in a.to_list()])


@cache
def degree(graph: str) -> int:
    """The degree of A's minimal polynomial, by flint."""
    return len(exact.minimal_polynomial(matrix(graph))) - 1


def made(a: DomainMatrix, terms: int, width: int, layers: Iterable[str] = LAYERS) -> tuple[dict[str, int], float]:
    """The heads of these layers with the fewest for [X, ..., A^(k-1) X], and their largest exact error as that bank."""
    given, blocks = reduced.reduce(a, terms), list(power_blocks(a, terms))
    built = {name: reduced.bank(name, given, width) for name in layers}
    return {name: layer.heads for name, layer in built.items()}, max(
        (exact_gap(b, blocks) for b in built.values()), default=0.0
    )


def integers(*shape: int, seed: int, most: int = 2) -> Tensor:
    """Random integers from -most to most, float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).double()


def sequences(modulus: int, tokens: int) -> np.ndarray:
    """All M^N sequences if they are few; otherwise random ones, the zeros among them."""
    if modulus**tokens <= 300:
        return np.concatenate(list(all_sequences(modulus, tokens)))
    x = np.random.default_rng(tokens).integers(0, 3 * modulus, (20, tokens))
    x[0] = 0
    return x
