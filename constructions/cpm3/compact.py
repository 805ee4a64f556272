"""The workspace of CPM-3 with keys of two coordinates in place of N (docs/results.md T10).

Position n is a point on the circle, e(a) = (cos a, sin a) at the angle a = w n, w = 2 pi / N, and
<e(a), e(b)> = cos(a - b).

**MHA.** Head t has queries e(w (n + t)) and keys e(w n'): the logit cos(w (n + t - n')) is largest at n' = n + t only.
All the queries are mixtures of two, since e(a + s) = cos(s) e(a) + sin(s) e(a + pi/2).

**IHA**, H = P = ceil(sqrt N), which needs no ties and no factor H. The N P virtual keys go round one circle in IHA's
token-major order: (n', j') at w n' + (w/P) j'. Pseudo-query j of head h is at w (n + h H + j) + (w/P) j, on virtual
key (n + h H + j, j) and no other. Base queries 0 and 1 are e(w n) and e(w n + pi/2), base keys likewise, and mixing
turns them by any angle; base value j is x in block j, and the collapse adds up the P rows of a head, each of which
fills its own block. So all shifts come out of two base queries and two base keys, whatever H is.

**IHA with ties**, as App. B.3 mixes: base queries e(w (n + m H)), base keys e(w (n' - m)), one live row a head with H
matches, values H x. In floating point the H largest logits differ by rounding, so hard attention fails; softmax works.

**Parameters.** Queries and keys hold 2 coordinates a head in place of N. On the input [x, I_N], N + 1 wide, MHA has
5 N (N + 1) and IHA (N + 1) (4 H + H^2) + 4 H^3. One-hot keys let IHA save a factor of about sqrt N of the attention's
parameters; here it is at most 5, since the values, which are no smaller than before, are most of them. The least
numbers of heads stay as they are (docs/bounds.md Theorem 2 asks nothing of d_k).

**Temperature.** The smallest gap of logits is 1 - cos(2 pi / n), about 2 pi^2 / n^2, on a circle of n keys: n = N for
MHA and with ties, n = N H for IHA. Hard attention in floating point picks the right key while the gap is above the
rounding of two logits: see `largest_circle`. The softmax that rounds exactly: see `least_inverse_temperature`. As n
grows, b / n^2 -> beta / (2 pi^2) with 2 sum_{m >= 1} e^{-beta m^2} = 1/(2 D - 1), so b grows like N^2 for MHA and like
N^3 for IHA.
"""

import math
from typing import cast

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import brentq

from constructions.construction import Construction, blocks
from constructions.cpm3.temperature import least_inverse_temperature_for
from constructions.filter_bank.paper import routing, selectors
from iha_theory import blueprint
from iha_theory.operators.weights import Mixing, PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt, require_count, require_one_of

LOGIT_ERROR = 14
"""A logit is right to this many unit roundoffs: see `largest_circle`."""


@blueprint.construction(
    "compact-keys",
    "the workspace from keys of two coordinates on a circle",
    uses=("mha", "iha", "temperature"),
    check="numerical",
)
def compact_workspace(layer: str, tokens: int) -> Construction:
    """[X, P X, ..., P^{N-1} X] from keys of two coordinates; scale 1.

    Args:
        layer: "mha", "iha" or "iha-ties". The first two have hard attention, the third softmax: give it a temperature
            (`constructions.cpm3.temperature.soften`).
        tokens: N >= 1.

    Raises:
        ValueError: another layer, or N < 1.
    """
    require_one_of("layer", layer, WEIGHTS)
    require_count("tokens", tokens)
    readout = blocks("P^{} X", tokens)
    return Construction(f"compact/{layer}", "docs/results.md T10", to_layer(WEIGHTS[layer](tokens)), readout, 1)


def circle(tokens: int, turn: float = 0.0) -> Float64[torch.Tensor, "N 2"]:
    """e(w n + turn) for n = 0 .. N - 1."""
    angles = 2 * math.pi / tokens * torch.arange(tokens, dtype=torch.float64) + turn
    return torch.stack((angles.cos(), angles.sin()), dim=1)


def mha_weights(tokens: int) -> PositionWeights:
    """A head for each shift."""
    step = 2 * math.pi / tokens
    return PositionWeights(
        query=tuple(circle(tokens, step * t) for t in range(tokens)),
        key=(circle(tokens),) * tokens,
        value=selectors(1, 1) * tokens,
        pattern="hard",
    )


def iha_weights(tokens: int) -> PositionWeights:
    """ceil(sqrt N) heads, each virtual key in a place of its own."""
    heads = ceil_sqrt(tokens)
    step = 2 * math.pi / tokens
    head, pseudo = np.meshgrid(np.arange(heads), np.arange(heads), indexing="ij")
    alpha_q, alpha_k = np.zeros((2, heads, heads, heads))
    bases = [circle(tokens), circle(tokens, math.pi / 2)]
    if heads == 1:  # one token, so any angle will do
        alpha_q[:], alpha_k[:] = 1, 1
    else:
        for alpha, turn in (
            (alpha_q, step * (head * heads + pseudo + pseudo / heads)),
            (alpha_k, step * pseudo / heads),
        ):
            alpha[0], alpha[1] = np.cos(turn), np.sin(turn)
    unused = torch.zeros_like(bases[0])
    own = np.eye(heads)
    return PositionWeights(
        query=tuple([*bases, *[unused] * heads][:heads]),
        key=tuple([*bases, *[unused] * heads][:heads]),
        value=selectors(1, heads),
        pattern="hard",
        mixing=Mixing(
            alpha_q=alpha_q,
            alpha_k=alpha_k,
            alpha_v=np.repeat(own[:, None, :], heads, axis=1),  # [m, h, j] = 1[m = j]
            collapse=np.repeat(own[:, :, None], heads, axis=2),  # [o, h, j] = 1[o = h]
        ),
    )


def tied_weights(tokens: int) -> PositionWeights:
    """ceil(sqrt N) heads with the mixing of App. B.3, whose live rows have H matches."""
    heads = ceil_sqrt(tokens)
    step = 2 * math.pi / tokens
    return PositionWeights(
        query=tuple(circle(tokens, step * heads * m) for m in range(heads)),
        key=tuple(circle(tokens, -step * m) for m in range(heads)),
        value=selectors(1, heads, factor=heads),
        pattern="softmax",
        mixing=routing(heads),
    )


WEIGHTS = {"mha": mha_weights, "iha": iha_weights, "iha-ties": tied_weights}


def keys_on_circle(layer: str, tokens: int) -> int:
    """n, the number of places on the circle: N for MHA and with ties, N ceil(sqrt N) for IHA."""
    return tokens * ceil_sqrt(tokens) if layer == "iha" else tokens


def gaps(keys: int) -> Float64[np.ndarray, " others"]:
    """1 - cos(2 pi m / n), m = 1 .. n - 1: how far the other logits are below the match's."""
    return 2 * np.sin(np.pi * np.arange(1, keys) / keys) ** 2


def least_inverse_temperature(layer: str, tokens: int, spread: int) -> float:
    """The b above which softmax rounds exactly for all integer sequences of spread D, and not below; N >= 2, D >= 1.

    MHA and ties: the other tokens' keys are 2 pi m / N away. IHA: block j collects from the P rows i of its head the
    weights of the keys (n', j), n' < N. On a circle of N P places these are (n + h P + i - n') P + i - j steps away:
    every place once, so the weights sum to 1. The right token n' = n + h P + j is (i - j) (P + 1) steps away from row
    i, and has those keys beside the match. Blocks differ in them; the largest b of all blocks counts.
    """
    n = keys_on_circle(layer, tokens)
    if layer != "iha":
        return least_inverse_temperature_for(gaps(n), spread)
    heads = ceil_sqrt(tokens)
    every = np.concatenate(([0.0], gaps(n)))

    def block(j: int) -> float:
        own = {(i - j) * (heads + 1) % n for i in range(heads)}
        others = [m for m in range(n) if m not in own]
        return least_inverse_temperature_for(every[others], spread, every[sorted(own - {0})])

    return max(block(j) for j in range(heads))


def temperature_constant(spread: int) -> float:
    """lim b / n^2 = beta / (2 pi^2), 2 sum_{m >= 1} e^{-beta m^2} = 1 / (2 D - 1), for spreads D >= 1."""
    m = np.arange(1, 50)
    beta = brentq(lambda beta: 2 * np.exp(-beta * m**2).sum() - 1 / (2 * spread - 1), 0.1, 100, xtol=1e-15)
    return cast(float, beta) / (2 * math.pi**2)


def largest_circle(unit_roundoff: float) -> int:
    """The most keys n on a circle among which hard attention surely picks the right one.

    A gap 1 - cos(2 pi / n) = 2 sin^2(pi / n) above 28 u is enough, as each logit is right to 14 u. *Proof*, to first
    order in u. Coefficients and base vectors are rounded, multiplied and added: a coordinate of a query or key is right
    to 4 u (|cos s cos a| + |sin s sin a|) <= 4 u, so a vector to 4 sqrt(2) u, and the product of two to 8 sqrt(2) u.
    Its own two products and sum add 2 u. ∎ (Angles that are wrong by some u in float64 leave lengths alone and change a
    logit by the sine of the distance times that: less than the gap.)
    """
    return math.floor(math.pi / math.asin(math.sqrt(LOGIT_ERROR * unit_roundoff)))


def parameters(layer: str, tokens: int) -> int:
    """In closed form: MHA 5 N (N + 1); IHA, with ties or without, (N + 1) (4 H + H^2) + 4 H^3."""
    require_one_of("layer", layer, WEIGHTS)
    heads = ceil_sqrt(tokens)
    if layer == "mha":
        return 5 * tokens * (tokens + 1)
    return (tokens + 1) * (4 * heads + heads**2) + 4 * heads**3
