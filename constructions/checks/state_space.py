"""How close float64 must come to a state-space model or an FIR filter, and how close a construction comes."""

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.operators import componentwise_error, float64_operator_gap, operations
from constructions.checks.oracles.filters import causal, conv1d
from constructions.construction import Construction
from constructions.targets.state_space import RationalFilter, tiled, transfer
from iha_theory import exact
from iha_theory.rounding import gamma, worse
from synthetic.systems import StateSpace, dlsim, floats, recursion


def float64_measure(
    construction: Construction, layer: str, model: StateSpace, tokens: int, probes: int | None = None
) -> tuple[float, float]:
    """Error of the torch layer's operator, and of its outputs against scipy's, and the bound.

    Errors are relative to M = M_layer + M_run, which map |u| by taps M[tau].

    The layer's weights are f, s and the numerators of `constructions.targets.state_space`, each correctly rounded, so
    it is within gamma_{m+3} M_layer for its longest chain m of operations, see `layer_majorant`.

    The runs: a step makes an error of at most g = gamma_{n+d} times |A| |x| + |B| |u|. With alpha = |A|_2 + g |A|_F,
    kappa = max(|A|_F, alpha), W[0] = 1 and W[tau] = kappa alpha^(tau-1), by induction an input u_{t-tau}[a] leaves in
    x_t at most (1 + g) W[tau] |B e_a| |u| and in its error at most g (1 + g) (tau + 1) W[tau] |B e_a| |u| (2-norms);
    reading the output adds at most g |C| |x| + g |D| |u|. So a run is within gamma_{(n+d)(N+2)+1} M_run,
    M_run[tau] = |C_o| W[tau] |B e_a| + 1[tau = 0] |D|. (numpy's |A|_2 is taken a relative 1e-12 larger.)

    One operation more covers the rounding of M.
    """
    a, b, c = (floats(m) for m in (model.a, model.b, model.c))
    d = np.zeros((len(c), b.shape[1])) if model.feedthrough is None else floats(model.feedthrough)
    order, width = b.shape
    step, frobenius = gamma(order + width), float(np.linalg.norm(a))
    alpha = float(np.linalg.norm(a, 2)) * (1 + 1e-12) + step * frobenius
    decay = np.concatenate(([1.0], max(frobenius, alpha) * alpha ** np.arange(tokens - 1)))
    run = decay[:, None, None] * np.outer(np.linalg.norm(c, axis=1), np.linalg.norm(b, axis=0))
    run[0] += np.abs(d)
    majorant = causal(torch.from_numpy(run + layer_majorant(layer, transfer(model), tokens)))
    steps = max(operations(construction, tokens) + 3, (order + width) * (tokens + 2) + 1) + 1
    error = float64_operator_gap(construction, tokens, recursion(a, b, c, d), majorant, probes=probes)
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((1, tokens, width)))
    with torch.no_grad():
        by_scipy = componentwise_error(construction(x), dlsim(a, b, c, d)(x), majorant(x.abs()))
    return worse(error, by_scipy), gamma(steps)


def layer_majorant(layer: str, given: RationalFilter, tokens: int) -> np.ndarray:
    """sum_{q,t} |f_qt| |s_{tau-t}| |N_{t_q}|, the sizes of the addends behind tap tau: (N, D, d)."""
    combination, numerators = given.independent()
    if tiled(layer, given):
        combination, numerators = exact.identity(len(given.numerators), given.domain), list(given.numerators)
    series = floats(DomainMatrix([given.series(tokens)], (1, tokens), given.domain))[0]
    queries = np.stack([np.convolve(row, np.abs(series))[:tokens] for row in np.abs(floats(combination))])
    return np.einsum("qt,qoa->toa", queries, np.abs(np.stack([floats(n) for n in numerators])))


def fir_measure(construction: Construction, taps: Tensor, tokens: int) -> tuple[float, float]:
    """Error of the torch layer's operator against conv1d, and its bound: as for images, the taps being unrounded."""
    count, _, width = taps.shape
    steps = operations(construction, tokens) + count * width + 1
    return float64_operator_gap(construction, tokens, conv1d(taps), conv1d(taps.abs())), gamma(steps)
