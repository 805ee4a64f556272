"""Composing relations, R_ij on tokens (i, j): two heads that see content, and what positions only cannot (T20).

Proofs: docs/relations.md.
"""

from itertools import product

import numpy as np
import torch

from constructions.checks.relations import paths_error, relations, wrong_bits
from constructions.ledger.statement import Claim, Finding, Place, Statement
from constructions.targets.copying import COPIES, copying
from constructions.targets.relations import PATTERNS, composition, paths
from iha_theory.attention import MultiHeadAttention
from synthetic.tasks.reasoning.relations import compose


def two_heads(points: int, hops: int, pattern: str, *, dropped: int | None = None, fewer: int = 0) -> Finding:
    """Every bit of R^h, exactly. dropped: a head whose values are 0. fewer: steps that are not made."""
    net = composition(points, hops - fewer, pattern)
    if dropped is not None:
        with torch.no_grad():
            net.layer.v_proj.weight.unflatten(0, (2, -1))[dropped] = 0
    x = relations(points)
    wrong = int(wrong_bits(net, x, hops))
    what = f"m = {points}, h = {hops}, {pattern}: {net.layer.num_heads} heads, {net.mlp.points + 2} ReLUs, {wrong} of "
    holds = not wrong and net.layer.num_heads == 2 and net.mlp.above.out_features == points
    return Finding(holds, f"{what}{x.numel()} bits are wrong", {"wrong": wrong})


def counted(points: int, *, fewer: int = 0) -> Finding:
    """The number of two-step paths. fewer: heads that are left out."""
    built = paths(points)
    with torch.no_grad():
        if fewer:
            built.layer.v_proj.weight[-fewer:] = 0
    error = paths_error(built, relations(points))
    what = f"m = {points}: {built.heads} heads are off the number of paths by at most {error:g}"
    return Finding(error == 0 and built.heads == points, what, {"error": error})


def _weights(points: int, i: int, j: int) -> tuple[dict[tuple[int, int], int], int]:
    """Of R at token (i, j), and the least sum at which a path joins i to j; for m = 1 and 2."""
    if points == 1:
        return {(0, 0): 1}, 1
    if i == j:  # R_ii or R_ik R_ki
        return {(i, i): 2, (i, 1 - i): 1, (1 - i, i): 1}, 2
    return {(i, j): 2, (i, i): 1, (j, j): 1}, 3  # R_ij and (R_ii or R_jj)


def positions_only(points: int, *, most: int = 2) -> Finding:
    """A linear read-out of positions-only attention with a threshold for each pair: weights to m = 2, then four
    relations that no weights tell apart. most: up to which m there are to be weights."""
    if points > most:
        return _four_relations(points)
    n = points**2
    layer = MultiHeadAttention(
        n, 1, vdim=1, head_dim=n, value_head_dim=1, out_proj=False, pattern="linear", scale=1.0, dtype=torch.float64
    )
    least = torch.zeros(n, dtype=torch.float64)
    with torch.no_grad():
        layer.k_proj.weight.copy_(torch.eye(n))
        layer.v_proj.weight.fill_(1)
        layer.q_proj.weight.zero_()
        for token, (i, j) in enumerate(product(range(points), repeat=2)):
            found, least[token] = _weights(min(points, 2), i, j)
            for (r, c), weight in found.items():
                layer.q_proj.weight[r * points + c, token] = weight
        x = relations(points)
        where = torch.eye(n, dtype=torch.float64).unsqueeze(0)
        bits = layer(where, where, x.flatten(1).unsqueeze(-1).double())[..., 0] >= least
    wrong = int((bits.view(x.shape) != torch.from_numpy(compose(x.numpy(), 2)).bool()).sum())
    return Finding(not wrong, f"m = {points}: one head of positions only has {wrong} of {x.numel()} bits wrong")


def _four_relations(points: int) -> Finding:
    """For each pair two relations that join it and two that do not, with equal sums."""
    undecided = []
    for i, j in product(range(points), repeat=2):
        first, second = _four(points, i, j)
        joins = [compose(pair, 2)[:, i, j].tolist() for pair in (first, second)]
        if joins != [[1, 1], [0, 0]] or not np.array_equal(first.sum(0), second.sum(0)):
            undecided.append((i, j))
    what = f"m = {points}: at {points**2 - len(undecided)} of {points**2} pairs four relations contradict all weights"
    return Finding(not undecided, what, {"undecided": len(undecided)})


def _four(points: int, i: int, j: int) -> tuple[np.ndarray, np.ndarray]:
    """Paths over k and over l; and the steps to k beside those from l, and the other way round."""
    k, l = ([p for p in range(points) if p not in (i, j)] + [j, i])[:2]  # noqa: E741

    def relation(*steps: tuple[int, int]) -> np.ndarray:
        found = np.zeros((points, points), dtype=int)
        for step in steps:
            found[step] = 1
        return found

    joined_by = [relation((i, k), (k, j)), relation((i, l), (l, j))]
    neither = [relation((i, k), (l, j)), relation((i, l), (k, j))]
    return np.stack(joined_by), np.stack(neither)


def one_layer(points: int, hops: int, *, further: int = 0) -> Finding:
    """The bits that one part of the tokens has to tell: each relation on the free points is read off, pair by pair.

    further: steps by which the path that reads is too long.
    """
    side = points - hops + 2 if hops > 2 else points - 1
    free = np.unique(relations(side).numpy(), axis=0) if hops > 2 else np.array(list(product((0, 1), repeat=side)))
    wrong = 0
    told = []
    for read in product(range(side), repeat=2 if hops > 2 else 1):
        labels = compose(_read(free, points, hops, read), hops + further)[:, 0, 0]
        wrong += int((labels != free[(slice(None), *read)]).sum())
        told.append(labels)
    different = len({tuple(row) for row in np.stack(told, axis=1)})
    bits = side**2 if hops > 2 else side
    what = f"m = {points}, h = {hops}: {wrong} of {len(told) * len(free)} bits read wrong; {different} of {len(free)}"
    holds = not wrong and different == len(free)
    return Finding(holds, f"{what} relations on other tokens told apart; {bits} bits", {"bits": bits, "wrong": wrong})


def _read(free: np.ndarray, points: int, hops: int, read: tuple[int, ...]) -> np.ndarray:
    """Relations in which a path of h steps goes from 0 to 0 if and only if the bit `read` of the free part is 1.

    The free part is a relation on the last m - h + 2 points, reached by a chain from 0 (h > 2); or which points go to
    point 0 (h = 2).
    """
    found = np.zeros((len(free), points, points), dtype=int)
    if hops == 2:
        found[:, 1:, 0] = free
        found[:, 0, 1 + read[0]] = 1
        return found
    first = hops - 2
    found[:, first:, first:] = free
    for at in range(first - 1):
        found[:, at, at + 1] = 1
    found[:, first - 1, first + read[0]] = 1
    found[:, first + read[1], 0] = 1
    return found


def by_copying(points: int, pattern: str, *, hops: int = 3) -> Finding:
    """Every bit of R^3 in one layer. hops: others, which it does not compose."""
    net = copying(points, pattern)
    x = relations(points)
    wrong = int(wrong_bits(net, x, hops))
    units = net.mlp.steps.out_features + net.mlp.paths.out_features + 2
    holds = not wrong and net.layer.num_heads == 1 and units == 4 * points**2 + 2
    what = f"m = {points}, {pattern}: one head of value width {net.layer.value_head_dim}, {units} ReLUs"
    return Finding(holds, f"{what}, {wrong} of {x.numel()} bits are wrong", {"wrong": wrong})


STATEMENTS = (
    Statement(
        id="T20a",
        source="docs/relations.md, Theorem 1",
        place=Place("exact", ("composition",)),
        claim=Claim(
            text="paths of h steps of any relation on m points, tokens with row and column codes: two heads of MHA "
            "that see content (hard, or softmax at a stated scale) and m + 2 ReLUs, h - 1 times, give every bit",
            test=two_heads,
            cases={"points": (1, 2, 3, 5, 8), "hops": (2, 3), "pattern": PATTERNS},
            mutants={
                "first head dropped": {"dropped": 0},
                "second head dropped": {"dropped": 1},
                "a step less": {"fewer": 1},
            },
            wider={"points": range(1, 8), "hops": (2, 3, 4), "pattern": PATTERNS},
        ),
        note="So the number of heads does not separate MHA from IHA on relation composition (App. D). All relations "
        "for m <= 3, some for more.",
    ),
    Statement(
        id="T20b",
        source="docs/relations.md, Theorem 2",
        place=Place("exact", ("two-step-paths",)),
        claim=Claim(
            text="the number of two-step paths of any relation on m points: m heads of hard attention that see "
            "content, added up, without an MLP",
            test=counted,
            cases={"points": (1, 2, 3, 5, 8)},
            mutants={"a head less": {"fewer": 1}},
            wider={"points": range(1, 8)},
        ),
        note="That m are needed is not claimed.",
    ),
    Statement(
        id="T20c",
        source="docs/relations.md, Theorem 3",
        place=Place("exact", ("relation", "position-only")),
        claim=Claim(
            text="with queries and keys of positions only and a linear read-out with a threshold, whatever the heads, "
            "patterns and widths, attention composes all relations on m points if and only if m <= 2",
            test=positions_only,
            cases={"points": range(1, 8)},
            mutants={"only m = 1": {"most": 1}, "m = 3 too": {"most": 3}},
            wider={"points": range(1, 12)},
        ),
    ),
    Statement(
        id="T20d",
        source="docs/relations.md, Theorem 4",
        place=Place("exact", ("relation", "mha", "iha", "pattern")),
        claim=Claim(
            text="paths of h steps in one layer, whatever follows: its n rows' sums over some part of the other tokens "
            "(n = H; IHA: H P) take 2^b values or more, b = m - 1 for h = 2 and (m - h + 2)^2 for h >= 3",
            test=one_layer,
            cases={"points": (4, 5), "hops": (2, 3, 4)},
            mutants={"a step further": {"further": 1}},
            wider={"points": (4, 5, 6, 7), "hops": (2, 3, 4, 5)},
        ),
        note="These are n (d_v + 1) numbers. So three hops tell depths apart, and of heads only rows times width: two "
        "layers of two heads, m + 1 wide, do it (Theorem 1). Nothing is said at App. D's sizes: 49 bits at m = 8 "
        "against 136 numbers of MHA with 8 heads 16 wide. Where the free part has more than 3 points, some of its "
        "relations, not all.",
    ),
    Statement(
        id="T20e",
        source="docs/relations.md, Theorem 4",
        place=Place("exact", ("copying",)),
        claim=Claim(
            text="paths of three steps of any relation on m points in one layer, tokens a table of bit and place: one "
            "head with equal weights, value width m^2, and 4m^2 + 2 ReLUs",
            test=by_copying,
            cases={"points": (1, 2, 3, 5, 8), "pattern": COPIES},
            mutants={"two steps": {"hops": 2}, "four": {"hops": 4}},
            wider={"points": range(1, 8), "pattern": COPIES},
        ),
    ),
)
