"""What every attention layer here shares: projections in, heads in the middle, projection out."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from iha_theory.attention.masks import allowed_pairs, pairs
from iha_theory.attention.patterns import PATTERNS, Pattern, default_scale
from iha_theory.attention.rotary import rotate
from iha_theory.rounding import require_count

Rotary = Literal["token", "virtual"] | bool | None


class AttentionLayer(nn.Module):
    """Base of the layers: checks arguments, projects, calls `heads`, projects back.

    Args:
        embed_dim: width of the query (and of key, value and output unless said otherwise).
        num_heads: number of heads H.
        kdim: width of the key; default embed_dim.
        vdim: width of the value; default embed_dim.
        head_dim: width d_k of a head's queries and keys; default embed_dim / num_heads.
        value_head_dim: width d_v of a head's values; default head_dim.
        out_dim: width of the output; default embed_dim. Only with an output projection.
        out_proj: project the concatenated heads; without it the output is (…, num_heads * value_head_dim).
        bias: biases in the four projections.
        pattern: "softmax", "linear" or "hard"; see `iha_theory.attention.patterns`.
        scale: factor on <q, k>; default 1/sqrt(head_dim), and 1 for the linear pattern.
        rotary: None or False for none; True or "token" rotates queries and keys by the token's position.
        rotary_base: base of the rotary wavelengths, positive.
        window: query i sees only tokens j with |i - j| < window: its own token counts as one. None: all.
        dropout: probability of dropping an attention weight in training, in [0, 1). Queries and keys that the whole
            batch shares have one pattern, so what is dropped is shared too.
        dtype: of the parameters; torch's default if None.
        device: of the parameters.

    Raises:
        ValueError: a size below 1, an odd head_dim with rotary positions, an embed_dim that num_heads does not
            divide where head_dim is not given, or an option outside its values; the message names it.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        head_dim: int | None = None,
        value_head_dim: int | None = None,
        out_dim: int | None = None,
        out_proj: bool = True,
        bias: bool = False,
        pattern: Pattern = "softmax",
        scale: float | None = None,
        rotary: Rotary = None,
        rotary_base: float = 10_000.0,
        window: int | None = None,
        dropout: float = 0.0,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.embed_dim = require_count("embed_dim", embed_dim)
        self.num_heads = require_count("num_heads", num_heads)
        self.kdim = require_count("kdim", embed_dim if kdim is None else kdim)
        self.vdim = require_count("vdim", embed_dim if vdim is None else vdim)
        if head_dim is None:
            if embed_dim % num_heads:
                raise ValueError(f"embed_dim {embed_dim} is not a multiple of num_heads {num_heads}: give head_dim")
            head_dim = embed_dim // num_heads
        self.head_dim = require_count("head_dim", head_dim)
        self.value_head_dim = require_count("value_head_dim", head_dim if value_head_dim is None else value_head_dim)
        if pattern not in PATTERNS:
            raise ValueError(f"unknown pattern {pattern!r}: accepted are {', '.join(PATTERNS)}")
        self.pattern: Pattern = pattern
        self.scale = default_scale(pattern, head_dim) if scale is None else float(scale)
        if not math.isfinite(self.scale):
            raise ValueError(f"scale must be a finite number, got {scale!r}")
        if not (rotary is None or isinstance(rotary, bool) or rotary in ("token", "virtual")):
            raise ValueError(f'unknown rotary {rotary!r}: accepted are None, False, True, "token", "virtual"')
        self.rotary: Rotary = "token" if rotary is True else rotary or None
        if self.rotary and head_dim % 2:
            raise ValueError(f"rotary positions turn pairs of coordinates: head_dim must be even, got {head_dim}")
        self.rotary_base = float(rotary_base)
        if not 0 < self.rotary_base < math.inf:
            raise ValueError(f"rotary_base must be a positive finite number, got {rotary_base!r}")
        self.window = None if window is None else require_count("window", window)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {dropout!r}")
        self.dropout = float(dropout)

        like = {"bias": bias, "dtype": dtype, "device": device}
        q_heads, k_heads, v_heads = self._projection_heads()
        self.q_proj = nn.Linear(embed_dim, q_heads * self.head_dim, **like)
        self.k_proj = nn.Linear(self.kdim, k_heads * self.head_dim, **like)
        self.v_proj = nn.Linear(self.vdim, v_heads * self.value_head_dim, **like)
        if not out_proj and out_dim is not None:
            raise ValueError("out_dim is the width after an output projection: leave it out with out_proj=False")
        self.out_dim = num_heads * self.value_head_dim
        self.out_proj = None
        if out_proj:
            self.out_dim = require_count("out_dim", embed_dim if out_dim is None else out_dim)
            self.out_proj = nn.Linear(num_heads * self.value_head_dim, self.out_dim, **like)

    def _projection_heads(self) -> tuple[int, int, int]:
        """How many heads the query, key and value projections make; a layer with other numbers overrides it."""
        return self.num_heads, self.num_heads, self.num_heads

    def options(self) -> dict[str, Any]:
        """The constructor's options beyond embed_dim and num_heads that make a layer like this one."""
        names = ("kdim", "vdim", "head_dim", "value_head_dim", "pattern", "scale", "rotary", "rotary_base", "window")
        weight, projected = self.q_proj.weight, self.out_proj is not None
        return {name: getattr(self, name) for name in (*names, "dropout")} | {
            "out_proj": projected,
            "out_dim": self.out_dim if projected else None,
            "bias": self.q_proj.bias is not None,
            "dtype": weight.dtype,
            "device": weight.device,
        }

    def extra_repr(self) -> str:
        """The sizes and options that the projections do not show."""
        names = (
            "num_heads",
            "num_pseudo_heads",
            "num_kv_heads",
            "pattern",
            "collapse_kind",
            "causality",
            "rotary",
            "window",
        )
        return ", ".join(f"{name}={value}" for name in names if (value := getattr(self, name, None)) is not None)

    @property
    def attention_maps(self) -> int:
        """Number of tokens-by-tokens attention maps that the layer forms: the unit of its attention cost."""
        return self.num_heads

    def forward(
        self,
        query: Float[Tensor, "b_qk queries embed_dim"],
        key: Float[Tensor, "b_qk keys kdim"],
        value: Float[Tensor, "batch keys vdim"],
        *,
        mask: Shaped[Tensor, "..."] | None = None,
        is_causal: bool = False,
        positions: Shaped[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch queries out_dim"]:
        """Outputs, (batch, queries, out_dim).

        Args:
            query: (batch, queries, embed_dim). A query and key of batch 1 are shared by the whole batch of values
                (position-only attention, `layer(pos, pos, X)`).
            key: (batch, keys, kdim).
            value: (batch, keys, vdim).
            mask: (queries, keys) or (batch, queries, keys) over original tokens; Boolean (True = may attend) or
                floats of 0 and -inf.
            is_causal: query i sees keys 0..i only.
            positions: rotary positions of the tokens, (tokens,) or (batch, tokens); default 0, 1, 2, ...

        Raises:
            ValueError: shapes that do not fit, each named; positions for a layer without rotary positions.
            TypeError: a mask of another dtype.
        """
        self._check(query, key, value, positions)
        return self._merge(self._attended(query, key, value, mask, is_causal, positions))

    def _attended(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, positions: Tensor | None
    ) -> Tensor:
        """The heads' outputs; a layer that needs more of its inputs than queries, keys and values overrides it."""
        q, k, v = self._project(query, key, value)
        return self.heads(q, k, v, mask=mask, is_causal=is_causal, positions=positions)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads, tokens, width); a layer that makes them otherwise overrides it."""
        q = self._split(self.q_proj(query), self.head_dim)
        k = self._split(self.k_proj(key), self.head_dim)
        return q, k, self._split(self.v_proj(value), self.value_head_dim)

    def _split(self, projected: Tensor, width: int) -> Tensor:
        """(batch, tokens, heads * width) -> (batch, heads, tokens, width), in the precision that the pattern needs."""
        if self.pattern == "hard":
            projected = projected.to(torch.promote_types(projected.dtype, torch.float32))
        return projected.unflatten(-1, (-1, width)).transpose(1, 2)

    def _merge(self, heads: Tensor) -> Tensor:
        """Heads concatenated and projected: (batch, heads, tokens, value_head_dim) -> (batch, tokens, out_dim)."""
        out = heads.transpose(1, 2).flatten(2)
        if self.pattern == "hard":
            out = out.to(self.v_proj.weight.dtype)
        return out if self.out_proj is None else self.out_proj(out)

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
        """The heads' outputs, (batch, heads, queries, value_head_dim), from projected (batch, heads, tokens, width)."""
        raise NotImplementedError

    def _check(self, query: Tensor, key: Tensor, value: Tensor, positions: Tensor | None = None) -> None:
        expected = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, width), x in zip(expected.items(), (query, key, value), strict=True):
            if x.ndim != 3 or x.shape[-1] != width:
                raise ValueError(f"{name} of shape {tuple(x.shape)}: expected (batch, tokens, {width})")
        if key.shape[0] != query.shape[0] or query.shape[0] not in (1, value.shape[0]):
            batches = (query.shape[0], key.shape[0], value.shape[0])
            raise ValueError(
                f"batches {batches} of query, key, value differ (only query and key may both have batch 1)"
            )
        if key.shape[1] != value.shape[1]:
            raise ValueError(f"key and value differ in tokens: {key.shape[1]} keys but {value.shape[1]} values")
        if positions is None:
            return
        if self.rotary is None:
            raise ValueError("positions are for rotary layers: this one was made with rotary=None")
        if positions.ndim == 2 and positions.shape[0] not in (1, value.shape[0]):
            raise ValueError(f"positions of batch {positions.shape[0]}: accepted are 1 and {value.shape[0]}")

    def _options(self, mask: Tensor | None, is_causal: bool, q: Tensor, k: Tensor, v: Tensor) -> dict[str, Any]:
        """How `attend` runs ordinary attention of these tokens: pattern, scale, pairs, dropout."""
        sizes = {"batch": v.shape[0], "queries": q.shape[-2], "keys": k.shape[-2]}
        causality = "token" if is_causal else "none"
        return {
            "pattern": self.pattern,
            "scale": self.scale,
            "pairs": pairs(mask, causality=causality, window=self.window, **sizes),
            "dropout": self.dropout if self.training else 0.0,
        }

    def _allowed_pairs(
        self, mask: Tensor | None, is_causal: bool, batch: int, queries: int, keys: int, device: torch.device
    ) -> Tensor | None:
        """Allowed pairs of original tokens, (1 or batch, queries, keys), with the layer's window; None allows all."""
        return allowed_pairs(
            mask, is_causal=is_causal, window=self.window, batch=batch, queries=queries, keys=keys, device=device
        )

    def _rotated(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """Projected queries or keys, rotated by their positions if the layer is rotary."""
        if self.rotary is None:
            return x
        return rotate(x, self._positions(positions, x.shape[-2], x.device)[:, None], self.rotary_base)

    def _positions(self, positions: Tensor | None, tokens: int, device: torch.device) -> Tensor:
        """Rotary positions as (1 or batch, tokens)."""
        if positions is None:
            return torch.arange(tokens, device=device)[None]
        if positions.ndim not in (1, 2) or positions.shape[-1] != tokens:
            raise ValueError(f"positions of shape {tuple(positions.shape)}: expected ({tokens},) or (batch, {tokens})")
        return positions if positions.ndim == 2 else positions[None]
