"""The start that is an MHA and still tells the pseudo-heads apart: T11 of docs/results.md."""

from typing import Any

import torch

from constructions.ledger.attention.inclusion import ROUNDING, relative_gap
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention

STEPS = 4


def exact_start_breaks_symmetry(
    pattern: str,
    causality: str,
    pseudo: int,
    *,
    noise: float = 0.1,
    centred: bool = True,
    row: str = "last",
    own: bool = True,
) -> Finding:
    """The start equals MHA, and the pseudo-heads' keys and values move apart in a few steps of gradient descent.

    noise: size of the perturbations of the values. centred: whether they sum to 0 over the pseudo-heads. row: the row
    that the collapse reads. own: whether the linear pattern's collapse carries 1/P.
    """
    generator = torch.Generator().manual_seed(pseudo)
    options: dict[str, Any] = {"pattern": pattern, "rotary": "token", "dtype": torch.float64}
    mha = MultiHeadAttention(8, 2, scale=0.3, **options)
    with torch.no_grad():
        for parameter in mha.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 8**0.5)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(pseudo)
        by = "virtual" if causality == "virtual" else "token"
        iha = InterleavedHeadAttention.from_mha(mha, pseudo, causality=by, noise=noise)
    with torch.no_grad():
        if not centred:
            iha.alpha_v.add_(noise)
        if row == "first":
            iha.collapse.copy_(iha.collapse.flip(-1))
            iha.alpha_q.copy_(iha.alpha_q.flip(-1))
        if not own and pattern == "linear":
            iha.collapse.mul_(pseudo)
    x, target = torch.randn(2, 4, 5, 8, generator=generator, dtype=torch.float64)
    causal = causality != "none"
    error = relative_gap(iha(x, x, x, is_causal=causal).detach(), mha(x, x, x, is_causal=causal).detach())
    start = {name: iha.get_parameter(name).detach().clone() for name in ("alpha_k", "alpha_v")}
    parameters = list(iha.parameters())
    rate = 0.3 if pattern == "softmax" else 0.03
    spread = []
    for step in range(STEPS):
        loss = (iha(x, x, x, is_causal=causal) - target).square().mean()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= rate * gradient
            if step in (1, STEPS - 1):
                moved = [(iha.get_parameter(name) - before).std(-1) for name, before in start.items()]
                spread.append(min(float(m.max()) for m in moved))
    grows = 1e-9 < spread[0] < spread[1]
    what = (
        f"{pattern}, causal by {causality}, P = {pseudo}: off the MHA by {size(error):g} at "
        f"the start; spread over j of what the steps add to alphaK and alphaV {spread[0]:.2g} after 2, "
        f"{spread[1]:.2g} after {STEPS}"
    )
    return Finding(error <= ROUNDING and grows, what, {"error": size(error), "spread": spread})


STATEMENTS = (
    Statement(
        id="T11",
        source="docs/results.md T11",
        place=Place("numerical", ("exact-start",)),
        claim=Claim(
            text="replicated keys, values perturbed by e with sum_j e_j = 0, and a collapse that reads the last row "
            "of the own head (1/P of it if linear) are exactly MHA, and training moves the pseudo-heads apart",
            test=exact_start_breaks_symmetry,
            cases={
                "pattern": ("softmax", "linear"),
                "causality": ("none", "token", "virtual"),
                "pseudo": (2, 3),
            },
            mutants={
                "no noise": {"noise": 0.0},
                "noise that does not cancel": {"centred": False},
                "first row read": {"row": "first"},
                "no 1/P for linear attention": {"own": False},
            },
        ),
        note="Two things are easily missed: the factor 1/P of linear attention, and that the query rows which nothing "
        "reads at first need noise of their own (`InterleavedHeadAttention.reset_mixing`).",
    ),
)
