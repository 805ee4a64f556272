"""Linear attention: no MHA with fewer than H^2 heads comes near some IHA with H (docs/exact_heads.md, Theorem 3; T17c).

Let token 1 be y and token 2 be x. The part of MHA's output at token 1 that is linear in y and quadratic in x is
sum_h (y^T G_h x) <b_h, x>, whatever its positions, biases and projection to one output: 0 for every y if x is
orthogonal to b_1, ..., b_R. IHA with P >= H and width d = H^2 can have sum_a y_a x_a^2 (`diagonal`): head maps
Q_o K_m^T = e_a e_a^T with a = o H + m, and b_a = e_a. At a unit x and y = x o x / |x o x| that is |x o x| >= 1/H. With
fewer than H^2 heads there is such an x, and the part is a combination of six values with coefficients that add up to 2
in absolute value: one of them is off by 1/(2H).
"""

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from constructions.filter_bank.paper import routing
from constructions.ledger.attention.inclusion import ROUNDING, normal, randomise
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.operators.weights import with_positions


def diagonal(heads: int, pseudo: int) -> InterleavedHeadAttention:
    """IHA of width H^2 and linear attention: sum_j sum_a X[i,a] X[j,a]^2 at token i. P >= H."""
    width = heads**2
    layer = InterleavedHeadAttention(
        width,
        heads,
        num_pseudo_heads=pseudo,
        head_dim=width,
        value_head_dim=heads,
        out_dim=1,
        pattern="linear",
        dtype=torch.float64,
    )
    own, mixing = torch.eye(width, dtype=torch.float64).view(heads, heads, width), routing(heads)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        for name in ("alpha_q", "alpha_k", "alpha_v", "collapse"):
            layer.get_parameter(name)[..., :heads] = torch.from_numpy(getattr(mixing, name))
        for o in range(heads):
            block = slice(o * width, (o + 1) * width)
            layer.q_proj.weight[block] = own[o].sum(0).diag()
            layer.k_proj.weight[block] = own[:, o].sum(0).diag()
            layer.v_proj.weight[o * heads : (o + 1) * heads] = own[:, o]
        assert layer.out_proj is not None
        layer.out_proj.weight[0] = torch.eye(heads).flatten()
    return layer


SIGNS = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0))
WEIGHTS = torch.tensor([1, 1, -1, -1, -2, 2], dtype=torch.float64) / 4
"""Of a polynomial f of degree 3, sum_i WEIGHTS[i] f(SIGNS[i] * (y, x)) is the part linear in y and quadratic in x."""


@blueprint.theorem(
    "robust-strictness",
    "linear attention: some IHA with H heads is at least 1/(2H) off every MHA with fewer than H^2 heads",
    uses=("content-layer", "iha"),
    check="numerical",
    proof="docs/exact_heads.md, Theorem 3",
)
def stays_away(
    heads: int, pseudo: int, rival: str, *, more: int = 0, factor: int = 1, orthogonal: bool = True
) -> Finding:
    """Whether a linear MHA on [y; x] and positions with H^2 - 1 heads is off `diagonal` by 1/(2H) at one of six inputs.

    x is a unit vector orthogonal to the MHA's b_h, y = x o x / |x o x|. rival: the MHA, "random", "dropped" (IHA's H^2
    MHA heads, less one) or "fitted" to IHA. more: heads beyond H^2 - 1, and then there may be no such x. factor: on the
    claimed distance. orthogonal: x is, instead of a b_h.
    """
    iha, many = diagonal(heads, pseudo), heads**2 - 1 + more
    width = iha.embed_dim
    options: dict[str, Any] = {"head_dim": width, "out_dim": 1, "bias": True, "pattern": "linear", "scale": 1.0}
    mha = MultiHeadAttention(width + 2, many, dtype=torch.float64, **options)
    _RIVALS[rival](mha, iha)
    assert mha.out_proj is not None
    with torch.no_grad():
        values = mha.v_proj.weight[:, :width].unflatten(0, (many, -1))
        b = torch.einsum("hv,hva->ha", mha.out_proj.weight.unflatten(1, (many, -1))[0], values)
        normals = torch.linalg.svd(b).Vh[many:] if orthogonal else torch.nn.functional.normalize(b)
        if not len(normals):
            return Finding(False, f"linear, H = {heads}: {many} MHA heads leave no x to tell them apart by")
        x = normals[0]
        y = x * x / (x * x).norm()
        pairs = torch.tensor(SIGNS, dtype=torch.float64)[..., None] * torch.stack((y, x))
        ours, theirs = iha(pairs, pairs, pairs)[:, 0, 0], mha(*[with_positions(pairs)] * 3)[:, 0, 0]
    parts, distance = [float(WEIGHTS @ f) for f in (ours, theirs)], float((ours - theirs).abs().max())
    what = (
        f"linear, H = {heads}, P = {pseudo}: at an x orthogonal to the b_h of a {rival} MHA with {many} heads the part "
        f"y x x of the MHA is {size(parts[1]):g}, of the IHA {size(parts[0]):g}, at least {factor / heads:.3g}; the "
        f"outputs are {distance:.2g} apart"
    )
    rounding = ROUNDING * max(1.0, float(theirs.abs().max()))
    holds = abs(parts[1]) <= rounding and min(parts[0], 2 * distance) >= factor / heads - rounding
    return Finding(holds, what, {"iha": size(parts[0]), "mha": size(parts[1]), "distance": size(distance)})


def _dropped(mha: MultiHeadAttention, iha: InterleavedHeadAttention) -> None:
    """Head a has query, key and value X e_a."""
    own = torch.eye(iha.embed_dim, mha.embed_dim, dtype=torch.float64)[: mha.num_heads]
    with torch.no_grad():
        for parameter in mha.parameters():
            parameter.zero_()
        for linear in (mha.q_proj, mha.k_proj, mha.v_proj):
            linear.weight.unflatten(0, (mha.num_heads, -1))[:, 0] = own
        assert mha.out_proj is not None
        mha.out_proj.weight.unflatten(1, (mha.num_heads, -1))[:, :, 0] = 1


def _fitted(mha: MultiHeadAttention, iha: InterleavedHeadAttention) -> None:
    """By L-BFGS, from a start near 0, to IHA's output on normal inputs."""
    randomise(mha)
    x, parameters = normal(7, 50, 2, iha.embed_dim), list(mha.parameters())
    target = iha(x, x, x).detach()[:, 0]

    def error_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        vector_to_parameters(torch.from_numpy(flat.copy()), parameters)
        error = (mha(*[with_positions(x)] * 3)[:, 0] - target).square().mean()
        return error.item(), parameters_to_vector(torch.autograd.grad(error, parameters)).numpy()

    start = 0.3 * parameters_to_vector(parameters).detach().numpy()
    found = minimize(error_and_gradient, start, jac=True, method="L-BFGS-B", options={"maxiter": 20})
    vector_to_parameters(torch.from_numpy(found.x), parameters)


_RIVALS = {"random": lambda mha, _: randomise(mha), "dropped": _dropped, "fitted": _fitted}


STATEMENTS = (
    Statement(
        id="T17c",
        source="docs/exact_heads.md, Theorem 3",
        place=Place("numerical", ("robust-strictness",)),
        claim=Claim(
            text="linear attention, P >= H >= 2, width H^2: some IHA with H heads is at least 1/(2H) off every MHA "
            "with fewer than H^2 heads, at one of six inputs of norm at most 1 a token",
            test=stays_away,
            cases={"heads": (2, 3), "pseudo": (2, 3), "rival": ("random", "dropped", "fitted")},
            given=lambda heads, pseudo, rival: heads <= pseudo,
            mutants={
                "H^2 MHA heads": {"more": 1},
                "2/H for 1/H": {"factor": 2},
                "x not orthogonal": {"orthogonal": False},
            },
        ),
        note="Proved for all such MHA on [X, I_N], with biases, a projection and a residual connection or not, causal "
        "mask or not. So nothing is gained in the limit, unlike in T14. Checked: three MHAs with positions and biases "
        "for each size.",
    ),
)
