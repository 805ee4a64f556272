"""Content in queries, keys and values: the paper's lower bound (ledger E6), and how near k - 1 heads come (T14).

Proofs: docs/content.md. Here the layers are built and run, exactly where the claim is exact.
"""

from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from sympy import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from constructions import reduced
from constructions.content.exact_layer import ExactLayer, with_positions
from constructions.content.families import (
    ContentWeights,
    iha_family,
    mha_family,
    one_head,
    predicted_error,
    softmax_family,
)
from constructions.content.steps import beyond_affine
from constructions.content.training import population_error, train
from constructions.ledger.statement import Claim, Finding, Statement
from constructions.measure import exact_gap
from iha_theory import exact, position_only
from iha_theory.bounds import error_floor, least_heads, spectrum
from iha_theory.content_bounds import content_floor, limit_heads, needs_rank_heads
from iha_theory.exact_rank import power_rank
from synthetic.graphs import builtin
from synthetic.polynomial import power_blocks

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


# T14, T14e


def family_error(layer: str, terms: int, scale: int, seed: int = 0, *, power: int = 2, kurtosis: int = 1) -> Finding:
    """The family's torch layer in exact rationals, over all X of signs (kurtosis 1), against its predicted error.

    Also its heads: one fewer than position-only attention needs, for IHA where k = H^2 + 1. power, kurtosis: of the
    prediction.
    """
    a = integers(terms, terms, seed=seed)
    built = mha_family(a, terms, 1, scale).layer() if layer == "mha" else iha_family(a, terms, 1, scale)
    run, matrix = ExactLayer(built), np.array(a.long().tolist(), dtype=object)
    error, total = QQ(0), QQ(0)
    signs: list[list[list[int]]] = []
    for x in product((-1, 1), repeat=terms):
        signs.append([[s] for s in x])
        blocks = [np.array(signs[-1], dtype=object)]
        for _ in range(terms - 1):
            blocks.append(matrix @ blocks[-1])
        target = np.concatenate(blocks, axis=1)
        error += ((run(with_positions(signs[-1])) - target) ** 2).sum()
        total += (target**2).sum()
    predicted = predicted_error(a, terms, 1, scale, kurtosis)
    if power != 2:
        predicted *= Fraction(scale) ** (2 - power)
    measured = _float_error(built, a, torch.tensor(signs, dtype=torch.float64), terms)
    relative = Fraction(int((error / total).numerator), int((error / total).denominator))
    needed = least_heads("mha" if layer == "mha" else "iha", power_rank(a, terms).rank)
    saved = needed - built.num_heads
    expected = 1 if layer == "mha" or terms == built.num_heads**2 + 1 else 0
    what = (
        f"{layer}, N = k = {terms}, eps = {1 / scale:g}: {built.num_heads} heads where position-only attention needs "
        f"{needed}; squared relative error {float(relative):.6g} in exact rationals, {measured:.6g} in float64, "
        f"predicted {float(predicted):.6g}"
    )
    values = {
        "heads": built.num_heads,
        "error": float(relative),
        "predicted": float(predicted),
        "float64": measured,
    }
    return Finding(relative == predicted and saved == expected, what, values)


def _float_error(layer: torch.nn.Module, a: Tensor, x: Tensor, terms: int) -> float:
    target = torch.cat([torch.linalg.matrix_power(a, t) @ x for t in range(terms)], dim=2)
    with torch.no_grad():
        out = layer(*[position_only.with_positions(x)] * 3)
    return float((out - target).square().sum() / target.square().sum())


def softmax_error(terms: int, width: int, seed: int, *, power: int = 2, content: bool = True) -> Finding:
    """Whether k - 1 softmax heads have a squared relative error that falls as eps^2, from eps = 1e-2 to 1e-4.

    power: another exponent. content: keep the content in the queries.
    """
    tokens, generator = terms + width + 1, torch.Generator().manual_seed(seed)
    a = torch.softmax(torch.randn(tokens, tokens, generator=generator, dtype=torch.float64), dim=1)
    x = torch.randn(500, tokens, width, generator=generator, dtype=torch.float64)
    errors = []
    for scale in (1e2, 1e4):
        layer = softmax_family(a, terms, width, scale, seed)
        if not content:
            with torch.no_grad():
                layer.q_proj.weight[:, :width] = 0
        errors.append(_float_error(layer, a, x, terms))
    floor = error_floor(spectrum(torch.stack([torch.linalg.matrix_power(a, t) for t in range(terms)])), terms - 1)
    what = (
        f"softmax, N = {tokens}, d = {width}, k = {terms}, {terms - 1} heads: squared relative error {errors[0]:.3g} "
        f"at eps = 1e-2 and {errors[1]:.3g} at 1e-4, where no position-only layer has less than {floor:.3g}"
    )
    holds = abs(errors[0] / errors[1] / 100.0**power - 1) < 0.2 and errors[1] < floor
    return Finding(holds, what, {"errors": errors, "floor": floor})


# T14a


def trained_against_floors(seed: int, heads: int, content: bool, *, projected: bool = True, more: int = 0) -> Finding:
    """Training on the exact population error: N = 8, d = 2, k = 3, a random orthogonal A.

    Position-only it lands on its floor; with content in the queries below that, and not below its own. projected: the
    identity projected out of the floor with content. more: added to the capacity.
    """
    generator = torch.Generator().manual_seed(seed)
    a = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=generator)).Q
    bank = torch.stack((torch.eye(8, dtype=torch.float64), a, a @ a))
    error = train(bank, WIDTH, heads, content=content, steps=120, seed=seed)[1]
    plain = error_floor(spectrum(bank), heads + more)
    floor = content_floor(bank, heads + more) if content and projected else plain
    holds = floor - 1e-12 <= error and (error < plain - 0.05 if content else error < plain + 1e-4)
    name = "content in the queries" if content else "position-only"
    what = f"H = {heads}, {name}: trained to {error:.4g}; floor {floor:.4g}, position-only floor {plain:.4g}"
    return Finding(holds, what, {"error": error, "floor": floor, "position_only_floor": plain})


# T14b, T14c, T14d, T14f


def queries_do_not_save(graph: str, terms: int, *, dependent: bool = False, more: int = 0) -> Finding:
    """Exact MHA with content in the queries: r heads reach the bank; r - 1 heads would need content that is not seen.

    With independent B_1, ..., B_{r-1} every content weight of the queries is seen in the quadratic part, by an exact
    rank; so an exact layer has none. dependent: B_1 = B_2 in place. more: how many heads beyond r are claimed.
    """
    a = exact.matrix(builtin(graph).adjacency, QQ)
    rank, tokens = power_rank(a, terms).rank, min(a.shape[0], 3)
    heads = max(rank - 1, 1)
    values = integers(heads, WIDTH, heads * WIDTH, seed=terms, most=4)
    if dependent:
        values = values[:1].expand(heads, -1, -1)
    seen, unknown = beyond_affine(values, torch.zeros(heads, tokens, heads * WIDTH, dtype=torch.float64), "M")
    layer = reduced.bank("mha", reduced.reduce(a, terms), WIDTH)
    error = exact_gap(layer, list(power_blocks(a, terms)))
    what = (
        f"{graph}, k = {terms}, r = {rank}: {seen} of {unknown} content weights of {heads} heads show in the quadratic "
        f"part; {layer.heads} heads make the bank with exact error {error:g}, {limit_heads(a, terms, WIDTH)} come near"
    )
    holds = seen == unknown and error == 0 and layer.heads == rank + more
    return Finding(holds, what, {"rank": rank, "seen": seen, "weights": unknown, "heads": layer.heads})


def content_does_not_save(graph: str, terms: int, *, known: str = "GMN", more: int = 0) -> Finding:
    """Exact MHA and IHA with content anywhere need r and ceil(sqrt r) heads, under the condition on p(A).

    The steps as exact ranks: with B_h = b_h x I_d, b_h a basis, every content weight of queries and keys is seen beyond
    affine parts. known: the blocks whose weights count; with "GMNS" those of positions too, which affine parts hide.
    more: heads beyond r that are claimed.
    """
    a = exact.matrix(builtin(graph).adjacency, QQ)
    rank, tokens = power_rank(a, terms).rank, min(a.shape[0], 3)
    heads = max(rank - 1, 1)
    basis = torch.eye(heads, dtype=torch.float64) + integers(heads, heads, seed=terms, most=1).triu(1)
    values = torch.einsum("ht,ab->hatb", basis, torch.eye(WIDTH, dtype=torch.float64)).flatten(2)
    seen, unknown = beyond_affine(values, torch.zeros(heads, tokens, heads * WIDTH, dtype=torch.float64), known)
    certified = rank if needs_rank_heads(a, terms) and seen == unknown else 0
    given, blocks = reduced.reduce(a, terms), list(power_blocks(a, terms))
    layers = {name: reduced.bank(name, given, WIDTH) for name in ("mha", "iha")}
    error = max(exact_gap(layer, blocks) for layer in layers.values())
    what = (
        f"{graph}, k = {terms}, r = {rank}: {seen} of {unknown} content weights of {heads} heads "
        f"are seen: at least {certified} MHA heads; {layers['mha'].heads} MHA and {layers['iha'].heads} IHA "
        f"heads have exact error {error:g}"
    )
    least = certified + more
    holds = error == 0 and layers["mha"].heads == least and layers["iha"].heads == least_heads("iha", max(least, 1))
    return Finding(holds, what, {"certified": certified, "mha": layers["mha"].heads, "iha": layers["iha"].heads})


def rank_condition(graph: str, terms: int) -> bool:
    """The hypothesis of Theorem 4."""
    return needs_rank_heads(builtin(graph).adjacency, terms)


def one_head_for_two_terms(graph: str, width: int, *, multiplicity: bool = True, real: bool = True) -> Finding:
    """Whether one head with content in its queries comes near [X, AX] just where a real eigenvalue has d eigenvectors.

    Near: the explicit head with the eigenvectors of an integer eigenvalue falls as eps^2 to 1e-8; where there is none,
    training decides. multiplicity, real: whether the claim asks for d eigenvectors, and for a real eigenvalue.
    """
    a = (
        torch.tensor([[0, -1], [1, 0]]).double()
        if graph == "rotation"
        else torch.tensor(builtin(graph).adjacency).double()
    )
    claimed = limit_heads(a, 2, width if multiplicity else 1) == 1 or not real
    bank = torch.stack((torch.eye(len(a), dtype=torch.float64), a))
    found = _eigenvectors(a, width)
    if found is None:
        errors = [train(bank, width, 1, content=True, steps=80)[1]]
        how = "trained, it has"
    else:
        errors = [float(population_error(one_head(a, *found, scale), bank)) for scale in (1e2, 1e4)]
        how = f"with eigenvalue {found[0]:g} and eps = 1e-2, 1e-4 it has"
    near = len(errors) == 2 and errors[1] < 1e-5 and abs(errors[0] / errors[1] / 1e4 - 1) < 1e-3
    what = (
        f"{graph}, d = {width}: {how} squared relative error {', '.join(f'{e:.3g}' for e in errors)}; "
        f"position-only floor {error_floor(spectrum(bank), 1):.3g}"
    )
    return Finding(near == claimed and (near or errors[0] > 0.01), what, {"errors": errors, "claimed": claimed})


def _eigenvectors(a: Tensor, count: int) -> tuple[float, Tensor] | None:
    """An integer eigenvalue with that many independent eigenvectors, and those."""
    m, one = exact.matrix(a, QQ), exact.identity(len(a), QQ)
    for value in sorted(range(-len(a), len(a) + 1), key=abs):
        kernel = (m - one * QQ(value)).nullspace().to_list()
        if len(kernel) >= count:
            return float(value), torch.tensor([[float(x) for x in row] for row in kernel[:count]]).double().T
    return None


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
                return Finding(False, f"A = {a.to_list()}: one head carries A^{s} and A^{t}", {"powers": [s, t]})
    return Finding(True, f"A = {_shown(a)}, k = {terms}: no head of position values carries two directions", {})


def _rank_one_parts(m: DomainMatrix) -> list[tuple[Any, DomainMatrix]]:
    """(f, m - f I) of rank 1, for integers f."""
    size = m.shape[0]
    most = sum(abs(int(x)) for x in m.to_list_flat())
    parts = ((f, m - exact.identity(size, QQ) * QQ(f)) for f in range(-most, most + 1))
    return [(QQ(f), part) for f, part in parts if part.rank() == 1]


def _shown(m: DomainMatrix) -> str:
    return str([[int(x) for x in row] for row in m.to_list()])


SCALES = tuple(10**i for i in range(1, 7))
GRAPHS = ("cycle:3", "path:5", "cycle:5", "random:6", "cycle:7", "karate")

STATEMENTS = (
    Statement(
        id="E6",
        source="App. B.2, proof of the lower bound",
        claim=Claim(
            text="Att_h C_h = 0 and Att_h != 0 imply C_h = 0",
            test=zero_forces_zero,
            cases={"tokens": (1, 2, 3), "query": ("positions", "content")},
            mutants={"without Att_h != 0": {"nonzero": False}},
        ),
        repaired=Claim(
            text="heads concatenated, N >= 2: a head whose values use content and whose read columns are affine in X "
            "has a constant pattern, and one whose values are constant has no content against content in its pattern. "
            "So each head carries the powers of one direction only, and k heads are needed if no two powers are "
            "proportional",
            test=linear_heads_have_constant_patterns,
            cases={"tokens": (2, 3, 4), "width": (1, 2, 3), "seed": (0, 1)},
            mutants={"values without content": {"content": 0}, "one more weight": {"more": 1}},
            wider={"tokens": range(2, 5), "width": range(1, 4), "seed": range(100)},
        ),
        note="A position-only head with a singular pattern breaks the implication from N = 2 on, too; its bound does "
        "not need the implication (docs/bounds.md, Theorem 2). With content in the queries one token is enough. The "
        "count for concatenated heads is right with content anywhere, for every A: docs/content.md, Theorem 5 (T14f is "
        "its last step). With an output projection see T14b and T14c.",
    ),
    Statement(
        id="T14",
        source="docs/results.md T14",
        claim=Claim(
            text="with content in the queries k - 1 heads of linear MHA (k >= 3, d <= N), and ceil(sqrt(k - 1)) >= 2 "
            "of IHA, come near the bank of any A: with weights 1/eps the squared relative error is "
            "(eps^2 (N d + kappa - 1) + delta^2 N) / sum_t |A^t|_F^2, delta the rounding of eps times 1/eps",
            test=family_error,
            cases={"layer": ("mha", "iha"), "terms": (3, 5), "scale": SCALES},
            mutants={
                "falls as eps": {"power": 1},
                "falls as eps^4": {"power": 4},
                "as normal entries": {"kurtosis": 3},
            },
            wider={"layer": ("mha", "iha"), "terms": (3, 4), "scale": range(2, 10**6), "seed": range(5)},
        ),
        note="docs/results.md T14 does not say k >= 3: see T14d for k = 2. The relative error itself falls as eps.",
    ),
    Statement(
        id="T14a",
        source="docs/results.md T14; docs/content.md, Theorem 1",
        claim=Claim(
            text="with content in the queries the error floor is that of T3 with the identity projected out of the "
            "realignment: training goes below the position-only floor, and not below this one",
            test=trained_against_floors,
            cases={"seed": (0,), "heads": (1, 2), "content": (False, True)},
            wider={"seed": range(20), "heads": (1, 2), "content": (False, True)},
            mutants={"identity not projected out": {"projected": False}, "capacity H - 1": {"more": -1}},
        ),
        note="With one head this floor is not the infimum; from two heads on, and d <= N (H - 1), it is.",
    ),
    Statement(
        id="T14b",
        source="docs/content.md, Theorem 2",
        claim=Claim(
            text="content in the queries saves no head exactly: r = dim span{I, ..., A^(k-1)} heads are needed, though "
            "r - 1 come arbitrarily near",
            test=queries_do_not_save,
            cases={"graph": ("path:3", "star:4", "cycle:5", "petersen", "random:6"), "terms": (2, 3, 4, 9)},
            mutants={"dependent values": {"dependent": True}, "a head more": {"more": 1}},
        ),
        note="A border rank below the rank, as for tensors.",
    ),
    Statement(
        id="T14c",
        source="docs/content.md, Theorem 4",
        claim=Claim(
            text="if r <= 2, or rank p(A) >= r for every polynomial p of degree 1 to r - 1, exact linear attention "
            "with content anywhere and an output projection needs r heads (MHA) and ceil(sqrt r) (IHA)",
            test=content_does_not_save,
            cases={"graph": GRAPHS, "terms": (2, 3, 4)},
            given=rank_condition,
            mutants={"weights of positions too": {"known": "GMNS"}, "a head more": {"more": 1}},
        ),
        note="So the paper's bound of k heads holds exactly for all of linear attention if every eigenvalue of A has "
        "one Jordan block and N >= 2 k - 1. Without the condition (Petersen, k >= 3) it is open.",
    ),
    Statement(
        id="T14d",
        source="docs/content.md, Theorem 3",
        claim=Claim(
            text="one head with content in the queries comes near [X, AX] if and only if a real eigenvalue of A has d "
            "independent eigenvectors",
            test=one_head_for_two_terms,
            cases={"graph": ("rotation", "path:3", "complete:3", "cycle:4"), "width": (1, 2)},
            mutants={"any multiplicity": {"multiplicity": False}, "any eigenvalue": {"real": False}},
        ),
        note="Where it does not, training is evidence and the theorem the proof.",
    ),
    Statement(
        id="T14e",
        source="docs/content.md, Softmax",
        claim=Claim(
            text="k - 1 softmax heads with content in the queries come near the bank of a generic positive stochastic "
            "A of width d <= k - 2; the squared relative error falls as eps^2",
            test=softmax_error,
            cases={"terms": (3, 4, 5), "width": (1, 2, 3), "seed": (0, 1)},
            given=lambda terms, width, seed: width <= terms - 2,
            mutants={"falls as eps": {"power": 1}, "no content in the queries": {"content": False}},
            wider={"terms": range(3, 6), "width": range(1, 4), "seed": range(100)},
        ),
        note="Whether k - 1 softmax heads can be exact is open.",
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
