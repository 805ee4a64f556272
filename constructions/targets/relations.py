"""Composing relations by two heads that see content: which pairs are joined by a path of h steps (docs/relations.md).

A relation R on m points is N = m^2 tokens, token (i, j) with the bit R_ij and one-hot codes of its row and its column.

**Two heads and an MLP** (`composition`). Token (r, c) is [x, y, e_r, e_c]: x = R_rc, and y the bit of R^{h-1}.

- Head 1 of token (i, j) has score 2 [r = i] + x at token (r, c), and value [e_c, x]. If row i has ones, it attends to
  them: a_k = R_ik / |row i| and a flag f = 1. If not, to all of row i: a_k = 1/m and f = 0.
- Head 2 has score 2 [c = j] + y and value [e_r, y]: b_k = R^{h-1}_kj / |column j| and a flag g, likewise.

As sum_k a_k = sum_k b_k = 1, one hidden layer of m ReLUs gives

    s = 1 - sum_k ReLU(a_k - b_k + 2 - f - g)  =  sum_k min(a_k, b_k)   if f = g = 1,   1 - m (2 - f - g)   if not,

at least 1/m if some k has a_k, b_k > 0, else at most 0. Then 1 - ReLU(1 - ReLU(2 m s - 1/2)) is 1 or 0, exactly: the
bit of R^h. It takes y's place for one step more, with the same weights.

With softmax at scale beta a row has all but a share d <= (N - 1) e^{-beta} of its weight where hard attention has it:
s moves by at most (4 + 2m) d, and the bits are the same if this is at most 1/(4m): `sharpness` is such a beta.

**m heads without an MLP** (`paths`), one-hot positions. Head k of token (i, j) has score 2 ([(r, c) = (i, k)] +
[(r, c) = (k, j)]) - x and value x: it attends to whichever of the two has bit 0, so it gives R_ik R_kj. Their sum is
the number of paths, (R^2)_ij.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from constructions.construction import Block, Construction, Counted, count
from iha_theory import blueprint
from iha_theory.attention import MultiHeadAttention
from iha_theory.rounding import require_count, require_one_of

PATTERNS = ("hard", "softmax")
ROUNDING_ROOM = 2.0
"""By how much the leak of softmax is smaller than it may be."""


def sharpness(points: int) -> float:
    """A scale beta at which softmax gives the bits of hard attention: (4 + 2m) (m^2 - 1) e^{-beta} < 1/(4m)."""
    m = require_count("points", points)
    return math.log(ROUNDING_ROOM * 4 * m * (4 + 2 * m) * m**2)


class Overlap(nn.Module):
    """s of the module's text from [a, f, b, g]: (…, 2m + 2) -> (…,). `bit` makes it 0 or 1."""

    def __init__(self, points: int) -> None:
        super().__init__()
        m = self.points = require_count("points", points)
        self.above = nn.Linear(2 * m + 2, m, dtype=torch.float64)
        self.total = nn.Linear(m, 1, dtype=torch.float64)
        with torch.no_grad():
            self.above.weight.zero_()
            self.above.weight[:, :m].copy_(torch.eye(m))
            self.above.weight[:, m + 1 : -1].copy_(-torch.eye(m))
            self.above.weight[:, [m, -1]] = -1
            self.above.bias.fill_(2)
            self.total.weight.fill_(-1)
            self.total.bias.fill_(1)

    def forward(self, rows: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """s."""
        return self.total(torch.relu(self.above(rows))).squeeze(-1)

    def bit(self, s: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
        """1 - ReLU(1 - ReLU(2 m s - 1/2)): 0 for s <= 1/(4m), 1 for s >= 3/(4m)."""
        return step(self.points * s)


def step(s: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """1 - ReLU(1 - ReLU(2 s - 1/2)): 0 for s <= 1/4, 1 for s >= 3/4."""
    return 1 - torch.relu(1 - torch.relu(2 * s - 0.5))


def codes(points: int) -> Float[Tensor, "tokens width"]:
    """One-hot codes of each token's row and column, (m^2, 2m)."""
    each = torch.eye(points, dtype=torch.float64)
    return torch.cat((each.repeat_interleave(points, 0), each.repeat(points, 1)), dim=-1)


def require_relations(relations: Tensor, points: int) -> None:
    """Refuses what is no relations (batch, m, m) of 0 and 1.

    Raises:
        ValueError: other numbers, another m.
    """
    if relations.shape[1:] != (points, points) or not bool(((relations == 0) | (relations == 1)).all()):
        raise ValueError(f"accepted are relations on {points} points, (batch, {points}, {points}), of 0 and 1")


@dataclass(frozen=True)
class WithMLP(Counted):
    """A layer and the MLP behind it."""

    layer: MultiHeadAttention
    mlp: nn.Module

    @property
    def parameters(self) -> int:
        """Number of parameters of the layer and the MLP, counted."""
        return count(self.layer) + count(self.mlp)


@dataclass(frozen=True)
class Composition(WithMLP):
    """Two heads and the MLP behind them: relations in, scores of their h-step paths out."""

    mlp: Overlap
    hops: int

    @torch.no_grad()
    def scores(self, relations: Integer[Tensor, "batch m m"]) -> Float[Tensor, "batch m m"]:
        """s of the last step, (batch, m, m), for relations (batch, m, m) of 0 and 1.

        Raises:
            ValueError: other numbers, another m.
        """
        m = self.mlp.points
        require_relations(relations, m)
        where = codes(m).expand(len(relations), -1, -1)
        x = relations.flatten(1).unsqueeze(-1).to(where.dtype)
        y, s = x, x[..., 0]
        for _ in range(self.hops - 1):
            inputs = torch.cat((x, y, where), dim=-1)
            s = self.mlp(self.layer(inputs, inputs, inputs))
            y = self.mlp.bit(s).unsqueeze(-1)
        return s.view(relations.shape)

    def __call__(self, relations: Integer[Tensor, "batch m m"]) -> Float[Tensor, "batch m m"]:
        """1 where a path of h steps joins i to j, else 0.

        Raises:
            ValueError: as `scores`.
        """
        s = self.scores(relations)
        return s if self.hops == 1 else self.mlp.bit(s)


@blueprint.construction(
    "composition",
    "paths of h steps of a relation by two heads that see content and m + 2 ReLUs, h - 1 times",
    uses=("relation", "mha", "pattern"),
    check="exact",
    proof="docs/relations.md, Theorem 1",
)
def composition(points: int, hops: int = 2, pattern: str = "hard") -> Composition:
    """Two heads of MHA and m + 2 ReLUs, applied h - 1 times.

    Args:
        points: m.
        hops: h, 2 for R o R.
        pattern: "hard", or "softmax" at `sharpness`.

    Raises:
        ValueError: numbers below 1, another pattern.
    """
    m = require_count("points", points)
    require_one_of("pattern", pattern, PATTERNS)
    sizes = {"head_dim": m + 1, "value_head_dim": m + 1, "out_proj": False, "dtype": torch.float64}
    scale = 1.0 if pattern == "hard" else sharpness(m)
    layer = MultiHeadAttention(2 * m + 2, 2, pattern=pattern, scale=scale, **sizes)  # type: ignore[arg-type]
    row, column = slice(2, m + 2), slice(m + 2, 2 * m + 2)
    with torch.no_grad():
        for weight in (layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight):
            weight.zero_()
        for head, (bit, own, other) in enumerate(((0, row, column), (1, column, row))):
            place = slice(head * (m + 1), (head + 1) * (m + 1) - 1)
            layer.q_proj.weight[place, own] = 2 * torch.eye(m, dtype=torch.float64)
            layer.q_proj.weight[place.stop, own] = 1  # the codes of a row add up to 1
            layer.k_proj.weight[place, own] = torch.eye(m, dtype=torch.float64)
            layer.k_proj.weight[place.stop, bit] = 1
            layer.v_proj.weight[place, other] = torch.eye(m, dtype=torch.float64)
            layer.v_proj.weight[place.stop, bit] = 1
    return Composition(layer, Overlap(m), require_count("hops", hops))


@blueprint.construction(
    "two-step-paths",
    "the number of two-step paths of a relation by m heads of hard attention that see content, no MLP",
    uses=("relation", "mha", "pattern"),
    check="exact",
    proof="docs/relations.md, Theorem 2",
)
def paths(points: int) -> Construction:
    """m heads of hard attention on [x, I], added up: token (i, j) gets the number of k with R_ik = R_kj = 1.

    Args:
        points: m.

    Raises:
        ValueError: a number below 1.
    """
    m = require_count("points", points)
    n = m * m
    sizes = {"head_dim": n + 1, "value_head_dim": 1, "out_dim": 1, "pattern": "hard", "scale": 1.0}
    layer = MultiHeadAttention(n + 1, m, vdim=n + 1, dtype=torch.float64, **sizes)  # type: ignore[arg-type]
    i, j = torch.arange(n) // m, torch.arange(n) % m
    assert layer.out_proj is not None
    with torch.no_grad():
        for weight in (layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight):
            weight.zero_()
        for k in range(m):
            query, key = (p.weight[k * (n + 1) : (k + 1) * (n + 1)] for p in (layer.q_proj, layer.k_proj))
            for to in (i * m + k, k * m + j):
                query[:n, 1:].index_put_((to, torch.arange(n)), torch.tensor(2.0).double(), accumulate=True)
            query[n, 1:] = -1
            key[:n, 1:] = torch.eye(n, dtype=torch.float64)
            key[n, 0] = 1
        layer.v_proj.weight[:, 0] = 1
        layer.out_proj.weight.fill_(1)
    return Construction(f"paths/m={m}", "docs/relations.md", layer, (Block("paths", 0, 1),), 1)
