"""Whether a claim about a trained run is true: `refusal`. Nothing is trained, and nothing is rounded.

The error is computed again from the weights (`operator`) and the bank's definition: a fraction, which must be the
claim's, or for softmax a ball, which must be within the claim's ends. The floor is sum_{i>R} s_i^2 / sum_i s_i^2
(docs/bounds.md, Theorem 3), s_i^2 the eigenvalues of the Gram matrix G[s,t] = <T_s, T_t>. The claim gives ends
l_i <= s_i^2 / tr G <= h_i, which are proved by counting signs (`inertia`): s_i^2 >= x iff at most k - i eigenvalues of
G are below x, and s_i^2 <= x iff at most i - 1 are above it. With rows r of G that are a basis of all, C = G[r,:] and
S = G[r,r] > 0, G is C^T S^-1 C, so that those of its eigenvalues that are not 0 are the eigenvalues of S^-1 C C^T, and
the signs of C C^T - x S count them: |r| rows, however many terms there are.
"""

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq, fmpz_mat
from safetensors import SafetensorError
from safetensors.numpy import load

from constructions.certified.inertia import inertia
from constructions.certified.intervals import Refused, interval, number, require
from constructions.certified.matrices import given
from constructions.certified.operator import PRECISION, Sizes, operator, shapes

SCHEMA = "iha-theory/certified-run/1"
FIELDS = ("run", "config", "weights", "sha256", "matrices", "capacity", "error", "tail", "floor", "excess", "ratio")


def refusal(claim: Mapping[str, Any], weights: bytes) -> str | None:
    """Why the claim is not proved; None if it is true.

    Args:
        claim: the content of `certified/ID.json`.
        weights: the file that it names, as bytes.
    """
    try:
        _check(claim, weights)
    except (Refused, OSError) as error:  # a graph's file that is not here, or no longer one
        return str(error)
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        SafetensorError,
    ) as error:
        return f"it cannot be read: {type(error).__name__}: {' '.join(str(error).split())}"
    return None


def _check(claim: Mapping[str, Any], weights: bytes) -> None:
    missing = [name for name in FIELDS if name not in claim]
    if claim.get("schema") != SCHEMA or missing:
        raise Refused(f"it is no claim of schema {SCHEMA}" + (f": {missing[0]} is missing" if missing else ""))
    if hashlib.sha256(weights).hexdigest() != claim["sha256"]:
        raise Refused("the weights are not those that it is about (SHA-256)")
    config = claim["config"]
    if _metadata(weights) != config:
        raise Refused("the weights were trained with other options")
    bank = _bank(config, given(config, claim["matrices"]))
    gram, sizes = _gram(bank), _sizes(config, bank)
    error = _error(sizes, _tensors(sizes, weights), bank, gram)
    if sizes.softmax:
        require("error", claim["error"], *error)
        error = interval(claim["error"])
    elif (told := number(claim["error"])) != error[0]:
        gap = told - error[0]
        much = f"{float(abs(gap)):.3g} too {'much' if gap > 0 else 'little'}"
        raise Refused(f"the error is {float(error[0]):.17g}, not {float(told):.17g}: {much}")
    capacity = _capacity(sizes)
    if claim["capacity"] != capacity:
        raise Refused(f"the capacity is {capacity}, not {claim['capacity']}")
    tail = _proved(gram, capacity, [interval(ends) for ends in claim["tail"]])
    low, high = sum((ends[0] for ends in tail), Fraction(0)), sum((ends[1] for ends in tail), Fraction(0))
    if error[1] < low:
        raise Refused(
            f"the error {float(error[1]):.17g} is below the floor {float(low):.17g} that theory proves: "
            "a counterexample, or a bug here"
        )
    require("floor", claim["floor"], low, high)
    require("excess", claim["excess"], error[0] - high, error[1] - low, follows=True)
    if low > 0:
        require("ratio", claim["ratio"], error[0] / high, error[1] / low, follows=True)
    elif claim["ratio"] is not None:
        raise Refused("there is no ratio to a floor that may be 0")


def _metadata(weights: bytes) -> Any:
    """The options of the run that the weights' file holds."""
    length = int.from_bytes(weights[:8], "little")
    return json.loads(json.loads(weights[8 : 8 + length])["__metadata__"]["config"])


def _bank(config: Mapping[str, Any], matrices: list[list[list[Fraction]]]) -> list[tuple[list[int], Fraction]]:
    """T_t = factor times integers, row by row; a matrix and its powers, or the matrices."""
    whole = []
    for m in matrices:
        common = math.lcm(*(x.denominator for row in m for x in row))
        whole.append((fmpz_mat([[int(x * common) for x in row] for row in m]), Fraction(1, common)))
    if config["task"] != "unstructured":
        a, factor = whole[0]
        size = range(a.nrows())
        whole = [(fmpz_mat([[int(i == j) for j in size] for i in size]), Fraction(1))]
        for _ in range(_terms(config) - 1):
            whole.append((whole[-1][0] * a, whole[-1][1] * factor))
    bank = []
    for m, factor in whole:
        entries = [int(x) for x in m.entries()]
        square = factor**2 * sum(x * x for x in entries)
        scale = _inverse_root(square) if config.get("unit_norm") and square else Fraction(1)
        bank.append((entries, factor * scale))
    return bank


def _terms(config: Mapping[str, Any]) -> int:
    """k; of the workspace as many as tokens."""
    return config["tokens"] if config["task"] == "workspace" else config["terms"]


def _inverse_root(square: Fraction) -> Fraction:
    """The float64 nearest to 1 / sqrt(square): by a root of 128 bits, and proved by its neighbours' middles."""
    top, bottom = square.denominator, square.numerator
    bits = max(0, (129 + bottom.bit_length() - top.bit_length()) // 2)
    root = Fraction(math.isqrt((top << 2 * bits) // bottom), 1 << bits)
    x = float(root) if root < Fraction(sys.float_info.max) else 0.0
    for near in (x, math.nextafter(x, 0), math.nextafter(x, math.inf)) if x else ():
        own, sides = Fraction(near), [Fraction(math.nextafter(near, end)) for end in (0, math.inf)]
        low, high = ((own + side) / 2 for side in sides)
        if low**2 * square <= 1 <= high**2 * square:
            return own
    raise Refused("the norm of a matrix is out of the range of float64")


def _gram(bank: Sequence[tuple[list[int], Fraction]]) -> list[list[Fraction]]:
    rows = fmpz_mat([entries for entries, _ in bank])
    products = (rows * rows.transpose()).tolist()
    return [
        [int(x) * f * g for x, (_, g) in zip(row, bank, strict=True)]
        for row, (_, f) in zip(products, bank, strict=True)
    ]


def _sizes(config: Mapping[str, Any], bank: Sequence[tuple[list[int], Fraction]]) -> Sizes:
    heads, width, attention = config["heads"], config["width"], config["attention"]
    tokens = math.isqrt(len(bank[0][0]))
    softmax = config["task"] == "workspace"
    if _terms(config) != len(bank):
        raise Refused(f"the bank has {len(bank)} matrices, not {_terms(config)}")
    if attention == "mha":
        return Sizes(tokens, width, len(bank) * width, heads, None, softmax=softmax)
    if attention != "iha":
        raise Refused(f"attention {attention!r}: known are mha and iha")
    pseudo = config["pseudo_heads"] or heads
    return Sizes(tokens, width, len(bank) * width, heads, pseudo, config["collapse"] == "per_head", softmax)


def _capacity(sizes: Sizes) -> int:
    """R: H for MHA, min(H^2, H P^2) for IHA, min(H^2, H P) where each head is collapsed alone."""
    if sizes.pseudo is None:
        return sizes.heads
    return min(sizes.heads**2, sizes.heads * sizes.pseudo ** (1 if sizes.per_head else 2))


def _tensors(sizes: Sizes, weights: bytes) -> dict[str, np.ndarray]:
    tensors = {name.removeprefix("layer."): tensor for name, tensor in load(weights).items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != (wanted := shapes(sizes, tensors)):
        raise Refused(f"the weights have shapes {found}, and such a layer {wanted}")
    for name, tensor in tensors.items():
        if tensor.dtype not in (np.float32, np.float64) or not np.isfinite(tensor).all():
            raise Refused(f"{name} is {tensor.dtype}: float32 or float64 is needed, all finite")
    return tensors


def _error(
    sizes: Sizes,
    tensors: Mapping[str, np.ndarray],
    bank: Sequence[tuple[list[int], Fraction]],
    gram: Sequence[Sequence[Fraction]],
) -> tuple[Fraction, Fraction]:
    """|M - T|^2 / |T|^2 as |M|^2 - 2 <M, T> + |T|^2, where T has T_t at output t d + a of coordinate a; its ends."""
    with ctx.workprec(PRECISION):
        found = _quotient(sizes, tensors, bank, gram)
        if not isinstance(found, arb):
            return found, found
        if not found.is_finite():
            raise Refused("the weights are so large that ball arithmetic has no answer")
        low, high = (end.man_exp() for end in (found.lower(), found.upper()))
        return int(low[0]) * Fraction(2) ** int(low[1]), int(high[0]) * Fraction(2) ** int(high[1])


def _quotient(
    sizes: Sizes,
    tensors: Mapping[str, np.ndarray],
    bank: Sequence[tuple[list[int], Fraction]],
    gram: Sequence[Sequence[Fraction]],
) -> Any:
    """A fraction, or a ball of softmax."""

    def ball(x: Fraction) -> Any:
        return arb(fmpq(x.numerator, x.denominator)) if sizes.softmax else x

    m, exponent = operator(sizes, tensors)
    unit = Fraction(2) ** exponent
    norm = sizes.width * sum((gram[t][t] for t in range(len(bank))), Fraction(0))
    if not norm:
        raise Refused("a bank of zeros has no relative error")
    products = ball(Fraction(0))
    for t, (entries, factor) in enumerate(bank):
        for a in range(sizes.width):
            own = m[t * sizes.width + a, a].ravel().tolist()
            products += ball(unit * factor) * sum(x * y for x, y in zip(own, entries, strict=True))
    square = sum(x * x for x in m.ravel().tolist())
    return (ball(unit**2) * square - 2 * products + ball(norm)) / ball(norm)


def _proved(
    gram: Sequence[Sequence[Fraction]], capacity: int, tail: list[tuple[Fraction, Fraction]]
) -> list[tuple[Fraction, Fraction]]:
    """The tail, if its i-th entry encloses the eigenvalue R + i of G over its trace."""
    terms = len(gram)
    if len(tail) != max(0, terms - capacity):
        raise Refused(
            f"its tail has {len(tail)} values: {terms} matrices at capacity {capacity} leave {terms - capacity}"
        )
    trace = sum(gram[t][t] for t in range(terms))
    common = math.lcm(*(x.denominator for row in gram for x in row))
    whole = fmpz_mat([[int(x * common) for x in row] for row in gram])
    echelon, _, rank = whole.rref()
    pivots = [next(j for j in range(terms) if echelon[i, j]) for i in range(rank)]
    rows = fmpz_mat([[whole[i, j] for j in range(terms)] for i in pivots])
    squares, size = rows * rows.transpose(), range(rank)

    @cache
    def signs(x: Fraction) -> tuple[int, int]:
        """How many of all eigenvalues are above x tr G, and how many below."""
        shift = x * trace * common
        up, down = int(shift.denominator), int(shift.numerator)
        own = [[int(squares[i, j]) * up - int(rows[i, pivots[j]]) * down for j in size] for i in size]
        above, below, _ = inertia(own)
        return above + (terms - rank) * (x < 0), below + (terms - rank) * (x > 0)

    for i, (low, high) in enumerate(tail, start=capacity + 1):
        if (low > 0 and signs(low)[1] > terms - i) or signs(high)[0] > i - 1:
            raise Refused(f"share {i} of the spectrum is not between {float(low):.17g} and {float(high):.17g}")
    return tail
