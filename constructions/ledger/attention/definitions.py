"""The algorithm beside the definition: whether they are one function (Sec. 4)."""

from typing import Any

import torch
from torch import Tensor

from constructions.ledger.attention.inclusion import ROUNDING, relative_gap
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement, size
from iha_theory.attention import InterleavedHeadAttention


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
        f"are {size(error):g} of their size apart"
    )
    return Finding(error <= ROUNDING, what, {"error": size(error)})


STATEMENTS = (
    Statement(
        id="P-two-definitions",
        source="Sec. 4 (Algorithm 1, Definition 3)",
        place=Place("numerical", ("iha",)),
        claim=Claim(
            text="Algorithm 1 (token-major) and Definition 3 (pseudo-major) are one function",
            test=same_function,
            cases={
                "heads": (1, 2, 3),
                "pseudo": (1, 2, 3),
                "causal": ("none", "token", "virtual"),
                "collapse": ("global", "per_head"),
                "pattern": ("softmax", "linear"),
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
)
