"""The operator of an attention layer: what it does to content at given positions, as one linear map.

With queries and keys fixed, layer(pos, pos, X) is, for a layer whose attention ignores content, a linear map
L : R^{N_k x d} -> R^{N_q x D} (an affine one with biases: L(0) is then subtracted). Every such map is a sum

    L(X) = sum_r S_r X B_r,      S_r in R^{N_q x N_k},  B_r in R^{d x D},

and the least number of terms is its **operator Schmidt rank**, the rank of the **realignment**

    Rl in R^{N_q N_k x d D},     Rl[(i,j),(a,b)] = d L(X)[i,b] / d X[j,a] = sum_r S_r[i,j] B_r[a,b].

- `position_only`: the operator of a module; refuses one that is not linear in its value.
- `realignment`, `spectrum`: the matrix and its singular values. `schmidt_rank` makes a rank of them.

Everything is in float64 on the CPU, on a copy of the module in evaluation mode. Source: docs/results.md, "The one
idea".
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.base import AttentionLayer

Module = TypeVar("Module", bound=nn.Module)

EPS = torch.finfo(torch.float64).eps
ELEMENTS = 2**22
"""About how many numbers are evaluated at once: contents, outputs and, where each content has its own, maps."""


class NotLinearError(ValueError):
    """The module is not a linear (or affine) map of its value at fixed query and key."""


@dataclass(frozen=True)
class Operator:
    """A linear map of content, (N_k, d) -> (N_q, D).

    Attributes:
        function: a batch of contents (batch, N_k, d) -> their images (batch, N_q, D).
        keys: N_k.
        width: d, of the content.
        queries: N_q.
        out_width: D.
        constant: the largest |L(0)| entry, which was subtracted; it sets the scale of rounding errors beside L itself.
    """

    function: Callable[[Tensor], Tensor]
    keys: int
    width: int
    queries: int
    out_width: int
    constant: float = 0.0


def position_only(
    module: nn.Module,
    query: Float[Tensor, "queries embed_dim"],
    key: Float[Tensor, "keys kdim"] | None = None,
    *,
    width: int | None = None,
    seed: int = 0,
    **options: Any,
) -> Operator:
    """The operator X -> module(query, key, X) - module(query, key, 0).

    Args:
        module: any module with the call (query, key, value); of a tuple of outputs, as torch.nn.MultiheadAttention
            gives, the first counts. Inputs are (batch, tokens, width), or (tokens, batch, width) for a module whose
            attribute `batch_first` is False. The module itself stays as it is: a float64 copy in evaluation mode
            (dropout off) is run.
        query: positions of the queries, (N_q, embed_dim).
        key: positions of the keys, (N_k, kdim); default query.
        width: d, of the content; default the module's `vdim`, or the query's width if it has none.
        seed: of the random contents of the linearity test.
        **options: passed on in each call (a mask, say).

    Raises:
        NotLinearError: the module is not affine in its value. Tested on random normal contents X, Y with c = -1024:
            f(X + Y) = f(X) + f(Y) and f(c X) = c f(X) within 100 n EPS of the terms' norms, n = N_k d: n EPS bounds
            the rounding of sums of n terms, and the factor leaves room for terms that cancel to 1/100 of their size.
            So a layer can pass only if its content dependence is below that, or starts beyond contents of this size.
        ValueError: positions that are not (tokens, width); an output that is not (N_q, D) in float64.
    """
    query = _tokens("query", query)
    key = query if key is None else _tokens("key", key)
    content_width: int = getattr(module, "vdim", query.shape[1]) if width is None else width
    copied = frozen(module)
    shared = isinstance(module, AttentionLayer | TwoLayerAttention)  # these take positions of batch 1

    @torch.no_grad()
    def affine(content: Tensor) -> Tensor:
        batch = 1 if shared else len(content)
        return call(copied, query.expand(batch, -1, -1), key.expand(batch, -1, -1), content, options)

    zero = affine(query.new_zeros(1, len(key), content_width))
    own = len(key) * content_width + len(query) * zero.shape[-1] + (0 if shared else len(query) * len(key))
    operator = Operator(
        function=lambda content: torch.cat([affine(part) - zero for part in content.split(_batch(own))]),
        keys=len(key),
        width=content_width,
        queries=len(query),
        out_width=zero.shape[-1],
        constant=float(zero.abs().max()),
    )
    _require_linear(operator, zero, seed)
    return operator


@blueprint.definition(
    "schmidt-rank",
    "the operator Schmidt rank of X -> sum_r S_r X B_r, the least number of terms, is the rank of its realignment",
    check="numerical",
    proof="docs/bounds.md, Setting",
    tests="tests/iha_theory/operators/test_operators.py",
)
def realignment(operator: Operator) -> Float[Tensor, "entries coefficients"]:
    """Rl of shape (N_q N_k, d D): Rl[(i,j),(a,b)] = d L(X)[i,b] / d X[j,a], from the N_k d basis contents."""
    keys, width = operator.keys, operator.width
    contents = torch.eye(keys * width, dtype=torch.float64).view(-1, keys, width)
    out = operator.function(contents).unflatten(0, (keys, width))
    return out.permute(2, 0, 1, 3).reshape(operator.queries * keys, width * operator.out_width)


def spectrum(operator: Operator) -> Float[Tensor, "values"]:
    """The Schmidt spectrum: the singular values of the realignment, largest first."""
    return singular_values(realignment(operator))


def singular_values(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "values"]:
    """Largest first; a QR decomposition first makes tall and wide matrices square, which is several times faster."""
    rows, columns = matrix.shape
    return torch.linalg.svdvals(torch.linalg.qr(matrix if rows > columns else matrix.T, mode="r").R)


def _batch(numbers: int) -> int:
    return max(1, ELEMENTS // numbers)


def _tokens(name: str, x: Tensor) -> Tensor:
    if x.ndim != 2 or x.numel() == 0:
        raise ValueError(f"{name} of shape {tuple(x.shape)}: expected (tokens, width), at least one of each")
    return x.detach().to("cpu", torch.float64)


def frozen(module: Module) -> Module:
    """A copy in float64, on the CPU, in evaluation mode."""
    return copy.deepcopy(module).to("cpu", torch.float64).eval().requires_grad_(False)


def call(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]) -> Tensor:
    """The module's output as (batch, queries, D), checked."""
    inputs = (query, key, value)
    batch_first = getattr(module, "batch_first", True)
    out = module(*(inputs if batch_first else (x.transpose(0, 1) for x in inputs)), **options)
    if isinstance(out, tuple):
        out = out[0]
    name = type(module).__name__
    if not isinstance(out, Tensor) or out.dtype != torch.float64 or out.ndim != 3:
        what = f"{out.dtype} of shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise ValueError(f"{name} gives {what} for float64 inputs: expected float64 of 3 dimensions")
    out = out if batch_first else out.transpose(0, 1)
    if out.shape[:2] != (len(value), query.shape[1]):
        raise ValueError(f"{name} gives (batch, tokens) {tuple(out.shape[:2])}, not {(len(value), query.shape[1])}")
    return out


def _require_linear(operator: Operator, zero: Tensor, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2, operator.keys, operator.width, generator=generator, dtype=torch.float64)
    factor = -1024.0
    fx, fy, both, scaled = operator.function(torch.stack((x, y, x + y, factor * x)))
    terms = operator.keys * operator.width
    for law, defect, sizes in (
        ("additive", both - fx - fy, (both, fx, fy, 3 * zero)),
        ("homogeneous", (scaled - factor * fx) / factor, (fx, fx, 2 * zero)),
    ):
        bound = 100 * terms * EPS * sum(float(size.norm()) for size in sizes)
        found = float(defect.norm())
        if not found <= bound:  # NaN included
            raise NotLinearError(
                f"not linear in its value at fixed query and key: not {law}, off by {found:.2g} where rounding allows "
                f"{bound:.2g}; its attention depends on content, or its arithmetic is random or below float64"
            )
