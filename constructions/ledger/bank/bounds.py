"""What position-only attention can do, and what the filter bank needs: T1 to T4 of docs/results.md, docs/bounds.md."""

from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from constructions.checks.operators import frobenius_error
from constructions.checks.result import least_root
from constructions.construction import Construction, blocks
from constructions.filter_bank.approximate import decompose, truncated_mha, unit_powers, wide_iha
from constructions.filter_bank.layers import EXACT
from constructions.filter_bank.products import mha_products
from constructions.ledger.bank.rank import degree_decides
from constructions.ledger.cases import RANDOM
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from iha_theory.bounds.heads import error_floor, spectrum
from iha_theory.capacity import VALUE_DIM, Capacity, table
from iha_theory.operators.weights import to_layer
from synthetic.graphs import builtin, normalise

# T1


def measured(layer: str, heads: int, **sizes: int) -> Iterator[Capacity]:
    """Measured ranks of one layer with generic parameters. layer: a name of `capacity.table`, or "iha, P = 2"."""
    name, _, pseudo = layer.partition(", ")
    label = f"{name} H = {heads}" + (f", {pseudo}" if pseudo else "")
    return (run() for row, run in table((heads,), **sizes) if row == label)


def capacity_reached(layer: str, heads: int, *, squares: int = 2, maps: int = 2, more: int = 0) -> Finding:
    """The measured rank of generic parameters against the table of T1, for every pattern and collapse there is.

    squares: exponent of H in IHA and two layers. maps: exponent of P with global collapse. more: added to each bound.
    """
    found = list(measured(layer, heads))
    claimed = []
    for row in found:
        if row.pseudo_heads is not None:
            folded = row.pseudo_heads ** (maps if row.collapse == "global" else 1)
            claimed.append(min(heads**squares, heads * folded) + more)
        else:
            bounds = {"two-layer": heads**squares, "simplicial": heads * VALUE_DIM}
            claimed.append(bounds.get(layer, heads) + more)
    ranks = [row.rank for row in found]
    what = f"{layer}, H = {heads}: ranks {ranks} measured, {claimed} claimed, least gap {min(r.gap for r in found):.1e}"
    holds = ranks == claimed and all(row.clear for row in found)
    return Finding(holds, what, {"ranks": ranks, "claimed": claimed})


def _has_row(layer: str, heads: int) -> bool:
    if layer.startswith("iha"):
        return int(layer[-1]) <= heads
    return layer != "gqa" or heads == 4


# T3, T4


STEPS = 100


def _floats(graph: str) -> Float[Tensor, "N N"]:
    """A in float64; an undirected graph's symmetric-normalised."""
    found = builtin(graph)
    return torch.tensor(found.adjacency if found.directed else normalise(found, "symmetric").adjacency).double()


def _tail(values: Tensor, rank: int, power: int) -> float:
    return float((values[rank:] ** power).sum() / (values**power).sum())


def floor_attained(graph: str, terms: int, heads: int, *, power: int = 2, more: int = 0) -> Finding:
    """The squared error of the truncated SVD in a torch MHA with R heads against sum_{i>R} s_i^2 / sum s_i^2.

    power: of the singular values. more: the floor of R + more.
    """
    target = unit_powers(_floats(graph), terms)
    floor = _tail(spectrum(target), heads + more, power)
    error = frobenius_error(truncated_mha(target, heads), target) ** 2
    what = f"{graph}, k = {terms}, R = {heads}: squared error {error:.8f} of the layer, floor {floor:.8f}"
    return Finding(abs(error - floor) <= 1e-10, what, {"error": error, "floor": floor})


def floor_not_beaten(graph: str, terms: int, heads: int, seed: int, *, power: int = 2, more: int = 0) -> Finding:
    """Alternating least squares for the maps and the readout of an MHA, from random ones: above the floor, and to it.

    As `floor_attained`. Each step's error is the torch layer's. SVD-free, so that it shares nothing with the floor.
    """
    target = unit_powers(_floats(graph), terms)
    floor = _tail(spectrum(target), heads + more, power)
    flat, size = target.flatten(1).T, target.shape[1]
    readout = torch.from_numpy(np.random.default_rng(seed).standard_normal((heads, terms)))
    errors = []
    for step in range(STEPS):
        maps = flat @ torch.linalg.pinv(readout)
        readout = torch.linalg.pinv(maps) @ flat
        if step in (0, 2, STEPS - 1):
            errors.append(frobenius_error(_mha(maps.T.unflatten(1, (size, size)), readout), target) ** 2)
    what = (
        f"{graph}, k = {terms}, R = {heads}: squared errors {errors[0]:.6f}, {errors[1]:.6f}, .., {errors[-1]:.6f} of "
        f"the layer, floor {floor:.6f}"
    )
    holds = min(errors) >= floor - 1e-10 and errors[-1] <= floor + 1e-4
    return Finding(holds, what, {"errors": errors, "floor": floor})


def _mha(maps: Float[Tensor, "R N N"], readout: Float[Tensor, "R k"]) -> Construction:
    """MHA with R heads: X -> [sum_h readout[h, t] maps[h] X], t < k, on content of width 1."""
    weights = mha_products(maps, torch.eye(maps.shape[1], dtype=torch.float64)[None], readout[:, None, None, :])
    return Construction("ledger/mha", "T3", to_layer(weights), blocks("{}", readout.shape[1]), 1)


HEADS_AT = {
    "petersen": (3, 3, 3, 3),
    "cycle:16": (16, 16, 16, 16),
    "karate": (4, 7, 11, 16),
    "les_miserables": (5, 8, 12, 16),
}
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-8)
TERMS = 16


def heads_within(graph: str, tolerance: float, *, fewer: int = 0) -> Finding:
    """MHA with the heads of the table, and wide IHA with their square root, are torch layers within the tolerance."""
    heads = HEADS_AT[graph][TOLERANCES.index(tolerance)] - fewer
    errors = _errors(graph, heads)
    what = (
        f"{graph}, error {tolerance:g}: {heads} MHA heads are within {size(errors[0]):g}, {least_root(heads)} wide IHA "
        f"heads within {size(errors[1]):g}"
    )
    return Finding(max(errors) <= tolerance, what, {"heads": heads, "errors": [size(e) for e in errors]})


@cache
def _errors(graph: str, heads: int) -> list[float]:
    target = unit_powers(_floats(graph), TERMS)
    layers = truncated_mha(target, heads), wide_iha(target, least_root(heads))
    return [frobenius_error(layer, target) for layer in layers]


def fewer_heads_miss(graph: str, tolerance: float, *, more: int = 0) -> Finding:
    """One head less has a floor above the tolerance; so has one IHA head less than the root. more: heads added."""
    values = decompose(unit_powers(_floats(graph), TERMS)).values
    heads = HEADS_AT[graph][TOLERANCES.index(tolerance)] + more
    capacities = heads - 1, (least_root(heads) - 1) ** 2
    floors = [error_floor(values, capacity) ** 0.5 for capacity in capacities]
    what = (
        f"{graph}, error {tolerance:g}: capacity {heads - 1} has floor {floors[0]:.3g}, {capacities[1]} {floors[1]:.3g}"
    )
    return Finding(min(floors) > tolerance, what, {"capacities": list(capacities), "floors": floors})


CAPACITIES = (
    *("mha", "mqa", "gqa", "talking-heads", "differential"),
    *("iha, P = 1", "iha, P = 2", "iha, P = 3", "two-layer", "simplicial", "torch.nn.MultiheadAttention"),
)
BANKS = ("path:2", "cycle:2", "complete:3", "path:4", "cycle:5", "petersen")

STATEMENTS = (
    Statement(
        id="T1",
        source="docs/bounds.md, Theorem 1",
        place=Place("numerical", ("capacity",)),
        claim=Claim(
            text="with positions only in queries and keys the largest operator Schmidt rank is H for MHA and its "
            "relatives, min(H^2, H P^2) for IHA, H^2 for two layers of MHA, H d_v for 2-simplicial attention",
            test=capacity_reached,
            cases={"layer": CAPACITIES, "heads": (1, 2, 3, 4)},
            given=_has_row,
            mutants={"H P for global collapse": {"maps": 1}, "H for H^2": {"squares": 1}, "one more": {"more": 1}},
        ),
        note="The relatives are multi- and grouped-query attention, Talking-Heads and differential attention; with "
        "per-head collapse IHA has min(H^2, H P). Generic parameters reach these ranks: here they are "
        "measured. That no parameters exceed them is proved in iha_theory.capacity.",
    ),
    Statement(
        id="T2",
        source="docs/bounds.md, Theorem 2",
        place=Place("exact", ("head-bound", "exact-rank", "bank-reduced")),
        claim=Claim(
            text="the filter bank takes r = min(k, degree of the minimal polynomial) MHA heads, and ceil(sqrt r) heads "
            "of IHA or in each of two layers, for every A",
            test=partial(degree_decides, layers=EXACT),
            cases={"graph": BANKS, "terms": (1, 3, 5, 9)},
            mutants={"size of A": {"measure": "size"}, "rank of A": {"measure": "rank"}, "cube root": {"root": 3}},
            wider={"graph": RANDOM, "terms": range(1, 9)},
        ),
        needed=True,
        least=Claim(
            text="the bank's operator Schmidt rank is r, so no position-only layer has fewer heads (T1); the N cyclic "
            "shifts have rank N",
            test=partial(degree_decides, layers=()),
            cases={"graph": (*BANKS, "cycle:16", "karate"), "terms": (1, 2, 3, 5, 9, 16)},
            mutants={"size of A": {"measure": "size"}, "rank of A": {"measure": "rank"}},
            wider={"graph": RANDOM, "terms": range(1, 9)},
        ),
        note="Heads with an output projection. The shifts are the powers of a cycle's adjacency matrix, k = N. The "
        "same counts hold with content anywhere: T17a, T17b.",
    ),
    Statement(
        id="T3",
        source="docs/bounds.md, Theorem 3",
        place=Place("numerical", ("error-floor", "truncated-mha")),
        claim=Claim(
            text="linear MHA with R heads attains the relative squared error sum_{i>R} s_i^2 / sum s_i^2, s_i the "
            "singular values of the target's realignment",
            test=floor_attained,
            cases={"graph": ("orthogonal:8", "random:6"), "terms": (2, 5, 9), "heads": (1, 2, 4)},
            given=lambda graph, terms, heads: heads < terms,
            mutants={"s for s^2": {"power": 1}, "R + 1": {"more": 1}},
        ),
        needed=True,
        least=Claim(
            text="no MHA with R heads has a smaller error, and fitted ones come to it",
            test=floor_not_beaten,
            cases={"graph": ("orthogonal:8", "random:6"), "terms": (5,), "heads": (1, 2), "seed": (0, 1)},
            mutants={"s for s^2": {"power": 1}, "R - 1": {"more": -1}, "R + 1": {"more": 1}},
        ),
        note="Fitted by alternating least squares. Proof: Eckart, Young, Mirsky on the realignment.",
    ),
    Statement(
        id="T4",
        source="docs/bounds.md, Theorem 4",
        place=Place("numerical", ("tolerance", "truncated-mha", "wide-iha")),
        claim=Claim(
            text="16 unit-norm powers of karate within relative errors 1e-1, 1e-2, 1e-4, 1e-8 take 4, 7, 11, 16 MHA "
            "heads, and their square roots, rounded up, in IHA with wide heads (three other graphs likewise)",
            test=heads_within,
            cases={"graph": tuple(HEADS_AT), "tolerance": TOLERANCES},
            mutants={"a head less": {"fewer": 1}},
        ),
        needed=True,
        least=Claim(
            text="with a head less the floor is above the tolerance",
            test=fewer_heads_miss,
            cases={"graph": tuple(HEADS_AT), "tolerance": TOLERANCES},
            mutants={"a head less is too few, from one more on": {"more": 1}},
        ),
        note="The others: les miserables 5, 8, 12, 16; directed 16-cycle 16 at all; Petersen 3 at all. Wide heads "
        "have queries and keys of width H N. Undirected graphs are symmetric-normalised. From singular values "
        "in float64, so not certified.",
    ),
)
