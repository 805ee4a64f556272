"""Sylvester's law of inertia: signs of eigenvalues of a symmetric integer matrix, without computing any."""

from collections.abc import Sequence


def inertia(matrix: Sequence[Sequence[int]]) -> tuple[int, int, int]:
    """How many eigenvalues of a symmetric matrix are positive, negative and 0.

    Congruences M -> C M C^T keep these numbers, so symmetric elimination to a diagonal shows them. It stays in integers
    (Bareiss): each pivot over the one before is the diagonal entry. Where the rest has a zero diagonal and an entry
    (i, j) that is not 0, adding row and column j to row and column i makes the pivot 2 M[i,j].

    Args:
        matrix: M, (k, k).
    """
    rest = [list(row) for row in matrix]
    positive = negative = 0
    before = 1
    while rest:
        size = range(len(rest))
        at = next((i for i in size if rest[i][i]), None)
        if at is None:
            pair = next(((i, j) for i in size for j in size if rest[i][j]), None)
            if pair is None:
                break
            at, other = pair
            rest[at] = [x + y for x, y in zip(rest[at], rest[other], strict=True)]
            for row in rest:
                row[at] += row[other]
        top = rest.pop(at)
        pivot = top.pop(at)
        factors = [row.pop(at) for row in rest]
        rest = [
            [(pivot * x - f * y) // before for x, y in zip(row, top, strict=True)]
            for row, f in zip(rest, factors, strict=True)
        ]
        if (pivot > 0) == (before > 0):
            positive += 1
        else:
            negative += 1
        before = pivot
    return positive, negative, len(rest)
