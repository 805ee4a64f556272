"""The MLP that counts pairs in a workspace (App. B.3)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class PairCount(nn.Module):
    """Counts the ordered pairs (s, t) of workspace slots with x_0 + G x_s + x_t = 0 mod M.

    Hidden unit (s, t) computes z = x_0 + G x_s + x_t and ReLU(1 - (z mod M)), which on integers is 1 if M divides z and
    0 if not; the output sums the units. With presence flags f beside the values, the unit is
    ReLU(f_0 + f_s + f_t - 2 - (z mod M)): slots without a token count nothing (ledger E9). "mod M" as part of the
    activation is the paper's (see ledger E10 for a ReLU-only one). G enters modulo M, which is the same function.

    Args:
        values: columns of the input that hold the workspace's values, slot 0 (the token's own) first.
        width: the input's width.
        modulus: M >= 1.
        coefficient: G, any integer.
        flags: columns that hold the presence flags, in the same order; None if every slot holds a token.

    Raises:
        ValueError: M < 1.
    """

    def __init__(
        self, values: list[int], width: int, modulus: int, coefficient: int, flags: list[int] | None = None
    ) -> None:
        super().__init__()
        if modulus < 1:
            raise ValueError(f"the modulus M must be at least 1, got {modulus}")
        self.modulus = modulus
        slots = len(values)
        self.pairs = nn.Linear(width, slots**2, bias=False, dtype=torch.float64)
        self.presence = None if flags is None else nn.Linear(width, slots**2, bias=True, dtype=torch.float64)
        self.total = nn.Linear(slots**2, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.total.weight.fill_(1)
            _pair_weights(self.pairs, values, coefficient % modulus)
            if self.presence is not None and flags is not None:
                _pair_weights(self.presence, flags, 1)
                self.presence.bias.fill_(-2)

    def forward(self, workspace: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """The counts, (…,), for workspaces (…, width): exact integers where (M + 1) max |value| < 2^53."""
        gate = 1.0 if self.presence is None else self.presence(workspace)
        hidden = torch.relu(gate - self.pairs(workspace).remainder(self.modulus))
        return self.total(hidden).squeeze(-1)


def _pair_weights(linear: nn.Linear, columns: list[int], coefficient: int) -> None:
    slots = len(columns)
    linear.weight.zero_()
    rows = linear.weight.view(slots, slots, -1)
    rows[:, :, columns[0]] += 1
    for s, column in enumerate(columns):
        rows[s, :, column] += coefficient
        rows[:, s, column] += 1
