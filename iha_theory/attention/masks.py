"""Which (query, key) pairs may attend, from a mask, causality and a window over original tokens.

Boolean masks: True = may attend, everywhere in this project.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor


def boolean_mask(mask: Shaped[Tensor, "..."]) -> Bool[Tensor, "..."]:
    """The mask as Boolean, True = may attend.

    Accepts a Boolean mask, or a float mask of 0 (may attend) and -inf (may not), as torch adds to scores.

    Raises:
        TypeError: any other dtype, named.
        ValueError: a float mask with another value than 0 and -inf.
    """
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        raise TypeError(f"mask of dtype {mask.dtype}: accepted are bool (True = may attend) and floats of 0 and -inf")
    allowed = mask == 0
    if not bool((allowed | (mask == -math.inf)).all()):
        raise ValueError(
            f"a mask of dtype {mask.dtype} may hold only 0 (may attend) and -inf (may not); for 1 and 0 use bool"
        )
    return allowed


@dataclass(frozen=True)
class Pairs:
    """Which virtual tokens see which; token n is the virtual tokens (n,1) .. (n,P), in this order.

    mask: (1 or batch, query tokens, key tokens), True where a query may see a key. causality: "token", (n,j) sees
    (n',j') if n' <= n; "virtual", if it does not come later in the virtual order; "none". window: token n sees n' with
    |n - n'| < window. pseudo: P. start: the position of the first query, where the first key has position 0.
    """

    mask: Tensor | None = None
    causality: Literal["none", "token", "virtual"] = "none"
    window: int | None = None
    pseudo: int = 1
    start: int = 0

    @property
    def narrow(self) -> bool:
        """Whether more than causality restricts the pairs."""
        return self.mask is not None or self.window is not None

    def seen(self, rows: range, keys: int) -> range:
        """Key tokens, of so many, that some of these query tokens may see by causality and window."""
        first, last = 0, keys
        if self.window is not None:
            first = max(first, self.start + rows.start - self.window + 1)
            last = min(last, self.start + rows.stop + self.window - 1)
        return range(first, last if self.causality == "none" else min(last, self.start + rows.stop))

    def block(
        self, rows: range, columns: range, device: torch.device
    ) -> Bool[Tensor, "b_mask rows_P columns_P"] | None:
        """True where a pair may attend, for some query and key tokens; None: everywhere."""
        allowed = None if self.mask is None else self.mask[:, rows.start : rows.stop, columns.start : columns.stop]
        own = self.start + rows.start - columns.start  # a row's own column is the row plus this
        if self.causality != "none" or self.window is not None:
            near = torch.ones(1, len(rows), len(columns), dtype=torch.bool, device=device)
            if self.causality != "none":
                near = near.tril(own)
            if self.window is not None:
                near = near.triu(own - self.window + 1).tril(own + self.window - 1)
            allowed = near if allowed is None else allowed & near
        if allowed is None or self.pseudo == 1:
            return allowed
        allowed = allowed.repeat_interleave(self.pseudo, -2).repeat_interleave(self.pseudo, -1)
        return allowed.tril(own * self.pseudo) if self.causality == "virtual" else allowed

    def written_out(self, q: Tensor, k: Tensor) -> Bool[Tensor, "b_mask 1 queries keys"] | None:
        """The mask of all pairs of these (batch, heads, virtual tokens, width); None allows all."""
        queries, keys = (range(x.shape[2] // self.pseudo) for x in (q, k))
        if (
            self.mask is None
            and self.causality != "virtual"
            and len(queries) == 1
            and self.seen(queries, len(keys)) == keys
        ):
            return None  # the last token of a sequence, as in generation
        allowed = self.block(queries, keys, q.device)
        return None if allowed is None else allowed[:, None]


def pairs(
    mask: Shaped[Tensor, "..."] | None,
    *,
    causality: Literal["none", "token", "virtual"],
    window: int | None,
    pseudo: int = 1,
    batch: int,
    queries: int,
    keys: int,
) -> Pairs:
    """The pairs of a call, checked.

    Args:
        mask: (queries, keys) or (1 or batch, queries, keys); see `boolean_mask`.
        causality: as `Pairs`.
        window: as `Pairs`; None: no window.
        pseudo: P.
        batch: number of sequences.
        queries: number of query tokens.
        keys: number of key tokens.

    Raises:
        ValueError: a mask of another shape; causality or a window with different numbers of queries and keys.
        TypeError: see `boolean_mask`.
    """
    if mask is not None:
        shapes = [(queries, keys), (batch, queries, keys), (1, queries, keys)]
        if tuple(mask.shape) not in shapes:
            raise ValueError(f"mask of shape {tuple(mask.shape)}: accepted are {shapes[0]} and {shapes[1]}")
        mask = boolean_mask(mask)
        mask = mask if mask.ndim == 3 else mask[None]
    if queries != keys and (causality != "none" or window is not None):
        raise ValueError(
            f"is_causal and window compare positions in one sequence, got {queries} queries and {keys} keys"
        )
    return Pairs(mask, causality, None if window is None else min(window, max(queries, keys, 1)), pseudo)


def allowed_pairs(
    mask: Shaped[Tensor, "..."] | None,
    *,
    is_causal: bool,
    window: int | None,
    batch: int,
    queries: int,
    keys: int,
    device: torch.device,
) -> Bool[Tensor, "b_mask queries keys"] | None:
    """Allowed pairs of original tokens, (1 or batch, queries, keys); None allows all.

    Args:
        mask: (queries, keys) or (1 or batch, queries, keys); see `boolean_mask`.
        is_causal: query i sees keys j <= i.
        window: query i sees keys with |i - j| < window, so its own token counts as one; None: no window.
        batch: number of sequences.
        queries: number of query tokens.
        keys: number of key tokens.
        device: where the result lives.

    Raises:
        ValueError: as `pairs`.
        TypeError: see `boolean_mask`.
    """
    causality = "token" if is_causal else "none"
    checked = pairs(mask, causality=causality, window=window, batch=batch, queries=queries, keys=keys)
    return checked.block(range(queries), range(keys), device)
