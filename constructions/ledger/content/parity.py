"""Parity by one layer, content anywhere, read linearly: as many bits as rows (T16), and what fewer rows leave (T16a).

Proofs: docs/parity.md, Theorems 1 to 4.
"""

from dataclasses import replace
from itertools import combinations, product
from math import comb

import flint
import numpy as np
import torch

from constructions.checks.parity import exact_errors, exact_outputs
from constructions.checks.result import least_root
from constructions.ledger.content.anywhere import LAYERS
from constructions.ledger.statement import Claim, Finding, Place, Statement, size
from constructions.targets.parity import LAYERS as BUILT
from constructions.targets.parity import parity
from iha_theory.attention import TwoSimplicialAttention
from iha_theory.bounds.obstruction import run
from iha_theory.bounds.parity import parity_bits
from iha_theory.bounds.parity_errors import least_errors
from iha_theory.capacity import Kind

# T16


def heads_suffice(layer: str, bits: int, pseudo: int | None, *, more: int = 0, root: int = 2) -> Finding:
    """The torch layer's softmax rows over the rationals, with the read-out that its weights are rounded from.

    more: the weights are those for so many bits more. root: 3 for ceil of the cube root of k heads where P = H.
    """
    built = parity(layer, bits + more, pseudo)
    error, stored = exact_errors(built.layer, bits)
    claimed = bits if layer == "mha" else -(-bits // pseudo) if pseudo else least_root(bits, root)
    what = (
        f"{layer}, k = {bits}: {built.heads} heads, {built.pseudo_heads} pseudo-heads are off (-1)^|x| by {error:g} "
        f"over the rationals, and by {size(stored):g} with weights rounded to float64"
    )
    holds = error == 0 and stored < 1 and built.heads == claimed
    return Finding(holds, what, {"heads": built.heads, "pseudo_heads": built.pseudo_heads, "error": error})


RUNS = 40
KINDS = LAYERS | {"simplicial": (TwoSimplicialAttention, {})}


def a_bit_more_fails(layer: Kind, heads: int, pattern: str, *, fewer: int = 0, left_out: int = 0) -> Finding:
    """sum_x (-1)^|x| D(x) g(x) = 0 on a bit more than the rows do, for random weights and tokens; and wrong signs.

    fewer: bits less. left_out: denominators that D lacks.
    """
    kind, options = KINDS[layer]
    sizes = {"head_dim": 2, "value_head_dim": 2, "out_dim": 1}
    built = kind(4, heads, bias=True, pattern=pattern, dtype=torch.float64, **sizes, **options)  # type: ignore[arg-type]
    rows = parity_bits(layer, heads, options.get("num_pseudo_heads"), pattern)
    assert rows is not None
    bits = rows + 1 - fewer
    runs = run(built, bits, weights=RUNS)
    runs = replace(runs, denominators=runs.denominators[..., left_out:])
    zero, wrong = bool((runs.sums <= runs.bound).all()), int(runs.wrong.min())
    what = (
        f"{layer}, {pattern}, H = {heads}: on {bits} bits the sum is {'' if zero else 'not '}0 to rounding for each of "
        f"{RUNS} layers, and at least {wrong} of {2**bits} signs are wrong"
    )
    return Finding(zero and wrong >= least_errors(rows + 1, rows), what, {"bits": rows, "zero": zero, "wrong": wrong})


# T16a


def errors_attained(layer: str, bits: int, rows: int, *, more: int = 0) -> Finding:
    """How many of the 2^n inputs a torch layer of R rows gets wrong, over the rationals. more: than are claimed."""
    built = parity(layer, bits, rows=rows)
    outputs = exact_outputs(built.layer, bits)
    wrong = sum(comb(bits, c) for c, g in enumerate(outputs) if (-1) ** c * g <= 0)
    claimed = least_errors(bits, rows) + more
    what = f"{layer}, {rows} rows, n = {bits}: {wrong} of {2**bits} inputs are wrong, {claimed} claimed"
    return Finding(wrong == claimed, what, {"wrong": wrong, "heads": built.heads})


def fewer_errors_impossible(
    bits: int, rows: int, seed: int | None, *, more: int = 0, unsigned: bool = False, elsewhere: bool = False
) -> Finding:
    """A proof, in integers, that no F of degree R has parity's sign off a set W of E(n, R) - 1 inputs.

    q != 0 of degree m vanishes on W, and sum_x (-1)^|x| q(x)^2 F(x) = 0 for every monomial F of degree at most R. For
    even n - R on the half x_n = 0 or 1 with fewer of W. seed: of W; None for the inputs that the best layer gets wrong,
    less one. more: inputs in W. unsigned: the sum without (-1)^|x|. elsewhere: q vanishes on other inputs than W.
    """
    cube = np.array(list(product((0, 1), repeat=bits)))
    parities, first = cube.sum(1), (bits - rows + 1) // 2
    beyond = np.maximum(first - parities, parities - first - rows)
    chosen = np.flatnonzero((beyond > 0) & (beyond % 2 == 1))
    if seed is not None:
        chosen = np.random.default_rng(seed).permutation(2**bits)
    excluded = np.isin(np.arange(2**bits), chosen[: least_errors(bits, rows) - 1 + more])
    if (bits - rows) % 2 == 0:
        half = cube[:, -1] == int(excluded[cube[:, -1] == 1].sum() < excluded[cube[:, -1] == 0].sum())
        cube, excluded = cube[half, :-1], excluded[half]
    degree = (cube.shape[1] - rows - 1) // 2
    small, all_ = _monomials(cube, degree), _monomials(cube, rows)
    zeros = np.roll(excluded, 1) if elsewhere else excluded
    kernel, nullity = flint.fmpz_mat(small[zeros].tolist() or [[0] * small.shape[1]]).nullspace()
    what = f"n = {bits}, R = {rows}: "
    if not nullity:
        return Finding(False, f"{what}no q of degree {degree} vanishes on {excluded.sum()} inputs")
    q = small @ np.array([int(kernel[i, 0]) for i in range(small.shape[1])], dtype=object)
    weights = q**2 * (1 if unsigned else (-1) ** cube.sum(1))
    proved = bool((q != 0).any()) and not (q[excluded] != 0).any() and not (weights @ all_).any()
    what += f"with q of degree {degree}, 0 on {excluded.sum()} inputs, no F has parity's sign off them"
    return Finding(proved, what, {"excluded": int(excluded.sum())})


def _monomials(cube: np.ndarray, degree: int) -> np.ndarray:
    """The products of at most so many coordinates, (inputs, monomials), as Python's integers."""
    chosen = [s for d in range(degree + 1) for s in combinations(range(cube.shape[1]), d)]
    return np.stack([cube[:, list(s)].prod(1) for s in chosen], axis=1).astype(object)


SIZES = {"bits": (2, 3, 4, 5, 6, 7, 9), "rows": (1, 2, 3, 4)}


def _too_few(bits: int, rows: int, **_: object) -> bool:
    return rows < bits


STATEMENTS = (
    Statement(
        id="T16",
        source="docs/parity.md, Theorems 1 to 3",
        place=Place(
            "numerical",
            ("total-degree", "parity-rows", "parity-doubled"),
            "docs/parity.md, Theorem 1; docs/parity.md, Theorem 2; docs/parity.md, Theorem 3",
        ),
        claim=Claim(
            text="parity of k bits read linearly at one query token without a bit, by one layer of softmax, content "
            "anywhere, takes k heads of MHA and ceil(k/P) of IHA: ceil(sqrt k) for P = H; nine bits 9 and 3",
            test=heads_suffice,
            cases={"bits": (1, 2, 3, 4, 5, 9, 16), "layer": BUILT, "pseudo": (None, 1, 2)},
            given=lambda bits, layer, pseudo: layer == "iha" or pseudo is None,
            mutants={"weights for a bit more": {"more": 1}, "cube root of k": {"root": 3}},
            wider={"bits": range(1, 13), "layer": BUILT, "pseudo": (None, 1, 2, 3, 4)},
        ),
        needed=True,
        least=Claim(
            text="no weights do one bit more than H (MHA, Talking-Heads), H P (IHA), 2 H (Differential, 2-simplicial), "
            "1 (linear; 2-simplicial 2): weighted by the denominators, the signed outputs add up to 0",
            test=a_bit_more_fails,
            cases={"heads": (1, 2, 3), "layer": tuple(KINDS), "pattern": ("softmax", "linear")},
            mutants={"as many bits": {"fewer": 1}, "a denominator left out": {"left_out": 1}},
            wider={"heads": range(1, 4), "layer": tuple(KINDS), "pattern": ("softmax", "linear")},
        ),
        note="Proved for every width, precision of the weights and embedding of tokens that see a bit each; no MLP "
        "and no second layer (docs/parity.md, 7). Checked: explicit weights in torch layers, whose softmax rows are "
        "rational, on every number of ones; and the sum for random weights and tokens, in float64 within a derived "
        "bound. That Differential and 2-simplicial reach 2 H is proved there. `iha-theory verify parity` has more "
        "sizes.",
    ),
    Statement(
        id="T16a",
        source="docs/parity.md, Theorem 4",
        place=Place("exact", ("parity-errors",)),
        claim=Claim(
            text="with R < n softmax rows (R = H of MHA, H P of IHA) parity of n bits goes wrong on E(n, R) of 2^n "
            "inputs, and on no fewer: for n = 9 on 186, 130, 74, 46 of 512 with R = 1, 2, 3, 4",
            test=errors_attained,
            cases={**SIZES, "layer": BUILT},
            given=_too_few,
            mutants={"one error less": {"more": -1}},
        ),
        needed=True,
        least=Claim(
            text="off fewer than E(n, R) inputs no function of total degree R has parity's sign, by a certificate in "
            "integers",
            test=fewer_errors_impossible,
            cases={**SIZES, "seed": (None, 0, 1)},
            given=_too_few,
            mutants={
                "E(n, R) inputs": {"more": 1},
                "a sum without signs": {"unsigned": True},
                "q that vanishes elsewhere": {"elsewhere": True},
            },
            wider={"bits": range(2, 8), "rows": range(1, 7), "seed": range(1000)},
        ),
        note="E(n, R) = sum_{i <= (n-R-1)/2} C(n, i) for odd n - R, 2 sum_{i <= (n-R-2)/2} C(n-1, i) for even. So 1 - "
        "E/2^n is the best accuracy that training can have. The certificate is made for sets of inputs one by one; "
        "that every set has one is proved.",
    ),
)
