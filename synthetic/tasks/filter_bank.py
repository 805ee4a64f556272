"""The polynomial filter bank [X, A X, ..., A^{k-1} X] of a graph, block by block: block 0 is X, block i+1 is A block i.

Source: Sec. 3.1 and 4.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from flint import fmpz_mat
from jaxtyping import Float64, Shaped

from iha_theory import blueprint
from iha_theory.rounding import require_count
from synthetic.graphs import Graph

if TYPE_CHECKING:  # sympy takes a second to import, and training needs none of it
    import sympy.polys.matrices


@blueprint.definition(
    "filter-bank",
    "the filter bank [X, A X, ..., A^(k-1) X] of a matrix A",
    check="exact",
    proof="docs/bounds.md, Setting",
    tests="tests/synthetic/tasks/test_filter_bank.py",
)
@dataclass(frozen=True)
class PolynomialBank:
    """The task of computing the first k blocks of the filter bank of a graph.

        Path 0 -> 1 -> 2, k = 3, X = [[2], [3], [5]]: the target is [[2, 3, 5], [3, 5, 0], [5, 0, 0]]

    Args:
        graph: A is its adjacency matrix, (N, N).
        terms: k, the number of blocks; the top power is k - 1, which may exceed N.

    Raises:
        ValueError: terms below 1.
    """

    graph: Graph
    terms: int

    def __post_init__(self) -> None:
        require_count("terms", self.terms)

    def sample(self, generator: np.random.Generator, batch: int, width: int) -> Float64[np.ndarray, "batch N d"]:
        """X with independent standard normal entries, (batch, N, width)."""
        return generator.standard_normal((batch, len(self.graph.nodes), width))

    def target(self, X: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "*batch N kd"]:
        """The blocks side by side in the order of the powers, (..., N, k d).

        Integers X (of any dtype; object holds Python integers) and A give the exact integers: in int64 if a bound says
        that nothing can overflow, else as Python integers. Anything else is computed in float64, fractions rounded.

        Args:
            X: (..., N, d), a row a node.

        Raises:
            ValueError: X of another shape, of a dtype that is neither integer nor a float of up to 64 bits, or not
                finite; integers beyond 2^53 beside fractions or floats, which float64 would round; a target too large
                for float64.
        """
        A = self.graph.adjacency
        if X.ndim < 2 or X.shape[-2] != len(A):
            raise ValueError(f"X of shape {X.shape}: expected (..., {len(A)}, d), a row for each node")
        if not _whole(X) and X.dtype not in (np.float16, np.float32, np.float64):
            raise ValueError(f"X of dtype {X.dtype}: accepted are integers and floats of up to 64 bits")
        exact = _whole(X) and _whole(A)
        if exact:
            growth = max(sum(map(abs, row)) for row in A.tolist())  # |A block| <= growth |block|, partial sums too
            fits = A.dtype != object and _largest(X) * max(1, growth) ** (self.terms - 1) < 2**63
            dtype = np.int64 if fits else object
        elif any(_largest(m) > 2**53 for m in (A, X)):
            raise ValueError("integers beyond 2^53 beside fractions or floats: float64 would round them")
        else:
            dtype = np.float64
        A, blocks = A.astype(dtype), [X.astype(dtype)]
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(self.terms - 1):
                blocks.append(_times(A, blocks[-1]) if dtype is object else A @ blocks[-1])
        target = np.concatenate(blocks, axis=-1)
        if not exact and not np.isfinite(target).all():
            raise ValueError("X is not finite, or A^{k-1} X is too large for float64")
        return target


def power_blocks(A: "sympy.polys.matrices.DomainMatrix", terms: int) -> Iterator["sympy.polys.matrices.DomainMatrix"]:
    """I, A, ..., A^{k-1} over any sympy domain (integers, rationals, GF(p), polynomials), each A times the one before.

    Args:
        A: (N, N).
        terms: k.

    Raises:
        ValueError: A that is not square, or terms below 1; at the first block.
    """
    require_count("terms", terms)
    _require_square(A.shape)
    A = A.to_dense()
    block = type(A).eye(A.shape, A.domain).to_dense()
    yield block
    for _ in range(terms - 1):
        block = A * block
        yield block


def power_blocks_float(
    A: Float64[np.ndarray, "rows columns"], terms: int
) -> Iterator[Float64[np.ndarray, "rows columns"]]:
    """I, A, ..., A^{k-1} in float64, each A times the one before.

    Args:
        A: (N, N).
        terms: k.

    Raises:
        ValueError: A that is not square or not finite, terms below 1, or a power too large for float64; at the block.
    """
    require_count("terms", terms)
    _require_square(A.shape)
    block = np.eye(len(A))
    for power in range(terms):
        if power:
            with np.errstate(over="ignore", invalid="ignore"):
                block = A @ block
        if not np.isfinite(block).all():
            raise ValueError(f"A is not finite, or A^{power} is too large for float64")
        yield block


def _require_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"A of shape {shape}: expected a square matrix")


def _times(A: np.ndarray, block: np.ndarray) -> np.ndarray:
    """A @ block for Python integers, (N, N) and (..., N, d): numpy's own product is several times slower."""
    rows = np.moveaxis(block, -2, 0)
    product = fmpz_mat(A.tolist()) * fmpz_mat(rows.reshape(len(A), -1).tolist())
    entries = np.array([int(x) for x in product.entries()], dtype=object)
    return np.moveaxis(entries.reshape(rows.shape), 0, -2)


def _whole(array: np.ndarray) -> bool:
    """Whether the dtype is an integer one, or object with nothing but integers in it."""
    if array.dtype.kind == "O":
        return all(isinstance(x, Integral) and not isinstance(x, bool) for x in array.ravel().tolist())
    return array.dtype.kind in "iu"


def _largest(array: np.ndarray) -> int:
    """The largest size of an integer in an array of integers, or of integers and fractions; 0 for floats."""
    if array.dtype.kind == "f":
        return 0
    if array.dtype.kind in "iu":
        return max(int(array.max()), -int(array.min())) if array.size else 0
    return max((abs(int(x)) for x in array.ravel().tolist() if isinstance(x, Integral)), default=0)
