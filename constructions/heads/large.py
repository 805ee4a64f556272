"""Heads for the powers of a large matrix at a tolerance, without holding the powers.

A few rows of all powers at a time: column i of (A^t)^T is e_i^T A^t, so a sparse A takes k N nnz operations for all of
them, and nothing of size k N^2 is kept but the weights.

- Norms of the powers come first, one whole power after another.
- Singular values of [vec T_0, ..., vec T_{k-1}], and the coordinates of `constructions.filter_bank.product_fit`, are
  those of the triangle of a QR decomposition, which is made block by block: the triangle of [R; next rows] is that of
  all rows so far (Demmel et al. 2012, TSQR). It is as backward stable as the decomposition of the whole.
- Weights are written row by row. A leading map S_i = sum_t T_t v[t,i] / s_i has an error of EPS s_1 / s_i, which its
  coefficients s_i v[t,i] bring back to EPS s_1.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor

from constructions.checks.oracles.powers import UnitPowerRows
from constructions.checks.rows import Target
from constructions.construction import Construction
from constructions.filter_bank.approximate import (
    UnitPowers,
    contents_of,
    floor,
    half_grid,
    made,
    product_bank,
    wide_layer,
)
from constructions.filter_bank.layers import LAYERS
from constructions.filter_bank.product_fit import Products, fit_series, least_degree
from iha_theory.operators.weights import untouched_zeros, weight_blocks
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

BLOCK = 2**22
"""Numbers of all powers that are made at once; each time in the same memory, as to get new memory takes longer."""
SPARSE = 32
"""A matrix with at most one entry in so many is multiplied as a sparse one."""

TALL = 4000
"""Rows of a QR decomposition: so many stay in the cache."""


def left_product(a: Float[Tensor, "N N"]) -> Callable[[Tensor], Tensor]:
    """X -> A X, by the nonzero entries of A where they are few."""
    if int(a.count_nonzero()) * SPARSE > a.numel():
        return lambda x: a @ x
    sparse = csr_array(a.numpy())
    return lambda x: torch.from_numpy(sparse @ x.numpy())


def powers_in_float64(a: Float[Tensor, "N N"]) -> Callable[[int], Tensor]:
    """i -> A^i, each computed once, A times the one before."""
    times, known = left_product(a), [torch.eye(len(a), dtype=torch.float64)]

    def power(i: int) -> Tensor:
        while len(known) <= i:
            known.append(times(known[-1]))
        return known[i]

    return power


class LargePowers(UnitPowers):
    """As `UnitPowers`, for N in the thousands; only what was fitted last is kept."""

    def __init__(self, a: Float[Tensor, "N N"], terms: int, width: int = 1) -> None:
        self.a, self.terms, self.width = a, require_count("terms", terms), width
        self._next, self._fits = left_product(a.mT.contiguous()), {}
        self._norms = list(self._ratios())
        norm = self._spectral_norm()
        self._unit = left_product(a.mT.contiguous() / norm if norm else a)
        self._series = 2 * least_degree(terms, ceil_sqrt(terms)) + 1
        self._coordinates = _triangle(own for _, own in self._blocks(self._series, terms))
        _, self.values, v = torch.linalg.svd(self._coordinates[:, self._series :], full_matrices=False)
        self._turn = v.mT

    def within(self, layer: str, tolerance: float) -> Construction:
        """See `UnitPowers.within`."""
        require_one_of("layer", layer, LAYERS)
        rank = self.least_rank(tolerance)
        if layer in ("mha", "iha-wide"):
            heads = rank if layer == "mha" else ceil_sqrt(rank)
            return (self._mha if layer == "mha" else self._wide)(heads)
        return product_bank(layer, self.products(ceil_sqrt(rank), tolerance), self.width)

    @cached_property
    def target(self) -> Target:
        """What layers are judged by, at every tolerance: multiplied anew, by other code."""
        return Target(UnitPowerRows(self.a, self.terms))

    def _ratios(self) -> Iterator[float]:
        """|T_0|, then |A T_{t-1}|, T_t of norm 1."""
        last = torch.eye(len(self.a), dtype=torch.float64)
        for t in range(self.terms):
            last = self._next(last) if t else last
            norm = float(last.norm())
            last /= norm or 1.0
            yield norm

    def _blocks(self, series: int, powers: int) -> Iterator[tuple[slice, Float[Tensor, "n N r"]]]:
        """Rows of the first T_i of A / |A|_2 (Chebyshev's) and then of the first T_t, transposed; the next ones are
        written over them."""
        size = len(self.a)
        step = min(size, max(1, BLOCK // (size * (series + powers))))
        found = torch.empty(series + powers, size, step, dtype=torch.float64)
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(threads) as pool:
            for start in range(0, size, step):
                rows = slice(start, min(start + step, size))
                if rows.stop - start < step:
                    found = torch.empty(series + powers, size, rows.stop - start, dtype=torch.float64)
                parts = found.tensor_split(threads, 2)
                starts = [start + sum(own.shape[2] for own in parts[:i]) for i in range(threads)]
                list(pool.map(partial(self._fill, series), starts, parts))
                yield rows, found

    def _fill(self, series: int, start: int, found: Float[Tensor, "n N r"]) -> None:
        """Writes the rows from `start` on, of so many T_i first."""
        if not found.shape[2]:
            return
        one = _columns(len(self.a), slice(start, start + found.shape[2]))
        before = last = one
        for i in range(series):
            if i == 1:
                before, last = last, self._unit(last)
            elif i:
                before, last = last, self._unit(last).mul_(2).sub_(before)
            found[i] = last
        last = one
        for t, norm in enumerate(self._norms[: len(found) - series]):
            last = self._next(last).div_(norm or 1.0) if t else last / (norm or 1.0)
            found[series + t] = last

    def _spectral_norm(self) -> float:
        """|A|_2, nearly: any scale close to it serves."""
        start = np.random.default_rng(0).standard_normal(len(self.a))
        if not bool(self.a.any()):
            return 0.0
        found: Any = svds(csr_array(self.a.numpy()), k=1, v0=start, return_singular_vectors=False)
        return float(found[0])

    def _maps(self, count: int) -> Iterator[tuple[slice, Float[Tensor, "n N r"]]]:
        """The rows of the leading maps S_i, transposed; of maps beyond rounding, zeros."""
        kept = self.values[:count] > self.values[0] * torch.finfo(torch.float64).eps
        scale = torch.where(kept, 1 / self.values[:count].clamp_min(torch.finfo(torch.float64).tiny), 0.0)
        turn = (self._turn[:, :count] * scale).mT
        for rows, powers in self._blocks(0, self.terms):
            yield rows, (turn @ powers.flatten(1)).unflatten(1, powers.shape[1:])

    def _leading(self, count: int) -> Float[Tensor, "n k"]:
        return self.values[:count, None] * self._turn.mT[:count]

    def _mha(self, heads: int) -> Construction:
        """`truncated_mha`."""
        size = len(self.a)
        whole = weight_blocks(heads, size, size, self.width)
        for rows, maps in self._maps(heads):
            whole[:, :, self.width :][:, :, rows] = maps
        queries = [block[:, self.width :].T for block in whole]
        one, contents = torch.eye(size, dtype=torch.float64)[None], self._leading(heads)[:, None]
        weights = LAYERS["mha"].products(queries, one, contents_of(contents, self.width))
        return made("mha", weights, self.terms, self.width, floor(self.values, heads))

    def _wide(self, heads: int) -> Construction:
        """`wide_iha`: block a of base key b is S_ab^T."""
        size, count = len(self.a), min(heads**2, self.terms)
        whole = weight_blocks(heads, heads * size, size, self.width)
        blocks = whole.unflatten(1, (heads, size))[..., self.width :]  # [b, a, i, j] = S_ab[i, j]
        for rows, maps in self._maps(count):
            for at, own in enumerate(maps):
                blocks[at % heads, at // heads, rows] = own.mT
        keys = [block[:, self.width :].T for block in whole]
        error = floor(self.values, heads**2)
        return wide_layer(keys, self._leading(count), size, self.width, error)

    def _fit(self, heads: int, tolerance: float) -> Products:
        self._fits.clear()
        degree, series = least_degree(self.terms, heads), self._series
        size = 2 * degree + 1
        own = fit_series(self._coordinates[:size, :size], self._coordinates[:size, series:], heads, tolerance)
        if own.error > tolerance:  # of no use: what else there is comes next, or more heads
            return Products(own.p[:, None], own.q[:, None], own.coefficients, own.error)
        outer, inner = self._empty(heads), self._empty(heads)
        both = torch.cat((own.p, own.q))
        for rows, maps in self._blocks(degree + 1, 0):
            made = (both @ maps.flatten(1)).unflatten(1, maps.shape[1:]).mT
            outer[:, rows], inner[:, rows] = made[:heads], made[heads:]
        return Products(outer, inner, own.coefficients, own.error)

    def _half_products(self, rank: int, heads: int) -> Products:
        maps = self._empty(rank)
        for rows, own in self._maps(rank):
            maps[:, rows] = own.mT
        found = half_grid(maps, self._leading(rank), heads)
        return Products(found.outer, found.inner, found.coefficients, self._error(found))

    def _power_products(self, heads: int) -> Products:
        """The factors' and products' norms are known: T_{aH+b} is T_{aH} T_b times a number."""
        outer, inner = self._empty(heads), self._empty(heads)
        for rows, powers in self._blocks(0, self.terms):
            outer[: -(-self.terms // heads), rows] = powers[::heads].mT
            inner[: min(heads, self.terms), rows] = powers[:heads].mT
        logs = np.cumsum([math.log(norm) if norm else -math.inf for norm in self._norms])
        coefficients = torch.zeros(heads, heads, self.terms, dtype=torch.float64)
        for t in range(self.terms):
            a, b = divmod(t, heads)
            if math.isfinite(logs[t]):
                coefficients[a, b, t] = math.exp(logs[a * heads] + logs[b] - logs[t])
        found = Products(outer, inner, coefficients, math.inf)
        return Products(outer, inner, coefficients, self._error(found))

    def _error(self, found: Products) -> float:
        """|made - bank| / |bank|."""
        pairs = [(int(a), int(b)) for a, b in found.coefficients.abs().sum(2).nonzero()]
        coefficients = torch.stack([found.coefficients[a, b] for a, b in pairs])
        squares = norm = 0.0
        for rows, powers in self._blocks(0, self.terms):
            products = torch.stack([found.outer[a, rows] @ found.inner[b] for a, b in pairs])
            squares += float((torch.einsum("pt,prj->tjr", coefficients, products) - powers).square().sum())
            norm += float(powers.square().sum())
        error = math.sqrt(squares / norm)
        return error if math.isfinite(error) else math.inf

    def _empty(self, count: int) -> Float[Tensor, "n N N"]:
        return untouched_zeros(count, len(self.a), len(self.a))


def _columns(size: int, rows: slice) -> Float[Tensor, "N r"]:
    """Columns of the identity."""
    one = torch.zeros(size, rows.stop - rows.start, dtype=torch.float64)
    one[rows].fill_diagonal_(1)
    return one


def _triangle(blocks: Iterator[Float[Tensor, "n N r"]]) -> Float[Tensor, "n n"]:
    """R of the QR decomposition of the matrix whose columns are the blocks' members, flattened, one below another."""
    triangle = torch.empty(0)
    for block in blocks:
        for piece in block.flatten(1).split(TALL, 1):
            matrix = torch.cat((triangle.mT, piece), 1) if len(triangle) else piece
            triangle = torch.linalg.qr(matrix.mT, mode="r").R
    return triangle
