"""Causal filters with given taps: `exact_target`, over the rationals or a prime field; `conv1d`, by torch; `causal`, as
one dense matrix. The taps of a state-space model: `synthetic.systems`.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.oracles import Operator


def exact_target(taps: Sequence[DomainMatrix], tokens: int) -> list[list[DomainMatrix | None]]:
    """y_t = sum_j taps[j] u_{t-j} as `exact_operator_gap` wants it."""
    outputs, width = taps[0].shape
    domain = taps[0].domain
    rows = [tap.to_list() for tap in taps]
    nothing = domain.zero

    def entry(o: int, a: int) -> DomainMatrix:
        lags = [row[o][a] for row in rows[:tokens]] + [nothing] * (tokens - len(rows))
        entries = [[lags[i - j] if i >= j else nothing for j in range(tokens)] for i in range(tokens)]
        return DomainMatrix(entries, (tokens, tokens), domain).to_dense()

    return [[entry(o, a) for a in range(width)] for o in range(outputs)]


def conv1d(taps: Tensor) -> Operator:
    """torch's conv1d on (batch, N, d) inputs, with (k, D, d) taps of which the first is the current input's."""
    kernel = taps.flip(0).permute(1, 2, 0)
    return lambda x: F.conv1d(F.pad(x.transpose(1, 2), (len(taps) - 1, 0)), kernel).transpose(1, 2)


def causal(taps: Tensor) -> Operator:
    """u -> sum_j taps[j] u_{t-j}, with (N, D, d) taps, as one dense matrix."""
    tokens, outputs, width = taps.shape
    lags = torch.arange(tokens)[:, None] - torch.arange(tokens)
    dense = torch.where(lags[..., None, None] >= 0, taps[lags.clamp(min=0)], 0.0)  # (i, j, o, a)
    matrix = dense.permute(1, 3, 0, 2).reshape(tokens * width, tokens * outputs)
    return lambda u: (u.flatten(1) @ matrix).unflatten(1, (tokens, outputs))
