"""The operator of a layer of linear attention on many tokens, read from its weights a few rows at a time, in float64.

On [X, I_N] a position-only layer of linear attention is X -> sum_{x,y} Q_x K_y^T X B_xy
(`iha_theory.operators.weights`): Q_x, K_y the base queries and keys, B_xy from the mixing, the values and the output
projection,

    B_xy = sum_{o,m} C[o,m,x,y] V_m W_o,
    C[o,m,x,y] = sum_{h,j,j'} R[o,h,j] alpha_q[x,h,j] alpha_v[m,h,j'] alpha_k[y,h,j'],     in MHA 1 if o = m = x = y.

To run the layer on all N basis contents would take N^4 operations, and a map of N x N a head. Here a few rows of the
maps are made at a time (`constructions.checks.factors`). Two layers are the products of one's maps and the other's.

What the layer itself does is seen on a sample: each pair of a query and a key counts alone in linear attention, so the
layer runs on `SAMPLE` of either, with its own code, and has to give what was read up to rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from constructions.checks.factors import Factor, product_rows, simplified
from constructions.checks.operators import layers_of, operations, require_blocks, require_position_only
from constructions.checks.oracles.powers import UnitPowerRows
from constructions.construction import Construction
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.operators.weights import NotPositionOnlyError
from iha_theory.rounding import gamma, largest_ratio

SAMPLE = 32
"""Queries, and keys, on which a layer runs."""
TOGETHER = 2**17
"""Numbers of the operator that are compared at once."""


class Reading:
    """One layer on `tokens` positions, its content the first `width` coordinates of its values.

    queries, keys: Q_x^T and K_y^T, (H, d_k, N). pairs: those (x, y) whose B_xy is not 0; contents: these B_xy,
    (pairs, d, D).
    """

    def __init__(self, layer: AttentionLayer, tokens: int, width: int) -> None:
        if layer.pattern != "linear" or layer.rotary or layer.window:
            raise NotPositionOnlyError("only linear attention without rotary positions or a window is read in rows")
        if layer.q_proj.bias is not None:
            raise NotPositionOnlyError("a bias makes the map affine, not linear")
        self.layer, self.width = layer, width
        heads = layer.num_heads
        self.queries, self.keys = (
            linear.weight.detach().unflatten(0, (heads, -1))[:, :, -tokens:] for linear in (layer.q_proj, layer.k_proj)
        )
        self.pairs, self.contents = _contents(layer, width)

    def factors(self) -> list[list[Factor]]:
        """The matrices whose product is the map Q_x K_y^T, for every pair."""
        left = {x: Factor.of(self.queries[x].mT) for x in {x for x, _ in self.pairs}}
        right = {y: Factor.of(self.keys[y]) for y in {y for _, y in self.pairs}}
        return [[left[x], right[y]] for x, y in self.pairs]

    def apply(self, x: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N D"]:
        """The operator on contents."""
        total = torch.zeros(*x.shape[:2], self.contents.shape[2], dtype=x.dtype)
        columns = x.transpose(0, 1).flatten(1)  # (N, batch d)
        inner = {y: self.keys[y] @ columns for y in {y for _, y in self.pairs}}
        for (q, y), content in zip(self.pairs, self.contents, strict=True):
            total += (self.queries[q].mT @ inner[y]).unflatten(1, (len(x), -1)).transpose(0, 1) @ content
        return total

    @torch.no_grad()
    def sampled_gap(self) -> float:
        """The layer itself against the reading, on a sample of queries and keys: `largest_ratio` to the addends."""
        tokens, generator = self.queries.shape[2], torch.Generator().manual_seed(0)
        at, to = (torch.randperm(tokens, generator=generator)[:SAMPLE] for _ in range(2))
        positions = torch.zeros(2, SAMPLE, self.layer.embed_dim, dtype=torch.float64)[:, : len(at)]
        for own, chosen in zip(positions, (at, to), strict=True):
            own[torch.arange(len(at)), self.layer.embed_dim - tokens + chosen] = 1
        x = torch.randn(4, len(at), self.width, dtype=torch.float64, generator=generator)
        values = torch.zeros(4, len(at), self.layer.vdim, dtype=torch.float64)
        values[:, :, : self.width] = x
        out = self.layer(positions[:1], positions[1:], values)
        read, sizes = torch.zeros_like(out), torch.zeros_like(out)
        absolute = _contents(self.layer, self.width, torch.abs)
        sums = dict(zip(absolute[0], absolute[1], strict=True))
        queries = {q: self.queries[q][:, at] for q in {q for q, _ in self.pairs}}
        keys = {y: self.keys[y][:, to] for y in {y for _, y in self.pairs}}
        for (q, y), content in zip(self.pairs, self.contents, strict=True):
            read += queries[q].mT @ keys[y] @ x @ content
            sizes += queries[q].abs().mT @ keys[y].abs() @ x.abs() @ sums[q, y]
        return largest_ratio(out - read, sizes)


def _contents(
    layer: AttentionLayer, width: int, form: Callable[[Tensor], Tensor] = torch.clone
) -> tuple[tuple[tuple[int, int], ...], Float[Tensor, "n d D"]]:
    """The pairs and their B_xy; of each parameter in this form."""
    heads = layer.num_heads
    values = form(layer.v_proj.weight.detach()).unflatten(0, (heads, -1))[:, :, :width]
    if layer.out_proj is None:
        out = torch.eye(layer.out_dim, dtype=torch.float64)
    else:
        out = form(layer.out_proj.weight.detach())
    out = out.unflatten(1, (heads, -1)) * form(torch.tensor(layer.scale, dtype=torch.float64))
    if not isinstance(layer, InterleavedHeadAttention):
        contents = torch.einsum("hca,ehc->hae", values, out)
        return tuple((h, h) for h in range(heads)), contents
    collapse = form(layer.collapse.detach())
    if layer.collapse_kind == "per_head":
        collapse = torch.diag_embed(collapse.T).permute(1, 2, 0)
    alphas = (form(alpha.detach()) for alpha in (layer.alpha_q, layer.alpha_k, layer.alpha_v))
    alpha_q, alpha_k, alpha_v = alphas
    left = torch.einsum("ohj,xhj->oxh", collapse, alpha_q)
    right = torch.einsum("mhj,yhj->myh", alpha_v, alpha_k)
    mix = torch.einsum("oxh,myh->oxym", left, right)
    contents = torch.einsum("oxym,mca,eoc->xyae", mix, values, out)
    pairs = tuple((int(x), int(y)) for x, y in contents.flatten(2).any(2).nonzero())
    return pairs, contents[[x for x, _ in pairs], [y for _, y in pairs]]


class Rows:
    """The operator of a construction's readout.

    Raises:
        NotPositionOnlyError: content in queries or keys, positions in values; another pattern.
    """

    def __init__(self, construction: Construction) -> None:
        require_position_only(construction)
        layers = layers_of(construction)
        tokens = layers[0].embed_dim - construction.width
        self.layers = [Reading(layers[0], tokens, construction.width)]
        self.layers += [Reading(layer, tokens, layer.vdim) for layer in layers[1:]]
        self._columns = torch.tensor([c for block in construction.readout for c in block.columns])
        self._bound = gamma(operations(construction, tokens))
        contents, factors = self.layers[-1].contents, self.layers[-1].factors()
        if len(self.layers) > 1:  # sum_c B1_u[a, c] B2_x[c, e], for maps x and then u
            contents = torch.einsum("uac,xce->xuae", self.layers[0].contents, contents).flatten(0, 1)
            factors = [second + first for second in factors for first in self.layers[0].factors()]
        contents = contents[..., self._columns]
        live = contents.flatten(1).any(1)
        self.contents = contents[live]
        self._factors = [simplified(own) for own, used in zip(factors, live.tolist(), strict=True) if used]

    def __call__(self, rows: slice) -> Float[Tensor, "d D N r"]:
        """d out[i, e] / d X[j, a] for these i, as [a, e, j, i]."""
        return torch.einsum("pae,pji->aeji", self.contents, self.maps(rows))

    def maps(self, rows: slice, out: Float[Tensor, "p N r"] | None = None) -> Float[Tensor, "p N r"]:
        """These rows of all maps M_p, transposed."""
        out = self.empty(rows) if out is None else out
        for place, factors in zip(out, self._factors, strict=True):
            product_rows(place, factors, rows)
        return out

    def empty(self, rows: slice) -> Float[Tensor, "p N r"]:
        """Room for so many rows of all maps."""
        tokens = self.layers[0].queries.shape[2]
        return torch.empty(len(self._factors), tokens, rows.stop - rows.start, dtype=torch.float64)

    @property
    def dear(self) -> bool:
        """Whether a map is a product of matrices that are not sparse."""
        return any(sum(factor.dense for factor in own) > 1 for own in self._factors)

    def digests(self) -> list[bytes]:
        """Of each map's factors."""
        return [b"".join(factor.digest for factor in own) for own in self._factors]

    def apply(self, x: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N read"]:
        """The readout on contents."""
        for layer in self.layers:
            x = layer.apply(x)
        return x[..., self._columns]

    @property
    def runs(self) -> bool:
        """Whether the layers themselves do what was read."""
        return all(layer.sampled_gap() <= self._bound for layer in self.layers)


@dataclass(frozen=True)
class Judged:
    """What was measured of one layer, for layers with the same maps.

    contents: B_p for each map M_p, in the order of the maps' digests. sizes: |M_p|_F. distance, norm: |L - T|_F, |T|_F.
    """

    contents: Float[Tensor, "p d D"]
    sizes: Float[Tensor, " p"]
    distance: float
    norm: float


@dataclass(frozen=True)
class Target:
    """Rows of a bank, and what was measured against it."""

    rows: UnitPowerRows
    known: dict[bytes, Judged] = field(default_factory=dict)


def frobenius_error_in_rows(construction: Construction, target: Target) -> float:
    """`constructions.checks.operators.frobenius_error` of a large layer; infinite if it does not do what was read.

    The products of queries and keys take most of the time. Of a layer whose maps are products of the very matrices
    (SHA-256) of one that was measured, sum_p M_p X B'_p, the error is at most that one's and
    sum_p |B'_p - B_p|_F |M_p|_F: so much is said, where it is more by rounding only. Otherwise it is measured anew.

    Raises:
        ValueError: a readout of another form; as `Rows`.
    """
    require_blocks(construction, target.rows.terms)
    read = Rows(construction)
    if not read.runs:
        return math.inf
    if not read.dear:
        found = _judged(read, target.rows, construction.width)
        return _ratio(found.distance, found.norm)
    digests = read.digests()
    order = sorted(range(len(digests)), key=digests.__getitem__)
    key, contents = b"".join(digests[p] for p in order), read.contents[order]
    found = target.known.get(key)
    if found is not None and found.contents.shape == contents.shape:
        more = float((contents - found.contents).flatten(1).norm(dim=1) @ found.sizes)
        if more <= 64 * torch.finfo(torch.float64).eps * found.norm:
            return _ratio(found.distance + more, found.norm)
    found = _judged(read, target.rows, construction.width)
    target.known[key] = replace(found, contents=contents, sizes=found.sizes[order])
    return _ratio(found.distance, found.norm)


def _ratio(distance: float, norm: float) -> float:
    error = distance / norm
    return error if math.isfinite(error) else math.inf


def _judged(read: Rows, target: UnitPowerRows, width: int) -> Judged:
    """|L - T|_F, |T|_F and |M_p|_F, by blocks that stay in the cache where they are read again."""
    total = norm = 0.0
    sizes, room = torch.zeros(len(read.contents), dtype=torch.float64), None
    contents = read.contents.flatten(1).mT  # [(a, t, b), p]
    for rows, wanted in target.blocks():
        if room is None or room.shape[2] != wanted.shape[2]:
            room = read.empty(rows)
        maps = read.maps(rows, room)
        step = max(1, TOGETHER // (len(contents) * wanted.shape[2]))
        for own, goal in zip(maps.split(step, 1), wanted.split(step, 1), strict=True):
            sizes += own.flatten(1).norm(dim=1).square()
            found = (contents @ own.flatten(1)).unflatten(0, (width, target.terms, width))
            for a in range(width):
                found[a, :, a] -= goal.flatten(1)
            total += float(found.norm()) ** 2
            norm += width * float(goal.norm()) ** 2
    return Judged(read.contents, sizes.sqrt(), math.sqrt(total), math.sqrt(norm))
