"""How cold softmax must be to do what hard attention does (docs/results.md T9).

One-hot positions give the logit b (the inverse temperature) on a match and 0 elsewhere. A head of MHA then returns

    (e^b x_match + sum_{j != match} x_j) / (e^b + N - 1),

which is off by at most (N - 1) D / (e^b + N - 1), D = max x - min x, and by exactly that where all other tokens are D
away. IHA's output is the same number: a live row has H matches among N H virtual keys, one in each pseudo-key, so
block j gets H x_match with weight e^b / (H e^b + H (N - 1)) and H x_n with weight 1 / (H e^b + H (N - 1)), and the
factor H cancels. On integers, rounding gives the token back for every sequence if and only if the error is below 1/2:

    b > log((N - 1) (2 D - 1)),    N >= 2, D >= 1 (integers),

for a sequence with x = 0 at one token and D at all others comes as far as the bound. With other logits, gap_j below the
match's, e^{-b gap_j} takes the place of e^{-b}: see `least_inverse_temperature_for`.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.special import logsumexp
from torch import Tensor

from constructions.construction import Construction
from iha_theory import blueprint

Gaps = Sequence[float] | np.ndarray


def soften(construction: Construction, inverse_temperature: float | int) -> Construction:
    """The same weights with softmax for a pattern, at inverse temperature b."""
    layer = copy.deepcopy(construction.layer)
    layer.pattern, layer.scale = "softmax", float(inverse_temperature)
    return replace(construction, layer=layer)


def error_bound(tokens: int, spread: float | int, inverse_temperature: float | int) -> float:
    """(N - 1) D / (e^b + N - 1): the workspace's largest error, for MHA and IHA alike, which is attained."""
    others = tokens - 1
    weight = math.exp(-inverse_temperature)  # of another token, over that of the right one: never too large for a float
    return others * spread * weight / (1 + others * weight)


@blueprint.theorem(
    "temperature",
    "softmax at inverse temperature b is off by at most (N - 1) D / (e^b + N - 1), and rounds exactly"
    " from b > log((N - 1)(2 D - 1)) on",
    uses=("workspace",),
    check="numerical",
)
def least_inverse_temperature(tokens: int, spread: int) -> float:
    """log((N - 1) (2 D - 1)): rounding is exact for all integer sequences of spread D above it, and not below.

    -inf for one token, or D = 0, where rounding is exact at any temperature.
    """
    others = (tokens - 1) * (2 * spread - 1)
    return math.log(others) if tokens > 1 and spread > 0 else -math.inf


def least_inverse_temperature_for(gaps: Gaps, spread: int, same: Gaps = ()) -> float:
    """The b above which rounding is exact, and not below: sum_gaps e^{-b gap} (2 D - 1) = 1 + sum_same e^{-b gap}.

    The weights of the other tokens, over those of the right one, must come below 1/(2 D - 1).

    Args:
        gaps: for each key of another token, how far its logit is below the match's at b = 1; positive, at least one.
        spread: D >= 1.
        same: the gaps of the right token's other keys, at most as many as make all tokens have equally many.

    Raises:
        ValueError: no gap, a gap that is not positive, D < 1.
    """
    wrong, right = np.array([*gaps], dtype=np.float64), np.array([0.0, *same])
    if spread < 1 or wrong.size == 0 or not (wrong > 0).all():
        raise ValueError("need a spread D >= 1 and at least one gap, all positive")

    def excess(b: float) -> float:
        wrong_weight, right_weight = (cast(float, logsumexp(-b * gap)) for gap in (wrong, right))
        return wrong_weight - right_weight + math.log(2 * spread - 1)

    if excess(0.0) <= 0:  # two tokens, D = 1: the mean of the two is a tie, and anything colder is right
        return 0.0
    high = (math.log(wrong.size * (2 * spread - 1)) + 1) / wrong.min()
    return cast(float, brentq(excess, 0.0, high, xtol=1e-13))


def hardest(tokens: int, spread: int) -> Int[Tensor, "2 N"]:
    """The sequences that attain the error bound: (0, D, ..., D) and (D, 0, ..., 0)."""
    x = torch.full((2, tokens), spread)
    x[0, 0], x[1, 1:] = 0, 0
    return x


@torch.no_grad()
def workspace_error(construction: Construction, x: Int[Tensor, "batch N"]) -> float:
    """Largest |entry of the workspace - the token it should hold|; slot t of row n should hold token n + t mod N."""
    return float((_workspace(construction, x) - _tokens(construction, x)).abs().max())


@torch.no_grad()
def rounds_exactly(construction: Construction, x: Int[Tensor, "batch N"]) -> bool:
    """Whether rounding every entry of the workspace to the nearest integer gives the tokens."""
    return bool(torch.equal(_workspace(construction, x).round(), _tokens(construction, x)))


def _workspace(construction: Construction, x: Tensor) -> Float[Tensor, "batch N slots"]:
    return construction(x.double().unsqueeze(-1))


def _tokens(construction: Construction, x: Tensor) -> Float[Tensor, "batch N slots"]:
    return torch.stack([x.double().roll(-t, 1) for t in range(len(construction.readout))], dim=-1)
