"""Content in queries, keys and values: what exact heads need (ledger E6, T14b, T14c, T14f). Proofs: docs/content.md."""

from itertools import combinations, pairwise, product
from typing import Any

import flint
import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.checks.operators import exact_gap
from constructions.filter_bank import reduced
from constructions.ledger.bank.paper import shown
from constructions.ledger.statement import Claim, Finding, Statement
from constructions.targets.content.families import ContentWeights
from constructions.targets.content.steps import PRIME, beyond_affine
from constructions.targets.content.training import population_error
from iha_theory import exact
from iha_theory.bounds.content import limit_heads, needs_rank_heads
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.bounds.heads import least_heads
from iha_theory.operators import weights as position_only
from synthetic.graphs import builtin
from synthetic.tasks.filter_bank import power_blocks

WIDTH = 2


def integers(*shape: int, seed: int, most: int = 2) -> Tensor:
    """Random integers from -most to most, float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-most, most + 1, shape, generator=generator).double()


# E6


def zero_forces_zero(tokens: int, query: str, *, nonzero: bool = True) -> Finding:
    """Whether Att_h C_h = 0 and Att_h != 0 imply C_h = 0, for one head of width 1 with small integer weights.

    query: "positions", or "content" for queries that also use content. Then Att_h is a function of X, which is not 0,
    and Att_h C_h = 0 is what remains of the output at the X that the proof puts in, X = 0. nonzero: ask for Att_h != 0.
    """
    for content, p, key, c in product(
        (0, 1) if query == "content" else (0,),
        product((0, 1), repeat=tokens),
        product((0, 1), repeat=tokens),
        product((0, 1, -1), repeat=tokens),
    ):
        pattern = [[(content + q) * k for k in key] for q in p]  # at X = 1
        if not any(c) or (nonzero and not any(map(any, pattern))):
            continue
        zeros = torch.zeros(1, tokens, 1, dtype=torch.float64)
        with torch.no_grad():
            out = _one_head(content, p, key, c)(*[position_only.with_positions(zeros)] * 3).flatten().tolist()
        if not any(out):
            what = (
                f"N = {tokens}, one head with queries {content} X + {list(p)}, keys {list(key)}, values C = {list(c)}: "
                f"Att C = {out} at X = 0, Att = {pattern} at X = 1, yet C is not 0"
            )
            return Finding(False, what, {"content": content, "query": list(p), "key": list(key), "constants": list(c)})
    return Finding(True, f"N = {tokens}, queries of {query}: no head with weights 0 and 1 has Att C = 0 but C not 0")


def _one_head(
    content: int, query: tuple[int, ...], key: tuple[int, ...], constants: tuple[int, ...]
) -> torch.nn.Module:
    keys, values = (torch.tensor(x, dtype=torch.float64) for x in (key, constants))
    return ContentWeights(
        maps=(torch.tensor(query, dtype=torch.float64)[:, None] * keys)[None],
        content=(content * keys)[None, None],
        values=torch.zeros(1, 1, 1, dtype=torch.float64),
        constants=values[None, :, None],
    ).layer()


def linear_heads_have_constant_patterns(
    tokens: int, width: int, seed: int, *, content: int = 1, more: int = 0
) -> Finding:
    """Which heads are affine in X, of all with one output column and these values: exact ranks on real layers.

    With values X b + c, b != 0, only those with a constant pattern; with values c != 0 only those without content
    against content. content: a factor on b. more: how many further independent patterns are claimed.
    """
    b = integers(1, width, 1, seed=seed)
    b[0, seed % width] = 3
    c = integers(1, tokens, 1, seed=seed + 1)
    mixed, unknown = beyond_affine(content * b, c, "GMN", seed)
    c[0, seed % tokens] = 3
    fixed, squares = beyond_affine(torch.zeros_like(b), c, "G", seed)
    what = (
        f"N = {tokens}, d = {width}: of {unknown} query and key weights that use content, {mixed} are seen in what is "
        f"not affine in X if the values use content, and {fixed} of {squares} if they do not"
    )
    holds = mixed == unknown + more and fixed == squares
    return Finding(
        holds, what, {"rank": mixed, "weights": unknown, "rank_constant": fixed, "weights_constant": squares}
    )


# T14b, T14c, T14f


def queries_do_not_save(
    graph: str, terms: int, width: int, *, dependent: bool = False, more: int = 0, narrower: int = 0
) -> Finding:
    """Exact MHA with content in the queries takes r heads; whether r - 1 come near is decided without `limit_heads`.

    With independent B_1, ..., B_{r-1} every content weight of the queries is seen in the quadratic part, by an exact
    rank; so an exact layer has none. r - 1 heads are near if `_family` has a member, whose error is measured, and not
    if no real l has the kernel that it asks for (docs/content.md, Theorem 3).

    dependent: B_1 = B_2 in place. more: how many heads beyond r are claimed. narrower: the condition with a smaller d.
    """
    given = builtin(graph).adjacency
    a = exact.matrix(given, QQ)
    rank, tokens = power_rank(a, terms).rank, min(a.shape[0], 3)
    heads = max(rank - 1, 1)
    own = torch.eye(heads * width, dtype=torch.float64).unflatten(0, (heads, width))
    values = integers(heads, width, heads * width, seed=terms) + 9 * own
    if dependent:
        values = values[:1].expand(heads, -1, -1)
    seen, unknown = beyond_affine(values, torch.zeros(heads, tokens, heads * width, dtype=torch.float64), "M")
    layer = reduced.bank("mha", reduced.reduce(a, terms), width)
    error = exact_gap(layer, list(power_blocks(a, terms)))
    bank = torch.stack([torch.linalg.matrix_power(torch.tensor(given).double(), t) for t in range(terms)])
    kernel, eigenvalue, null = _largest_kernel(bank[:rank])
    near = kernel >= width
    if near:
        family = (_family(bank, rank, eigenvalue, null[:, :width], scale) for scale in (1e1, 1e3))
        errors = [float(population_error(weights, bank)) for weights in family]
        falls = abs(errors[0] / errors[1] / 1e4 - 1) < 1e-3
        how = f"come near: squared relative error {errors[0]:.3g} at eps = .1, {errors[1]:.3g} at .001"
    else:
        falls, how = True, f"do not come near, as no kernel is larger than {kernel} < d"
    what = (
        f"{graph}, k = {terms}, d = {width}, r = {rank}: {seen} of {unknown} content weights of {heads} heads show in "
        f"the quadratic part; {layer.heads} heads make the bank with exact error {error:g}; {rank - 1} {how}"
    )
    claimed = limit_heads(a, terms, max(1, width - narrower)) == rank - 1
    holds = seen == unknown and error == 0 and layer.heads == rank + more and falls and near == claimed
    found = {"rank": rank, "seen": seen, "weights": unknown, "heads": layer.heads, "kernel": kernel, "near": near}
    return Finding(holds, what, found)


def _largest_kernel(powers: Tensor) -> tuple[int, float, Tensor]:
    """The largest kernel of [A - l I, ..., A^(r-1) - l^(r-1) I] over the real l: its dimension, l, and a basis."""
    one = torch.eye(powers.shape[1], dtype=torch.float64)
    eigenvalues = torch.linalg.eigvals(powers[1])
    found = []
    for value in [0.0, *eigenvalues.real[eigenvalues.imag.abs() < 1e-6].tolist()]:
        _, s, right = torch.linalg.svd(torch.cat([p - value**h * one for h, p in enumerate(powers)][1:], dim=1))
        null = right[int((s > 1e-8 * s[0]).sum()) :].T
        found.append((null.shape[1], value, null))
    return max(found, key=lambda item: item[0])


def _family(bank: Tensor, rank: int, eigenvalue: float, y: Tensor, scale: float) -> ContentWeights:
    """The r - 1 heads in the proof of docs/content.md, Theorem 3: output L(X) + eps sum_h X Z_h X E~_h, eps = 1/scale.

    y: Y, (N (r-1), d), orthonormal columns in the kernel.
    """
    size, width = bank.shape[1], y.shape[1]
    coefficients = torch.linalg.lstsq(bank[:rank].flatten(1).T, bank.flatten(1).T).solution  # A^t = sum_s c_st A^s
    blocks = torch.einsum("st,ab->satb", coefficients, torch.eye(width, dtype=torch.float64)).flatten(2)
    powers = eigenvalue ** torch.arange(rank, dtype=torch.float64)
    maps = bank[1:rank] - powers[1:, None, None] * torch.eye(size, dtype=torch.float64)
    y = y.unflatten(0, (rank - 1, size))
    constants = y @ torch.einsum("s,sab->ab", powers, blocks)
    return ContentWeights(maps, y.mT / scale, blocks[1:], scale * constants)


def content_does_not_save(graph: str, terms: int, *, known: str = "GMN", more: int = 0, earlier: int = 0) -> Finding:
    """Exact MHA and IHA with content anywhere need r and ceil(sqrt r) heads, under the condition on p(A).

    The steps as exact ranks: the least rank of p(A); and with B_h = b_h x I_d, b_h a basis, every content weight of
    queries and keys is seen beyond affine parts. The claim's hypothesis must hold just where the first step goes
    through. known: the blocks whose weights count; with "GMNS" those of positions too, which affine parts hide. more:
    heads beyond r that are claimed. earlier: the hypothesis for so many terms less.
    """
    a = exact.matrix(builtin(graph).adjacency, QQ)
    rank, tokens = power_rank(a, terms).rank, min(a.shape[0], 3)
    claimed, least = needs_rank_heads(a, terms - earlier), _least_rank(a, rank - 1)
    heads = max(rank - 1, 1)
    basis = torch.eye(heads, dtype=torch.float64) + integers(heads, heads, seed=terms, most=1).triu(1)
    values = torch.einsum("ht,ab->hatb", basis, torch.eye(WIDTH, dtype=torch.float64)).flatten(2)
    seen, unknown = beyond_affine(values, torch.zeros(heads, tokens, heads * WIDTH, dtype=torch.float64), known)
    given, blocks = reduced.reduce(a, terms), list(power_blocks(a, terms))
    layers = {name: reduced.bank(name, given, WIDTH) for name in ("mha", "iha")}
    error = max(exact_gap(layer, blocks) for layer in layers.values())
    allowed = rank <= 2 or least >= rank
    bound = f"at least {rank} MHA heads" if allowed and seen == unknown else "no bound"
    what = (
        f"{graph}, k = {terms}, r = {rank}: p(A) has rank {least} or more, {seen} of {unknown} content weights of "
        f"{heads} heads are seen: {bound}; {layers['mha'].heads} MHA and {layers['iha'].heads} IHA heads have exact "
        f"error {error:g}"
    )
    needed = rank + more
    made = error == 0 and layers["mha"].heads == needed and layers["iha"].heads == least_heads("iha", needed)
    certified = rank if allowed and seen == unknown else 0
    values = {"certified": certified, "mha": layers["mha"].heads, "iha": layers["iha"].heads, "least_rank": least}
    return Finding(claimed == allowed and seen == unknown and made, what, values)


def _least_rank(a: DomainMatrix, degree: int) -> int:
    """The least rank of p(A) over the complex p != 0 of at most this degree; of all but constants, as those give N.

    It is sum_j max(0, deg d_j - degree), d_1, d_2, ... the invariant factors of A: on the block of d_j the kernel of
    p(A) has dimension deg gcd(p, d_j), and d_{j+1} divides d_j. deg d_1 + .. + deg d_j is the dimension of the
    space that A makes of j vectors, at its largest for almost all vectors: random ones, modulo a large prime.
    """
    size = a.shape[0]
    m = flint.nmod_mat(size, size, [int(x) for x in a.to_list_flat()], PRIME)
    vectors = torch.randint(0, PRIME, (size, size), generator=torch.Generator().manual_seed(size)).tolist()
    total = [0]
    while total[-1] < size:
        v = flint.nmod_mat(size, len(total), [x for row in vectors for x in row[: len(total)]], PRIME)
        made = []
        for _ in range(size):
            made.append(v.transpose().entries())
            v = m * v
        total.append(flint.nmod_mat(size * len(total), size, [x for block in made for x in block], PRIME).rank())
    return sum(max(0, int(after - before) - degree) for before, after in pairwise(total))


def no_head_carries_two(size: int, code: int, terms: int, *, keys: bool = True) -> Finding:
    """Whether one head with values of positions only can write columns of two powers that are not proportional.

    Its columns are X (M c) + N X^T c. Both are powers only if A^s = (m.c) I + n c^T and A^t = (m.c') I + n c'^T with
    one m and one n. All rational eigenvalues f = m.c are tried. keys: ask for one m.
    """
    a = exact.matrix(np.reshape([code // 3**i % 3 - 1 for i in range(size**2)], (size, size)), QQ)
    power = list(power_blocks(a, terms))
    parts = [_rank_one_parts(p) for p in power]
    for s, t in combinations(range(terms), 2):
        left, right = ([*p.to_list_flat()] for p in (power[s], power[t]))
        if DomainMatrix([left, right], (2, size**2), QQ).rank() < 2:
            continue
        for (f, r), (g, q) in product(parts[s], parts[t]):
            if DomainMatrix(np.hstack([r.to_list(), q.to_list()]).tolist(), (size, 2 * size), QQ).rank() != 1:
                continue  # another n
            row = next(i for i in range(size) if any(r.to_list()[i] + q.to_list()[i]))
            rows = [r.to_list()[row], q.to_list()[row]]  # n_row c and n_row c'; m times n_row must give f and g
            augmented = [[*rows[0], f], [*rows[1], g]]
            solvable = DomainMatrix(rows, (2, size), QQ).rank() == DomainMatrix(augmented, (2, size + 1), QQ).rank()
            if solvable or not keys:
                return Finding(False, f"A = {shown(a)}: one head carries A^{s} and A^{t}", {"powers": [s, t]})
    return Finding(True, f"A = {shown(a)}, k = {terms}: no head of position values carries two directions", {})


def _rank_one_parts(m: DomainMatrix) -> list[tuple[Any, DomainMatrix]]:
    """(f, m - f I) of rank 1, for integers f."""
    size = m.shape[0]
    most = sum(abs(int(x)) for x in m.to_list_flat())
    parts = ((f, m - exact.identity(size, QQ) * QQ(f)) for f in range(-most, most + 1))
    return [(QQ(f), part) for f, part in parts if part.rank() == 1]


GRAPHS = ("cycle:3", "cycle:4", "path:5", "cycle:5", "random:6", "cycle:7", "petersen", "karate")

STATEMENTS = (
    Statement(
        id="E6",
        source="App. B.2, proof of the lower bound",
        claim=Claim(
            text="for a head with pattern Att_h and constant values C_h, Att_h C_h = 0 and Att_h != 0 imply C_h = 0",
            test=zero_forces_zero,
            cases={"tokens": (1, 2, 3), "query": ("positions", "content")},
            mutants={"without Att_h != 0": {"nonzero": False}},
        ),
        repaired=Claim(
            text="heads concatenated, N >= 2: a head that writes powers of A, by values that use content, has a "
            "constant pattern; so k heads are needed if no two powers are proportional",
            test=linear_heads_have_constant_patterns,
            cases={"tokens": (2, 3, 4), "width": (1, 2, 3), "seed": (0, 1)},
            mutants={"values without content": {"content": 0}, "one more weight": {"more": 1}},
            wider={"tokens": range(2, 5), "width": range(1, 4), "seed": range(100)},
        ),
        note="A position-only head with a singular pattern breaks the implication from N = 2 on, too; its bound "
        "does not need the implication (docs/bounds.md, Theorem 2). With content in the queries one token is "
        "enough. Repair: a head whose values are constant has no content against content in its pattern, and "
        "carries one direction too (T14f). The count for concatenated heads is right with content anywhere, "
        "for every A: docs/content.md, Theorem 5. With an output projection see T14b and T14c.",
    ),
    Statement(
        id="T14b",
        source="docs/content.md, Theorem 2",
        claim=Claim(
            text="with content in the queries exactly r = dim span{I, ..., A^(k-1)} heads are needed; r - 1 come near "
            "if and only if d <= N(r-2) + m, m the largest number of independent eigenvectors of a real eigenvalue",
            test=queries_do_not_save,
            cases={
                "graph": ("path:2", "path:3", "cycle:3", "star:4", "cycle:5", "petersen", "random:6"),
                "terms": (2, 3, 9),
                "width": (1, 2, 5),
            },
            mutants={
                "dependent values": {"dependent": True},
                "a head more": {"more": 1},
                "near for d <= N(r-2) + m + 1": {"narrower": 1},
            },
        ),
        note="Where r - 1 heads come near, a border rank below the rank, as for tensors. Always for r >= 3 and d <= N; "
        "for r = 2 see T14d.",
    ),
    Statement(
        id="T14c",
        source="docs/content.md, Theorem 4",
        claim=Claim(
            text="if rank p(A) >= r = dim span{I, ..., A^(k-1)} for every complex p of degree 1 to r - 1, or r <= 2, "
            "exact linear attention with content anywhere takes r heads (MHA), ceil(sqrt r) (IHA)",
            test=content_does_not_save,
            cases={"graph": GRAPHS, "terms": (2, 3, 4)},
            mutants={
                "weights of positions too": {"known": "GMNS"},
                "a head more": {"more": 1},
                "the condition for k - 1": {"earlier": 1},
            },
        ),
        note="With an output projection. So the paper's bound of k heads holds exactly for all of linear attention "
        "if every eigenvalue of A has one Jordan block and N >= 2 k - 1. Without the condition (Petersen, k >= "
        "3) it is open. The proof asks it of real p only; what is decided is the stricter one for complex p.",
    ),
    Statement(
        id="T14f",
        source="docs/content.md, Theorem 5",
        claim=Claim(
            text="one head with values of positions only carries no two powers that are not proportional, wherever "
            "content is in its queries and keys",
            test=no_head_carries_two,
            cases={"size": (2,), "code": tuple(range(81)), "terms": (4,)},
            mutants={"each column its own keys": {"keys": False}},
        ),
        note="With the repaired E6: heads concatenated, a head is needed for every direction among the powers.",
    ),
)
