"""Content in queries, keys and values: which heads are exact, which are near (T14b, T14c). Proofs: docs/content.md."""

from itertools import pairwise

import flint
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions.ledger.cases import integers, made, matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from constructions.targets.content.families import ContentWeights
from constructions.targets.content.steps import PRIME, beyond_affine
from constructions.targets.content.training import population_error, train
from iha_theory import blueprint, exact
from iha_theory.bounds.content import limit_heads, needs_rank_heads
from iha_theory.bounds.exact_rank import power_rank
from synthetic.graphs import builtin

# T14b


@blueprint.theorem(
    "content-exact",
    "content in the queries of linear attention saves no head exactly: the bank takes r",
    uses=("content-degrees", "schmidt-rank"),
    check="exact",
    proof="docs/content.md, Theorem 2",
)
def queries_do_not_save(
    graph: str, terms: int, width: int, *, dependent: bool = False, more: int = 0, narrower: int = 0
) -> Finding:
    """Exact MHA with content in the queries takes r heads; whether r - 1 come near is decided without `limit_heads`.

    With independent B_1, ..., B_{r-1} every content weight of the queries is seen in the quadratic part, by an exact
    rank; so an exact layer has none, and takes r heads, as one without content (T2). Near: see `_come_near`.

    dependent: B_1 = B_2 in place. more: how many heads beyond r are claimed. narrower: the condition with a smaller d.
    """
    a = matrix(graph)
    rank = power_rank(a, terms).rank
    heads = max(rank - 1, 1)
    own = torch.eye(heads * width, dtype=torch.float64).unflatten(0, (heads, width))
    values = integers(heads, width, heads * width, seed=terms) + 9 * own
    if dependent:
        values = values[:1].expand(heads, -1, -1)
    constants = torch.zeros(heads, min(a.shape[0], 3), heads * width, dtype=torch.float64)
    seen, unknown = beyond_affine(values, constants, "M")
    achieved, error = made(a, terms, width, ["mha"])
    near, falls, how, kernel = _come_near(exact.nearest_float64(a), terms, rank, width)
    what = (
        f"{graph}, k = {terms}, d = {width}, r = {rank}: {seen} of {unknown} content weights of {heads} heads show in "
        f"the quadratic part; {achieved['mha']} heads make the bank with exact error {error:g}; {rank - 1} {how}"
    )
    claimed = limit_heads(a, terms, max(1, width - narrower)) == rank - 1
    holds = seen == unknown and error == 0 and achieved["mha"] == rank + more and falls and near == claimed
    found = {"rank": rank, "seen": seen, "weights": unknown, "heads": achieved["mha"], "kernel": kernel, "near": near}
    return Finding(holds, what, found)


def _come_near(a: Tensor, terms: int, rank: int, width: int) -> tuple[bool, bool, str, int]:
    """Whether r - 1 heads come near, whether the measured error says so too, both in words, and the kernel.

    They come near if `_family` has a member, whose error is measured and falls as eps^2, and not if no real l has the
    kernel that it asks for (docs/content.md, Theorem 3); then one head, for k = 2 >= d, is trained and stays away.
    """
    bank = torch.stack([torch.linalg.matrix_power(a, t) for t in range(terms)])
    kernel, eigenvalue, null = _largest_kernel(bank[:rank])
    if kernel < width:
        error = train(bank, width, 1, content=True, steps=80)[1] if terms == 2 >= width else None
        trained = "" if error is None else f"; trained to {size(error):g}"
        away = error is None or error > 0.01
        return False, away, f"do not come near, as no kernel is larger than {kernel} < d{trained}", kernel
    family = (_family(bank, rank, eigenvalue, null[:, :width], scale) for scale in (1e1, 1e3))
    errors = [float(population_error(weights, bank)) for weights in family]
    how = f"come near: squared relative error {errors[0]:.3g} at eps = .1, {errors[1]:.3g} at .001"
    return True, abs(errors[0] / errors[1] / 1e4 - 1) < 1e-3, how, kernel


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


# T14c


def two_fewer_stay_away(graph: str, terms: int, *, earlier: int = 0) -> Finding:
    """The condition on p(A) as `needs_rank_heads` decides it, against the least rank of p(A) by invariant factors.

    earlier: the condition for so many terms less.
    """
    a = exact.matrix(builtin(graph).adjacency, QQ)
    rank = power_rank(a, terms).rank
    claimed, least = needs_rank_heads(a, terms - earlier), _least_rank(a, rank - 1)
    away = rank <= 2 or least >= rank
    what = (
        f"{graph}, k = {terms}, r = {rank}: p(A) has rank {least} or more, so that {max(rank - 2, 0)} heads are "
        f"{'not near' if away else 'not excluded'}"
    )
    return Finding(claimed == away, what, {"rank": rank, "least_rank": least, "away": away})


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


GRAPHS = ("cycle:3", "cycle:4", "path:5", "cycle:5", "random:6", "cycle:7", "petersen", "karate")

STATEMENTS = (
    Statement(
        id="T14b",
        source="docs/content.md, Theorem 2",
        place=Place(
            "numerical",
            ("content-exact", "content-limit", "bank-reduced"),
            "docs/content.md, Theorem 2; docs/content.md, Theorem 3",
        ),
        claim=Claim(
            text="with content in the queries of linear attention (no mask, no rotary) r = dim span{I, ..., A^(k-1)} "
            "heads are needed; r - 1 come near if and only if d <= N(r-2) + m, m eigenvectors of a real eigenvalue",
            test=queries_do_not_save,
            cases={
                "graph": ("path:2", "rotation", "path:3", "cycle:3", "star:4", "cycle:5", "petersen", "random:6"),
                "terms": (2, 3, 9),
                "width": (1, 2, 5),
            },
            mutants={
                "dependent values": {"dependent": True},
                "a head more": {"more": 1},
                "near for d <= N(r-2) + m + 1": {"narrower": 1},
            },
        ),
        note="m is the largest number of independent ones. Where r - 1 heads come near, a border rank below the "
        "rank, as for tensors. Always for r >= 3 and d <= N; for r = 2 if a real eigenvalue has d independent "
        "eigenvectors (once T14d). With content anywhere r heads are needed exactly too: T17b.",
    ),
    Statement(
        id="T14c",
        source="docs/content.md, Theorem 4",
        place=Place("exact", ("content-anywhere",)),
        claim=Claim(
            text="if rank p(A) >= r = dim span{I, ..., A^(k-1)} for every complex p of degree 1 to r - 1, r - 2 heads "
            "of linear attention do not come near the bank, content anywhere",
            test=two_fewer_stay_away,
            cases={"graph": GRAPHS, "terms": (2, 3, 4)},
            mutants={"the condition for k - 1": {"earlier": 1}},
        ),
        note="With an output projection. This statement used to say that under the condition exactly r heads are "
        "needed, and left that open without it (Petersen, k >= 3): T17b has r heads for every A. The condition holds "
        "if every eigenvalue of A has one Jordan block and N >= 2 r - 1. The proof asks it of real p only; what is "
        "decided is the stricter one for complex p.",
    ),
)
