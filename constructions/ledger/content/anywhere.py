"""Content anywhere: exact head counts for rows of bounded norm and for unmasked linear attention (T17a, T17b).

Proofs: docs/exact_heads.md, Theorems 1 and 2. Here their steps are run on real layers.
"""

from typing import Any

import flint
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.ledger.attention.inclusion import randomise
from constructions.ledger.cases import integers, made, matrix
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from constructions.targets.content.steps import PRIME
from iha_theory import attention, blueprint, exact
from iha_theory.attention import MultiHeadAttention
from iha_theory.attention.base import AttentionLayer, Rotary
from iha_theory.bounds.heads import least_heads
from iha_theory.bounds.witness import witness
from iha_theory.capacity import Kind, capacity_bound
from iha_theory.operators.weights import with_positions
from synthetic.graphs import builtin
from synthetic.tasks.filter_bank import power_blocks

# T17a

LAYERS: dict[Kind, tuple[type[AttentionLayer], dict[str, Any]]] = {
    "mha": (MultiHeadAttention, {}),
    "mqa": (attention.GroupedQueryAttention, {"num_kv_heads": 1}),
    "talking-heads": (attention.TalkingHeadsAttention, {}),
    "differential": (attention.DifferentialAttention, {}),
    "iha": (attention.InterleavedHeadAttention, {"num_pseudo_heads": 2, "init": "random"}),
}
GRAPH = "random:6"
FAR = 1e6


def too_few_heads_miss(
    layer: Kind, heads: int, pattern: str, rotary: Rotary, causal: bool, *, linear: bool = False, fewer: int = 0
) -> Finding:
    """A layer of capacity r - 1 with normal weights, biases and content everywhere, against a bank of rank r.

    At X = t x, with gamma orthogonal to all a^T B_h (d = 1, a = 1), f(X) gamma stays bounded; `witness`, which sees
    outputs only, finds at least the error that this means. linear: the linear pattern in place, whose rows have no
    bound. fewer: terms of the bank less.
    """
    kind, options = LAYERS[layer]
    capacity = capacity_bound(layer, heads, options.get("num_pseudo_heads"), "global" if layer == "iha" else None)
    a = torch.tensor(builtin(GRAPH).adjacency).double()
    bank = torch.stack([torch.linalg.matrix_power(a, t) for t in range(capacity + 1 - fewer)])
    sizes = {"head_dim": 2, "value_head_dim": 2, "out_dim": len(bank)}
    common: dict[str, Any] = {"bias": True, "pattern": "linear" if linear else pattern, "dtype": torch.float64}
    built = kind(1 + len(a), heads, rotary=rotary, **sizes, **common, **options)
    randomise(built)

    @torch.no_grad()
    def f(x: Tensor) -> Tensor:
        return built(*[with_positions(x)] * 3, is_causal=causal)

    gamma = torch.linalg.svd(_content_rows(built, layer)).Vh[-1]
    combined = torch.einsum("t,tij->ij", gamma, bank)
    x = torch.linalg.svd(combined).Vh[0]
    grows = float((combined @ x).norm())
    stays = [float((f(t * x[None, :, None])[0] @ gamma).norm()) for t in (1.0, FAR)]
    named = grows / float((bank @ x).norm())
    found = witness(f, bank, directions=1)
    what = (
        f"{layer}, H = {heads}, {common['pattern']}{', rotary' if rotary else ''}{', causal' if causal else ''}: the "
        f"layer along gamma {stays[0]:.2g} at |X| = 1 and {stays[1]:.2g} at {FAR:g}, where the bank is "
        f"{FAR * grows:.2g}; the witness has relative error {found.error:.2g}, named is {named:.2g}"
    )
    holds = stays[1] <= 1e-3 * FAR * grows and found.errors[-1] >= 0.99 * named
    return Finding(holds, what, {"capacity": capacity, "named": named, "error": found.errors[-1]})


def _content_rows(layer: AttentionLayer, kind: str) -> Tensor:
    """a^T B_h for a = 1, (capacity, D): of every pair of base value and output head in IHA, else of each head."""
    assert layer.out_proj is not None
    values = layer.v_proj.weight.detach()[:, 0].unflatten(0, (-1, layer.value_head_dim))
    out = layer.out_proj.weight.detach().unflatten(1, (layer.num_heads, -1))
    pairs = torch.einsum("dhv,mv->hmd", out, values)
    return pairs.flatten(0, 1) if kind in ("iha", "mqa") else pairs.diagonal().T


# T17b


@blueprint.theorem(
    "linear-content",
    "linear attention without a mask, content anywhere: the filter bank of every A takes r heads of "
    "MHA and ceil(sqrt r) of IHA, a bank of rank r at least r - delta",
    uses=("content-layer", "exact-rank"),
    check="exact",
    proof="docs/exact_heads.md, Theorem 2",
)
def rank_is_needed(
    bank: str, terms: int, mask: str, *, regular: bool = False, corrected: bool = True, causal: bool = False
) -> Finding:
    """Whether linear attention with content anywhere takes r heads for a filter bank, r - delta for other banks.

    The lower bound is r - dim span{T_t, I} + dim span{T_t v, v} for one integer v: exact ranks, modulo a prime. The
    parts of degree 1 to 3 from which the proof starts are compared on a torch layer with a head less, in integers.
    bank: a matrix, or "ones:N" for T_t = 1 e_t^T. regular: v = 1. corrected: by delta. causal: the parts are those of a
    masked layer.
    """
    blocks = _blocks(bank, terms)
    tokens = blocks[0].shape[0]
    one = exact.identity(tokens, QQ)
    v = DomainMatrix(
        [[QQ(1 if regular else int(n))] for n in integers(tokens, seed=tokens, most=10**6)], (tokens, 1), QQ
    )
    rank, whole, seen = (_rank(some) for some in (blocks, [*blocks, one], [b * v for b in [*blocks, one]]))
    lower = max(1, rank - corrected * (whole - seen))
    if bank.startswith("ones") or mask == "causal":
        achieved, error = {"mha": 1}, _one_head_gap(bank, blocks, mask == "causal")
    else:
        achieved, error = made(matrix(bank), terms, 1)
    needed = {name: least_heads(name, lower) for name in achieved}  # type: ignore[arg-type]
    agree = _parts_agree(tokens, max(1, lower - 1), causal or mask == "causal")
    what = (
        f"{bank}, k = {terms}{', causal mask' if mask == 'causal' else ''}: rank {rank}, at least {lower} heads "
        f"without a mask; {' and '.join(f'{h} {name.upper()}' for name, h in achieved.items())} heads have error "
        f"{error:g}; the parts of a layer are {'' if agree else 'not '}those of the proof"
    )
    values = {"rank": rank, "lower": lower, **achieved, "error": error}
    return Finding(error == 0 and achieved == needed and agree, what, values)


def _blocks(bank: str, terms: int) -> list[DomainMatrix]:
    if not bank.startswith("ones"):
        return list(power_blocks(matrix(bank), terms))
    tokens = int(bank.split(":")[1])
    return [exact.matrix([[int(j == t) for j in range(tokens)]] * tokens, QQ) for t in range(tokens)]


def _rank(matrices: list[DomainMatrix]) -> int:
    """dim span of integer matrices, modulo a large prime: never too large."""
    rows = [[int(x) for x in m.to_list_flat()] for m in matrices]
    return int(flint.nmod_mat(len(rows), len(rows[0]), [x for row in rows for x in row], PRIME).rank())


def _one_head_gap(bank: str, blocks: list[DomainMatrix], causal: bool) -> float:
    """One head that has the whole bank for d = 1, run on integers: its largest error.

    "ones": query 1, key x_j, value e_j. Diagonal A under the causal mask: query x_i, key 1, values a_j^t - a_{j-1}^t,
    whose sum up to i is a_i^t.
    """
    tokens, terms = blocks[0].shape[0], len(blocks)
    targets = torch.tensor([[[int(x) for x in row] for row in b.to_list()] for b in blocks]).double()
    layer = MultiHeadAttention(
        1 + tokens, 1, head_dim=1, value_head_dim=terms, out_proj=False, pattern="linear", dtype=torch.float64
    )
    content = torch.eye(1 + tokens, dtype=torch.float64)[0]
    query, key = (content, 1 - content) if causal else (1 - content, content)
    ladder = targets.diagonal(dim1=1, dim2=2)
    steps = torch.diff(ladder, dim=1, prepend=torch.zeros(terms, 1).double()) if causal else torch.eye(tokens)
    with torch.no_grad():
        for linear, rows in ((layer.q_proj, query[None]), (layer.k_proj, key[None])):
            linear.weight.copy_(rows)
        layer.v_proj.weight.copy_(torch.cat((torch.zeros(terms, 1), steps), dim=1))
        x = integers(20, tokens, 1, seed=terms, most=9)
        out = layer(*[with_positions(x)] * 3, is_causal=causal)
    return float((out - torch.einsum("tij,bja->bit", targets, x)).abs().max())


def _parts_agree(tokens: int, heads: int, causal: bool) -> bool:
    """Whether a torch layer on X = x e_1^T has the parts of steps 2 to 4 of the proof, in integers: differences are 0.

    f(x) = sum_h (S + x m^T + n x^T + g x x^T)(x b^T + C) with numbers read off its projections and biases.
    """
    layer = MultiHeadAttention(
        1 + tokens, heads, head_dim=2, value_head_dim=2, out_dim=3, bias=True, pattern="linear", dtype=torch.float64
    )
    with torch.no_grad():
        for i, parameter in enumerate(layer.parameters()):
            parameter.copy_(integers(*parameter.shape, seed=i))
        x = integers(tokens, seed=tokens, most=5)
        f = [layer(*[with_positions(t * x[None, :, None])] * 3, is_causal=causal)[0] for t in (0, 1, -1, 2, -2)]
        (alpha, p), (beta, k), (b, c) = (
            _affine(linear, heads) for linear in (layer.q_proj, layer.k_proj, layer.v_proj)
        )
        assert layer.out_proj is not None
        out = layer.out_proj.weight.unflatten(1, (heads, -1))
        b, c = torch.einsum("ohv,hv->ho", out, b), torch.einsum("ohv,hjv->hjo", out, c)
        g, m, n = (alpha * beta).sum(1), torch.einsum("hv,hjv->hj", alpha, k), torch.einsum("hiv,hv->hi", p, beta)
        s, square = torch.einsum("hiv,hjv->hij", p, k), x @ x
        first = torch.einsum("hij,j,ho->io", s, x, b) + torch.einsum("i,hj,hjo->io", x, m, c)
        first = first + torch.einsum("hi,j,hjo->io", n, x, c)
        second = (
            torch.outer(x, torch.einsum("hj,j,ho->o", m, x, b) + torch.einsum("h,j,hjo->o", g, x, c)) + square * n.T @ b
        )
        third = square * torch.outer(x, g @ b)
    odd, twice, even = f[1] - f[2], f[3] - f[4], f[1] + f[2] - 2 * f[0]
    parts = (8 * odd - twice, 12 * first), (even, 2 * second), (twice - 2 * odd, 12 * third)
    return all(torch.equal(ours, theirs) for ours, theirs in parts)


def _affine(linear: torch.nn.Linear, heads: int) -> tuple[Tensor, Tensor]:
    """A projection at content x of position j is x u_h + w_hj: u, (heads, width), and w, (heads, tokens, width)."""
    weight = linear.weight.unflatten(0, (heads, -1))
    return weight[..., 0], (weight[..., 1:] + linear.bias.unflatten(0, (heads, -1))[..., None]).mT


STATEMENTS = (
    Statement(
        id="T17a",
        source="docs/exact_heads.md, Theorem 1",
        place=Place("numerical", ("bounded-rows", "bank-reduced")),
        claim=Claim(
            text="with rows of bounded norm (softmax, hard) and content, rotary positions and masks anywhere a bank of "
            "rank r takes r heads of MHA and its relatives, and min(H^2, H P^2) >= r of IHA",
            test=too_few_heads_miss,
            cases={
                "layer": tuple(LAYERS),
                "heads": (1, 2),
                "pattern": ("softmax", "hard"),
                "rotary": (None, "virtual"),
                "causal": (False, True),
            },
            mutants={"linear attention": {"linear": True}, "a term less": {"fewer": 1}},
        ),
        note="Proved for every such layer, also near on large inputs (|f - L| = o(|X|)), for values X B + C, one B for "
        "all tokens (no rotary positions on values), and any projection. Checked: layers of capacity r - 1 with random "
        "weights; along gamma orthogonal to all a^T B_h "
        "the output stays bounded, and `iha_theory.witness` measures the error. r heads suffice with fixed maps (T2). "
        "Near on bounded inputs fewer can do (T14e).",
    ),
    Statement(
        id="T17b",
        source="docs/exact_heads.md, Theorem 2",
        place=Place("exact", ("linear-content", "bank-reduced")),
        claim=Claim(
            text="linear attention, content anywhere: the filter bank of every A takes r heads (MHA), ceil(sqrt r) "
            "(IHA); a bank r - delta, delta = dim span{T_t, I} - max_v dim span{T_t v, v}",
            test=rank_is_needed,
            cases={
                "bank": ("diagonal:3", "ones:3", "path:3", "cycle:4", "complete:4", "random:5", "petersen", "karate"),
                "terms": (2, 3, 9),
                "mask": ("none", "causal"),
            },
            given=lambda bank, terms, mask: mask == "none" or bank.startswith("diagonal"),
            mutants={
                "v = 1": {"regular": True},
                "delta = 0": {"corrected": False},
                "parts of a masked layer": {"causal": True},
            },
            wider={
                "bank": (*(f"random:{n}" for n in range(2, 7)), *(f"diagonal:{n}" for n in range(2, 7))),
                "terms": range(2, 8),
                "mask": ("none",),
            },
        ),
        assumption=Assumption("there is no mask, and no rotary positions", lambda bank, terms, mask: mask == "none"),
        note="Proved for every A, without T14c's condition. Checked: delta by exact ranks, the parts of degree 1 to 3 "
        "from which the proof starts on a torch layer in integers, the layers that reach the count. Under the causal "
        "mask A = diag(a_1, ..., a_N), d = 1, takes one head whatever r, which is run here; for other A and masks the "
        "count is open. Rotary positions in queries and keys save heads in the same way (docs/exact_heads.md). T_t "
        "= 1 e_t^T has rank N, delta = N - 1 and one head.",
    ),
)
