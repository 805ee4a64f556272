"""MHA inside IHA, the algorithm beside the definition, the start that is an MHA (Sec. 4, 4.1, App. B.1; ledger E4)."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.ledger.statement import Assumption, Claim, Finding, Statement
from constructions.suite.inclusion import (
    integer_mha,
    operators_error,
    outputs_error,
    real_mha,
)
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention

ROUNDING = 1e-10
"""Relative. Outputs here are sums of a few hundred products of numbers of size 1 to 100: gamma is below 1e-12."""


def relative_gap(a: Tensor, b: Tensor) -> float:
    """The largest difference of entries over the largest entry; NaN if one is."""
    return float((a - b).abs().max() / torch.maximum(a.abs().max(), b.abs().max()))


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal entries, float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


# P-inclusion


def printed_inclusion(
    mha: MultiHeadAttention, pseudo: int, *, key_of: int = 0, rows: int = 1, row: int = 0
) -> InterleavedHeadAttention:
    """App. B.1: alphaQ = alphaK = alphaV = 1[m = i] for every j; R reads row j = 1 of the own head.

    key_of: head i has the keys of head i + key_of. rows: how many rows R adds up. row: the first of them, from 0.
    """
    iha = InterleavedHeadAttention.from_mha(mha, pseudo, noise=0.0)
    own = torch.eye(mha.num_heads, dtype=torch.float64)[..., None]
    with torch.no_grad():
        for alpha in (iha.alpha_q, iha.alpha_k, iha.alpha_v):
            alpha.copy_(own)
        iha.alpha_k.copy_(iha.alpha_k.roll(key_of, 0))
        iha.collapse.zero_()
        iha.collapse[..., row : row + rows] = own
    return iha


def inclusion_equals(pattern: str, heads: int, pseudo: int, seed: int, *, key_of: int = 0, rows: int = 1) -> Finding:
    """The printed IHA against a random MHA: linear and hard as exact operators, softmax by its outputs."""
    generator = torch.Generator().manual_seed(seed)
    if pattern == "softmax":
        mha = real_mha(heads, generator)
        error, bound = outputs_error(mha, printed_inclusion(mha, pseudo, key_of=key_of, rows=rows))
    else:
        mha = integer_mha(heads, pattern, generator)
        error, bound = operators_error(mha, printed_inclusion(mha, pseudo, key_of=key_of, rows=rows)), 0.0
    what = f"{pattern}, H = {heads}, P = {pseudo}: IHA and MHA differ by {error:.3g}, where {bound:.2g} is allowed"
    if pattern == "linear":
        times = next((t for t in range(1, pseudo + 1) if _times(mha, pseudo, t) == 0), None)
        what += f"; the IHA is {times} times the MHA"
    return Finding(error <= bound, what, {"error": error, "bound": bound})


def _times(mha: MultiHeadAttention, pseudo: int, factor: int) -> float:
    """The exact difference between the printed IHA of linear attention and a multiple of the MHA."""
    iha = printed_inclusion(mha, pseudo)
    with torch.no_grad():
        scaled = integer_mha(mha.num_heads, mha.pattern, torch.Generator().manual_seed(0))
        scaled.load_state_dict(mha.state_dict())
        scaled.v_proj.weight *= factor
    return operators_error(scaled, iha)


# E4


def causal_row(
    rotary: str,
    pseudo: int,
    tokens: int,
    seed: int | None = None,
    *,
    pick: str = "first",
    turned_by: str | None = None,
    causal: bool = True,
) -> Finding:
    """The causal algorithm on copies, reading one row, against causal MHA with rotary positions by original token.

    rotary: "none", "token" or "virtual": what the algorithm rotates by. seed: of the MHA; None for zero logits (with
    rotary positions: equal queries and keys) and values 1, 3, 5, ... pick: the row that the collapse reads, "first" or
    "last". turned_by: "virtual" for virtual positions where there are rotary ones. causal: whether the algorithm is.
    """
    options: dict[str, Any] = {"out_proj": False, "head_dim": 2, "value_head_dim": 1, "dtype": torch.float64}
    mha = MultiHeadAttention(1, 1, rotary=None if rotary == "none" else "token", **options)
    x = torch.arange(1.0, 2 * tokens, 2, dtype=torch.float64)[None, :, None]
    with torch.no_grad():
        for i, linear in enumerate((mha.q_proj, mha.k_proj, mha.v_proj)):
            linear.weight.fill_(1 if i == 2 else 0)
            if seed is not None:
                linear.weight.copy_(normal(seed + i, *linear.weight.shape) / tokens)
    if seed is None and rotary != "none":  # a query and a key that every token shares
        x = torch.cat((x, torch.ones_like(x)), -1)
        mha = MultiHeadAttention(2, 1, rotary="token", **options)
        with torch.no_grad():
            for linear, row in ((mha.q_proj, [0, 1]), (mha.k_proj, [0, 1]), (mha.v_proj, [1, 0])):
                linear.weight.copy_(torch.tensor(row).expand_as(linear.weight))
    by = rotary if rotary == "none" or turned_by is None else turned_by
    expected = mha(x, x, x, is_causal=True).detach()
    found = {}
    for name, row in (("first", 0), ("last", pseudo - 1)):
        iha = printed_inclusion(mha, pseudo, row=row)
        iha.causality = "virtual"
        iha.rotary = None if by == "none" else by  # type: ignore[assignment]
        found[name] = iha(x, x, x, is_causal=causal).detach()
    error = relative_gap(found[pick], expected)
    what = (
        f"H = 1, P = {pseudo}, {tokens} tokens, {'zero logits' if rotary == 'none' and seed is None else 'logits'}, "
        f"rotary positions {rotary}: row j = 1 gives {_fractions(found['first'])}, row j = P "
        f"{_fractions(found['last'])}, the MHA {_fractions(expected)}"
    )
    values = {name: out.flatten().tolist() for name, out in {**found, "mha": expected}.items()}
    return Finding(error <= ROUNDING, what, values)


def _fractions(x: Tensor) -> str:
    """The entries, each as a fraction of small denominator if it is one to rounding."""
    shown = []
    for entry in x.flatten().tolist():
        near = Fraction(entry).limit_denominator(100)
        shown.append(str(near) if abs(entry - near) < ROUNDING else f"{entry:.6g}")
    return f"[{', '.join(shown)}]"


# P-two-definitions


def _alphas(layer: InterleavedHeadAttention) -> tuple[Tensor, Tensor, Tensor]:
    return layer.alpha_q, layer.alpha_k, layer.alpha_v


def definition(layer: InterleavedHeadAttention, x: Tensor, causal: str, *, unstack: str = "pseudo-major") -> Tensor:
    """Definition 3 of a layer's weights: P blocks of N rows, stacked; sigma; R in R^{H x HP}. (batch, N, H d_v).

    causal: "none"; "virtual", an ordinary causal mask over the N P rows; "token", row (j, n) sees (j', n') if n' <= n.
    unstack: "token-major" reads the outputs as if token n had the rows n P .. n P + P - 1.
    """
    heads, pseudo, tokens = layer.num_heads, layer.num_pseudo_heads, x.shape[1]

    def stacked(weight: Tensor, alpha: Tensor) -> Tensor:
        base = (x @ weight.T).unflatten(-1, (heads, -1))
        return torch.einsum("bnmd,mhj->bhjnd", base, alpha).flatten(2, 3)

    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (stacked(p.weight, alpha) for p, alpha in zip(projections, _alphas(layer), strict=True))
    scores = layer.scale * q @ k.mT
    rows = torch.arange(pseudo * tokens)
    order = rows if causal == "virtual" else rows % tokens
    hidden = (order[None, :] > order[:, None]) & (causal != "none")
    if layer.pattern == "softmax":
        out = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
    else:
        out = scores.masked_fill(hidden, 0.0) @ v
    if unstack == "pseudo-major":
        blocks = out.unflatten(2, (pseudo, tokens))
    else:
        blocks = out.unflatten(2, (tokens, pseudo)).transpose(2, 3)
    collapse = layer.collapse
    if layer.collapse_kind == "per_head":  # R is H x P: the definition's R has it for the own head, and 0 elsewhere
        collapse = torch.einsum("hj,oh->ohj", layer.collapse, torch.eye(heads, dtype=x.dtype))
    return torch.einsum("bhjnd,ohj->bnod", blocks, collapse).flatten(2)


def same_function(
    causal: str, collapse: str, pattern: str, heads: int, pseudo: int, *, unstack: str = "pseudo-major"
) -> Finding:
    """Algorithm 1 (the token-major layer) against Definition 3, with random weights and the collapse of the definition.

    The definition has a full R in R^{H x HP}. With "per_head" the algorithm has, as printed, the H x P entries of R
    between a head and itself.
    """
    generator = torch.Generator().manual_seed(heads + 10 * pseudo)
    options: dict[str, Any] = {"num_pseudo_heads": pseudo, "out_proj": False, "head_dim": 3, "pattern": pattern}
    layer = InterleavedHeadAttention(4, heads, init="random", dtype=torch.float64, **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
        x = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
        expected = definition(layer, x, causal, unstack=unstack)
        algorithm = layer
        if collapse == "per_head":
            algorithm = InterleavedHeadAttention(4, heads, collapse="per_head", dtype=torch.float64, **options)
            kept = {name: p for name, p in layer.state_dict().items() if name != "collapse"}
            own = layer.collapse.diagonal(dim1=0, dim2=1).T.contiguous()
            algorithm.load_state_dict(kept | {"collapse": own})
        algorithm.causality = "virtual" if causal == "virtual" else "token"
        out = algorithm(x, x, x, is_causal=causal != "none")
    error = relative_gap(out, expected)
    what = (
        f"causal by {causal}, {collapse} collapse, {pattern}, H = {heads}, P = {pseudo}: Algorithm 1 and Definition 3 "
        f"are {error:.2g} of their size apart"
    )
    return Finding(error <= ROUNDING, what, {"error": error})


# T11

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
        f"{pattern}, causal by {causality}, P = {pseudo}: off the MHA by {error:.2g} at "
        f"the start; spread over j of what the steps add to alphaK and alphaV {spread[0]:.2g} after 2, "
        f"{spread[1]:.2g} after {STEPS}"
    )
    return Finding(error <= ROUNDING and grows, what, {"error": error, "spread": spread})


_last_row = partial(causal_row, pick="last")

STATEMENTS = (
    Statement(
        id="P-inclusion",
        source="Sec. 4.1, App. B.1",
        claim=Claim(
            text="with alphaQ = alphaK = alphaV = 1[m = i] for every j, and R picking j = 1, IHA equals the MHA",
            test=inclusion_equals,
            cases={"pattern": ("softmax", "hard", "linear"), "heads": (1, 2, 3), "pseudo": (1, 2, 3), "seed": (0, 1)},
            mutants={"another head's keys": {"key_of": 1}, "R adds two rows": {"rows": 2}},
            wider={
                "pattern": ("softmax", "hard"),
                "heads": range(1, 5),
                "pseudo": range(1, 5),
                "seed": range(1000),
            },
        ),
        assumption=Assumption(
            "the pattern is normalised (softmax or hard), or P = 1",
            lambda pattern, pseudo, **_: pattern != "linear" or pseudo == 1,
        ),
        note="Linear attention adds up the P copies of a token, so it gives P times the MHA: there alphaV = 0 for "
        "j > 1, or 1/P in R (constructions.inclusion). Without causal mask; with one, see E4.",
    ),
    Statement(
        id="E4",
        source="Sec. 4 (Algorithm 1), App. B.1",
        claim=Claim(
            text="in the causal token-major algorithm, copies and R picking j = 1 give the MHA",
            test=causal_row,
            cases={"rotary": ("none", "token", "virtual"), "pseudo": (1, 2, 3), "tokens": (1, 2, 3)},
            mutants={"no causal mask": {"causal": False}},
        ),
        repaired=Claim(
            text="R picking j = P gives the MHA, with rotary positions by original token or none",
            test=_last_row,
            cases={"rotary": ("none", "token"), "pseudo": (1, 2, 3), "tokens": (1, 2, 3), "seed": (None, 0)},
            mutants={"j = 1": {"pick": "first"}, "virtual rotary positions": {"turned_by": "virtual"}},
            wider={"rotary": ("none", "token"), "pseudo": range(1, 6), "tokens": range(1, 9), "seed": range(1000)},
        ),
        note="Token (n, 1) sees one copy of itself and P of each earlier token; (n, P) sees P of all. Virtual rotary "
        "positions turn the copies of a token by different angles, so that neither row is the MHA.",
    ),
    Statement(
        id="P-two-definitions",
        source="Sec. 4 (Algorithm 1, Definition 3)",
        claim=Claim(
            text="Algorithm 1 (token-major) and Definition 3 (pseudo-major) are one function",
            test=same_function,
            cases={
                "causal": ("none", "token", "virtual"),
                "collapse": ("global", "per_head"),
                "pattern": ("softmax", "linear"),
                "heads": (1, 2, 3),
                "pseudo": (1, 2, 3),
            },
            mutants={"blocks read as token-major": {"unstack": "token-major"}},
        ),
        assumption=Assumption(
            "no causal mask, or one by original token (or P = 1), and the same collapse: global (or H = 1)",
            lambda causal, collapse, heads, pseudo, **_: (
                (causal != "virtual" or pseudo == 1) and (collapse == "global" or heads == 1)
            ),
        ),
        note="Without mask the virtual tokens' order does not matter. A causal mask over N P virtual tokens depends on "
        "it. Per-head collapse has no entries of R between different heads, and less capacity for P < H (T1).",
    ),
    Statement(
        id="T11",
        source="docs/results.md",
        claim=Claim(
            text="replicated keys, values perturbed by e with sum_j e_j = 0, and a collapse that reads the last row of "
            "the own head (times 1/P for linear attention) are exactly MHA, and training moves the pseudo-heads apart",
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
