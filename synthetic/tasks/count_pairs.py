"""CPM-3: for each token, the number of ordered pairs of tokens that complete it to 0 modulo M.

    CPM_i = #{(j1, j2) in [N]^2 : x_i + G x_j1 + x_j2 = 0 mod M},   j1 = j2 allowed.

The count depends on x_i and on the histogram c of the residues only: with f[r] = sum_a c[a] c[(r - G a) mod M],
CPM_i = f[-x_i mod M] (docs/results.md T8). Source: Sec. 4.3 and App. B.3, where G > 2M; here G is any integer.
The causal variant (ledger E3) counts the pairs with j1, j2 <= i.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral

import numpy as np
from flint import fmpz
from jaxtyping import Int64, Shaped

from iha_theory import blueprint

CORRELATED = 128
"""Up to this modulus, and twice the number of tokens, a batch is counted by a circular correlation of histograms."""

FEW = 64
"""Up to so many tokens, and residues below 2^14, a batch is counted together."""

LARGEST_CONVOLUTION = 2**23
"""Largest modulus for which f is computed as a whole, in about 150 bytes a residue."""


@blueprint.definition(
    "cpm3",
    "CPM-3: for each token i the number of pairs (j1, j2) with x_i + G x_j1 + x_j2 = 0 mod M",
    check="exact",
    proof="docs/cpm3.md, Setting",
    tests="tests/synthetic/tasks/test_count_pairs.py",
)
@dataclass(frozen=True)
class CountPairs:
    """The task CPM-3 for a modulus M and a coefficient G.

        CountPairs(5, -1).target(np.array([1, 4, 2])) == [1, 1, 2]
        CountPairs(5, -1, causal=True).target(np.array([1, 4, 2])) == [0, 0, 2]

    Args:
        modulus: M >= 1, of any size.
        coefficient: G, any integer.
        causal: token i counts only pairs with j1, j2 <= i.

    Raises:
        ValueError: M below 1, or one of them not an integer.
    """

    modulus: int
    coefficient: int
    causal: bool = False

    def __post_init__(self) -> None:
        for name in ("modulus", "coefficient"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} must be an integer, got {value!r}")
        if self.modulus < 1:
            raise ValueError(f"modulus must be at least 1, got {self.modulus}")

    def sample(
        self, generator: np.random.Generator, batch: int, tokens: int, high: int
    ) -> Int64[np.ndarray, "batch N"]:
        """Independent uniform integers in 0 .. high - 1, (batch, tokens)."""
        return generator.integers(high, size=(batch, tokens))

    def target(self, x: Shaped[np.ndarray, "..."]) -> Int64[np.ndarray, "*batch N"]:
        """The counts, int64, in the shape of x.

        Args:
            x: (N,) or (batch, N), N >= 1, integers of any dtype and sign; object holds Python integers of any size.

        Raises:
            ValueError: x of another shape or dtype, or so long that N^2 does not fit in int64.
        """
        if x.ndim not in (1, 2) or not 1 <= x.shape[-1] < 3_037_000_500:
            raise ValueError(f"x of shape {x.shape}: expected (tokens,) or (batch, tokens), with at least one token")
        residues = self._residues(np.atleast_2d(x))
        if self.causal:
            counts = self._causal(residues)
        elif self.modulus <= min(CORRELATED, 2 * x.shape[-1]):
            counts = self._correlated(residues)
        elif x.shape[-1] <= FEW and self.modulus <= 2**14:
            counts = self._together(residues)
        else:
            counts = np.empty(residues.shape, dtype=np.int64)
            for i, row in enumerate(residues):
                counts[i] = self._one(row)
        return counts.reshape(x.shape)

    def _residues(self, x: np.ndarray) -> np.ndarray:
        """x mod M, as int64 if M fits and as Python integers otherwise."""
        if x.dtype.kind == "O" and all(isinstance(v, Integral) and not isinstance(v, bool) for v in x.flat):
            x = np.array([int(v) for v in x.flat], dtype=object).reshape(x.shape)
        elif x.dtype.kind not in "iu":
            raise ValueError(f"x of dtype {x.dtype}: accepted are integers, and object arrays of integers")
        fits = self.modulus < 2**63
        x = x.astype(np.int64 if fits and np.can_cast(x.dtype, np.int64) else object) % self.modulus
        return x.astype(np.int64) if fits else x

    def _times_coefficient(self, residues: np.ndarray) -> np.ndarray:
        """G r mod M, through Python integers where the product may not fit in int64."""
        wide = residues if self.modulus <= 2**31 else residues.astype(object)
        return (wide * (self.coefficient % self.modulus) % self.modulus).astype(residues.dtype)

    def _correlated(self, residues: np.ndarray) -> np.ndarray:
        """Counts of a batch: f[r] = sum_a c[a] c[(r - G a) mod M], for all sequences at once.

        Residues are rows, so that c[(r - G a) mod M] for all r is one slice of two histograms on top of each other.
        """
        counts, modulus = np.empty_like(residues), self.modulus
        step = max(1, min(2**15 // modulus, 2**20 // residues.shape[1]))  # all of it in the processor's cache
        for start in range(0, len(residues), step):
            r = residues[start : start + step]
            at = r * len(r) + np.arange(len(r))[:, None]
            c = np.bincount(at.ravel(), minlength=modulus * len(r)).reshape(modulus, len(r))
            twice = np.concatenate([c, c])
            f, term = np.zeros_like(c), np.empty_like(c)
            for a in range(modulus):
                first = -self.coefficient * a % modulus
                f += np.multiply(twice[first : first + modulus], c[a], out=term)
            counts[start : start + step] = np.roll(f[::-1], 1, axis=0).ravel()[at]  # row x is f[-x mod M]
        return counts

    def _together(self, residues: np.ndarray) -> np.ndarray:
        """Counts of a batch of short sequences: CPM_i = sum_j c[(-x_i - G x_j) mod M]."""
        counts = np.empty_like(residues)
        step = 2**22 // (self.modulus + residues.shape[1])
        for start in range(0, len(residues), step):
            r = residues[start : start + step]
            offset = self.modulus * np.arange(len(r))[:, None]
            c = np.bincount((r + offset).ravel(), minlength=self.modulus * len(r))
            g = self._times_coefficient(r)
            counts[start : start + step] = sum(c[(-r - g[:, [j]]) % self.modulus + offset] for j in range(r.shape[1]))
        return counts

    def _causal(self, residues: np.ndarray) -> np.ndarray:
        """Causal counts, from the histogram c of the residues so far: CPM_i = sum_{j<=i} c[(-x_i - G x_j) mod M]."""
        counts = np.empty(residues.shape, dtype=np.int64)
        step = math.isqrt(2**22 // residues.shape[1]) + 1
        for start in range(0, len(residues), step):
            r = residues[start : start + step]
            a, where = np.unique(r, return_inverse=True)
            where, sequence = where.reshape(r.shape), np.arange(len(r))
            c = np.zeros((len(r), len(a)), dtype=np.int64)
            g, wanted = self._times_coefficient(r), -r % self.modulus
            for i in range(r.shape[1]):
                c[sequence, where[:, i]] += 1
                rest = (wanted[:, [i]] - g[:, : i + 1]) % self.modulus
                at = np.searchsorted(a[:-1], rest)
                counts[start : start + step, i] = np.where(a[at] == rest, c[sequence[:, None], at], 0).sum(axis=1)
        return counts

    def _one(self, residues: np.ndarray) -> np.ndarray:
        """Counts of one sequence, from its distinct residues a and their numbers c[a]."""
        a, where, c = np.unique(residues, return_inverse=True, return_counts=True)
        g, wanted = self._times_coefficient(a), -a % self.modulus
        if 16 * self.modulus <= len(a) ** 2 and self.modulus <= LARGEST_CONVOLUTION:
            f = _cyclic_convolution(_histogram(a, c, self.modulus), _histogram(g, c, self.modulus))
            return f[wanted][where]
        counts = np.zeros(len(a), dtype=np.int64)
        step = max(1, 2**16 // len(a))
        for start in range(0, len(a), step):
            rest = (wanted - g[start : start + step, None]) % self.modulus
            at = np.searchsorted(a[:-1], rest)
            counts += c[start : start + step] @ np.where(a[at] == rest, c[at], 0)
        return counts[where]


def all_sequences(modulus: int, tokens: int, chunk: int = 2**16) -> Iterator[Int64[np.ndarray, "chunk N"]]:
    """Every sequence over 0 .. M-1, in lexicographic order, in arrays of at most `chunk` sequences.

    Raises:
        ValueError: M, tokens or chunk below 1, or M^tokens beyond int64; at the first chunk.
    """
    if min(modulus, tokens, chunk) < 1 or modulus**tokens >= 2**63:
        raise ValueError(f"modulus {modulus}, tokens {tokens}, chunk {chunk}: must be at least 1, and M^tokens < 2^63")
    place = modulus ** np.arange(tokens - 1, -1, -1)
    for start in range(0, modulus**tokens, chunk):
        yield np.arange(start, min(start + chunk, modulus**tokens))[:, None] // place % modulus


def _histogram(residues: np.ndarray, numbers: np.ndarray, modulus: int) -> np.ndarray:
    histogram = np.zeros(modulus, dtype=np.int64)
    np.add.at(histogram, residues, numbers)
    return histogram


def _cyclic_convolution(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """sum_s a[s] b[(r - s) mod M], for a, b >= 0 whose totals multiply to less than 2^63.

    Read as digits to the base 2^64, a and b are two large integers; the digits of their product are the convolution.
    """
    product = fmpz(int.from_bytes(a.astype("<i8").tobytes(), "little"))
    product *= fmpz(int.from_bytes(b.astype("<i8").tobytes(), "little"))
    digits = np.frombuffer(int(product).to_bytes(16 * len(a), "little"), dtype="<i8")
    return digits[: len(a)] + digits[len(a) :]
