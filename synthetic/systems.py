"""Linear state-space models as data, and their simulation: what constructions for them are held against.

- `StateSpace`, `system`: a model over the rationals or a prime field. `stable`, `integers`, `repeated`: random models.
- `impulse_response`: the taps from the definition. `recursion`, `dlsim`: the model run in float64, on all inputs at
  once, and by scipy.signal.

No answer knows of minimal polynomials, or of attention.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.signal
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from iha_theory import blueprint, exact
from iha_theory.exact import Domain

Operator = Callable[[Tensor], Tensor]
"""A linear map of content: (batch, N, d) to (batch, N, D)."""


@blueprint.definition(
    "state-space-model",
    "a linear state-space model x_t = A x_(t-1) + B u_t, y_t = C x_t + D u_t, from rest",
    check="exact",
    proof="constructions.targets.state_space",
    tests="tests/constructions/targets/test_state_space.py",
)
@dataclass(frozen=True)
class StateSpace:
    """x_t = A x_{t-1} + B u_t, y_t = C x_t + D u_t, over one field; see `system`.

    a: (n, n). b: (n, d). c: (D, n). feedthrough: (D, d), or None for 0.
    """

    a: DomainMatrix
    b: DomainMatrix
    c: DomainMatrix
    feedthrough: DomainMatrix | None = None

    def __post_init__(self) -> None:
        order, width, outputs = self.a.shape[0], self.b.shape[1], self.c.shape[0]
        expected = {"A": (order, order), "B": (order, width), "C": (outputs, order), "D": (outputs, width)}
        for (name, shape), m in zip(expected.items(), (self.a, self.b, self.c, self.feedthrough), strict=True):
            if m is not None and m.shape != shape:
                raise ValueError(f"{name} of shape {m.shape} in a system of order {order}: expected {shape}")
            if m is not None and m.domain != self.a.domain:
                raise ValueError(f"{name} is over {m.domain} and A over {self.a.domain}: use one field")


def system(a: Any, b: Any, c: Any, feedthrough: Any = None, domain: Domain = QQ) -> StateSpace:
    """A state-space model from arrays of numbers, without rounding.

    Args:
        a: A, (n, n).
        b: B, (n, d).
        c: C, (D, n).
        feedthrough: D, (D, d); None for 0.
        domain: the rationals or a prime field.

    Raises:
        ValueError: shapes that do not fit, or an entry that is not a finite number.
    """
    matrices = (None if m is None else exact.matrix(m, domain) for m in (a, b, c, feedthrough))
    return StateSpace(*matrices)  # type: ignore[arg-type]


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


def floats(m: DomainMatrix) -> np.ndarray:
    """`exact.nearest_float64` as an array."""
    return exact.nearest_float64(m).numpy()
