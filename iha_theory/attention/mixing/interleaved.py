"""Interleaved Head Attention (IHA): Algorithm 1 and Definition 3 of the paper (Sec. 4), which are one function."""

import math
from dataclasses import replace
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor, nn

from iha_theory import blueprint
from iha_theory.attention.base import AttentionLayer, Rotary
from iha_theory.attention.patterns import attend
from iha_theory.attention.projections.grouped import require_divisor
from iha_theory.attention.projections.multihead import MultiHeadAttention
from iha_theory.attention.rotary import rotate
from iha_theory.rounding import require_count

Collapse = Literal["global", "per_head"]
Causality = Literal["token", "virtual"]
Init = Literal["mha", "random"]
INITS = get_args(Init)

NOISE = 0.1
"""Standard deviation of the perturbations of `init="mha"`."""


@blueprint.definition(
    "iha",
    "IHA: P pseudo-heads a head, learned mixtures of all heads' queries, keys and values; each head "
    "attends over N P virtual tokens, and a collapse (global or per head) makes H heads of the H P "
    "outputs",
    uses=("mha",),
    check="numerical",
    tests="tests/iha_theory/attention/test_reference.py",
)
class InterleavedHeadAttention(AttentionLayer):
    """IHA with H heads of P pseudo-heads.

    For head h and pseudo-head j, with alpha_q, alpha_k, alpha_v of shape (H, H, P) indexed [m, h, j]:

        Qt[h,j] = sum_m alpha_q[m,h,j] Q_m,   Kt[h,j] = sum_m alpha_k[m,h,j] K_m,   Vt[h,j] = sum_m alpha_v[m,h,j] V_m

    Token n becomes the P virtual tokens (n,1) .. (n,P), in this order (token-major). Head h runs one ordinary attention
    of the queries Qt[h] over the N P virtual keys and values, which gives P outputs a token; `collapse` mixes them:

        global, (H, H, P) indexed [output head, head, pseudo-head]:  O_o = sum_{h,j} collapse[o,h,j] out[h,j]
        per_head, (H, P):                                            O_h = sum_j collapse[h,j] out[h,j]

    Then the heads are concatenated and projected. Source: Sec. 4.

    Args beyond `AttentionLayer`:
        num_pseudo_heads: P; default H.
        collapse: "global" (Definition 3) or "per_head" (Algorithm 1).
        causality: with is_causal, virtual token (n,j) sees (n',j') if n' <= n ("token"), or if it does not come later
            in the virtual order ("virtual": the paper's algorithm). Masks and windows are always over original tokens.
        num_kv_heads: G base heads of keys and values, a divisor of H (default H); alpha_k and alpha_v are (G, H, P).
        init: "mha" starts as exactly the MHA (G < H: the GQA) with the same projections, yet with pseudo-heads that
            gradients tell apart (see `reset_mixing`); "random" starts from random mixing.
        rotary: "token" (or True) rotates by the original position n, "virtual" by the interleaved position n P + j.

    Raises:
        ValueError: as `AttentionLayer` and `GroupedQueryAttention`; and init="mha" with virtual rotary positions and
            P > 1, where the copies of a token turn by different angles, so that no mixing of this kind is MHA.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        num_pseudo_heads: int | None = None,
        collapse: Collapse = "global",
        causality: Causality = "token",
        num_kv_heads: int | None = None,
        init: Init = "mha",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> None:
        self.num_kv_heads = require_divisor("num_kv_heads", num_kv_heads, "num_heads", num_heads)
        super().__init__(embed_dim, num_heads, dtype=dtype, device=device, **options)
        self.num_pseudo_heads = require_count(
            "num_pseudo_heads", num_heads if num_pseudo_heads is None else num_pseudo_heads
        )
        for name, value, accepted in (
            ("collapse", collapse, ("global", "per_head")),
            ("causality", causality, ("token", "virtual")),
            ("init", init, INITS),
        ):
            if value not in accepted:
                raise ValueError(f"unknown {name} {value!r}: accepted are {', '.join(accepted)}")
        self.collapse_kind: Collapse = collapse
        self.causality: Causality = causality
        mixing = (num_heads, num_heads, self.num_pseudo_heads)
        self.alpha_q = nn.Parameter(torch.empty(mixing, dtype=dtype, device=device))
        grouped = (self.num_kv_heads, *mixing[1:])
        self.alpha_k = nn.Parameter(torch.empty(grouped, dtype=dtype, device=device))
        self.alpha_v = nn.Parameter(torch.empty(grouped, dtype=dtype, device=device))
        shape = mixing if collapse == "global" else mixing[1:]
        self.collapse = nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
        self.reset_mixing(init)

    def _projection_heads(self) -> tuple[int, int, int]:
        return self.num_heads, self.num_kv_heads, self.num_kv_heads

    @property
    def attention_maps(self) -> int:
        """H P^2: each head forms P^2 maps of tokens by tokens."""
        return self.num_heads * self.num_pseudo_heads**2

    @blueprint.construction(
        "exact-start",
        "a start of IHA that is exactly MHA, and whose pseudo-heads training can tell apart",
        uses=("mha", "iha"),
        check="numerical",
        proof="constructions.ledger.attention.start",
    )
    @torch.no_grad()
    def reset_mixing(
        self, init: Init = "mha", noise: float = NOISE, *, generator: torch.Generator | None = None
    ) -> None:
        """Sets alpha_q, alpha_k, alpha_v and collapse; leaves the projections alone.

        "mha" is exactly MHA and breaks the symmetry between pseudo-heads (docs/results.md T11):
        keys are replicated, alpha_k[m,h,j] = 1[m=h]; values are replicated up to noise e with sum_j e[m,h,j] = 0; the
        collapse reads one query row of the own head, the last one, whose alpha_q is 1[m=h]. The P copies of a token
        have equal keys, hence equal weights, so e cancels in the output: softmax and hard weights of a copy are 1/P of
        MHA's, and linear weights equal MHA's, for which the collapse carries 1/P. Gradients differ between
        pseudo-heads, since the values do; and the query rows that nothing reads yet carry noise too, without which they
        would get equal gradients for ever.

        "random": normal entries of variance 1/H (alphas) and 1/(H P) or 1/P (collapse).

        Args:
            init: "mha" or "random".
            noise: standard deviation of the perturbations of "mha"; 0 leaves all pseudo-keys and pseudo-values alike.
            generator: of the random entries; torch's global one if None.

        Raises:
            ValueError: another init, or "mha" with virtual rotary positions and P > 1.
        """
        if init not in INITS:
            raise ValueError(f"unknown init {init!r}: accepted are {', '.join(INITS)}")
        heads, pseudo = self.num_heads, self.num_pseudo_heads
        if init == "random":
            for alpha in (self.alpha_q, self.alpha_k, self.alpha_v):
                alpha.normal_(std=1 / math.sqrt(heads), generator=generator)
            self.collapse.normal_(std=1 / math.sqrt(self.collapse[0].numel()), generator=generator)
            return
        if self.rotary == "virtual" and pseudo > 1:
            raise ValueError('init="mha" is MHA only with rotary="token"; with rotary="virtual" use init="random"')
        own = torch.eye(heads, dtype=self.alpha_q.dtype, device=self.alpha_q.device).unsqueeze(-1)
        group = own.unflatten(0, (self.num_kv_heads, -1)).sum(1)  # 1[m = floor(h G / H)]
        for alpha in (self.alpha_q, self.alpha_k, self.alpha_v):
            alpha.copy_((own if alpha is self.alpha_q else group).expand_as(alpha))
        unread = torch.empty_like(self.alpha_q).normal_(generator=generator) * noise
        unread[..., -1] = 0
        self.alpha_q += unread
        e = torch.empty_like(self.alpha_v).normal_(generator=generator) * noise
        self.alpha_v += e - e.mean(-1, keepdim=True)
        self.collapse.zero_()
        read = 1 / pseudo if self.pattern == "linear" else 1.0
        if self.collapse_kind == "global":
            self.collapse[..., -1] = read * own[..., 0]
        else:
            self.collapse[..., -1] = read

    def heads(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        mask: Tensor | None,
        is_causal: bool,
        positions: Tensor | None,
    ) -> Tensor:
        """Mix, attend over the virtual tokens, collapse: see the class."""
        out = attend(
            self._virtual(q, self.alpha_q, positions),
            self._virtual(k, self.alpha_k, positions),
            self._virtual(v, self.alpha_v, None, rotary=None),
            **self._options(mask, is_causal, q, k, v),
        )
        return self._collapse(out)

    def _collapse(self, virtual: Tensor) -> Tensor:
        """Outputs of virtual tokens, (batch, heads, tokens * P, width), to heads, (batch, heads, tokens, width)."""
        out = virtual.transpose(1, 2).unflatten(1, (-1, self.num_pseudo_heads))
        collapse = self.collapse.to(out.dtype)
        if self.collapse_kind == "per_head":
            return (out * collapse.T.unsqueeze(-1)).sum(2).transpose(1, 2)
        return _mixed(collapse.transpose(1, 2).flatten(1), out.flatten(2, 3)).transpose(1, 2)

    def _virtual(
        self, x: Tensor, alpha: Tensor, positions: Tensor | None, rotary: Rotary | Literal["own"] = "own"
    ) -> Tensor:
        """Pseudo-heads of x, token-major: (batch, heads, tokens * P, width)."""
        tokens, heads = x.shape[-2], self.num_heads
        mixed = _mixed(alpha.to(x.dtype).permute(2, 1, 0).flatten(0, 1), x.transpose(1, 2))
        flat = mixed.unflatten(2, (self.num_pseudo_heads, heads)).flatten(1, 2).transpose(1, 2)
        if rotary is None or self.rotary is None:
            return flat
        at = self._positions(positions, tokens, x.device)
        pseudo = self.num_pseudo_heads
        if self.rotary == "virtual":
            at = (at.unsqueeze(-1) * pseudo + torch.arange(pseudo, device=x.device)).flatten(-2)
        else:
            at = at.repeat_interleave(pseudo, dim=-1)
        return rotate(flat, at[:, None], self.rotary_base)

    def _options(self, mask: Tensor | None, is_causal: bool, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
        """As of ordinary attention, with the pairs of virtual tokens."""
        options = super()._options(mask, is_causal, q, k, v)
        causality = self.causality if is_causal else "none"
        return {**options, "pairs": replace(options["pairs"], causality=causality, pseudo=self.num_pseudo_heads)}

    @classmethod
    def from_mha(
        cls,
        layer: MultiHeadAttention | nn.MultiheadAttention,
        num_pseudo_heads: int,
        *,
        causality: Causality = "token",
        collapse: Collapse = "global",
        noise: float = NOISE,
    ) -> "InterleavedHeadAttention":
        """An IHA that equals a trained MHA, and whose pseudo-heads training can tell apart (see `reset_mixing`).

        With the hard pattern only where the scores of equal keys are computed exactly: copies of a key have to tie.

        Args:
            layer: the MHA, ours or torch's; its weights are copied.
            num_pseudo_heads: P.
            causality: as in the class; both are equal to the MHA.
            collapse: as in the class.
            noise: size of the perturbations that cancel; 0 leaves all pseudo-keys and pseudo-values alike.

        Raises:
            TypeError: a layer of another kind.
        """
        if isinstance(layer, nn.MultiheadAttention):
            layer = MultiHeadAttention.from_torch(layer)
        if not isinstance(layer, MultiHeadAttention):
            raise TypeError(f"layer of type {type(layer).__name__}: accepted are MultiHeadAttention, ours or torch's")
        options: dict[str, Any] = layer.options() | {"rotary": None if layer.rotary is None else "token"}
        options |= {"num_pseudo_heads": num_pseudo_heads, "collapse": collapse, "causality": causality}
        new = cls(layer.embed_dim, layer.num_heads, **options)
        new.reset_mixing("mha", noise)
        new.load_state_dict(layer.state_dict(), strict=False)
        return new.train(layer.training)

    @torch.no_grad()
    def fuse(self) -> MultiHeadAttention:
        """The MHA that a layer with P = 1 is: the mixing goes into the projections.

        With W the projections and heads as blocks of rows: W_Q'[h] = sum_m alpha_q[m,h,1] W_Q[m], and so on, and
        W_O' = W_O (collapse x I). One attention map a head, so nothing is gained over MHA (docs/results.md T1).

        Raises:
            ValueError: P > 1, which MHA with as many heads cannot express.
        """
        if self.num_pseudo_heads != 1:
            raise ValueError(f"only P = 1 is an MHA with as many heads, this layer has P = {self.num_pseudo_heads}")
        weight = self.q_proj.weight
        options = self.options() | {"out_proj": True, "out_dim": self.out_dim}
        new = MultiHeadAttention(self.embed_dim, self.num_heads, **options)
        assert new.out_proj is not None
        for old, fused, alpha in (
            (self.q_proj, new.q_proj, self.alpha_q),
            (self.k_proj, new.k_proj, self.alpha_k),
            (self.v_proj, new.v_proj, self.alpha_v),
        ):
            for name, parameter in fused.named_parameters():
                blocks = cast(Tensor, getattr(old, name)).unflatten(0, (len(alpha), -1))
                parameter.copy_(torch.einsum("m...,mh->h...", blocks, alpha[..., 0]).flatten(0, 1))
        collapse = self.collapse[..., 0] if self.collapse_kind == "global" else torch.diag(self.collapse[..., 0])
        mixing = torch.kron(collapse, torch.eye(self.value_head_dim, dtype=weight.dtype, device=weight.device))
        if self.out_proj is None:
            new.out_proj.weight.copy_(mixing)
            if new.out_proj.bias is not None:
                new.out_proj.bias.zero_()
        else:
            new.out_proj.weight.copy_(self.out_proj.weight @ mixing)
            if self.out_proj.bias is not None:
                new.out_proj.bias.copy_(self.out_proj.bias)
        return new.train(self.training)


def _mixed(weights: Tensor, heads: Tensor) -> Tensor:
    """sum_m weights[r,m] heads[..., m, :] for each token: (batch, tokens, m, width) -> (batch, tokens, r, width).

    One small product a token leaves the heads of a token side by side, as projections make them and attention takes
    them; einsum would make copies of all.
    """
    batch, tokens = heads.shape[:2]
    weights = weights.expand(batch * tokens, -1, -1)
    return torch.bmm(weights, heads.flatten(0, 1)).unflatten(0, (batch, tokens))
