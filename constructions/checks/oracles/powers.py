"""Powers of Frobenius norm 1, by repeated multiplication and then division."""

import torch
from jaxtyping import Float
from torch import Tensor


def unit_powers(a: Float[Tensor, "N N"], terms: int) -> Float[Tensor, "k N N"]:
    """A^t / |A^t|_F, t < k; 0 where A^t is. Entries of A^t must be within float64's range."""
    powers = [torch.eye(len(a), dtype=a.dtype)]
    while len(powers) < terms:
        powers.append(powers[-1] @ a)
    return torch.stack([power / norm if (norm := power.norm()) else power for power in powers])
