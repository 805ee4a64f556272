"""The MLPs that count pairs in a workspace: the paper's (App. B.3), and one of ReLU units only (ledger E10).

Both form z = x_0 + G x_s + x_t for every pair (s, t) of N slots, test whether M divides z, and sum. The paper's
activation takes z mod M. A ReLU network tests 1[z = 0 mod M] on the integers 0 .. Z by

- **tents** (one hidden layer): the piecewise linear function through the points (z, 1[M divides z]). It has knots at
  kM - 1, kM, kM + 1 for every multiple kM that has room for them, and a unit for each: with K = floor(Z/M) >= 1 and
  M >= 3, 3K + 1 - max(0, 2 - (Z mod M)) units; Z units for M = 2. For M >= 4 no hidden layer has fewer: see
  `least_knots`.
- **folds** (p + 1 hidden layers of 2 units, p = ceil(log2(ceil(Z/M)))): z -> |z - cM| = ReLU(z - cM) + ReLU(cM - z)
  keeps the distance of z to the multiples of M. Folds at c = 2^{p-1}, ..., 2, 1 map 0 .. 2^p M to 0 .. M, where the
  multiples are 0 and M, and the test is ReLU(1 - z) + ReLU(z - M + 1). So 2p + 2 units. No ReLU network has fewer than
  log2 of the knots it needs, of any depth: on a line a unit at most doubles the number of linear pieces, since it
  changes slope at most once on a piece of its input. So folds are within a factor of about 2 of the least.

With tokens in 0 .. B, Z = (2 + G mod M) B; for residues, B = M - 1, and K <= 1 + G mod M <= M.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from iha_theory import blueprint, exact
from iha_theory.rounding import require_count


@blueprint.construction(
    "pair-count",
    "the paper's MLP: a hidden unit for each pair of slots, with activation ReLU(1 - (z mod M))",
    uses=("cpm3",),
    check="exact",
)
class PairCount(nn.Module):
    """Counts the ordered pairs (s, t) of workspace slots with x_0 + G x_s + x_t = 0 mod M.

    Hidden unit (s, t) computes z = x_0 + G x_s + x_t and ReLU(1 - (z mod M)), which on integers is 1 if M divides z and
    0 if not; the output sums the units. With presence flags f beside the values, the unit is
    ReLU(f_0 + f_s + f_t - 2 - (z mod M)): slots without a token count nothing (ledger E9). "mod M" as part of the
    activation is the paper's (`ReluPairCount` has ReLU only). G enters modulo M, which is the same function.

    Args:
        values: columns of the input that hold the workspace's values, slot 0 (the token's own) first.
        width: the input's width.
        modulus: M >= 1.
        coefficient: G, any integer.
        flags: columns that hold the presence flags, in the same order; None if every slot holds a token.
        own: the column of x_0; None for slot 0's.

    Raises:
        ValueError: M < 1.
    """

    def __init__(
        self,
        values: list[int],
        width: int,
        modulus: int,
        coefficient: int,
        flags: list[int] | None = None,
        own: int | None = None,
    ) -> None:
        super().__init__()
        self.modulus = require_count("modulus", modulus)
        slots = len(values)
        self.pairs = nn.Linear(width, slots**2, bias=False, dtype=torch.float64)
        self.presence = None if flags is None else nn.Linear(width, slots**2, bias=True, dtype=torch.float64)
        self.total = nn.Linear(slots**2, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.total.weight.fill_(1)
            _pair_weights(self.pairs, values, coefficient % modulus, own)
            if self.presence is not None and flags is not None:
                _pair_weights(self.presence, flags, 1)
                self.presence.bias.fill_(-2)

    def forward(self, workspace: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """The counts, (…,), for workspaces (…, width): exact integers where (M + 1) max |value| < 2^53."""
        gate = 1.0 if self.presence is None else self.presence(workspace)
        hidden = torch.relu(gate - self.pairs(workspace).remainder(self.modulus))
        return self.total(hidden).squeeze(-1)


def _pair_weights(linear: nn.Linear, columns: list[int], coefficient: int, own: int | None = None) -> None:
    slots = len(columns)
    linear.weight.zero_()
    rows = linear.weight.view(slots, slots, -1)
    rows[:, :, columns[0] if own is None else own] += 1
    for s, column in enumerate(columns):
        rows[s, :, column] += coefficient
        rows[:, s, column] += 1


HIDDEN = 2**17
"""Hidden values of an MLP at a time: what a core's cache holds, which halves the time."""


@blueprint.construction(
    "relu-pair-count",
    "the same count by ReLUs alone: sums of tents, or folds in p + 1 layers",
    uses=("pair-count",),
    check="exact",
)
class ReluPairCount(nn.Module):
    """`PairCount` by linear layers and ReLU only, for tokens in 0 .. highest.

    z = x_0 + G x_s + x_t is linear in the workspace. Every pair's z goes through the same small ReLU network, which
    tests whether M divides it (see the module): as one MLP its layers are block diagonal. The output sums the pairs.
    For M = 1 every z is replaced by 0.

    With presence flags f, a first hidden unit for each pair holds ReLU(z + 1 - (Z + 1) (3 - f_0 - f_s - f_t)): z + 1 if
    all three tokens are there and 0 if not. The test is made of this plus M - 1, on 0 .. Z + M; M - 1 never passes.

    Args:
        values: columns of the input that hold the workspace's values, slot 0 (the token's own) first.
        width: the input's width.
        modulus: M >= 1.
        coefficient: G, any integer; only G mod M matters.
        flags: columns of the presence flags, in the same order; None if every slot holds a token.
        highest: B, the largest token; default M - 1, for residues.
        deep: test by folds; otherwise by tents.

    Raises:
        ValueError: M < 1 or B < 0; so large that float64 may not hold every sum.
    """

    def __init__(
        self,
        values: list[int],
        width: int,
        modulus: int,
        coefficient: int,
        flags: list[int] | None = None,
        *,
        highest: int | None = None,
        deep: bool = False,
    ) -> None:
        super().__init__()
        self.modulus = require_count("modulus", modulus)
        self.highest = modulus - 1 if highest is None else highest
        if self.highest < 0:
            raise ValueError(f"the largest token must be at least 0, got {self.highest}")
        self.values = values
        divisor, top = max(modulus, 2), largest_sum(modulus, coefficient, self.highest)
        if (
            16 * (top + divisor) * (1 if deep else top // divisor + 1) >= exact.LARGEST_INTEGER
        ):  # no partial sum is larger
            raise ValueError(
                f"sums of tokens up to {self.highest} with M = {modulus} may not be exact: reduce them mod M"
            )
        self.pairs = nn.Linear(width, len(values) ** 2, bias=False, dtype=torch.float64)
        self.presence = None if flags is None else nn.Linear(width, len(values) ** 2, dtype=torch.float64)
        self.shift = 0 if flags is None else divisor - 1
        self.test = (folds if deep else tents)(divisor, top if flags is None else top + divisor)
        self.total = nn.Linear(len(values) ** 2, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            self.total.weight.fill_(1)
            _pair_weights(self.pairs, values, coefficient % modulus)
            if modulus == 1:
                self.pairs.weight.zero_()
            if self.presence is not None and flags is not None:
                _pair_weights(self.presence, flags, 1)
                self.presence.weight *= top + 1
                self.presence.bias.fill_(1 - 3 * (top + 1))

    @property
    def hidden_units(self) -> int:
        """Number of ReLUs for an input, counted."""
        per_pair = sum(m.out_features for m in list(self.test)[:-1] if isinstance(m, nn.Linear))
        return self.pairs.out_features * (per_pair + (self.presence is not None))

    def forward(self, workspace: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch"]:
        """The counts, (…,), for workspaces (…, width): exact integers.

        Raises:
            ValueError: a token outside 0 .. highest, where the test was not made to work.
        """
        tokens = workspace[..., self.values]
        if not bool(((tokens >= 0) & (tokens <= self.highest)).all()):
            raise ValueError(f"tokens must be in 0 .. {self.highest}: reduce them modulo M, or raise `highest`")
        rows = workspace.reshape(-1, workspace.shape[-1])
        step = max(1, HIDDEN // max(self.hidden_units, 1))
        return torch.cat([self._count(part) for part in rows.split(step)]).view(workspace.shape[:-1])

    def _count(self, rows: Tensor) -> Tensor:
        z = self.pairs(rows)
        if self.presence is not None:
            z = torch.relu(z + self.presence(rows)) + self.shift
        return self.total(self.test(z.unsqueeze(-1)).squeeze(-1)).squeeze(-1)


def largest_sum(modulus: int, coefficient: int, highest: int) -> int:
    """Z = (2 + G mod M) B, the largest x_0 + (G mod M) x_s + x_t of tokens in 0 .. B; 0 for M = 1, where z is 0."""
    return 0 if modulus == 1 else (2 + coefficient % modulus) * highest


def relu_units(modulus: int, top: int, *, deep: bool) -> int:
    """Units that test 1[z = 0 mod M] on 0 .. Z, for M >= 2: see the module.

    tents: 1 if Z < M; else 3K + 1 - max(0, 2 - Z mod M) with K = floor(Z/M), and Z if M = 2.    folds: 2p + 2.
    """
    if deep:
        return 2 * _foldings(modulus, top) + 2
    if modulus == 2:
        return max(top, 1)
    multiples = top // modulus
    return 1 + (3 * multiples - max(0, 2 - top % modulus) if multiples else 0)


def relu_pair_count_units(slots: int, modulus: int, coefficient: int, highest: int, *, deep: bool) -> int:
    """ReLUs of a `ReluPairCount` without flags: N^2 times `relu_units`."""
    divisor, top = max(modulus, 2), largest_sum(modulus, coefficient, highest)
    return slots**2 * relu_units(divisor, top, deep=deep)


def tents(modulus: int, top: int) -> nn.Sequential:
    """1[z = 0 mod M] on the integers 0 .. Z in one hidden layer, M >= 2: (…, 1) -> (…, 1), float64."""
    return interpolation([int(z % modulus == 0) for z in range(max(top, 1) + 1)])


def folds(modulus: int, top: int) -> nn.Sequential:
    """1[z = 0 mod M] on the integers 0 .. Z in p + 1 hidden layers of two units, M >= 2: (…, 1) -> (…, 1), float64."""
    layers: list[nn.Module] = []
    for fold in reversed(range(_foldings(modulus, top))):
        center = 2**fold * modulus
        layers += [_linear([[1.0], [-1.0]], [-center, center], wide=bool(layers)), nn.ReLU()]
    layers += [_linear([[-1.0], [1.0]], [1, 1 - modulus], wide=bool(layers)), nn.ReLU()]
    return nn.Sequential(*layers, _linear([[1.0]], [0], wide=True))


def interpolation(values: Sequence[int]) -> nn.Sequential:
    """A function on the integers 0 .. Z as the piecewise linear one between them, in one hidden layer.

    f(s) = f(1) + (f(0) - f(1)) ReLU(1 - s) + sum_{j=1}^{Z-1} D_j ReLU(s - j), D_j the change of slope at j; for j = 1
    the slope after it, since the first unit has slope 0 there. A unit for each term that is not 0.

    Args:
        values: f(0), ..., f(Z), Z >= 1.
    """
    slopes = [b - a for a, b in pairwise(values)]
    changes = [b - a for a, b in pairwise([0, *slopes[1:]])]
    units = [(-1.0, 1.0, float(-slopes[0]))] + [(1.0, float(-j), float(d)) for j, d in enumerate(changes, 1)]
    kept = [unit for unit in units if unit[2]] or units[:1]
    first = _linear([[weight] for weight, _, _ in kept], [bias for _, bias, _ in kept])
    return nn.Sequential(first, nn.ReLU(), _linear([[out for _, _, out in kept]], [values[1]]))


def least_knots(values: Sequence[int]) -> int:
    """A lower bound on the units of one hidden ReLU layer (with any affine term) that gives these values on 0 .. Z.

    Such a function has at most a knot a unit. Where the second difference at j is positive, some knot in (j - 1, j + 1)
    is convex; where it is negative, some is concave. A knot is one of the two, so the least numbers of points that meet
    all intervals of each kind add up. For 1[z = 0 mod M] with M >= 4 the convex intervals (kM - 2, kM), (kM, kM + 2)
    and the concave ones (kM - 1, kM + 1) are disjoint within their kind: three knots a multiple, as `tents` has.
    """
    total = 0
    for sign in (1, -1):
        last = -1  # the right end of the last interval that got a point of its own
        for j in range(1, len(values) - 1):
            if sign * (values[j - 1] - 2 * values[j] + values[j + 1]) > 0 and j - 1 >= last:
                total, last = total + 1, j + 1
    return total


def _foldings(modulus: int, top: int) -> int:
    """p, the least with 2^p M >= Z."""
    return max(0, -(-top // modulus) - 1).bit_length()


def _linear(weight: Sequence[Sequence[float]], bias: Sequence[int | float], *, wide: bool = False) -> nn.Linear:
    """A linear layer of these weights; wide: of a sum y = a + b of two inputs, with the weights of y."""
    w = torch.tensor(weight, dtype=torch.float64)
    w = w.repeat(1, 2) if wide else w
    layer = nn.Linear(w.shape[1], w.shape[0], dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(w)
        layer.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return layer
