"""MHA inside IHA, without and with a causal mask (Sec. 4, 4.1, App. B.1; ledger E4)."""

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constructions.checks.inclusion import integer_mha, operators_error, outputs_error, real_mha
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement, size
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention

ROUNDING = 1e-10
"""Relative. Outputs here are sums of a few hundred products of numbers of size 1 to 100: gamma is below 1e-12."""


def relative_gap(a: Tensor, b: Tensor) -> float:
    """The largest difference of entries over the largest entry; NaN if one is."""
    return float((a - b).abs().max() / torch.maximum(a.abs().max(), b.abs().max()))


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal entries, float64."""
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def randomise(module: torch.nn.Module) -> None:
    """Gives each parameter standard normal entries, the same ones each time."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(i, *parameter.shape))


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
    shown = size(error, bound)
    what = f"{pattern}, H = {heads}, P = {pseudo}: IHA and MHA differ by {shown:g}, where {bound:.2g} is allowed"
    if pattern == "linear":
        times = next((t for t in range(1, pseudo + 1) if _times(mha, pseudo, t) == 0), None)
        what += f"; the IHA is {times} times the MHA"
    return Finding(error <= bound, what, {"error": shown, "bound": bound})


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


_last_row = partial(causal_row, pick="last")

STATEMENTS = (
    Statement(
        id="P-inclusion",
        source="Sec. 4.1, App. B.1",
        place=Place("numerical", ("mha", "iha"), "constructions.targets.inclusion"),
        claim=Claim(
            text="with alphaQ = alphaK = alphaV = 1[m = i] for every j, and R picking j = 1, IHA equals the MHA",
            test=inclusion_equals,
            cases={"heads": (1, 2, 3), "pseudo": (1, 2, 3), "pattern": ("softmax", "hard", "linear"), "seed": (0, 1)},
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
        "j > 1, or 1/P in R (constructions.targets.inclusion). Without causal mask; with one, see E4.",
    ),
    Statement(
        id="E4",
        source="Sec. 4 (Algorithm 1), App. B.1",
        place=Place("numerical", ("inclusion",), "constructions.targets.inclusion"),
        claim=Claim(
            text="in the causal token-major algorithm, alphas that copy each head P times and R picking j = 1 give "
            "the MHA",
            test=causal_row,
            cases={"tokens": (1, 2, 3), "pseudo": (1, 2, 3), "rotary": ("none", "token", "virtual")},
            mutants={"no causal mask": {"causal": False}},
        ),
        repaired=Claim(
            text="in the causal token-major algorithm, with the same alphas, R picking j = P gives the MHA, with "
            "rotary positions by original token or none",
            test=_last_row,
            cases={"tokens": (1, 2, 3), "pseudo": (1, 2, 3), "rotary": ("none", "token"), "seed": (None, 0)},
            mutants={"j = 1": {"pick": "first"}, "virtual rotary positions": {"turned_by": "virtual"}},
            wider={"rotary": ("none", "token"), "pseudo": range(1, 6), "tokens": range(1, 9), "seed": range(1000)},
        ),
        note="Token (n, 1) sees one copy of itself and P of each earlier token; (n, P) sees P of all. Virtual rotary "
        "positions turn the copies of a token by different angles, so that neither row is the MHA.",
    ),
)
