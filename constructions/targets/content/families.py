"""Content in the queries: one head less for the filter bank, in the limit only (docs/results.md T14).

Linear attention on [X, I_N] with an output projection. If queries use content, head h is

    (S_h + X M_h)(X B_h + C_h) = S_h C_h + (S_h X B_h + X M_h C_h) + X M_h X B_h,

so constants C_h that cancel, sum_h S_h C_h = 0, leave X F with F = sum_h M_h C_h: the identity operator, which no head
was spent on. Its price is X M_h X B_h, and with M_h = eps M, C_h = C / eps that is as small as one likes. Throughout
E_t = e_t^T x I_d writes X into block t, and Y holds the first d columns of I_N, so that Y^T Y = I_d (d <= N).

**The family** (k >= 3, any A), by MHA with k - 1 heads or by IHA with H heads, k <= H^2 + 1. Map t = 1, ..., k - 1 is
A^t on values X E_t. Map 1 has the constants -A Y E_0 / eps, map 2 has Y E_0 / eps, and map 2 alone has content in its
queries, eps X Y^T. As A (-A Y) + A^2 Y = 0, the output is *exactly*

    [X, A X, ..., A^{k-1} X]  +  eps (X Y^T X) E_2.                                                               (1)

In float64, 1/eps and eps are rounded; with (1 + delta) their product, delta X E_0 is added, |delta| <= 2^-53. Let X
have independent entries with mean, variance and third and fourth moments 0, 1, 0, kappa (3 for normal entries). Then

    E |f(X) - L(X)|^2 / E |L(X)|^2  =  (eps^2 (N d + kappa - 1) + delta^2 N) / sum_t |A^t|_F^2.                   (2)

Proof. Row i of X Y^T X is sum_j X_ij X_j over the first d rows j. Its entry (i, b) has the mean square d, as the
products X_ij X_jb of j = 1..d are uncorrelated with mean square 1; but for i <= d one of them is X_ii X_ib, the same
for b != i and with mean square kappa for b = i. So the sum over (i, b) is N d^2 + d (kappa - 1); for b = i all products
but j = i have mean 0, so that no cross term is left. E |L|^2 = d sum_t |A^t|_F^2. The two errors are in different
blocks.

So the *squared* relative error falls as eps^2, the relative error as eps, and weights grow as 1/eps.

**One head** (k = 2). For an eigenvalue l of A with d independent eigenvectors, Y in R^{N x d}, and Z Y = I_d: pattern
(A - l I) + eps X Z and values X E_1 + Y (E_0 + l E_1) / eps give [X, A X] + eps X Z X E_1. Without such an eigenvalue
one head stays away from the bank (`iha_theory.bounds.content.limit_heads`).

**Softmax** (`softmax_family`): the same, where a linear system has a solution: for generic A if d <= k - 2.

No k - 1 heads reach the bank exactly (docs/content.md, Theorem 2).
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from constructions.filter_bank.paper import powers, routing, selectors
from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.operators.weights import PositionWeights, to_layer
from iha_theory.rounding import ceil_sqrt


@dataclass(frozen=True)
class ContentWeights:
    """X -> sum_h (S_h + X M_h)(X B_h + C_h): MHA with content and positions in queries and values.

    maps: S, (H, N, N). content: M, (H, d, N). values: B, (H, d, D). constants: C, (H, N, D).
    """

    maps: Float[Tensor, "H N N"]
    content: Float[Tensor, "H d N"]
    values: Float[Tensor, "H d D"]
    constants: Float[Tensor, "H N D"]

    def layer(self) -> MultiHeadAttention:
        """The torch layer on [X, I_N]: queries [S_h, X], keys [I, M_h^T], values X B_h + C_h, heads added up."""
        heads, tokens, _ = self.maps.shape
        width, out = self.values.shape[1:]
        layer = MultiHeadAttention(
            width + tokens,
            heads,
            head_dim=tokens + width,
            value_head_dim=out,
            out_dim=out,
            pattern="linear",
            dtype=torch.float64,
        )
        queries = F.pad(torch.eye(width, dtype=torch.float64), (tokens, 0)).expand(heads, -1, -1)  # of the content
        keys = F.pad(torch.eye(tokens, dtype=torch.float64), (0, 0, width, 0)).expand(heads, -1, -1)
        blocks = (
            (layer.q_proj, torch.cat((queries, F.pad(self.maps, (0, width))), dim=1)),
            (layer.k_proj, torch.cat((keys, F.pad(self.content.mT, (0, 0, width, 0))), dim=2)),
            (layer.v_proj, torch.cat((self.values, self.constants), dim=1)),
        )
        assert layer.out_proj is not None
        with torch.no_grad():
            for linear, block in blocks:
                linear.weight.copy_(block.mT.flatten(0, 1))
            layer.out_proj.weight.copy_(torch.eye(out).repeat(1, heads))
        return layer


@blueprint.construction(
    "content-family",
    "k - 1 heads with content in the queries and weights 1/eps come near the bank, with an error known exactly",
    uses=("content-layer", "filter-bank"),
    check="exact",
    proof="docs/content.md, Theorem 3",
)
def mha_family(a: Float[Tensor, "N N"], terms: int, width: int, scale: float | int) -> ContentWeights:
    """k - 1 heads of MHA for [X, A X, ..., A^{k-1} X]: (1) with 1/eps = scale.

    With integers in A and scale, as long as products stay below 2^53, all weights but eps are exact.

    Args:
        a: A, float64.
        terms: k, at least 3.
        width: d, between 1 and N.
        scale: 1/eps, the size of the constants.

    Raises:
        ValueError: terms, width or scale outside their ranges.
    """
    _require(a, terms, width, scale)
    power = _powers(a, terms)
    y = torch.eye(len(a), dtype=torch.float64)[:, :width]
    blocks = torch.eye(terms * width, dtype=torch.float64).unflatten(0, (terms, width))  # E_0, ..., E_{k-1}
    content = torch.zeros(terms - 1, width, len(a), dtype=torch.float64)
    content[1] = y.T / scale
    constants = torch.zeros(terms - 1, len(a), terms * width, dtype=torch.float64)
    constants[0, :, :width], constants[1, :, :width] = -scale * (a @ y), scale * y
    return ContentWeights(power[1:], content, blocks[1:], constants)


@blueprint.construction(
    "content-family-iha",
    "the same by H heads of IHA, k <= H^2 + 1",
    uses=("content-family",),
    check="exact",
    proof="docs/content.md, Theorem 3",
)
def iha_family(a: Float[Tensor, "N N"], terms: int, width: int, scale: float | int) -> AttentionLayer:
    """The same by IHA with H = P = max(2, ceil(sqrt(k - 1))) heads, one fewer than without content if k = H^2 + 1.

    Base query o is A^{oH+1}, base key m is (A^m)^T, so that map (o, m) is A^{oH+m+1} with the paper's mixing (App.
    B.2). In d further coordinates base query 0 has eps X and base key 1 has Y. Base value m is X in block m, and
    beside it -A Y / eps for m = 0 and Y / eps for m = 1, which the output projection reads from head 0 only.

    Arguments and errors as `mha_family`.
    """
    _require(a, terms, width, scale)
    heads, tokens = max(2, ceil_sqrt(terms - 1)), len(a)
    power = _powers(a, heads * (heads - 1) + 2)
    y = torch.eye(tokens, dtype=torch.float64)[:, :width]
    out = torch.zeros(heads, heads + 1, width, terms, width, dtype=torch.float64)  # [o, block m or constants, ., t, .]
    for t in range(1, terms):
        out[(t - 1) // heads, (t - 1) % heads, :, t] = torch.eye(width)
    out[0, heads, :, 0] = torch.eye(width)
    layer = to_layer(
        PositionWeights(
            query=tuple(F.pad(power[o * heads + 1], (0, width)) for o in range(heads)),
            key=tuple(torch.cat((power[m].T, y * (m == 1)), dim=1) for m in range(heads)),
            value=tuple(np.pad(block, ((0, 0), (0, width))) for block in selectors(width, heads)),
            pattern="linear",
            mixing=routing(heads),
            out=out.flatten(3).flatten(0, 2),
        )
    )
    with torch.no_grad():
        layer.q_proj.weight[tokens : tokens + width, :width] = torch.eye(width, dtype=torch.float64) / scale
        constants = layer.v_proj.weight.unflatten(0, (heads, -1))[:, -width:, width:]
        constants[0], constants[1] = (-scale * (a @ y)).T, scale * y.T
    return layer


def predicted_error(a: Float[Tensor, "N N"], terms: int, width: int, scale: int, kurtosis: int = 3) -> Fraction:
    """(2), exactly: the squared relative error of the family's torch layer, for A of integers.

    Args:
        a: A, of integers.
        terms: k.
        width: d.
        scale: 1/eps, an integer; eps itself is rounded.
        kurtosis: kappa, the fourth moment of an entry of X.

    Raises:
        ValueError: an A with other entries; as `mha_family`.
    """
    _require(a, terms, width, scale)
    if not bool((a == a.round()).all()):
        raise ValueError("the exact error needs a matrix of integers")
    tokens, power = len(a), np.array([[int(x) for x in row] for row in a.tolist()], dtype=object)
    total, last = tokens, power
    for _ in range(terms - 1):
        total, last = total + int((last * last).sum()), last @ power
    eps = Fraction(1 / scale)
    delta = eps * scale - 1
    return (eps**2 * (tokens * width + kurtosis - 1) + delta**2 * tokens) / total


@blueprint.construction(
    "softmax-family",
    "k - 1 softmax heads come near the bank of a generic positive stochastic A on bounded inputs",
    uses=("mha", "filter-bank"),
    check="numerical",
    proof="docs/content.md, Softmax",
)
def softmax_family(
    a: Float[Tensor, "N N"], terms: int, width: int, scale: float | int, seed: int = 0
) -> MultiHeadAttention:
    """k - 1 heads of *softmax* attention near [X, A X, ..., A^{k-1} X].

    Head h = 1, ..., k - 1 has logits log A^h + eps X M_h and values X E_h + C_h E_0 / eps, with sum_h A^h C_h = 0.
    In row i its map is p + eps x_i M_h J_hi + O(eps^2) with p = row i of A^h and J_hi = diag(p) - p p^T. So what the
    constants leave in row i is x_i sum_h M_h J_hi C_h, and a remainder of order eps. It is x_i if
    sum_h M_h J_hi C_h = I_d for every i: N d linear equations for each of the d rows of [M_1, ..., M_{k-1}], whose
    (k - 1) N unknowns count as (k - 1)(N - 1), since J 1 = 0. For generic C_h there is a solution if
    N d <= (k - 1)(N - 1), so for d <= k - 2 and N >= k - 1.

    Args:
        a: A, positive with rows that sum to 1, float64.
        terms: k, at least 3.
        width: d.
        scale: 1/eps.
        seed: of the constants.

    Raises:
        ValueError: A with other entries, terms, width or scale outside their ranges, or equations without a solution
            (to a relative 1e-8).
    """
    _require(a, terms, width, scale)
    if not bool((a > 0).all()) or not torch.allclose(a.sum(1), torch.ones(len(a), dtype=a.dtype), rtol=1e-12):
        raise ValueError("a softmax pattern is positive and its rows sum to 1")
    tokens, heads = len(a), terms - 1
    maps = _powers(a, terms)[1:]
    free = torch.randn(heads - 1, tokens, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    constants = torch.cat((-(maps[:-1] @ free).sum(0, keepdim=True), free))
    centred = constants[:, None] - (maps @ constants)[:, :, None]  # [h, i, j]: row j of C_h less its mean under row i
    equations = (maps[..., None] * centred).permute(1, 3, 0, 2).flatten(2).flatten(0, 1)  # (i, b) by (h, j)
    wanted = torch.eye(width, dtype=torch.float64).repeat(tokens, 1)
    content = torch.linalg.lstsq(equations, wanted, driver="gelsd").solution
    if float((equations @ content - wanted).abs().max()) > 1e-8:
        raise ValueError(f"no content weights of {heads} heads make the identity of width {width} for this matrix")
    blocks = torch.eye(terms * width, dtype=torch.float64).unflatten(0, (terms, width))
    layer = ContentWeights(
        maps=maps.log(),
        content=(content / scale).unflatten(0, (heads, tokens)).mT,
        values=blocks[1:],
        constants=scale * (constants @ blocks[0]),
    ).layer()
    layer.pattern = "softmax"
    return layer


def _require(a: Tensor, terms: int, width: int, scale: float | int) -> None:
    if terms < 3:
        raise ValueError(f"the family has at least 3 terms, got {terms}; for 2 see docs/content.md")
    if not 1 <= width <= len(a):
        raise ValueError(f"the width must be between 1 and N = {len(a)}, got {width}")
    if not 0 < scale < float("inf"):
        raise ValueError(f"the scale must be positive and finite, got {scale!r}")


def _powers(a: Tensor, count: int) -> Tensor:
    power = powers(a)
    return torch.stack([torch.as_tensor(power(t)) for t in range(count)])
