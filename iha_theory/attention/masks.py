"""Which (query, key) pairs of original tokens may attend, from a mask, causality and a window.

Boolean masks: True = may attend, everywhere in this project.
"""

import math

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
        ValueError: a mask of another shape; causality or a window with different numbers of queries and keys.
        TypeError: see `boolean_mask`.
    """
    allowed = None
    if mask is not None:
        shapes = [(queries, keys), (batch, queries, keys), (1, queries, keys)]
        if tuple(mask.shape) not in shapes:
            raise ValueError(f"mask of shape {tuple(mask.shape)}: accepted are {shapes[0]} and {shapes[1]}")
        allowed = boolean_mask(mask).reshape(-1, queries, keys)
    if not is_causal and window is None:
        return allowed
    if queries != keys:
        raise ValueError(
            f"is_causal and window compare positions in one sequence, got {queries} queries and {keys} keys"
        )
    near = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if is_causal:
        near = near.tril()
    if window is not None:
        near = near.triu(1 - window).tril(window - 1)
    return near[None] if allowed is None else allowed & near
