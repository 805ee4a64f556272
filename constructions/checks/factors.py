"""Products of matrices as a layer's weights have them: what is I is left out, what is sparse is multiplied so.

So two maps that are products of the very same matrices are told to be the same, whichever layers they are from.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from torch import Tensor

SPARSE = 32
"""A matrix with at most one entry in so many that is not 0 is multiplied by these entries."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A matrix of a product: its nonzero entries if they are few, else as it lies in the weights."""

    matrix: Tensor | csr_array

    @classmethod
    def of(cls, matrix: Float[Tensor, "m n"]) -> "Factor":
        """Of a view of weights."""
        turned = matrix.stride(0) < matrix.stride(1)
        own = (matrix.T if turned else matrix).numpy()  # as it lies in memory
        live = own != 0
        if int(live.sum()) * SPARSE > own.size:
            return cls(matrix)
        i, j = np.divmod(np.flatnonzero(live), own.shape[1])
        at = (j, i) if turned else (i, j)
        return cls(csr_array((own[i, j], at), shape=tuple(matrix.shape)))

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        m, n = self.matrix.shape  # type: ignore[misc]
        return int(m), int(n)

    @property
    def dense(self) -> bool:
        """Whether its entries are not few."""
        return isinstance(self.matrix, Tensor)

    @cached_property
    def window(self) -> int | None:
        """Where the matrix is rows s, s + 1, ... of I: s. Else None."""
        if isinstance(self.matrix, Tensor):
            return None
        rows, own = self.shape[0], self.matrix
        if own.nnz != rows or (own.data != 1).any() or (np.diff(own.indptr) != 1).any():
            return None
        start = int(own.indices[0])
        return start if (np.diff(own.indices) == 1).all() else None

    @property
    def identity(self) -> bool:
        """Whether it is I."""
        return self.window == 0 and self.shape[0] == self.shape[1]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of shape and entries."""
        total = hashlib.sha256(repr((self.dense, self.shape)).encode())
        if isinstance(self.matrix, Tensor):
            for rows in self.matrix.split(64):
                total.update(rows.contiguous().numpy().data)
        else:
            for part in (self.matrix.indptr, self.matrix.indices, self.matrix.data):
                total.update(np.ascontiguousarray(part).data)
        return total.digest()

    def part(self, rows: slice) -> "Factor":
        """Some rows."""
        return Factor(self.matrix[rows])


def simplified(factors: list[Factor]) -> list[Factor]:
    """The same product, where rows of I before a matrix are that matrix's rows, and I behind one is nothing."""
    found = factors[:1]
    for factor in factors[1:]:
        last, start = found[-1], found[-1].window
        if start is not None:
            found[-1] = factor if last.identity else factor.part(slice(start, start + last.shape[0]))
        elif not factor.identity:
            found.append(factor)
    return found


def product_rows(place: Float[Tensor, "n r"], factors: list[Factor], rows: slice) -> None:
    """These rows of the product of factors, transposed."""
    block: Any = factors[0].part(rows).matrix
    for at, factor in enumerate(factors[1:], 2):
        own: Any = factor.matrix
        if isinstance(block, Tensor) and isinstance(own, Tensor):
            if at == len(factors):
                torch.mm(own.mT, block.mT, out=place)
                return
            block = block @ own
        else:
            left, right = (x.numpy() if isinstance(x, Tensor) else x for x in (block, own))
            block = left @ right
            block = torch.from_numpy(block) if isinstance(block, np.ndarray) else block
    place.copy_(block.mT if isinstance(block, Tensor) else torch.from_numpy(block.T.toarray()))
