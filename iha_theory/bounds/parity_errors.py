"""On how many inputs a layer with too few rows gets parity, or the end of a path, wrong: docs/parity.md, Section 8."""

from math import comb

from iha_theory import blueprint
from iha_theory.rounding import require_count


@blueprint.theorem(
    "parity-errors",
    "with R < n rows parity of n bits goes wrong on E(n, R) of the 2^n inputs, and on no fewer",
    uses=("total-degree", "parity-rows"),
    check="exact",
    proof="docs/parity.md, Theorem 4",
)
def least_errors(bits: int, rows: int) -> int:
    """E(n, R): on so many of the 2^n inputs at least, a layer of total degree R has a wrong sign (Theorem 4).

        E(n, R) = sum_{i <= (n-R-1)/2} C(n, i)  (n - R odd),   2 sum_{i <= (n-R-2)/2} C(n-1, i)  (even),   0  (R >= n)

    Args:
        bits: n.
        rows: R.

    Raises:
        ValueError: a number below 1.
    """
    missing = require_count("bits", bits) - require_count("rows", rows)
    if missing <= 0:
        return 0
    if missing % 2:
        return sum(comb(bits, i) for i in range((missing + 1) // 2))
    return 2 * sum(comb(bits - 1, i) for i in range(missing // 2))


@blueprint.theorem(
    "endpoint-errors",
    "endpoint selection with k pointers takes R >= k rows, with a number of wrong inputs that follows from parity's",
    uses=("parity-errors", "endpoint-task"),
    check="exact",
    proof="docs/parity.md, Theorem 4, Corollary (endpoint selection, induction)",
    tests="tests/synthetic/tasks/test_boolean.py",
)
def least_endpoint_errors(pointers: int, rows: int) -> int:
    """The same for endpoint selection with k pointers, 2^(2k-1) inputs (docs/parity.md, Section 8; not known as tight).

        E(k, R) + sum_{j < k} 2^(2k-1-2j) E(j, R)

    A layer of pointers is a permutation if its two pointers differ, and else forgets the path. Inputs whose last j - 1
    layers are permutations, the one before not, fall into families of 2^j on which the answer is a parity of j bits.

    Args:
        pointers: k.
        rows: R.

    Raises:
        ValueError: a number below 1.
    """
    k = require_count("pointers", pointers)
    return least_errors(k, rows) + sum(2 ** (2 * k - 1 - 2 * j) * least_errors(j, rows) for j in range(1, k))
