"""The operator of a layer of linear attention on many tokens, read from its weights a few rows at a time, in float64.

On [X, I_N] a position-only layer of linear attention is X -> sum_{x,y} Q_x K_y^T X B_xy
(`iha_theory.operators.weights`): Q_x, K_y the base queries and keys, B_xy from the mixing, the values and the output
projection,

    B_xy = sum_{o,m} C[o,m,x,y] V_m W_o,
    C[o,m,x,y] = sum_{h,j,j'} R[o,h,j] alpha_q[x,h,j] alpha_v[m,h,j'] alpha_k[y,h,j'],     in MHA 1 if o = m = x = y.

To run the layer on all N basis contents would take N^4 operations, and a map of N x N a head. Here one map is made at a
time, and of it a few rows. Two layers are the products of one's maps and the other's.

What the layer itself does is seen on a sample: each pair of a query and a key counts alone in linear attention, so the
layer runs on `SAMPLE` of either, with its own code, and has to give what was read up to rounding.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from scipy.sparse import csr_array
from torch import Tensor

from constructions.checks.operators import layers_of, operations, require_blocks, require_position_only
from constructions.checks.oracles.powers import UnitPowerRows
from constructions.construction import Construction
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.operators.weights import NotPositionOnlyError
from iha_theory.rounding import gamma, largest_ratio

SAMPLE = 32
"""Queries, and keys, on which a layer runs."""
SPARSE = 32
"""Keys with at most one entry in so many that is not 0 are multiplied by these entries."""


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
        sparse = {y: _sparse(self.keys[y].mT) for y in {y for _, y in self.pairs}}
        self._sparse = {y: own for y, own in sparse.items() if own is not None}
        wide = {x: 2 * int(self.queries[x].count_nonzero()) < self.queries[x].numel() for x, _ in self.pairs}
        self._wide = {x for x, few in wide.items() if few}

    @property
    def dear(self) -> bool:
        """Whether a map is a product of matrices that are not sparse."""
        return any(y not in self._sparse and x not in self._wide for x, y in self.pairs)

    def maps(self, rows: slice) -> list[Float[Tensor, "N r"]]:
        """(Q_x K_y^T)^T of these rows, for every pair."""
        found = []
        for x, y in self.pairs:
            own = self.queries[x][:, rows]
            if y in self._sparse:
                found.append(torch.from_numpy(self._sparse[y] @ own.numpy()))
            else:
                found.append(_product(self.keys[y].mT, own, x in self._wide))
        return found

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
        for (q, y), content in zip(self.pairs, self.contents, strict=True):
            queries, keys = self.queries[q][:, at], self.keys[y][:, to]
            read += queries.mT @ keys @ x @ content
            sizes += queries.abs().mT @ keys.abs() @ x.abs() @ sums[q, y]
        return largest_ratio(out - read, sizes)


def _sparse(matrix: Float[Tensor, "m n"]) -> csr_array | None:
    """The matrix by its entries, if they are few."""
    if int(matrix.count_nonzero()) * SPARSE > matrix.numel():
        return None
    i, j = matrix.nonzero(as_tuple=True)
    return csr_array((matrix[i, j].numpy(), (i.numpy(), j.numpy())), shape=matrix.shape)


def _product(matrix: Float[Tensor, "m n"], block: Float[Tensor, "n r"], wide: bool) -> Float[Tensor, "m r"]:
    """The product; only of the block's rows that are not 0, if it is said to be mostly 0."""
    if not wide:
        return matrix @ block
    live = block.any(1).nonzero().flatten()
    return matrix[:, live] @ block[live]


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
        last = self.layers[-1].contents
        if len(self.layers) == 1:
            contents = last
        else:  # sum_c B1_u[a, c] B2_x[c, e], for maps x and then u
            contents = torch.einsum("uac,xce->xuae", self.layers[0].contents, last).flatten(0, 1)
            self._inner = [(m, _sparse(m)) for m in self.layers[0].maps(slice(0, tokens))]
        self.contents = contents[..., self._columns]
        self._live = self.contents.flatten(1).any(1)

    def __call__(self, rows: slice) -> Float[Tensor, "d D N r"]:
        """d out[i, e] / d X[j, a] for these i, as [a, e, j, i]."""
        return self.combined(self.maps(rows), rows)

    def maps(self, rows: slice) -> list[Float[Tensor, "N r"]]:
        """These rows of all maps M_p, transposed."""
        maps = self.layers[-1].maps(rows)
        if len(self.layers) > 1:
            live = self._live.unflatten(0, (len(maps), -1))
            maps = [self._behind(m, u, bool(live[x, u])) for x, m in enumerate(maps) for u in range(len(self._inner))]
        return maps

    def combined(self, maps: list[Float[Tensor, "N r"]], rows: slice) -> Float[Tensor, "d D N r"]:
        """sum_p M_p B_p, of rows of the maps."""
        if not maps:
            tokens = self.layers[0].queries.shape[2]
            return torch.zeros(*self.contents.shape[1:], tokens, rows.stop - rows.start, dtype=torch.float64)
        return torch.einsum("pae,pji->aeji", self.contents, torch.stack(maps))

    @property
    def dear(self) -> bool:
        """Whether the maps are products of matrices that are not sparse."""
        return len(self.layers) > 1 or any(layer.dear for layer in self.layers)

    def digest(self) -> bytes:
        """SHA-256 of all queries and keys, and of which maps they make."""
        total = hashlib.sha256()
        for layer in self.layers:
            total.update(repr((layer.pairs, tuple(layer.queries.shape))).encode())
            for block in (*layer.queries, *layer.keys):
                total.update(block.numpy().tobytes())
        return total.digest()

    def _behind(self, rows: Float[Tensor, "N r"], u: int, live: bool) -> Float[Tensor, "N r"]:
        """Rows of a second layer's map times map u of the first."""
        if not live:
            return torch.zeros_like(rows)
        inner, sparse = self._inner[u]
        if sparse is not None:
            return torch.from_numpy(sparse @ rows.numpy())
        return _product(inner, rows, 2 * int(rows.count_nonzero()) < rows.numel())

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
    """What was measured of one layer, for layers with the same queries and keys.

    contents: B_p for each map M_p. sizes: |M_p|_F. distance, norm: |L - T|_F and |T|_F.
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

    The products of queries and keys take most of the time. Of a layer with the very queries and keys (SHA-256) of one
    that was measured, sum_p M_p X B'_p, the error is at most that one's and sum_p |B'_p - B_p|_F |M_p|_F: so much is
    said, where it is more by rounding only. Otherwise it is measured anew.

    Raises:
        ValueError: a readout of another form; as `Rows`.
    """
    require_blocks(construction, target.rows.terms)
    read = Rows(construction)
    if not read.runs:
        return math.inf
    key = read.digest() if read.dear else None
    found = None if key is None else target.known.get(key)
    if found is not None and found.contents.shape == read.contents.shape:
        apart = (read.contents - found.contents).flatten(1).norm(dim=1)
        more = float(apart @ found.sizes)
        if more <= 64 * torch.finfo(torch.float64).eps * found.norm:
            return (found.distance + more) / found.norm
    found = _judged(read, target.rows, construction.width)
    if key is not None:
        target.known[key] = found
    error = found.distance / found.norm
    return error if math.isfinite(error) else math.inf


def _judged(read: Rows, target: UnitPowerRows, width: int) -> Judged:
    total = norm = 0.0
    sizes = torch.zeros(len(read.contents), dtype=torch.float64)
    for rows, wanted in target.blocks():
        maps = read.maps(rows)
        sizes += torch.stack([m.square().sum() for m in maps]) if maps else sizes
        found = read.combined(maps, rows).unflatten(1, (target.terms, width))  # [a, t, b, j, i]
        norm += width * float(wanted.square().sum())
        for a in range(width):
            found[a, :, a] -= wanted
        total += float(found.square().sum())
    return Judged(read.contents, sizes.sqrt(), math.sqrt(total), math.sqrt(norm))
