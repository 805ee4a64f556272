"""The square root needs structure: T5 of docs/results.md (docs/bounds.md, Theorem 5), by counting dimensions."""

import torch

from constructions.checks.operators import exact_gap
from constructions.checks.result import least_root
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from constructions.ledger.cases import matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory.attention import InterleavedHeadAttention
from synthetic.tasks.filter_bank import power_blocks


def dimension(terms: int, tokens: int, heads: int) -> int:
    """The dimension of the banks of k matrices that IHA makes (linear pattern, d_k = N, P = H): a Jacobian's rank.

    The banks are T_t = sum_{a,b} W[t,a,b] Q_a K_b^T with W[t,a,b] = sum_{o,m,h} c[t,o,m] beta[o,h,a] gamma[m,h,b],
    beta[o,h,a] = sum_j R[o,h,j] alphaQ[a,h,j], gamma[m,h,b] = sum_j alphaV[m,h,j] alphaK[b,h,j], and c in the output
    projection (value m is X in block m of H). The torch layer at random parameters is compared with this formula. There
    c -> W is a bijection, so that Q, K and W are all that counts; the rank of the derivatives by them at random
    parameters is the largest there is, with probability 1.

    It is at most N^2 (2 H - 1) + (k - 2) H^2 + 1 for N >= max(3, 2 H - 1): docs/bounds.md, (5), with proof.
    """
    generator = torch.Generator().manual_seed(terms)
    sizes = {"head_dim": tokens, "vdim": 1, "value_head_dim": heads, "out_dim": terms}
    layer = InterleavedHeadAttention(tokens, heads, pattern="linear", dtype=torch.float64, **sizes)  # type: ignore[arg-type]
    positions = torch.eye(tokens, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        layer.v_proj.weight.copy_(torch.eye(heads).reshape(-1, 1))
        assert layer.out_proj is not None
        c = layer.out_proj.weight.unflatten(1, (heads, heads))
        q, k = (p.weight.unflatten(0, (heads, tokens)).mT for p in (layer.q_proj, layer.k_proj))
        beta = torch.einsum("ohj,ahj->oha", layer.collapse, layer.alpha_q)
        gamma = torch.einsum("mhj,bhj->mhb", layer.alpha_v, layer.alpha_k)
        mixing = torch.einsum("oha,mhb->omab", beta, gamma)
        w = torch.einsum("tom,omab->tab", c, mixing)
        formula = torch.einsum("tab,aid,bjd->jit", w, q, k)
        out = layer(positions[None], positions[None], positions[:, :, None])
    assert torch.allclose(out, formula, rtol=1e-9, atol=1e-9 * float(out.abs().max()))
    assert torch.linalg.matrix_rank(mixing.flatten(0, 1).flatten(1)) == heads**2
    columns = (
        torch.einsum("tab,bjd,il->tijald", w, k, positions).flatten(3),
        torch.einsum("tab,aid,jl->tijbld", w, q, positions).flatten(3),
        torch.einsum("aid,bjd,ts->tijsab", q, k, torch.eye(terms, dtype=torch.float64)).flatten(3),
    )
    scaled = [block / block.norm() for block in columns]
    return int(torch.linalg.matrix_rank(torch.cat(scaled, -1).flatten(0, 2), rtol=1e-10))


def half_suffice(terms: int, tokens: int, *, root: bool = False) -> Finding:
    """Whether (k + 1) / 2 heads, rounded up, make an open set of banks, and ceil(sqrt k) those of powers.

    root: ceil(sqrt k) heads for banks without structure.
    """
    heads = least_root(terms) if root else terms // 2 + 1
    found, full = dimension(terms, tokens, heads), terms * tokens**2
    a = matrix(f"random:{tokens}")
    layer = bank("iha", powers(a), terms, 1)
    exactly = exact_gap(layer, list(power_blocks(a, terms))) == 0 and layer.heads == least_root(terms)
    what = (
        f"k = {terms}, N = {tokens}: {heads} heads make banks of dimension {found} out of {full}; "
        f"{layer.heads} heads make the powers of a matrix"
    )
    return Finding(found == full and exactly, what, {"heads": heads, "dimension": found, "all": full})


def fewer_are_null(terms: int, tokens: int, *, more: int = 0, mixed: int = 2, fewer_tokens: int = 0) -> Finding:
    """Whether with H = floor(k/2) heads the dimension is N^2 (2 H - 1) + (k - 2) H^2 + 1, and that below k N^2.

    more: heads added. mixed: how many times H^2 is taken off for mixtures that change nothing. fewer_tokens: taken
    from N.
    """
    heads, tokens = terms // 2 + more, tokens - fewer_tokens
    found, full = dimension(terms, tokens, heads), terms * tokens**2
    counted = tokens**2 * (2 * heads - 1) + (terms - mixed) * heads**2 + 1
    what = f"k = {terms}, N = {tokens}, {heads} heads: banks of dimension {found}, by the count {counted}, of {full}"
    values = {"heads": heads, "dimension": found, "counted": counted, "all": full}
    return Finding(found == counted < full, what, values)


def large_enough(terms: int, tokens: int) -> bool:
    """N >= max(3, 2 H - 1), H = floor(k/2), where the count is proved, and the count is below k N^2."""
    heads = terms // 2
    counted = tokens**2 * (2 * heads - 1) + (terms - 2) * heads**2 + 1
    return tokens >= max(3, 2 * heads - 1) and counted < terms * tokens**2


STATEMENTS = (
    Statement(
        id="T5",
        source="docs/bounds.md, Theorem 5",
        place=Place("numerical", ("structure", "half-heads", "bank-iha")),
        claim=Claim(
            text="banks of k matrices: with queries and keys of width N, (k + 1) / 2 IHA heads, rounded up, make an "
            "open set of them, and no fewer for large N; the powers of any matrix take ceil(sqrt k)",
            test=half_suffice,
            cases={"terms": (2, 3, 4, 5), "tokens": (2, 3, 5)},
            mutants={"ceil(sqrt k) heads": {"root": True}},
            wider={"terms": range(1, 6), "tokens": range(1, 9)},
        ),
        needed=True,
        least=Claim(
            text="a head less, H = floor(k/2), makes a set of measure 0, linear of dimension N^2 (2 H - 1) + "
            "(k - 2) H^2 + 1, if N >= max(3, 2 H - 1) and that is below k N^2",
            test=fewer_are_null,
            cases={"terms": (2, 3, 4, 5, 6, 7), "tokens": (3, 4, 5, 7)},
            given=large_enough,
            mutants={
                "as many heads": {"more": 1},
                "mixtures that change nothing counted": {"mixed": 0},
                "a token less": {"fewer_tokens": 1},
            },
            wider={"terms": range(2, 6), "tokens": range(3, 9)},
        ),
        note="The count for the linear pattern: docs/bounds.md, (5); (4) there bounds it for any pattern. "
        "k = 4 needs N >= 4 for a set of measure 0, k = 6 N >= 7, k = 8 N >= 10. The root "
        "saves heads from k = 4 on (2 against 3). Queries of width H N escape: ceil(sqrt k) heads.",
    ),
)
