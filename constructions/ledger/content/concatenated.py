"""Heads concatenated, without an output projection, content anywhere: ledger E6, T14f (docs/content.md, Theorem 5)."""

from collections.abc import Sequence
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import torch
from sympy import QQ, Integer, Poly, Symbol
from sympy.polys.constructor import construct_domain
from sympy.polys.matrices import DomainMatrix

from constructions.ledger.cases import integers, shown
from constructions.ledger.statement import Claim, Finding, Place, Statement
from constructions.targets.content.families import ContentWeights
from constructions.targets.content.steps import beyond_affine
from iha_theory import blueprint, exact
from iha_theory.operators import weights as position_only
from synthetic.tasks.filter_bank import power_blocks

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


# T14f


@blueprint.theorem(
    "content-concatenated",
    "heads concatenated, content anywhere: one head for each direction among the powers, for every A",
    uses=("content-degrees",),
    check="exact",
    proof="docs/content.md, Theorem 5",
)
def no_head_carries_two(size: int, code: int, terms: int, *, keys: bool = True) -> Finding:
    """Whether one head with values of positions only can write columns of two powers that are not proportional.

    Its columns are X (M c) + N X^T c. Both are powers only if A^s = (m.c) I + n c^T and A^t = (m.c') I + n c'^T with
    one m and one n, and n c^T, n c'^T not 0. All real f = m.c are tried (`_rank_one_parts`), as numbers of one field K;
    linear equations over K have a real solution if and only if they have one in K, since ranks are the same in both.
    keys: ask for one m.
    """
    a = exact.matrix(np.reshape([code // 3**i % 3 - 1 for i in range(size**2)], (size, size)), QQ)
    power = list(power_blocks(a, terms))
    field, parts = _rank_one_parts(power)

    def rank(rows: list[list[Any]]) -> int:
        return DomainMatrix(rows, (len(rows), len(rows[0])), field).rank()

    for s, t in combinations(range(terms), 2):
        if rank([power[s].convert_to(field).to_list_flat(), power[t].convert_to(field).to_list_flat()]) < 2:
            continue
        for (f, r), (g, q) in product(parts[s], parts[t]):
            together = [[*left, *right] for left, right in zip(r.to_list(), q.to_list(), strict=True)]
            if rank(together) != 1:
                continue  # another n
            n = next(row for row in together if any(row))
            rows = [n[:size], n[size:]]  # n_i c and n_i c' for some i; m times n_i must give f and g
            if not keys or rank(rows) == rank([[*rows[0], f], [*rows[1], g]]):
                return Finding(False, f"A = {shown(a)}: one head carries A^{s} and A^{t}", {"powers": [s, t]})
    return Finding(True, f"A = {shown(a)}, k = {terms}: no head of position values carries two directions", {})


def _rank_one_parts(power: Sequence[DomainMatrix]) -> tuple[Any, list[list[tuple[Any, DomainMatrix]]]]:
    """A field, and over it for each matrix all (f, m - f I) with f real and m - f I of rank 1.

    Such an f is an eigenvalue with N - 1 independent eigenvectors, so its minimal polynomial divides the characteristic
    one N - 1 times at least. For N > 2 it is linear, as 2 (N - 1) > N, and f rational; for N = 2 it may be quadratic.
    """
    roots = []
    for m in power:
        factors = Poly(m.charpoly(), Symbol("x")).factor_list()[1]
        roots.append([f for p, times in factors if times >= m.shape[0] - 1 for f in p.real_roots()])
    field: Any = construct_domain([Integer(1), *chain(*roots)], field=True, extension=True)[0]
    parts = []
    for m, some in zip(power, roots, strict=True):
        m, one = m.convert_to(field), exact.identity(m.shape[0], QQ).convert_to(field)
        candidates = ((f, m - one * f) for f in map(field.from_sympy, some))
        parts.append([(f, part) for f, part in candidates if part.rank() == 1])
    return field, parts


STATEMENTS = (
    Statement(
        id="E6",
        source="App. B.2, proof of the lower bound",
        place=Place("exact", ("content-concatenated",), "docs/content.md, Theorem 5"),
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
        "for every A: docs/content.md, Theorem 5. With an output projection see T17b.",
    ),
    Statement(
        id="T14f",
        source="docs/content.md, Theorem 5",
        place=Place("exact", ("content-concatenated",)),
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
