"""CPM-3 with content anywhere: what half the tokens must tell the rest (T15c), and how little IHA may tell (T15g).

Proofs: docs/cpm3.md, Theorem 4. For sets A, B of 1 .. n the query token is 0, token j of the first half is j or n + 1,
token j of the second half -j or n + 1 modulo M = 2 n + 3; the query token's count is 1 + 2 |A and B|.
"""

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory import blueprint
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.capacity import generic
from synthetic.tasks.count_pairs import CountPairs

WIDTH = 4
"""Of a token."""
NARROW: dict[str, tuple[type[AttentionLayer], dict[str, Any]]] = {
    "softmax MHA": (MultiHeadAttention, {}),
    "linear MHA": (MultiHeadAttention, {"pattern": "linear"}),
    "softmax IHA": (InterleavedHeadAttention, {"num_pseudo_heads": 2}),
}


def sequence(first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> Int[np.ndarray, " tokens"]:
    """The tokens for two sets, given by 0 and 1: query token, first half, second half."""
    n = len(first)
    j = np.arange(1, n + 1)
    return np.concatenate(([0], np.where(first, j, n + 1), np.where(second, 2 * n + 3 - j, n + 1)))


@cache
def sets(n: int) -> Int[np.ndarray, "sets n"]:
    """All sets."""
    return np.array(list(product((0, 1), repeat=n)))


def embedded(x: np.ndarray, seed: int, *, blind: bool = False) -> Float[Tensor, "batch tokens width"]:
    """A random vector for every value at every position. blind: every position, whatever the value."""
    modulus, tokens = x.shape[1] + 2, x.shape[1]
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(modulus, tokens, WIDTH, generator=generator, dtype=torch.float64)
    return table[torch.from_numpy(0 * x if blind else x), torch.arange(tokens)]


def built(kind: str, heads: int = 1) -> AttentionLayer:
    """A random layer with values of width 1."""
    layer, options = NARROW[kind]
    sizes: dict[str, Any] = {"head_dim": 3, "value_head_dim": 1, "out_dim": 3}
    return generic(lambda: layer(WIDTH, heads, **sizes, **options))  # type: ignore[return-value]


def shares(layer: AttentionLayer, query: Tensor, tokens: Tensor) -> Float[Tensor, "batch rows sums"]:
    """What these tokens add to every row of the query token: numerators, and with softmax the denominator.

    Args:
        layer: MHA, or IHA, without biases and rotary positions.
        query: the query token, (width,).
        tokens: (batch, n, width).
    """
    q, k, v = (
        projection(x).unflatten(-1, (layer.num_heads, -1))
        for projection, x in ((layer.q_proj, query[None, None]), (layer.k_proj, tokens), (layer.v_proj, tokens))
    )
    if isinstance(layer, InterleavedHeadAttention):
        mixings = (layer.alpha_q, layer.alpha_k, layer.alpha_v)
        q, k, v = (
            torch.einsum("bnmd,mhj->bnjhd", x, alpha).flatten(1, 2) for x, alpha in zip((q, k, v), mixings, strict=True)
        )
    weights = layer.scale * torch.einsum("prhd,bnhd->bhrn", q, k)
    if layer.pattern == "softmax":
        weights, v = weights.exp(), torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
    return torch.einsum("bhrn,bnhd->bhrd", weights, v).flatten(1, 2)


def output(layer: AttentionLayer, sums: Float[Tensor, "batch rows sums"]) -> Float[Tensor, "batch out"]:
    """The layer's output at the query token from the sums over all tokens."""
    rows = sums[..., :-1] / sums[..., -1:] if layer.pattern == "softmax" else sums
    if isinstance(layer, InterleavedHeadAttention):
        rows = torch.einsum("bhjd,ohj->bod", rows.unflatten(1, (layer.num_heads, -1)), layer.collapse)
    out = rows.flatten(1)
    return out if layer.out_proj is None else layer.out_proj(out)


# T15c


@blueprint.theorem(
    "value-width",
    "one layer with content anywhere and an MLP: the total value width of MHA that counts grows as N / p",
    uses=("cpm3", "softmax-rows", "mha", "iha"),
    check="numerical",
    proof="docs/cpm3.md, Theorem 4",
)
@torch.no_grad()
def sets_differ(kind: str, half: int, seed: int, *, blind: bool = False, unseen: bool = False) -> Finding:
    """All sums over the first half, for every set; and that the layer's output is made of such sums.

    blind: embeddings of positions only. unseen: the first half's last token is left out.
    """
    layer, a = built(kind), sets(half)
    x = embedded(
        np.stack([sequence(first, second) for first, second in zip(a, a[::-1], strict=True)]), seed, blind=blind
    )
    query, parts = x[0, 0], (x[:, :1], x[:, 1 : 1 + half], x[:, 1 + half :])
    total = torch.stack([shares(layer, query, part) for part in parts]).sum(0)
    gap = float((output(layer, total) - layer(x[:, :1], x, x)[:, 0]).abs().max())
    message = shares(layer, query, parts[1][:, :-1] if unseen else parts[1]).flatten(1)
    apart = torch.pdist(message).min() / message.abs().max()
    what = f"{kind}, n = {half}: {message.shape[1]} sums over half the tokens, for {len(a)} sets"
    what += " all different" if apart > 1e-9 else " some are equal"
    return Finding(bool(apart > 1e-9) and gap < 1e-12, what, {"sums": message.shape[1]})


@torch.no_grad()
def too_few_collide(kind: str, half: int, seed: int, *, more: int = 0, other: bool = False) -> Finding:
    """The sums rounded to so few bits that they are below n in all: two sets of the same, and one that tells them.

    more: bits of each number beyond that. other: the set {j} of a j that is in both or in neither.
    """
    layer, a = built(kind), sets(half)
    tokens = [sequence(first, np.zeros(half, dtype=int)) for first in a]
    x = embedded(np.stack(tokens), seed)
    message = shares(layer, x[0, 0], x[:, 1 : 1 + half])
    numbers = message[0].numel()
    bits = (half - 1) // numbers + more
    low, high = message.amin(0), message.amax(0)
    levels = ((message - low) / (high - low) * (2**bits - 1)).round()
    seen: dict[tuple[float, ...], int] = {}
    for second, level in enumerate(levels.flatten(1).tolist()):
        first = seen.setdefault(tuple(level), second)
        if first != second:
            break
    else:
        return Finding(False, f"{kind}, n = {half}: {numbers} sums of {bits} bits tell all {len(a)} sets apart")
    j = int(np.flatnonzero((a[first] == a[second]) if other else (a[first] != a[second]))[0])
    only = np.eye(half, dtype=int)[j]
    pair = np.stack([sequence(a[i], only) for i in (first, second)])
    counts = sorted(CountPairs(2 * half + 3, 1).target(pair)[:, 0].tolist())
    received = low + levels * (high - low) / (2**bits - 1)
    rest = shares(layer, x[0, 0], embedded(pair, seed)[:, [0, *range(1 + half, 1 + 2 * half)]])
    same = torch.equal(*output(layer, received[[first, second]] + rest))
    what = (
        f"{kind}, n = {half}: {numbers} sums of {bits} bits are the same for two sets; with {{{j + 1}}} the counts are "
    )
    what += f"{counts[0]} and {counts[1]}"
    return Finding(same and counts == [1, 3], what, {"bits": numbers * bits, "counts": counts})


# T15g


@blueprint.construction(
    "few-rows",
    "s + 1 heads of IHA of width 1 tell the sets of the bound on value width, for s^2 tokens",
    uses=("iha", "softmax-rows"),
    check="numerical",
    proof="docs/cpm3.md, Theorem 4",
)
def interleaved(side: int, sharp: float = 60.0) -> InterleavedHeadAttention:
    """IHA with s + 1 heads of width 1 on [e_j f, f, 1[query token]], f = 1 where a token stands for an element j.

    Row (h, p) of the query token sees itself and the tokens for element h s + p + 1, the last head all tokens alike.
    """
    n, heads = side**2, side + 1
    layer = InterleavedHeadAttention(
        n + 2, heads, head_dim=side, value_head_dim=1, out_proj=False, scale=1.0, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        query, key = (x.weight.view(heads, side, n + 2) for x in (layer.q_proj, layer.k_proj))
        for p in range(side):
            query[p, p, -1] = sharp
            layer.alpha_q[p, :, p] = 1
        for h in range(side):
            key[h, :, h * side : (h + 1) * side] = torch.eye(side)
            key[h, :, -1] = 1
        layer.v_proj.weight[:, n] = 1
        layer.alpha_k[:], layer.alpha_v[:] = torch.eye(heads)[..., None], torch.eye(heads)[..., None]
        layer.collapse[0, :side, :side] = 1
        layer.collapse[1, side, 0] = 1
    return layer


@torch.no_grad()
def few_rows_tell(side: int, seed: int, *, sharp: float = 60.0, share: float = 3.0) -> Finding:
    """|A and B| from the two numbers r, u of the layer above: r = (|A| + |B|) / 2 - |A and B| / 3, u = (|A| + |B|) / N.

    sharp: logits. share: 3 in this formula.
    """
    n, layer = side**2, interleaved(side, sharp)
    generator = np.random.default_rng((side, seed))
    a, b = generator.integers(0, 2, (2, 50, n))
    x = torch.zeros(50, 1 + 2 * n, n + 2, dtype=torch.float64)
    for at, chosen in ((1, a), (1 + n, b)):
        x[:, at : at + n, :n] = torch.diag_embed(torch.from_numpy(chosen).double())
        x[:, at : at + n, n] = torch.from_numpy(chosen).double()
    x[:, 0, -1] = 1
    r, u = layer(x[:, :1], x, x)[:, 0, :2].T.numpy()
    common = share * (u * (1 + 2 * n) / 2 - r)
    tokens = np.stack([sequence(first, second) for first, second in zip(a, b, strict=True)])
    counts = CountPairs(2 * n + 3, 1).target(tokens)[:, 0]
    error = float(np.abs(1 + 2 * common - counts).max())
    what = (
        f"n = {n}: {layer.num_heads} heads of width 1, P = {layer.num_pseudo_heads}, count {len(counts)} pairs of sets"
    )
    return Finding(error < 1e-9, f"{what} {'right' if error < 1e-9 else 'wrong'}", {"heads": layer.num_heads})


STATEMENTS = (
    Statement(
        id="T15c",
        source="docs/cpm3.md, Theorem 4",
        place=Place("numerical", ("value-width",)),
        claim=Claim(
            text="content anywhere, M >= N + 2, G = 1: a layer that counts has sums over half the tokens that differ "
            "for all 2^((N - 1)/2) sets: H (d_v + 1) of softmax MHA, H d_v of linear MHA, H P (d_v + 1) of softmax IHA",
            test=sets_differ,
            cases={"kind": tuple(NARROW), "half": (1, 2, 5, 8), "seed": (0, 1)},
            mutants={"values not seen": {"blind": True}, "a token not seen": {"unseen": True}},
            wider={"kind": tuple(NARROW), "half": range(1, 7), "seed": range(50)},
        ),
        needed=True,
        least=Claim(
            text="with these sums rounded to fewer than (N - 1)/2 bits in all, two sets give the layer the same, and "
            "with a third the counts are 1 and 3",
            test=too_few_collide,
            cases={"kind": tuple(NARROW), "half": (5, 6, 8, 9), "seed": (0, 1, 2)},
            mutants={"40 bits more": {"more": 40}, "a set that does not tell": {"other": True}},
            wider={"kind": tuple(NARROW), "half": range(5, 10), "seed": range(50)},
        ),
        note="So the total value width H d_v of MHA, at a given number of bits, grows like N. The layers are random, "
        "with values of width 1; that their output is made of these sums is checked on each.",
    ),
    Statement(
        id="T15g",
        source="docs/cpm3.md, Theorem 4",
        place=Place("numerical", ("few-rows",)),
        claim=Claim(
            text="on the sets of T15c softmax IHA needs less value width: s + 1 heads of value width 1, P = s + 1, "
            "tell |A and B| for (N - 1)/2 = s^2",
            test=few_rows_tell,
            cases={"side": (1, 2, 3, 5), "seed": (0, 1)},
            mutants={"logits of 5": {"sharp": 5.0}, "2 for 3": {"share": 2.0}},
            wider={"side": range(1, 6), "seed": range(100)},
        ),
        note="Its rows are H P, and a row's own denominator tells one or two from none. That is for these inputs; what "
        "softmax IHA needs for all of CPM-3 is open.",
    ),
)
