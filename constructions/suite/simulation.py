"""State-space models and FIR filters to check, their right answers, and how close to those float64 must come.

- `stable`, `integers`, `repeated`: random models.
- `impulse_response`, `exact_target`: the taps from the definition, over the rationals or a prime field.
- `recursion`, `dlsim`: the model run in float64, on all inputs at once, and by scipy.signal.
- `conv1d`, `causal`: given taps applied, by torch's conv1d, and as one dense matrix.
- `float64_measure`, `fir_measure`: a construction's error against these, and its bound.

No answer knows of minimal polynomials, or of attention; a bound knows the sizes of a construction's weights.
"""

from collections.abc import Sequence

import numpy as np
import scipy.signal
import torch
import torch.nn.functional as F
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks import Operator, float64_operator_error, gamma, layer_operations, relative_error, worse
from constructions.construction import Construction
from constructions.state_space import RationalFilter, StateSpace, system, tiled, transfer
from iha_theory import exact
from iha_theory.exact import Domain

PRIME = next(exact.primes_beyond(1))
WIDTH = 4
"""d = D: up to 16 taps can be independent."""


def stable(order: int, seed: int, *, feedthrough: bool = False) -> StateSpace:
    """A random stable model: A = U S V with U, V orthogonal and S in [0.9, 1), so that it remembers; B, C, D normal."""
    generator = np.random.default_rng(seed)
    u, v = (np.linalg.qr(generator.standard_normal((order, order)))[0] for _ in range(2))
    a = u @ np.diag(generator.uniform(0.9, 1, order)) @ v
    b, c, d = (generator.standard_normal(s) for s in ((order, WIDTH), (WIDTH, order), (WIDTH, WIDTH)))
    return system(a, b, c, d if feedthrough else None)


def integers(order: int, seed: int, domain: Domain = QQ, *, feedthrough: bool = False) -> StateSpace:
    """A random integer model: A uniform in -1 .. 1 and B, C, D in -3 .. 3; uniform in a prime field."""
    generator = np.random.default_rng(seed)
    ranges = ((-1, 2), (-3, 4), (-3, 4), (-3, 4)) if domain == QQ else ((0, PRIME),) * 4
    shapes = ((order, order), (order, WIDTH), (WIDTH, order), (WIDTH, WIDTH))
    a, b, c, d = (generator.integers(*r, s) for r, s in zip(ranges, shapes, strict=True))
    return system(a, b, c, d if feedthrough else None, domain)


def repeated(model: StateSpace, seed: int) -> StateSpace:
    """The model with two copies of A, seen and driven apart: order 2 n, minimal polynomial as before."""
    generator = np.random.default_rng(seed)
    order, domain = model.a.shape[0], model.a.domain
    none = exact.zeros((order, order), domain)
    a = model.a.hstack(none).vstack(none.hstack(model.a))
    b, c = (exact.matrix(generator.integers(-3, 4, s), domain) for s in ((order, WIDTH), (WIDTH, order)))
    return StateSpace(a, model.b.vstack(b), model.c.hstack(c))


def impulse_response(model: StateSpace, tokens: int) -> list[DomainMatrix]:
    """C B + D, C A B, C A^2 B, ..., N taps (D, d), by the recursion."""
    state, taps = model.b, []
    for _ in range(tokens):
        taps.append(model.c * state)
        state = model.a * state
    if model.feedthrough is not None:
        taps[0] = taps[0] + model.feedthrough
    return taps


def exact_target(taps: Sequence[DomainMatrix], tokens: int) -> list[list[DomainMatrix | None]]:
    """y_t = sum_j taps[j] u_{t-j} as `exact_operator_error` wants it."""
    outputs, width = taps[0].shape
    domain = taps[0].domain
    rows = [tap.to_list() for tap in taps]
    nothing = domain.zero

    def entry(o: int, a: int) -> DomainMatrix:
        lags = [row[o][a] for row in rows[:tokens]] + [nothing] * (tokens - len(rows))
        entries = [[lags[i - j] if i >= j else nothing for j in range(tokens)] for i in range(tokens)]
        return DomainMatrix(entries, (tokens, tokens), domain).to_dense()

    return [[entry(o, a) for a in range(width)] for o in range(outputs)]


def recursion(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> Operator:
    """The model run on (batch, N, d) inputs, all at once."""

    def apply(u: Tensor) -> Tensor:
        inputs, state, outputs = u.numpy(), np.zeros((len(u), len(a))), []
        for t in range(inputs.shape[1]):
            state = state @ a.T + inputs[:, t] @ b.T
            outputs.append(state @ c.T + inputs[:, t] @ d.T)
        return torch.from_numpy(np.stack(outputs, axis=1))

    return apply


def dlsim(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> Operator:
    """scipy.signal.dlsim, one input at a time.

    Its states lag ours by one, x[t+1] = A x[t] + B u[t], y[t] = C x[t]: it runs one step more and the first output is
    left out. The feedthrough is added.
    """
    none = np.zeros_like(d)

    def apply(u: Tensor) -> Tensor:
        runs = []
        for x in u.numpy():
            outputs = scipy.signal.dlsim((a, b, c, none, 1.0), np.vstack((x, np.zeros_like(x[:1]))))[1]
            runs.append(outputs[1:] + x @ d.T)
        return torch.from_numpy(np.stack(runs))

    return apply


def conv1d(taps: Tensor) -> Operator:
    """torch's conv1d on (batch, N, d) inputs, with (k, D, d) taps of which the first is the current input's."""
    kernel = taps.flip(0).permute(1, 2, 0)
    return lambda x: F.conv1d(F.pad(x.transpose(1, 2), (len(taps) - 1, 0)), kernel).transpose(1, 2)


def causal(taps: Tensor) -> Operator:
    """u -> sum_j taps[j] u_{t-j}, with (N, D, d) taps, as one dense matrix."""
    tokens, outputs, width = taps.shape
    lags = torch.arange(tokens)[:, None] - torch.arange(tokens)
    dense = torch.where(lags[..., None, None] >= 0, taps[lags.clamp(min=0)], 0.0)  # (i, j, o, a)
    matrix = dense.permute(1, 3, 0, 2).reshape(tokens * width, tokens * outputs)
    return lambda u: (u.flatten(1) @ matrix).unflatten(1, (tokens, outputs))


def float64_measure(
    construction: Construction, layer: str, model: StateSpace, tokens: int, probes: int | None = None
) -> tuple[float, float]:
    """Error of the torch layer's operator, and of its outputs against scipy's, and the bound.

    Errors are relative to M = M_layer + M_run, which map |u| by taps M[tau].

    The layer's weights are f, s and the numerators of `constructions.state_space`, each correctly rounded, so it is
    within gamma_{m+3} M_layer for its longest chain m of operations, see `layer_majorant`.

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
    operations = max(layer_operations(construction.layer, tokens) + 3, (order + width) * (tokens + 2) + 1) + 1
    error = float64_operator_error(construction, tokens, recursion(a, b, c, d), majorant, probes=probes)
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((1, tokens, width)))
    with torch.no_grad():
        by_scipy = relative_error(construction(x), dlsim(a, b, c, d)(x), majorant(x.abs()))
    return worse(error, by_scipy), gamma(operations)


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
    operations = layer_operations(construction.layer, tokens) + count * width + 1
    return float64_operator_error(construction, tokens, conv1d(taps), conv1d(taps.abs())), gamma(operations)


def floats(m: DomainMatrix) -> np.ndarray:
    """`exact.nearest_float64` as an array."""
    return exact.nearest_float64(m).numpy()
