"""Rotary positions (RoPE, Su et al., arXiv 2104.09864), computed when called: no length is fixed."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor


def rotate(
    x: Float[Tensor, "*lead tokens width"], positions: Shaped[Tensor, "*lead_p tokens"], base: float
) -> Float[Tensor, "*lead tokens width"]:
    """Rotates coordinates (c, c + width/2) of token n by the angle positions[n] * base^(-2c/width).

    Args:
        x: queries or keys, of even width; any leading axes.
        positions: of any real dtype; its leading axes broadcast against those of x.
        base: the wavelengths run from 2 pi to 2 pi base tokens.

    Angles are formed in float64 and the rotation in float32 at least, so that a half-precision x loses only its
    own rounding, at any position.
    """
    half = x.shape[-1] // 2
    work = torch.promote_types(x.dtype, torch.float32)
    rates = base ** (-torch.arange(half, dtype=torch.float64, device=x.device) / half)
    angles = positions.to(torch.float64).unsqueeze(-1) * rates
    cos, sin = angles.cos().to(work), angles.sin().to(work)
    first, second = x.to(work).split(half, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)
