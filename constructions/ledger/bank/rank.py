"""What "at least k heads" of MHA for the filter bank needs: rank and degree (App. B.2; ledger E5).

All is exact, over the rationals. A case's matrix is named: see `constructions.ledger.cases`.
"""

from collections.abc import Sequence
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np
from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from constructions.checks.operators import exact_gap
from constructions.checks.result import least_root
from constructions.construction import Block, Construction
from constructions.ledger.cases import LAYERS, RANDOM, WIDTH, degree, made, matrix, shown
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory import blueprint, exact
from iha_theory.bounds.certificates import verify
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.operators.weights import PositionWeights, to_layer
from synthetic.tasks.filter_bank import power_blocks


def _certified(a: DomainMatrix, terms: int) -> int:
    """dim span{I, .., A^{k-1}} by a verified certificate; 0 if it is refused."""
    certificate = power_rank(a, terms).certificate
    assert certificate is not None
    return certificate.rank if verify(certificate, a, terms) else 0


# P-bank-needs-k


@blueprint.theorem(
    "concatenation",
    "heads concatenated and not projected: MHA needs one for each class of proportional powers",
    uses=("position-only", "filter-bank", "mha"),
    check="exact",
    proof="docs/bounds.md, Theorem 2, Concatenation only",
)
def needs_as_many(graph: str, terms: int, projected: bool, *, more: int = 0) -> Finding:
    """Whether MHA needs k heads: a lower bound, beside a position-only layer with as few heads as it says.

    projected: with an output projection (the bound is the certified rank), or with heads concatenated (the number of
    directions among the powers; docs/bounds.md, "Concatenation only"). more: how many beyond k are claimed.
    """
    claimed = terms + more
    if projected:
        counts = _counts(graph, terms, ("mha",))
        what = _sentence(graph, terms, counts)
        lower, heads, error = counts["certified"], counts["heads"]["mha"], counts["error"]
    else:
        blocks = list(power_blocks(matrix(graph), terms))
        lower = len({_direction(block) for block in blocks if not block.is_zero_matrix})
        heads, error = _by_directions(blocks)
        counts = {"lower": lower, "achieved": heads, "error": error}
        what = f"{graph}, k = {terms}, heads concatenated: at least {lower} MHA heads, and {heads} make the bank with "
        what += f"exact error {error:g}"
    return Finding(lower >= claimed and not (error == 0 and heads < claimed), what, counts)


@cache
def powers_apart(graph: str, terms: int, projected: bool) -> bool:
    """Whether the first k powers are independent; for heads concatenated, whether no two are proportional."""
    if projected:
        return degree(graph) >= terms
    pairs = combinations((block.to_list_flat() for block in power_blocks(matrix(graph), terms)), 2)
    return not any(_proportional(u, v) for u, v in pairs)


def _proportional(u: list[Any], v: list[Any]) -> bool:
    """Whether two lists of numbers are, 0 to everything."""
    at = next((i for i, x in enumerate(u) if x), 0)
    return all(x * v[at] == y * u[at] for x, y in zip(u, v, strict=True))


def _scale(block: DomainMatrix) -> Any:
    """The first entry that is not 0; 0 if there is none."""
    return next((x for x in block.to_list_flat() if x), QQ(0))


def _direction(block: DomainMatrix) -> tuple[Any, ...]:
    """The entries over the first that is not 0."""
    scale = _scale(block)
    return tuple(x / scale for x in block.to_list_flat())


def _by_directions(blocks: Sequence[DomainMatrix]) -> tuple[int, float]:
    """The heads and the exact error of MHA without projection, a head for each direction.

    T_t = c S in head h is value block c I of that head. A power that is 0 is a value block 0 of the first head. For
    integer A, A^t = c A^s makes c an integer.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for t, block in enumerate(blocks):
        groups.setdefault(_direction(blocks[0] if block.is_zero_matrix else block), []).append(t)
    heads = list(groups.values())
    longest = max(map(len, heads))
    values = []
    for members in heads:
        factors = [_scale(blocks[t]) / _scale(blocks[members[0]]) for t in members]
        factors += [QQ(0)] * (longest - len(members))
        values.append([[c if a == b else 0 for c in factors for b in range(WIDTH)] for a in range(WIDTH)])
    weights = PositionWeights(
        query=tuple(blocks[members[0]] for members in heads),
        key=(exact.identity(blocks[0].shape[0], QQ),) * len(heads),
        value=tuple(exact.matrix(rows, QQ) for rows in values),
        pattern="linear",
    )
    places = {t: (h * longest + i) * WIDTH for h, members in enumerate(heads) for i, t in enumerate(members)}
    readout = tuple(Block(f"A^{t} X", places[t], WIDTH) for t in range(len(blocks)))
    layer = Construction("ledger/directions", "docs/bounds.md", to_layer(weights), readout, WIDTH)
    return layer.heads, exact_gap(layer, blocks)


# E5


def rank_of_sum(size: int, left: int, right: int, *, equal: bool = True, larger: bool = False) -> Finding:
    """rank(S_1 + S_2) against min(N, rank S_1 + rank S_2) for matrices with entries 0, 1, -1 (digits of a code).

    equal: whether equality is claimed, or that it is at most that. larger: the larger rank in place of the sum.
    """
    a, b = (_ternary(size, code) for code in (left, right))
    total, ranks = (a + b).rank(), (a.rank(), b.rank())
    bound = max(ranks) if larger else min(size, sum(ranks))
    what = f"rank({shown(a)} + {shown(b)}) = {total}, where min(N, sum of ranks) is {min(size, sum(ranks))}"
    return Finding(total == bound if equal else total <= bound, what, {"rank": total, "ranks": list(ranks)})


def _ternary(size: int, code: int) -> DomainMatrix:
    digits = [(0, 1, -1)[code // 3**i % 3] for i in range(size * size)]
    return exact.matrix(np.reshape(digits, (size, size)), QQ)


def _codes(size: int, left: int, right: int) -> bool:
    return max(left, right) < 3 ** (size * size)


def degree_decides(
    graph: str, terms: int, *, layers: Sequence[str] = LAYERS, measure: str = "degree", root: int = 2
) -> Finding:
    """Whether min(k, degree of the minimal polynomial) is the certified rank, and the heads of MHA; others: its root.

    layers: that are built. measure: "degree", or "rank" or "size" for those of A in its place. root: 2, or 3 for a
    cube root.
    """
    counts = _counts(graph, terms, layers)
    least = min(terms, counts[measure])
    heads = {name: least if name == "mha" else least_root(least, root) for name in layers}
    holds = counts["certified"] == least and counts["heads"] == heads and counts["error"] == 0
    return Finding(holds, _sentence(graph, terms, counts), counts)


def _counts(graph: str, terms: int, layers: Sequence[str]) -> dict[str, Any]:
    """Size, rank and degree of A; the verified rank; the heads of layers, and their exact error as the bank."""
    a = matrix(graph)
    heads, error = made(a, terms, WIDTH, layers)
    sizes = {"size": a.shape[0], "rank": a.rank(), "degree": degree(graph)}
    return sizes | {"certified": _certified(a, terms), "heads": heads, "error": error}


def _sentence(graph: str, terms: int, counts: dict[str, Any]) -> str:
    name = f"A = {shown(matrix(graph))}" if graph.startswith("binary:") else graph
    heads = ", ".join(f"{layer} {heads}" for layer, heads in counts["heads"].items())
    return (
        f"{name}: rank {counts['rank']} of {counts['size']}, minimal polynomial of degree {counts['degree']}; k = "
        f"{terms} takes {counts['certified']} MHA heads, certified" + f"; reached: {heads}" * bool(heads)
    )


def _full_rank_and_terms_within(graph: str, terms: int) -> bool:
    a = matrix(graph)
    return terms <= a.shape[0] == a.rank()


CODES = (0, 1, 2, *range(3, 81, 8))
SUMS: dict[str, Any] = {
    "cases": {"size": (1, 2), "left": CODES, "right": CODES},
    "given": _codes,
    "mutants": {"the larger rank": {"larger": True}},
    "wider": {"size": (1, 2), "left": range(81), "right": range(81)},
}
SMALL = tuple(f"binary:{n}:{code}" for n in (1, 2) for code in range(2 ** (n * n)))

STATEMENTS = (
    Statement(
        id="P-bank-needs-k",
        source="Sec. 3.1, App. B.2",
        place=Place(
            "exact",
            ("head-bound", "exact-rank", "concatenation", "bounded-rows", "linear-content", "content-concatenated"),
            "docs/bounds.md, Theorem 2",
        ),
        claim=Claim(
            text="MHA needs at least k heads for [X, AX, ..., A^(k-1) X]",
            test=needs_as_many,
            cases={
                "graph": (
                    *("path:1", "path:2", "cycle:2", "binary:2:15", "complete:3"),
                    *("random:4", "cycle:5", "petersen", "karate"),
                ),
                "terms": (1, 2, 3, 4, 9),
                "projected": (False, True),
            },
            mutants={"k + 1 heads": {"more": 1}},
            wider={"graph": RANDOM, "terms": range(1, 9), "projected": (False, True)},
        ),
        assumption=Assumption(
            "the first k powers of A are linearly independent (with an output projection), or no two of them "
            "proportional (heads concatenated, as in the paper); linear attention that sees content has no "
            "mask and no rotary positions",
            powers_apart,
        ),
        note="This verdict used to assume positions only in queries and keys. It no longer does: with content "
        "anywhere the rank bounds the heads too, for softmax, hard and other bounded rows under any mask (T17a, also "
        "head by head where they are concatenated), and for linear attention without a mask or rotary positions "
        "(T17b, E6); with them it does not (T17b). The layers in the box, which reach the bound, see positions only: "
        "docs/bounds.md, Theorem 2 and 'Concatenation only'. Near, k - 1 heads are enough with content in the queries "
        "(T14b).",
    ),
    Statement(
        id="P-rank-additivity",
        source="App. B.2, proof of the lower bound",
        place=Place("exact", ("mha",)),
        claim=Claim(
            text="the rank of a sum of heads' maps is min(N, sum of their ranks)",
            test=rank_of_sum,
            **SUMS,
        ),
        repaired=Claim(
            text="the rank of a sum of heads' maps is at most min(N, sum of their ranks)",
            test=partial(rank_of_sum, equal=False),
            **SUMS,
        ),
        note="Ledger E5. The upper bound is all that a lower bound on heads needs; the head bound itself is T2.",
    ),
    Statement(
        id="E5",
        source="App. B.2",
        place=Place("exact", ("head-bound", "exact-rank", "bank-reduced"), "docs/bounds.md, Theorem 2"),
        claim=Claim(
            text="[X, AX, ..., A^(k-1) X] takes k MHA heads for every A of full rank N and k <= N (here with an "
            "output projection)",
            test=partial(needs_as_many, projected=True),
            cases={"graph": (*SMALL, "complete:3", "complete:9", "cycle:9", "petersen"), "terms": (1, 2, 3, 9)},
            given=_full_rank_and_terms_within,
            mutants={"k + 1 heads": {"more": 1}},
        ),
        repaired=Claim(
            text="with an output projection the least heads are r = min(k, degree of A's minimal polynomial) in MHA "
            "and ceil(sqrt r) in IHA, whatever the rank of A",
            test=degree_decides,
            cases={
                "graph": (*SMALL[:4], "binary:2:6", "binary:2:9", "path:3", "complete:3", "cycle:9", "petersen"),
                "terms": (1, 2, 5, 9),
            },
            mutants={"rank of A": {"measure": "rank"}, "size of A": {"measure": "size"}, "cube root": {"root": 3}},
            wider={"graph": RANDOM, "terms": range(1, 8)},
        ),
        note="Petersen's graph has full rank and a minimal polynomial of degree 3: any k >= 3 takes 3 MHA heads and 2 "
        "IHA heads. The smallest matrix is the identity, the smallest graph the triangle. With heads concatenated and "
        "no projection Petersen's graph does take k heads, and the identity one (P-bank-needs-k).",
    ),
)
