"""Checks of relations: two heads and an MLP for paths of h steps, m heads alone for the number of two-step paths."""

from collections.abc import Iterator
from itertools import product

from constructions.checks.mutants import Subject, in_place
from constructions.checks.relations import EXHAUSTIVE, paths_error, relations, scores_error, wrong_bits
from constructions.checks.result import CheckResult
from constructions.targets.copying import COPIES, copying
from constructions.targets.relations import PATTERNS, Composition, composition, paths

POINTS = range(1, 11)
HOPS = (2, 3)

COMPOSED = (
    "paths of h steps of any relation on m points: two heads of MHA that see content, and m + 2 ReLUs, h - 1 times"
)
COUNTED = "the number of two-step paths of any relation on m points: m heads of MHA that see content, and no MLP"

COPIED = "paths of three steps of any relation on m points in one layer: one uniform head of width m^2, 4m^2 + 2 ReLUs"


def checks(points: int, exact_only: bool) -> Iterator[CheckResult]:
    """The bits for each number of steps by softmax and by hard attention, the scores of the latter; three steps in one
    layer; and the paths."""
    x = relations(points)
    compared = f"{'all' if points <= EXHAUSTIVE else 'some'} relations, {len(x)}"
    for hops, pattern in product(HOPS, PATTERNS):
        net = composition(points, hops, pattern)
        name = f"relations/m={points}/h={hops}/{pattern}"
        about = {"claim": COMPOSED, "claimed_heads": 2}
        about["setting"] = {"points": points, "hops": hops, "pattern": pattern}
        error = wrong_bits(net, x, hops)
        yield CheckResult.of(net, name, "mha", "exact", error=error, bound=0.0, compared=f"bits, {compared}", **about)
        if pattern == "hard" and not exact_only:
            error, bound = scores_error(net, x, hops)
            compared_too = f"scores, {compared}"
            yield CheckResult.of(net, name, "mha", "float64", error=error, bound=bound, compared=compared_too, **about)
    for pattern in COPIES:
        copied = copying(points, pattern)
        yield CheckResult.of(
            copied,
            f"relations-copied/m={points}/{pattern}",
            "mha",
            "exact",
            claim=COPIED,
            error=wrong_bits(copied, x, 3),
            bound=0.0,
            setting={"points": points, "pattern": pattern},
            compared=f"bits, {compared}",
            claimed_heads=1,
        )
    construction = paths(points)
    yield CheckResult.of(
        construction,
        f"relation-paths/m={points}",
        "mha",
        "exact",
        claim=COUNTED,
        error=paths_error(construction, x),
        bound=0.0,
        setting={"points": points},
        compared=f"paths as integers, {compared}",
        claimed_heads=points,
    )


def subjects() -> list[Subject]:
    """The checks to be tested by mutants."""
    return [_bits(3, 3, "softmax"), _scores(3, 2), _copied(3, "softmax"), _paths(3)]


def _bits(points: int, hops: int, pattern: str) -> Subject:
    x = relations(points)
    return Subject(
        f"relations/m={points}/h={hops}/{pattern}/mha/exact",
        build=lambda: composition(points, hops, pattern),
        error=lambda net: (wrong_bits(net, x, hops), 0.0),
        outputs=lambda net: net(x),
        layer=lambda net: net.layer,
        extra={
            "a step less": lambda net: Composition(net.layer, net.mlp, hops - 1),
            "logits a third": in_place(lambda net: setattr(net.layer, "scale", net.layer.scale / 3)),
            "head 2 reads its row": in_place(_second_head_by_row),
        },
    )


def _second_head_by_row(net: Composition) -> None:
    m = net.mlp.points
    for projection in (net.layer.q_proj, net.layer.k_proj, net.layer.v_proj):
        codes = projection.weight[m + 1 :, 2:]
        codes.copy_(codes.roll(m, 1))


def _scores(points: int, hops: int) -> Subject:
    x = relations(points)
    return Subject(
        f"relations/m={points}/h={hops}/hard/mha/float64",
        build=lambda: composition(points, hops),
        error=lambda net: scores_error(net, x, hops),
        outputs=lambda net: net.scores(x),
        layer=lambda net: net.layer,
        extra={
            "a flag dropped": in_place(lambda net: net.mlp.above.weight[:, points].zero_()),
            "a unit dropped": in_place(lambda net: net.mlp.total.weight[:, 0].zero_()),
            "noise of 1e-3 in the MLP": in_place(lambda net: net.mlp.above.weight.add_(1e-3)),
        },
    )


def _copied(points: int, pattern: str) -> Subject:
    x = relations(points)
    return Subject(
        f"relations-copied/m={points}/{pattern}/mha/exact",
        build=lambda: copying(points, pattern),
        error=lambda net: (wrong_bits(net, x, 3), 0.0),
        outputs=lambda net: net(x),
        layer=lambda net: net.layer,
        extra={
            "a path dropped": in_place(lambda net: net.mlp.paths.weight[1].zero_()),
            "rows read as columns": in_place(lambda net: net.mlp.paths.weight.copy_(net.mlp.paths.weight.roll(9, 1))),
            "two steps of three are enough": in_place(lambda net: net.mlp.paths.bias.fill_(-1)),
            "a step's code dropped": in_place(lambda net: net.mlp.steps.weight[0, points**2 :].zero_()),
        },
    )


def _paths(points: int) -> Subject:
    x = relations(points)
    return Subject(
        f"relation-paths/m={points}/mha/exact",
        build=lambda: paths(points),
        error=lambda construction: (paths_error(construction, x), 0.0),
        outputs=lambda construction: construction(x.flatten(1).unsqueeze(-1).double()).detach(),
        layer=lambda construction: construction.layer,
        extra={
            "one head twice": in_place(
                lambda construction: construction.layer.q_proj.weight[: points**2 + 1].copy_(
                    construction.layer.q_proj.weight[points**2 + 1 : 2 * (points**2 + 1)]
                )
            ),
            "bits not seen by the keys": in_place(lambda c: c.layer.k_proj.weight[:, 0].zero_()),
        },
    )
