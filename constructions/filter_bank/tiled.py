"""The constructions with about sqrt(H) pseudo-heads instead of H: the attention cost near MHA's (docs/results.md T6).

**Tiles.** Base queries Q_0 .. Q_{H-1}, base keys K_0 .. K_{H-1}; base value m is X in block m of H. A *tile* is a set
of rows o and a set of columns m, each with a coefficient, r_o and w_m; one head makes one tile. Its pseudo-queries are
the Q_o of its rows, its pseudo-keys the K_m of its columns, its pseudo-values the base values m times w_m; the collapse
adds r_o times its row to output head o. With linear attention the tile adds r_o w_m Q_o K_m^T X to block m of output
head o, for each of its rows and columns, so that block (o, m) of the layer is

    c[o, m] Q_o K_m^T X,      c = sum over tiles of r w^T, in R^{H x H}.

- Bank: Q_o = A^{oH}, K_m = (A^m)^T. If c[o, m] = 1 wherever o H + m < k, block o H + m is A^{oH+m} X.
- Workspace, hard attention: Q_o = P^{oH} and (P^m)^T are permutation matrices. A live pseudo-key (one of the tile's
  columns) has score 1 with exactly one token, for each token of a live row, and 0 with all others; a dead pseudo-key
  (where another tile has more columns) is 0 and scores 0 with every token. So a live row ties over one token of each of
  the L live pseudo-keys and nothing else, with weight 1/L. With pseudo-values L w_m X the row is that of linear
  attention. A dead pseudo-query ties over everything, and so does a head without a tile; the collapse reads neither.

**Least.** A head with P pseudo-heads has P^2 attention maps, and the H^2 operators of the layer are in the span of all
H P^2 (docs/results.md T1), so P >= sqrt(r / H) for an operator of Schmidt rank r. For r = k = H^2 that is P >= sqrt H.

**Tilings** (`tiling`): at most H tiles of at most P rows and P columns, with c = 1 in the first ceil(k / H) rows.

- The grid cut into ceil(rows / P) x ceil(H / P) rectangles: docs/results.md T6. For k = H^2 its least P is ceil(sqrt
  H), and one more if s^2 + s < H < (s + 1)^2 for some s: H = 3, 7, 8, 13, ... (With s = floor(sqrt H), s^2 <= H < (s +
  1)^2, it needs ceil(H / P) <= s, that is P = ceil(H / s).)
- Tiles that overlap, for H = 3 and H = 7 (`OVERLAPPING`), with P = ceil(sqrt H): where they overlap the sums of r_o w_m
  are 1 because some are negative. Fewer attention maps than T6: 12 for k = 9 (T6: 27), 63 for k = 49 (T6: 112).
- No tiles of side s with c = 1 on the whole grid for H = s^2 - m, m >= 1, if s > 2 m (8, 15, 23, 24, 34, 35, ...), or
  if s = 2 m and m is not 1 modulo 3 (14, 33, ...): `impossible`, `claims T19e`. H = 13, 21, 22, 31, ...
  are open. For H = 8 there are covers by 8 such tiles, which have no coefficients.

  1. *Counts.* A row needs s tiles, as H > s (s - 1), and H tiles have H s rows: each row is in exactly s tiles and each
     tile has s rows. These s tiles have s^2 = H + m columns. So call a cell in one tile single, others double: a row
     has at most m double cells, and at least one; m of them if each is in two tiles. Columns likewise.
  2. *s > 2 m.* In a tile every row has at least s - m > s / 2 single cells, so two rows share a column of such: they
     join all rows and columns. On them r_o w_m = 1, so r and w are constant and r_o w_m = 1 on the whole tile. So
     c >= 2 on double cells.
  3. *s = 2 m.* A tile whose single cells do not join it all has two parts, of m rows and m columns each, since each row
     and column has m single cells at least: all cells within the parts are single, and the others, two blocks of
     m x m, are double. With r_o w_m = 1 on the parts it is v on one block and 1 / v on the other. A double cell is in
     such a tile, or c >= 2. So its row has m double cells in that tile, and no others, and each is in two tiles. If
     r_o w_m = 1 in either of the two, the other has 0: not so. So both are tiles of two parts, with v and 1 - v, v not
     0 or 1, and with the same block there, as it holds all double cells of its rows and of its columns. Go on to the
     other tile, and to its other block, and so on: from v to 1 / (1 - v), a map whose third power is the identity and
     which has no fixed point, nor has its square. So the tiles of two parts lie on cycles of lengths divisible by 3.
     Each row is in two of them, so there are 2 H / s = 4 m - 1, and m = 1 modulo 3.

**With an output projection** P = ceil(sqrt H) is enough for every H (`cyclic`, `products`): tile h has rows h + p and
columns h + e P modulo H, for p, e < P. Cell (o, m) is in at least one tile, and in at most as many as there are (p, e)
with e P - p = m - o modulo H. The e P - p are the P^2 consecutive integers from 1 - P on, and H <= P^2 <= 2 H (the
second since (P - 1)^2 < H and P^2 <= 2 (P - 1)^2 + 2); so c[o, m] is 1 or 2. The output projection divides by it,
exactly in float64.
"""

from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from constructions.filter_bank.paper import Powers, iha_weights, selectors
from constructions.filter_bank.products import Bases, filled
from iha_theory import blueprint
from iha_theory.attention.patterns import Pattern
from iha_theory.operators.weights import Mixing, PositionWeights
from iha_theory.rounding import ceil_sqrt, require_count


@dataclass(frozen=True)
class Tile:
    """rows: (output head o, r_o). columns: (value head m, w_m). See the module docstring."""

    rows: tuple[tuple[int, int | float], ...]
    columns: tuple[tuple[int, int | float], ...]

    @property
    def side(self) -> int:
        """The pseudo-heads it needs."""
        return max(len(self.rows), len(self.columns))


def _tile(rows: dict[int, int | float], columns: dict[int, int | float]) -> Tile:
    return Tile(tuple(rows.items()), tuple(columns.items()))


OVERLAPPING = {
    3: (
        _tile({0: -1, 1: 1}, {0: -1, 1: 1}),
        _tile({0: 1, 2: 0.5}, {1: 2, 2: 1}),
        _tile({1: 1, 2: 0.5}, {0: 2, 2: 1}),
    ),
    7: (
        _tile({0: -1, 1: 1, 2: 1}, {0: -1, 1: -1, 2: 1}),
        _tile({0: 1, 3: 1, 4: 1}, {2: 1, 3: 1, 4: 1}),
        _tile({0: 1, 5: 1, 6: 1}, {2: 1, 5: 1, 6: 1}),
        _tile({1: 1, 3: 0.5, 4: 0.5}, {0: 2, 5: 1, 6: 1}),
        _tile({1: 1, 5: 0.5, 6: 0.5}, {1: 2, 3: 1, 4: 1}),
        _tile({2: 1, 3: 0.5, 4: 0.5}, {1: 2, 5: 1, 6: 1}),
        _tile({2: 1, 5: 0.5, 6: 0.5}, {0: 2, 3: 1, 4: 1}),
    ),
}
"""H tiles with c = 1 on the whole grid and P = ceil(sqrt H), which no H tiles without overlap reach."""


@blueprint.theorem(
    "no-tiling",
    "without an output projection no tiles with P = ceil(sqrt H) make H^2 blocks for H = 8, 14, 15, 23, 24, ...",
    uses=("bank-tiled",),
    check="exact",
)
def impossible(heads: int) -> bool:
    """Whether H tiles of side ceil(sqrt H) are proved not to have c = 1 on the whole grid; see the module docstring."""
    side = ceil_sqrt(heads)
    missing = side**2 - heads
    return 0 < 2 * missing < side or (side == 2 * missing and missing % 3 != 1)


def tiling(
    rows: int, columns: int, heads: int, projected: bool = False, pseudo_heads: int | None = None
) -> tuple[Tile, ...]:
    """At most H tiles that cover the first cells of the H x H grid, of the least side that the module docstring has.

    Args:
        rows: how many rows of the grid to cover, at most H.
        columns: how many columns.
        heads: H.
        projected: cells may be covered twice, since an output projection divides by c.
        pseudo_heads: the largest side allowed; None for any.

    Raises:
        ValueError: no tiling of that side is known; it says whether there is none.
    """
    side = next(p for p in count(1) if -(-rows // p) * -(-columns // p) <= heads)
    rectangles = tuple(
        Tile(tuple((o, 1) for o in range(rows)[i : i + side]), tuple((m, 1) for m in range(columns)[j : j + side]))
        for i in range(0, rows, side)
        for j in range(0, columns, side)
    )
    others = [cyclic(heads)] if projected else []
    others += [OVERLAPPING[heads]] if heads in OVERLAPPING else []
    best = min([rectangles, *others], key=_side)
    if pseudo_heads is not None and _side(best) > require_count("pseudo_heads", pseudo_heads):
        whole = rows == columns == heads and not projected and pseudo_heads == ceil_sqrt(heads)
        none = heads * pseudo_heads**2 < rows * columns or (whole and impossible(heads))
        what = f"H = {heads} tiles with P = {pseudo_heads} pseudo-heads for a grid of {rows} x {columns}"
        raise ValueError(f"there are no {what}" if none else f"no {what} are known: P = {_side(best)} is enough")
    return best


def _side(tiles: tuple[Tile, ...]) -> int:
    return max(tile.side for tile in tiles)


def cyclic(heads: int) -> tuple[Tile, ...]:
    """H tiles of side ceil(sqrt H) that cover every cell once or twice, with all coefficients 1."""
    side = ceil_sqrt(heads)
    return tuple(
        Tile(tuple(((h + p) % heads, 1) for p in range(side)), tuple(((h + e * side) % heads, 1) for e in range(side)))
        for h in range(heads)
    )


def coverage(tiles: tuple[Tile, ...], heads: int, absolute: bool = False) -> Float[np.ndarray, "heads heads"]:
    """c, (H, H); with `absolute` the sum of |r_o w_m|, which rounding errors are relative to."""
    c = np.zeros((heads, heads))
    for tile in tiles:
        for o, r in tile.rows:
            for m, w in tile.columns:
                c[o, m] += abs(r * w) if absolute else r * w
    return c


def mixing(tiles: tuple[Tile, ...], heads: int, average: bool = False) -> Mixing:
    """IHA's mixing, a head for each tile.

    Args:
        tiles: at most H.
        heads: H.
        average: hard attention averages: scale a tile's pseudo-values by the number of its columns.
    """
    shape = (heads, heads, _side(tiles))
    alpha_q, alpha_k, alpha_v, collapse = (np.zeros(shape) for _ in range(4))
    for h, tile in enumerate(tiles):
        for p, (o, r) in enumerate(tile.rows):
            alpha_q[o, h, p], collapse[o, h, p] = 1, r
        for p, (m, w) in enumerate(tile.columns):
            alpha_k[m, h, p], alpha_v[m, h, p] = 1, w * (len(tile.columns) if average else 1)
    return Mixing(alpha_q, alpha_k, alpha_v, collapse)


@blueprint.construction(
    "bank-tiled",
    "IHA with about sqrt H pseudo-heads, one tile a head, makes the filter bank with nearly as many "
    "attention maps as MHA",
    uses=("bank-iha",),
    check="exact",
)
def weights(power: Powers, terms: int, width: int, pattern: Pattern = "linear") -> PositionWeights:
    """The bank, over any domain, or with hard attention the workspace: ceil(sqrt k) heads, tiled."""
    heads = ceil_sqrt(terms)
    tiles = tiling(-(-terms // heads), heads, heads)
    own = iha_weights(power, terms, width, pattern, factor=1)
    return replace(own, mixing=mixing(tiles, heads, average=pattern == "hard"))


def products(queries: Bases, keys: Bases, contents: Float[Tensor, "a b d D"]) -> PositionWeights:
    """X -> sum_{a,b} Q_a K_b^T X B_ab by IHA with H = max(#a, #b) heads and at most ceil(sqrt H) pseudo-heads.

    As `constructions.filter_bank.products.iha_products`, which has P = H; the B_ab are in the output projection.
    """
    heads = max(len(queries), len(keys))
    tiles = tiling(len(queries), len(keys), heads, projected=True)
    c = torch.from_numpy(coverage(tiles, heads))
    c[c == 0] = 1
    blocks = F.pad(contents, (0, 0, 0, 0, 0, heads - len(keys), 0, heads - len(queries)))
    return PositionWeights(
        query=filled(queries, heads),
        key=filled(keys, heads),
        value=selectors(contents.shape[2], heads),
        pattern="linear",
        mixing=mixing(tiles, heads),
        out=(blocks / c[:, :, None, None]).flatten(0, 2),
    )
