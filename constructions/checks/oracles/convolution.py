"""torch's conv2d as the right answer for convolutions, and its operator."""

import numpy as np
import torch
import torch.nn.functional as F
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.oracles import Operator
from iha_theory import exact


def conv2d(kernel: Tensor, grid: tuple[int, int], padding: str) -> Operator:
    """torch's conv2d on (batch, R C, d) content, tokens row-major."""
    p = kernel.shape[-1] // 2
    mode = {"circular": "circular", "zero": "constant"}[padding]

    def apply(x: Tensor) -> Tensor:
        images = x.transpose(1, 2).unflatten(2, grid)
        return F.conv2d(F.pad(images, (p, p, p, p), mode=mode), kernel).flatten(2).transpose(1, 2)

    return apply


def operator_array(operator: Operator, tokens: int, width: int) -> np.ndarray:
    """d out[i, o] / d X[j, a] as (N, D, N, d), from every basis input."""
    basis = torch.eye(tokens * width, dtype=torch.float64).view(-1, tokens, width)
    return operator(basis).unflatten(0, (tokens, width)).permute(2, 3, 0, 1).numpy()


def exact_target(array: np.ndarray) -> list[list[DomainMatrix | None]]:
    """`exact_operator_gap`'s target from an operator's entries, (N, D, N, d), which must be exact."""
    _, outputs, _, width = array.shape
    return [[exact.matrix(array[:, o, :, a], QQ) for a in range(width)] for o in range(outputs)]


def responses(array: np.ndarray, token: int) -> list[np.ndarray]:
    """For each output o and content coordinate a the column d out[:, o] / d X[token, a], (N, 1)."""
    _, outputs, _, width = array.shape
    return [array[:, o, token, a][:, None] for o in range(outputs) for a in range(width)]
