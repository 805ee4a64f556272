"""T1: the largest operator Schmidt rank of each attention layer, by proof. Source: docs/results.md T1."""

from typing import Literal, get_args

from iha_theory import blueprint
from iha_theory.rounding import require_count

Kind = Literal[
    "mha",
    "mqa",
    "gqa",
    "mla",
    "tensor-product",
    "talking-heads",
    "composable",
    "multi-token",
    "differential",
    "iha",
    "two-layer",
    "simplicial",
    "strassen",
    "gated",
    "gated-headwise",
    "gated-linear",
    "forgetting",
]
KINDS = get_args(Kind)
COLLAPSES = ("global", "per_head")
A_MAP_A_COORDINATE = ("simplicial", "strassen", "gated")
"""Kinds whose value coordinates have maps of their own, so that d_v bounds their rank."""


@blueprint.theorem(
    "capacity",
    "no position-only layer has a larger operator Schmidt rank than H (MHA and its relatives), "
    "min(H^2, H P^2) (IHA), H^2 (two layers), H R_V (tensor-product), H d_v (2-simplicial, Strassen, gated)",
    uses=(
        "position-only",
        "schmidt-rank",
        "mha",
        "gqa",
        "talking-heads",
        "differential",
        "iha",
        "two-layer",
        "simplicial",
        "strassen",
        "latent",
        "tensor-product",
        "gated",
        "strassen",
        "composable",
        "multi-token",
        "gated-linear",
    ),
    check="numerical",
    proof="docs/bounds.md, Theorem 1; docs/attentions.md, Theorem 1",
)
def capacity_bound(
    kind: Kind,
    heads: int,
    pseudo_heads: int | None = None,
    collapse: str | None = None,
    value_dim: int | None = None,
    width: int | None = None,
    value_rank: int | None = None,
    kv_heads: int | None = None,
) -> int:
    """Upper bound on the operator Schmidt rank of layer(pos, pos, X), whatever its parameters, pattern and mask.

    The tools. Let L(X) = sum_{r in I} S_r X B_r, so that Rl(L) = sum_r vec(S_r) vec(B_r)^T.

    - (a) rank L <= dim span{S_r}, the column space of Rl lies in span{vec S_r}; so <= |I|.
    - (b) An output projection never raises the rank: (L W)[i,b] = sum_c L[i,c] W[c,b], so Rl(L W) = Rl(L) (I_d x W).
      So below, outputs are concatenated heads. E_h is the d_v x H d_v matrix that writes block h.
    - (c) Biases of values and outputs add a constant to L(X), which is not part of the linear map; those of queries and
      keys change the S_r only. So do masks, windows, rotary positions and the pattern: a map S is whatever matrix
      the layer computes from positions.

    The rows. S_h is the attention map of head h, B_h in R^{d x d_v} its value weights.

    - **MHA**: L(X) = sum_h S_h X (B_h E_h). H terms: rank <= H.
    - **GQA**, **MQA**: B_h = B_{g(h)} is shared by a group, the maps S_h are not, as queries differ. H terms: H.
    - **MLA**: B_h = W_DV W_UV,h is a product; one map a head, H terms.
    - **Tensor-product**, head factors from positions: V_h = sum_r diag(a_rh) X B_r / R_V, so
      L(X) = sum_{h,r} (S_h diag(a_rh) / R_V) X (B_r E_h): H R_V terms.
    - **Talking-Heads**: head h applies one map, U_h = sum_g mix[h,g] S_g, where S_g is the pattern of mixed logits.
      L(X) = sum_h U_h X (B_h E_h): H. That U_h is a sum of H maps does not matter, since only U_h meets B_h.
    - **Composable**, matrices from positions: U_h[i,j] = sum_g M_ij[h,g] S_g[i,j], one map a head again: H.
    - **Multi-token**: S_h is the pattern of convolved logits, U_h = sum_g mix[h,g] S_g: H.
    - **Gated linear**, **forgetting**, gates from positions: S_h with decays: H.
    - **Differential**: U_h = S1_h - lambda_h S2_h: H.
    - **IHA**: head h has maps S_h[j,j'] from its pseudo-queries j to its pseudo-keys j' (the P^2 blocks of one virtual
      map; a softmax joins the blocks of a row, which (c) allows). Pseudo-value j' is X sum_m alpha_v[m,h,j'] B_m. So
          L(X) = sum_{o,m} U[o,m] X (B_m E_o),   U[o,m] = sum_{h,j,j'} R[o,h,j] alpha_v[m,h,j'] S_h[j,j'].
      There are H^2 maps U[o,m]: rank <= H^2. All lie in the span of the H P^2 maps S_h[j,j']: rank <= H P^2 by (a).
      **Global collapse: min(H^2, H P^2).**
      Per-head collapse has R[o,h,j] = 0 for o != h, so U[h,m] = sum_j' alpha_v[m,h,j'] T_h[j'] with
      T_h[j'] = sum_j R[h,j] S_h[j,j']: the query rows of a head fold to one, and H P maps T_h[j'] span all.
      **Per-head collapse: min(H^2, H P).**
      With **P = 1** both are H: mixing heads alone gains nothing over MHA.
      With G base keys and values, m runs to G: H G maps U[o,m], **min(H G, ...)** with the same second terms.
    - **Two layers** of MHA: the second applies sum_g S2_g (.) C_g E_g to sum_h S1_h X B_h E_h, which gives
      sum_{g,h} (S2_g S1_h) X (B_h E_h C_g E_g): H^2 terms. (Layers of H1 and H2 heads: H1 H2.)
    - **2-simplicial**, second value position-only: coordinate c of head h is
      sum_j (sum_l sigma_ijl V'_h[l,c]) (X B_h)[j,c] = (S_hc X B_h e_c)_i: one map a value coordinate, H d_v terms.
      (With the linear pattern S_hc = Q_h diag(K'_h^T V'_h e_c) K_h^T, so at most d_k a head are independent, and the
      rank is at most H min(d_v, d_k).)
    - **Strassen**, second value position-only: the same with its sigma_ijl, H d_v terms. (With the linear pattern
      S_hc = f_ij sum_l V'_h[l,c] plus a row and a column that are linear in K'_h^T V'_h e_c: at most d_k + 1 a head.)
    - **Gated**, the gates of a query's positions: coordinate c of head h is (diag(g_hc) S_h X B_h e_c)_i, one map a
      value coordinate: H d_v terms. **Headwise gates**: diag(g_h) S_h X B_h E_h, H terms.
    - **Every layer**, content of width d: each term's B is in R^{d x H d_v} before the output projection (b), so Rl(L)
      has H d d_v columns: rank <= H d d_v. **IHA: min(H^2, H P^2, H d d_v)**; two layers likewise, d_v the second's.

    Positions bound it too: rank <= N_q N_k.

    Args:
        kind: the layer.
        heads: H; of each layer, for "two-layer".
        pseudo_heads: P, for "iha" only.
        collapse: "global" or "per_head", for "iha" only.
        value_dim: d_v; needed by "simplicial" and "gated", taken with `width` by the others.
        width: of the content, d; None for any.
        value_rank: R_V, for "tensor-product" only.
        kv_heads: G, for "iha" only; default H.

    Raises:
        ValueError: an unknown kind or collapse, a number below 1, or an argument that the kind lacks or does not have.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}: accepted are {', '.join(KINDS)}")
    require_count("heads", heads)
    for name, value, owner in (
        ("pseudo_heads", pseudo_heads, "iha"),
        ("collapse", collapse, "iha"),
        ("value_rank", value_rank, "tensor-product"),
    ):
        if (value is None) != (kind != owner):
            raise ValueError(f"{name} goes with {owner}, and only with it; got {name}={value!r} for {kind}")
    own_maps = kind in A_MAP_A_COORDINATE
    if (value_dim is None) == (own_maps or width is not None):
        names = " and ".join(A_MAP_A_COORDINATE)
        raise ValueError(f"value_dim goes with width, and with {names}; got {value_dim=}, {width=} for {kind}")
    if kv_heads is not None and (kind != "iha" or heads % require_count("kv_heads", kv_heads)):
        raise ValueError(f"kv_heads goes with iha, and divides heads; got {kv_heads=}, {heads=} for {kind}")
    bound = heads * (kv_heads or heads) if kind in ("iha", "two-layer") else heads
    if pseudo_heads is not None:
        if collapse not in COLLAPSES:
            raise ValueError(f"unknown collapse {collapse!r}: accepted are {', '.join(COLLAPSES)}")
        bound = min(bound, heads * require_count("pseudo_heads", pseudo_heads) ** (2 if collapse == "global" else 1))
    if value_rank is not None:
        bound *= require_count("value_rank", value_rank)
    if value_dim is None:
        return bound
    values = heads * require_count("value_dim", value_dim)
    return values if own_maps else min(bound, require_count("width", width or 0) * values)
