"""Content in the queries: how near fewer heads come, by explicit families and by training (T14, T14a, T14e).

Proofs: docs/content.md. Here the layers are built and run, exactly where the claim is exact.
"""

from fractions import Fraction
from itertools import product

import numpy as np
import torch
from sympy import QQ
from torch import Tensor

from constructions.ledger.cases import WIDTH, integers
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from constructions.targets.content.exact_layer import ExactLayer, with_positions
from constructions.targets.content.families import (
    iha_family,
    mha_family,
    predicted_error,
    softmax_family,
)
from constructions.targets.content.training import train
from iha_theory.bounds.content import content_floor
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.bounds.heads import error_floor, least_heads, spectrum
from iha_theory.operators import weights as position_only

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
    error = train(bank, WIDTH, heads, content=content, steps=120 if content else 60, seed=seed)[1]
    plain = error_floor(spectrum(bank), heads + more)
    floor = content_floor(bank, heads + more) if content and projected else plain
    holds = floor - 1e-12 <= error and (error < plain - 0.05 if content else error < plain + 1e-4)
    name = "content in the queries" if content else "position-only"
    what = f"H = {heads}, {name}: trained to {size(error):g}; floor {floor:.4g}, position-only floor {plain:.4g}"
    return Finding(holds, what, {"error": size(error), "floor": floor, "position_only_floor": plain})


SCALES = tuple(10**i for i in range(1, 7))

STATEMENTS = (
    Statement(
        id="T14",
        source="docs/results.md T14",
        place=Place("exact", ("content-family", "content-family-iha"), "docs/content.md, Theorem 3"),
        claim=Claim(
            text="with content in the queries k - 1 heads of linear MHA (k >= 3, d <= N), and ceil(sqrt(k - 1)) >= 2 "
            "of IHA, come near the bank of any A: with weights 1/eps the squared relative error falls as eps^2",
            test=family_error,
            cases={"layer": ("mha", "iha"), "terms": (3, 5), "scale": SCALES},
            mutants={
                "falls as eps": {"power": 1},
                "falls as eps^4": {"power": 4},
                "as normal entries": {"kurtosis": 3},
            },
            wider={"layer": ("mha", "iha"), "terms": (3, 4), "scale": range(2, 10**6), "seed": range(5)},
        ),
        note="The error is (eps^2 (N d + kappa - 1) + delta^2 N) / sum_t |A^t|_F^2, kappa the content's fourth "
        "moment and delta the rounding of eps times 1/eps; not squared it falls as eps. For k = 2 see T14b.",
    ),
    Statement(
        id="T14a",
        source="docs/results.md T14; docs/content.md, Theorem 1",
        place=Place("numerical", ("content-floor", "error-floor"), "docs/content.md, Theorem 1"),
        claim=Claim(
            text="with content in the queries the error floor is that of T3 with the identity projected out: training "
            "goes below the position-only floor, and not below this one",
            test=trained_against_floors,
            cases={"seed": (0,), "heads": (1, 2), "content": (False, True)},
            wider={"seed": range(20), "heads": (1, 2), "content": (False, True)},
            mutants={"identity not projected out": {"projected": False}, "capacity H - 1": {"more": -1}},
        ),
        note="With one head this floor is not the infimum; from two heads on, and d <= N (H - 1), it is.",
    ),
    Statement(
        id="T14e",
        source="docs/content.md, Softmax",
        place=Place("numerical", ("softmax-family",)),
        claim=Claim(
            text="k - 1 softmax heads with content in the queries come near the bank of a generic positive stochastic "
            "A of width d <= k - 2; the squared relative error falls as eps^2",
            test=softmax_error,
            cases={"terms": (3, 4, 5), "width": (1, 2, 3), "seed": (0, 1)},
            given=lambda terms, width, seed: width <= terms - 2,
            mutants={"falls as eps": {"power": 1}, "no content in the queries": {"content": False}},
            wider={"terms": range(3, 6), "width": range(1, 4), "seed": range(100)},
        ),
        note="On bounded inputs: exactly, and near on large inputs, no fewer than k do (T17a).",
    ),
)
