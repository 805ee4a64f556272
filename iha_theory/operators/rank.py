"""The operator Schmidt rank in float64: the number, the gap that decides it, and a sketch for large operators.

`rank` counts the singular values of the realignment (`iha_theory.operators.numerical`) that rounding cannot explain.
Source: docs/results.md, "The one idea".
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from iha_theory.operators.numerical import EPS, Operator, partial_realignment, realignment, singular_values

ROUNDING = 64
"""A singular value is zero up to ROUNDING * EPS * sqrt(rows * columns) times the largest."""

CLEAR_GAP = 1e3
"""A rank is clear if the last singular value kept is at least this many times the first one dropped."""

SHRINKAGE = 1e-4
"""A sketch that shrinks a singular value below this fraction of itself has failed; see `sketch_failure`."""

SKETCH_START = 40
SKETCH_BEYOND = 64
"""`rank` sketches operators of more keys than this, from SKETCH_START directions on."""


@dataclass(frozen=True)
class Rank:
    """A numerical rank.

    Attributes:
        rank: number of singular values above ROUNDING * EPS * sqrt(rows * columns) * scale, with scale the largest
            singular value or the subtracted constant, whichever is larger.
        gap: the last singular value kept over the first one dropped; a dropped one counts as at least EPS * scale, and
            if none is left to drop, as the threshold. Always finite. With nothing kept, scale over the first dropped.
        limit: the largest rank that the sizes allow.
        failure: upper bound on the probability that a singular value of the operator larger than 1/SHRINKAGE times the
            threshold was missed; 0 without a sketch.

    The rank of the true operator is at least `rank` if the rounding error has a norm below the threshold (Weyl). That
    it is not more no computation in floating point can show: the gap says how far from more it is, and where it is not
    `clear`, the number depends on the threshold and should not be trusted.
    """

    rank: int
    gap: float
    limit: int
    failure: float = 0.0

    @property
    def clear(self) -> bool:
        """Whether the gap is at least CLEAR_GAP."""
        return self.gap >= CLEAR_GAP


def rank(operator: Operator, *, sketch: bool | None = None, seed: int = 0) -> Rank:
    """The operator Schmidt rank.

    A sketch evaluates L on v_k x e_a for the first t of N_k random orthonormal directions v_k in R^{N_k}, so on t d
    contents instead of N_k d, and takes the rank of (I x V^T) Rl, with rows (i,k). In exact arithmetic that is at most
    R = rank Rl and, with probability 1, at least min(t, R): while some M != 0 in the column space of Rl (as a matrix)
    is lost, M v_1 = ... = M v_k = 0, the next direction has M v != 0 and finds one more. So a rank r < t is R.
    In float64 something may be shrunk to almost nothing instead: t grows until t >= 2 (r + 1) + 20, which makes that
    improbable (`sketch_failure`, below 1e-20), or reaches N_k, where the sketch is Rl in another orthonormal basis.

    Memory: N_q t d D numbers.

    Args:
        operator: the operator.
        sketch: whether to sketch; None: if N_k > SKETCH_BEYOND.
        seed: of the directions.
    """
    limit = min(operator.queries * operator.keys, operator.width * operator.out_width)
    if sketch is None:
        sketch = operator.keys > SKETCH_BEYOND
    if not sketch:
        return Rank(*_decide(realignment(operator), operator.constant), limit)
    generator = torch.Generator().manual_seed(seed)
    keys = operator.keys
    directions = torch.linalg.qr(torch.randn(keys, keys, generator=generator, dtype=torch.float64)).Q.T
    parts: list[Tensor] = []
    used, enough, failure = 0, SKETCH_START, 0.0
    while True:
        used, before = min(enough, keys), used
        parts.append(partial_realignment(operator, directions[before:used]))
        found, gap = _decide(torch.cat(parts), operator.constant)
        if used == keys:
            return Rank(found, gap, limit)
        failure += sketch_failure((used - 20) // 2, used, keys)
        if used >= 2 * (found + 1) + 20:
            return Rank(found, gap, limit, failure)
        enough = max(2 * (found + 1) + 20, 2 * used)


def sketch_failure(rank: int, directions: int, keys: int) -> float:
    """Upper bound on the probability that a sketch shrinks one of the first `rank` singular values by SHRINKAGE.

    Let U be the span of the `rank` leading left singular vectors of Rl, as matrices M in R^{N_q x N_k}, and V the t
    random orthonormal directions, V = G (G^T G)^{-1/2} with G normal, (N_k, t). Each of the first `rank` singular
    values of the sketch is at least that of Rl times the least |M V|_F over M in U of |M|_F = 1. Put e = SHRINKAGE.

    - One M: with its singular values s_k, |M G|_F^2 = sum_k s_k^2 chi2_k(t), so by Chernoff, and
      prod_k (1 + 2 c s_k^2) >= 1 + 2 c, P(|M G|_F <= x sqrt t) <= (e' x^2)^{t/2}, e' = exp(1).
    - |M V|_F >= |M G|_F / |G|, where |G| <= sqrt N_k + sqrt t + z =: g sqrt t but with probability exp(-z^2 / 2)
      (Davidson and Szarek); here z = 10. So P(|M V|_F <= 2 e) <= (e' (2 e g)^2)^{t/2}.
    - All M: the unit sphere of U has a net of radius e with at most (1 + 2/e)^rank points. If |M V|_F > 2 e at each,
      then |M V|_F > e everywhere, since |V| = 1.

    Args:
        rank: how many leading singular values must survive.
        directions: t.
        keys: N_k.
    """
    z = 10.0
    g = (math.sqrt(keys) + math.sqrt(directions) + z) / math.sqrt(directions)
    net = rank * math.log1p(2 / SHRINKAGE)
    small_ball = directions * (0.5 + math.log(2 * SHRINKAGE * g))
    return min(1.0, math.exp(min(0.0, net + small_ball)) + math.exp(-(z**2) / 2))


def _decide(matrix: Tensor, constant: float) -> tuple[int, float]:
    """Rank and gap by the rule of `Rank`."""
    values = singular_values(matrix).tolist()
    scale = max(values[0], constant)
    if scale == 0:
        return 0, 1 / EPS
    threshold = ROUNDING * EPS * math.sqrt(matrix.numel()) * scale
    found = sum(value > threshold for value in values)
    kept = values[found - 1] if found else scale
    dropped = max(values[found], EPS * scale) if found < len(values) else threshold
    return found, kept / dropped
