"""Composing three steps of a relation in one layer, by one head that copies all of it (docs/relations.md, Theorem 4).

Token t = (r, c) of the m^2 is [R_t e_t, e_r, e_c], one-hot (from [x, e_t] by m^2 ReLUs before the layer). The head
gives every token all of R, whose three-step paths 4m^2 ReLUs count: with the token's own codes e_i and e_j

    sum_ab ReLU(u_a + R_ab + v_b - 2),   u_a = sum_r ReLU(R_ra + [r = i] - 1),   v_b = sum_c ReLU(R_bc + [c = j] - 1).

The bit is 1 - ReLU(1 - ReLU(2 s - 1/2)) of this number s.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from constructions.targets.relations import WithMLP, codes, require_relations, step
from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.rounding import require_count, require_one_of

COPIES = ("linear", "softmax")
"""Patterns that can give every token the sum, or the mean, over all."""


class ThreeSteps(nn.Module):
    """The number of three-step paths of the module's text from [R, e_i, e_j]: (..., m^2 + 2m) -> (...,)."""

    def __init__(self, points: int) -> None:
        super().__init__()
        m = self.points = require_count("points", points)
        n = m * m
        self.steps = nn.Linear(n + 2 * m, 3 * n, dtype=torch.float64)
        self.paths = nn.Linear(3 * n, n, dtype=torch.float64)
        at, every = torch.arange(n), torch.eye(n, dtype=torch.float64)
        rows, columns = at // m, at % m
        with torch.no_grad():
            for layer in (self.steps, self.paths):
                layer.weight.zero_()
                layer.bias.zero_()
            self.steps.weight[:, :n].copy_(every.repeat(3, 1))
            self.steps.weight[at, n + rows] = 1  # R_ra + [r = i] - 1
            self.steps.weight[n + at, n + m + columns] = 1  # R_bc + [c = j] - 1
            self.steps.bias[: 2 * n] = -1
            self.paths.weight[:, :n] = (rows[:, None] == columns).double()  # path ab: u_a
            self.paths.weight[:, n : 2 * n] = (columns[:, None] == rows).double()  # v_b
            self.paths.weight[:, 2 * n :] = every
            self.paths.bias.fill_(-2)

    def forward(self, rows: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """How many there are."""
        return torch.relu(self.paths(torch.relu(self.steps(rows)))).sum(-1)


@dataclass(frozen=True)
class Copying(WithMLP):
    """One head that copies and the MLP behind it: relations in, their three-step paths out."""

    mlp: ThreeSteps

    @torch.no_grad()
    def scores(self, relations: Integer[Tensor, "batch m m"]) -> Float[Tensor, "batch m m"]:
        """The number of three-step paths from i to j, (batch, m, m), for relations (batch, m, m) of 0 and 1.

        Raises:
            ValueError: as `Composition.scores`.
        """
        m = self.mlp.points
        require_relations(relations, m)
        where = codes(m).expand(len(relations), -1, -1)
        bits = torch.diag_embed(relations.flatten(1).to(where.dtype))
        x = torch.cat((bits, where), dim=-1)
        return self.mlp(torch.cat((self.layer(x, x, x), where), dim=-1)).view(relations.shape)

    def __call__(self, relations: Integer[Tensor, "batch m m"]) -> Float[Tensor, "batch m m"]:
        """1 where a path of three steps joins i to j, else 0.

        Raises:
            ValueError: as `scores`.
        """
        return step(self.scores(relations))


@blueprint.construction(
    "copying",
    "paths of three steps of a relation by one uniform head of value width m^2 and 4m^2 + 2 ReLUs",
    uses=("relation", "mha", "pattern"),
    check="exact",
    proof="docs/relations.md, Theorem 4",
)
def copying(points: int, pattern: str = "linear") -> Copying:
    """One head of MHA with equal weights for all tokens, value width m^2, and 4m^2 + 2 ReLUs, in one layer.

    Token t = (r, c) is [R_t e_t, e_r, e_c].

    Args:
        points: m.
        pattern: "linear", or "softmax", whose mean is taken m^2 times.

    Raises:
        ValueError: a number below 1, another pattern.
    """
    m = require_count("points", points)
    require_one_of("pattern", pattern, COPIES)
    n = m * m
    sizes = {"head_dim": 1, "value_head_dim": n, "out_proj": False, "dtype": torch.float64}
    layer = MultiHeadAttention(n + 2 * m, 1, pattern=pattern, scale=1.0, **sizes)  # type: ignore[arg-type]
    with torch.no_grad():
        for projection in (layer.q_proj, layer.k_proj):
            projection.weight.zero_()
            projection.weight[:, n : n + m] = 1  # the codes of a row add up to 1
        layer.v_proj.weight.zero_()
        layer.v_proj.weight[:, :n] = torch.eye(n) * (1 if pattern == "linear" else n)
    return Copying(layer, ThreeSteps(m))
