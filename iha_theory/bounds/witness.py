"""An input on which a layer with too few heads is wrong: docs/exact_heads.md, Theorem 1 (T17a), as a program.

The theorem is about f(X) = sum_h P_h(X) (X B_h + C_h) + b with rows of P_h of bounded norm (softmax, hard attention and
their kin; any logits, content and rotary positions in them, any mask). On X = t x a^T, t -> infinity, every row of f(X)
is t times a combination of the H vectors a^T B_h, up to a bounded remainder. A bank of rank r asks for rows in a space
of dimension r. So with H < r there is a direction gamma along which f stays bounded and the bank grows:

    |f(X) - L(X)|  >=  t |L(x a^T) gamma| - kappa,      |gamma| = 1.

`witness` finds a, x and gamma from outputs of the layer alone and then *measures* the error there, so that what it
returns needs no assumption on the layer: it is an input and its error.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from iha_theory import blueprint
from iha_theory.rounding import require_count

SCALES = (1.0, 1e2, 1e4, 1e6)
PROBES = 4
"""Random token vectors x for each node, from whose outputs the layer's row space is read."""
NEGLIGIBLE = 1e-6
"""Directions in which the layer's outputs are smaller than this part of the largest do not count as its own."""


@dataclass(frozen=True)
class Witness:
    """An input and what the layer does there.

    Attributes:
        x: X, (N, d).
        error: |f(X) - L(X)| / |L(X)|, Frobenius norms.
        errors: the same at t = `SCALES` for the same direction, so that one sees it settle.
        scale: t, of the input that is returned.
        slope: |L(x a^T) gamma| / |L(x a^T)|: by the theorem the error tends to at least this where gamma is orthogonal
            to all a^T B_h. 0 if the layer's rows span the bank's. Rows are read at the largest t, where a softmax with
            content in it may be constant: more than 0 is no proof of too few heads, the error is what counts.
    """

    x: Float[Tensor, "N d"]
    error: float
    errors: tuple[float, ...]
    scale: float
    slope: float


@blueprint.theorem(
    "bounded-rows",
    "rows of bounded norm (softmax, hard), any logits and mask, content anywhere: a bank of rank r "
    "takes r heads of MHA, and min(H^2, H P^2) >= r of IHA",
    uses=("mha", "gqa", "talking-heads", "differential", "iha"),
    check="numerical",
    proof="docs/exact_heads.md, Theorem 1",
)
@torch.no_grad()
def witness(
    layer: Callable[[Tensor], Tensor], bank: Any, width: int = 1, *, directions: int = 4, seed: int = 0
) -> Witness:
    """The worst input found on which a layer differs from X -> [T_0 X, ..., T_{k-1} X].

    For a layer that was made or trained for the bank: any other has an error near 1 or more, however many heads.

        attend = torch.nn.MultiheadAttention(e, H, batch_first=True).double()
        f = lambda x: after(attend(z := before(x), z, z)[0])  # before: d -> e, positions too; after: linear, e -> k d
        witness(f, torch.stack([torch.linalg.matrix_power(A, t) for t in range(k)])).error

    Args:
        layer: f, from (batch, N, d) to (batch, N, k d) in float64. A residual connection counts as a head.
        bank: T, (k, N, N).
        width: d.
        directions: how many content directions a are tried.
        seed: of the directions and probes.

    Raises:
        ValueError: sizes below 1; a bank of another shape, of zeros, or not finite; outputs of another shape, or not
            finite.
    """
    try:
        matrices = torch.as_tensor(bank, dtype=torch.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"a bank of type {type(bank).__name__}: expected numbers, (k, N, N)") from error
    require_count("width", width)
    require_count("directions", directions)
    if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or matrices.numel() == 0:
        raise ValueError(f"a bank of shape {tuple(matrices.shape)}: expected (k, N, N)")
    size = float((SCALES[-1] * matrices).norm())
    if not 0 < size < math.inf:
        raise ValueError(f"a bank of norm {size / SCALES[-1]:g}: expected finite numbers, not all 0")
    generator = torch.Generator().manual_seed(seed)
    found = [_along(layer, matrices, _unit(width, generator), generator) for _ in range(directions)]
    return max(found, key=lambda w: w.error)


def _along(
    layer: Callable[[Tensor], Tensor], bank: Float[Tensor, "k N N"], a: Float[Tensor, " d"], generator: torch.Generator
) -> Witness:
    terms, tokens = bank.shape[:2]
    x = torch.randn(PROBES * tokens, tokens, dtype=torch.float64, generator=generator)
    own = _run(layer, SCALES[-1] * x[:, :, None] * a, bank).flatten(0, 1) / SCALES[-1]
    wanted = torch.einsum("tij,bj,a->bita", bank, x, a).flatten(2).flatten(0, 1)
    basis = _row_space(own, wanted)
    rest = wanted - wanted @ basis.T @ basis
    gamma = torch.linalg.svd(rest, full_matrices=False).Vh[0]
    combined = torch.einsum("tij,t->ij", bank, gamma.unflatten(0, (terms, -1)) @ a)  # L(x a^T) gamma = combined x
    direction = torch.linalg.svd(combined).Vh[0]
    best = direction[:, None] * a
    target = _target(bank, best[None])[0]
    errors = []
    for scale in SCALES:
        out = _run(layer, scale * best[None], bank)[0]
        errors.append(float((out - scale * target).norm() / (scale * target).norm()))
    at = max(range(len(SCALES)), key=lambda i: errors[i])
    outside = float(rest.norm()) > NEGLIGIBLE * float(wanted.norm())  # else the layer's rows span all that is asked for
    slope = float((target @ gamma).norm() / target.norm()) if outside else 0.0
    return Witness(SCALES[at] * best, errors[at], tuple(errors), SCALES[at], slope)


def _row_space(own: Tensor, wanted: Tensor) -> Float[Tensor, "rank kd"]:
    """Orthonormal rows that span the layer's outputs, directions that are negligible left out."""
    svd = torch.linalg.svd(own, full_matrices=False)
    size = max(float(svd.S[0]), float(wanted.norm() / len(wanted) ** 0.5))
    return svd.Vh[NEGLIGIBLE * size < svd.S]


def _run(layer: Callable[[Tensor], Tensor], x: Float[Tensor, "batch N d"], bank: Tensor) -> Tensor:
    try:
        out = layer(x)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"the layer cannot be called with one float64 tensor {tuple(x.shape)}: {error}") from error
    expected = (*x.shape[:2], len(bank) * x.shape[2])
    if not isinstance(out, Tensor) or out.shape != expected:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"the layer gives {shape} for an input {tuple(x.shape)}: expected {expected}")
    if not bool(out.isfinite().all()):
        raise ValueError("the layer gives NaN or infinity on large inputs")
    return out.double()


def _target(bank: Tensor, x: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N kd"]:
    return torch.einsum("tij,bja->bita", bank, x).flatten(2)


def _unit(width: int, generator: torch.Generator) -> Float[Tensor, " d"]:
    a = torch.randn(width, dtype=torch.float64, generator=generator)
    return a / a.norm()


blueprint.unowned(
    "proof only",
    "large-inputs",
    "content anywhere, bounded rows: the error on inputs of size R tends to at least the position-only floor",
    uses=("bounded-rows", "error-floor"),
    proof="docs/exact_heads.md, Theorem 1, Near on large inputs (Eckart-Young with content anywhere).",
)
blueprint.unowned(
    "proof only",
    "strong-form",
    "near on large inputs, polynomial logits: L itself has operator Schmidt rank at most H, or min(H^2, H P^2)",
    uses=("bounded-rows", "schmidt-rank"),
    proof="docs/exact_heads_more.md, M1",
)
blueprint.unowned(
    "proof only",
    "values-without-positions",
    "if values do not read positions the position-only floor holds at every scale, whatever the pattern",
    uses=("large-inputs",),
    proof="docs/exact_heads_more.md, M2",
)
