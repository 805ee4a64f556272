"""Powers of Frobenius norm 1, by repeated multiplication and then division."""

import math

import torch
from jaxtyping import Float
from sympy import QQ
from torch import Tensor

from iha_theory import exact
from iha_theory.bounds.heads import unit_norm
from synthetic.tasks.filter_bank import power_blocks


def unit_powers(a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """A^t / |A^t|_F, t < k; 0 where A^t is.

    Integers of both signs are multiplied exactly where float64 holds the powers, as rounding could hide that some
    cancel to 0. Otherwise in float64, halved or doubled to stay within its range.
    """
    if bool((a < 0).any()) and torch.equal(a, a.round()):
        try:
            return unit_norm(torch.stack([exact.nearest_float64(m) for m in power_blocks(exact.matrix(a, QQ), terms)]))
        except OverflowError:
            pass
    powers = [torch.eye(len(a), dtype=torch.float64)]
    while len(powers) < terms:
        last = powers[-1] @ a
        powers.append(last * 2.0 ** -math.frexp(float(last.abs().max()))[1])
    return unit_norm(torch.stack(powers))
