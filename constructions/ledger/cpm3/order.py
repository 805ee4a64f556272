"""Whether order matters in CPM-3 (Sec. 4.3; ledger E1).

**Order-sensitivity (E1).** The predicate is x + G a + b = 0 mod M, for a pair (a, b). It is symmetric in the pair if
and only if M divides G - 1, however large G is. *Proof.* Let it be symmetric, and take (a, b) = (0, 1) and x = -1: the
predicate holds, so it holds for (1, 0): -1 + G = 0 mod M. If M divides G - 1, then G a + b = a + b mod M. ∎ The
smallest G > 2M with M | G - 1 is 2M + 1 for every M: (2, 5), (3, 7), ... (M = 1 is symmetric trivially.)
"""

from functools import partial

import numpy as np

from constructions.ledger.statement import Claim, Finding, Place, Statement
from synthetic.tasks.count_pairs import CountPairs


def symmetric(modulus: int, coefficient: int) -> bool:
    """Whether no residues x, a, b tell (a, b) from (b, a) in x + G a + b = 0 mod M: all of them are tried."""
    r = np.arange(modulus)
    holds = (r[:, None, None] + coefficient % modulus * r[:, None] + r) % modulus == 0
    return bool((holds == holds.transpose(0, 2, 1)).all())


def order_matters(modulus: int, coefficient: int, *, weight: int | None = None) -> Finding:
    """E1 as printed. weight: in place of G in the predicate."""
    found = not symmetric(modulus, coefficient if weight is None else weight)
    relation = "differs for some" if found else "is the same for all"
    return Finding(
        found,
        f"M = {modulus}, G = {coefficient}: the predicate {relation} residues if j1 and j2 change places; "
        f"G - 1 = {(coefficient - 1) % modulus} mod M",
        {"symmetric": not found, "remainder": (coefficient - 1) % modulus},
    )


def symmetric_where_divisible(modulus: int, coefficient: int, *, less: int = 1) -> Finding:
    """E1 repaired. less: what is taken from G."""
    found, divides = symmetric(modulus, coefficient), (coefficient - less) % modulus == 0
    return Finding(
        found == divides,
        f"M = {modulus}, G = {coefficient}: {'' if found else 'not '}symmetric, and M "
        f"{'divides' if divides else 'does not divide'} G - {less}",
        {"symmetric": found, "divides": divides},
    )


def worked_example(coefficient: int, *, order: bool, counts: tuple[int, ...] = (3, 3, 3)) -> Finding:
    """x = (1, 2, 3): which M with G > 2M give the counts, and whether order matters there, as `order` says it does."""
    x = np.array([1, 2, 3])
    found = {m: CountPairs(m, coefficient).target(x).tolist() for m in range(1, (coefficient + 1) // 2)}
    fits = [m for m, c in found.items() if c == list(counts)]
    sensitive = [m for m in fits if not symmetric(m, coefficient)]
    listed = ", ".join(f"{c} for M = {m}" for m, c in found.items())
    where = ", ".join(f"M = {m}, where order {'matters' if m in sensitive else 'does not matter'}" for m in fits)
    return Finding(
        bool(fits) and sensitive == (fits if order else []),
        f"x = (1, 2, 3), G = {coefficient}: the counts are {listed}; so {counts} fits {where or 'no M'}",
        {"fits": fits, "order_matters": sensitive},
    )


STATEMENTS = (
    Statement(
        id="E1",
        source="Sec. 4.3",
        place=Place("exact", ("cpm3",), "constructions.ledger.cpm3.order"),
        claim=Claim(
            text="if G > 2M, the predicate x_i + G x_j1 + x_j2 = 0 mod M tells (j1, j2) from (j2, j1); M >= 2",
            test=order_matters,
            cases={"modulus": range(2, 13), "coefficient": range(5, 40)},
            given=lambda modulus, coefficient: coefficient > 2 * modulus,
            mutants={"x_i + x_j1 + x_j2": {"weight": 1}},
        ),
        repaired=Claim(
            text="the predicate is symmetric in j1 and j2 if and only if M divides G - 1; M >= 1, any integer G",
            test=symmetric_where_divisible,
            cases={"modulus": range(1, 13), "coefficient": (*range(-20, 41), 2**62, 2**62 + 1, -(10**30))},
            mutants={"M divides G": {"less": 0}, "M divides G + 1": {"less": -1}},
            wider={"modulus": range(1, 40), "coefficient": range(-(10**6), 10**6)},
        ),
        note="Size does not matter, only G mod M. Proof: constructions.ledger.cpm3.order.",
    ),
    Statement(
        id="P-cpm3-example",
        source="Sec. 4.3",
        place=Place("exact", ("cpm3",), "constructions.ledger.cpm3.order"),
        claim=Claim(
            text="the worked example x = (1, 2, 3), G = 10 > 2M has counts (3, 3, 3), and order matters in it",
            test=partial(worked_example, order=True),
            cases={"coefficient": (10,)},
            mends={"counts (6, 3, 6)": {"counts": (6, 3, 6)}},
        ),
        repaired=Claim(
            text="some M with G > 2M gives the example's counts (3, 3, 3), and order matters for none that does",
            test=partial(worked_example, order=False),
            cases={"coefficient": (10,)},
            mutants={"counts (2, 2, 2)": {"counts": (2, 2, 2)}, "counts (4, 5, 4)": {"counts": (4, 5, 4)}},
        ),
        note="See E1.",
    ),
)
