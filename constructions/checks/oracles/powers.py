"""Powers of Frobenius norm 1, by repeated multiplication and then division."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from sympy import QQ
from torch import Tensor

from iha_theory import exact
from iha_theory.bounds.heads import unit_norm
from synthetic.tasks.filter_bank import power_blocks


def unit_powers(a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """A^t / |A^t|_F, t < k; 0 where A^t is.

    Integers of both signs are multiplied exactly where float64 holds the powers, as rounding could hide that some
    cancel to 0. Otherwise in float64, halved or doubled to stay within its range.
    """
    if bool((a < 0).any()) and torch.equal(a, a.round()):
        try:
            return unit_norm(torch.stack([exact.nearest_float64(m) for m in power_blocks(exact.matrix(a, QQ), terms)]))
        except OverflowError:
            pass
    powers = [torch.eye(len(a), dtype=torch.float64)]
    while len(powers) < terms:
        last = powers[-1] @ a
        powers.append(last * 2.0 ** -math.frexp(float(last.abs().max()))[1])
    return unit_norm(torch.stack(powers))


CACHED = 64
"""Rows of a large matrix' powers that are multiplied at once: so few stay in the cache."""


class UnitPowerRows:
    """`unit_powers` of a matrix so large that all of them would not fit, a few rows at a time.

    Args:
        a: A, (N, N), float64. What cancels is as rounding leaves it.
        terms: k.
        numbers: of all powers, to be made at once.
    """

    def __init__(self, a: Float[Tensor, "N N"], terms: int, numbers: int = 2**24) -> None:
        self.terms, self.size = terms, len(a)
        self._step = max(1, numbers // (terms * len(a)))
        few = int(a.count_nonzero()) * 32 <= a.numel()
        self._right = csr_array(a.numpy().T) if few else a.numpy().T  # (e_i^T A)^T = A^T e_i
        last, self._scales, self._norms = np.eye(len(a)), [], []
        for t in range(terms):
            last = self._right @ last if t else last
            exponent = math.frexp(max(float(last.max()), -float(last.min())))[1]
            self._scales.append(2.0 ** -max(-1000, min(exponent, 1000)))
            last *= self._scales[-1]
            self._norms.append(float(np.linalg.norm(last)) or 1.0)

    def blocks(self) -> Iterator[tuple[slice, Float[Tensor, "k N r"]]]:
        """Rows, and these rows of all A^t / |A^t|_F, transposed; the next ones are written over them."""
        found = np.empty((self.terms, self.size, min(self._step, self.size)))
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            for start in range(0, self.size, self._step):
                rows = slice(start, min(start + self._step, self.size))
                if rows.stop - start < found.shape[2]:
                    found = np.empty((self.terms, self.size, rows.stop - start))
                parts = range(0, rows.stop - start, CACHED)
                list(pool.map(partial(self._fill, start), parts, [found[:, :, at : at + CACHED] for at in parts]))
                yield rows, torch.from_numpy(found)

    def _fill(self, start: int, at: int, found: Float[np.ndarray, "k N r"]) -> None:
        """Writes the rows from start + at on."""
        last = np.eye(self.size, found.shape[2], -start - at)
        for t, (scale, norm) in enumerate(zip(self._scales, self._norms, strict=True)):
            last = self._right @ last if t else last
            last *= scale
            np.divide(last, norm, out=found[t])
