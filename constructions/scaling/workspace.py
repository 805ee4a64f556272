"""The workspace of CPM-3 for thousands of tokens: its permutations as indices, no N x N matrix a head.

Base queries and keys of `constructions.cpm3.workspace` are permutation matrices, so each is one vector of N indices:
token n has the one-hot of q_a[n] as base query a, and of k_b[n] as base key b. For MHA and N = 4096 the matrices would
hold 2 N^3 numbers, 1 TB.

**What is checked** (`index_gap`), for every token, head and block, in integers: a pseudo-query that the collapse reads
is one base query, a pseudo-key is one base key or 0, and all of them are permutations. Then <q, k> is 1 where the
indices are equal and 0 elsewhere, each live pseudo-key j has one such token, k_j^{-1}[q[n]], and hard attention is the
mean over these L tokens. So block m of output head o is

    sum over (h, i) of R[o,h,i] / L_h sum_j alpha_v[m,h,j] F x[k_j^{-1}[q_i[n]]],        F the values' factor,

and has to be x[n + t mod N] with weight 1, t the block's number.

**What runs** (`sampled_gap`): the layers' own hard attention, `iha_theory.attention.patterns.pattern_weights` and
`apply_weights`, on a sample of heads and tokens against all N P virtual keys, with scores from equal indices and random
integers as content; its outputs have to be the tokens, exactly.

**What is taken over**: that a layer's projection of one-hot positions is a row of its weight, and its score the product
of two rows. Where the matrices fit, `as_matrices` gives the very weights of `constructions.cpm3.workspace`, and those
are checked as an operator over the rationals.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from constructions.cpm3.workspace import workspace_weights
from constructions.filter_bank.paper import selectors
from iha_theory.attention.patterns import apply_weights, pattern_weights
from iha_theory.operators.weights import Mixing, PositionWeights
from iha_theory.rounding import require_count, require_one_of

LAYERS = ("mha", "iha", "iha-tiled")
Index = Int[np.ndarray, " N"]


@dataclass(frozen=True)
class IndexedWorkspace:
    """The workspace's weights.

    queries, keys: base query or key a -> its N indices. mixing: of IHA; None for MHA. factor: of the values.
    """

    tokens: int
    heads: int
    queries: Callable[[int], Index]
    keys: Callable[[int], Index]
    mixing: Mixing | None
    factor: int


def indexed(layer: str, tokens: int) -> IndexedWorkspace:
    """The workspace for N tokens; its mixing is that of `constructions.cpm3.workspace`.

    Args:
        layer: "mha", "iha" or "iha-tiled".
        tokens: N.

    Raises:
        ValueError: another layer, or tokens below 1.
    """
    require_one_of("layer", layer, LAYERS)
    at = np.arange(require_count("tokens", tokens))
    if layer == "mha":
        return IndexedWorkspace(tokens, tokens, lambda h: (at + h) % tokens, lambda _: at, None, 1)
    one = workspace_weights(layer, lambda _: torch.ones(1, 1), tokens, 1)  # of one token: its mixing is what counts
    heads = one.num_heads
    return IndexedWorkspace(
        tokens,
        heads,
        lambda a: (at + a * heads) % tokens,
        lambda b: (at - b) % tokens,  # row n of the transposed shift by b
        one.mixing,
        int(one.value[0].max()),
    )


def as_matrices(given: IndexedWorkspace) -> PositionWeights:
    """The weights with a matrix of N x N a head, on content of width 1."""

    def one_hot(index: Index) -> Tensor:
        return torch.nn.functional.one_hot(torch.from_numpy(index), given.tokens).double()

    across = given.heads if given.mixing is not None else 1
    values = selectors(1, across, given.factor) * (given.heads // across)
    heads = range(given.heads)
    queries, keys = (tuple(one_hot(base(h)) for h in heads) for base in (given.queries, given.keys))
    return PositionWeights(queries, keys, values, "hard", given.mixing)


@dataclass(frozen=True)
class Head:
    """One head: which base query its pseudo-queries are, -1 for 0, likewise keys; alpha_v of it, (H, P)."""

    queries: tuple[int, ...]
    keys: tuple[int, ...]
    values: np.ndarray


def _heads(given: IndexedWorkspace) -> Iterator[Head]:
    """Each head.

    Raises:
        ValueError: a pseudo-query or pseudo-key that is a mixture.
    """
    if given.mixing is None:
        for h in range(given.heads):
            yield Head((h,), (h,), np.ones((1, 1)))
        return
    for h in range(given.heads):
        columns = [alpha[:, h].T for alpha in (given.mixing.alpha_q, given.mixing.alpha_k)]  # (P, H)
        if any(not np.isin(rows, (0, 1)).all() or (rows.sum(1) > 1).any() for rows in columns):
            raise ValueError("a pseudo-query or pseudo-key is not one base query or key: its indices say nothing")
        queries, keys = (tuple(int(row.argmax()) if row.any() else -1 for row in rows) for rows in columns)
        yield Head(queries, keys, given.mixing.alpha_v[:, h])


def index_gap(given: IndexedWorkspace) -> int:
    """How many of the N^2 entries, blocks by tokens, are wrong; what the module docstring says is checked.

    Raises:
        ValueError: a mixture for a pseudo-query or pseudo-key, or indices that are no permutation.
    """
    tokens, at = given.tokens, np.arange(given.tokens)
    if given.mixing is None:
        pairs = ((_permutation(given.queries(h)), _inverse(given.keys(h)), h) for h in range(tokens))
        return sum(int((inverse[query] != (at + h) % tokens).sum()) for query, inverse, h in pairs)
    inverses = [_inverse(given.keys(b)) for b in range(given.heads)]
    collapse, heads = given.mixing.collapse, list(_heads(given))
    wrong = 0
    for o in range(given.heads):
        weight, right = np.zeros(given.heads), np.ones((given.heads, tokens), dtype=bool)
        for h, i in zip(*collapse[o].nonzero(), strict=True):
            head = heads[h]
            live = [j for j, b in enumerate(head.keys) if b >= 0]
            if head.queries[i] < 0 or not live:
                raise ValueError("the collapse reads a pseudo-query that is 0, or one without a key")
            query = _permutation(given.queries(head.queries[i]))
            for m, j in zip(*head.values[:, live].nonzero(), strict=True):
                weight[m] += collapse[o, h, i] * head.values[m, live[j]] * given.factor / len(live)
                right[m] &= inverses[head.keys[live[j]]][query] == (at + o * given.heads + m) % tokens
        blocks = min(given.heads, max(0, tokens - o * given.heads))
        wrong += sum(tokens if weight[m] != 1 else int((~right[m]).sum()) for m in range(blocks))
    return wrong


def _permutation(index: Index) -> Index:
    if not np.array_equal(np.bincount(index, minlength=len(index)), np.ones(len(index), dtype=np.int64)):
        raise ValueError("indices that are no permutation: two tokens share a one-hot")
    return index


def _inverse(index: Index) -> Index:
    found = np.empty_like(index)
    found[_permutation(index)] = np.arange(len(index))
    return found


def sampled_gap(given: IndexedWorkspace, heads: int = 4, rows: int = 4, seed: int = 0) -> float:
    """The largest difference between the layers' hard attention and the tokens that the blocks should hold.

    Args:
        given: the workspace.
        heads: output heads of the sample.
        rows: tokens of it.
        seed: of the sample, and of the content, integers below 1000.
    """
    generator = np.random.default_rng(seed)
    x = torch.from_numpy(generator.integers(0, 1000, given.tokens)).double()
    worst, collapse = 0.0, None if given.mixing is None else given.mixing.collapse
    chosen = sorted({int(o) for o in generator.integers(0, given.heads, heads)})
    at = torch.from_numpy(generator.integers(0, given.tokens, rows))
    outputs: dict[tuple[int, int], Tensor] = {}  # of a head's pseudo-query that is read: (rows, blocks)
    for h, head in enumerate(_heads(given)):
        read = [0] * (h in chosen) if collapse is None else np.flatnonzero(collapse[chosen, h].any(0)).tolist()
        if not read:
            continue
        none = np.full(given.tokens, -1)
        keys = torch.from_numpy(np.stack([given.keys(b) if b >= 0 else none for b in head.keys], axis=1)).flatten()
        values = given.factor * torch.einsum("n,mj->njm", x, torch.from_numpy(head.values).double()).flatten(0, 1)
        for i in read:
            query = torch.from_numpy(given.queries(head.queries[i]) if head.queries[i] >= 0 else none - 1)
            scores = (query[at][:, None] == keys).double()[None, None]
            outputs[h, i] = apply_weights(pattern_weights(scores, pattern="hard"), values[None, None])[0, 0]
    for o in chosen:
        if collapse is None:
            found, blocks = outputs[o, 0], torch.tensor([o])
        else:
            found = sum(float(collapse[o, h, i]) * out for (h, i), out in outputs.items())
            blocks = o * given.heads + torch.arange(given.heads)
        wanted = x[(at[:, None] + blocks) % given.tokens]
        kept = blocks < given.tokens
        worst = max(worst, float((found - wanted)[:, kept].abs().max())) if bool(kept.any()) else worst
    return worst


def damaged(given: IndexedWorkspace) -> dict[str, IndexedWorkspace]:
    """Workspaces that are not right: what `index_gap` has to notice."""
    last = given.heads - 1
    found = {
        "one query shifted": replace(given, queries=lambda a: np.roll(given.queries(a), int(a == last))),
        "two keys swapped": replace(given, keys=lambda b: _swapped(given.keys(b)) if b == 0 else given.keys(b)),
        "another factor": replace(given, factor=given.factor + 1),
    }
    if given.mixing is None:
        del found["another factor"]
    return found


def _swapped(index: Index) -> Index:
    return np.concatenate((index[1::-1], index[2:]))
