"""docs/learned.md, Theorems 2 and 3, where A is not diagonalisable: the rank of [f_mn(A)], exactly."""

import flint
import pytest

SIZE = 7  # 2 k - 1 for H = 2, k = 4
RANK_ONE = [[[1], [0, 1]], [[0, 0, 1], [0, 0, 0, 1]]]  # (1, x^2) times (1, x)
NOT = [[[1], [0, 1]], [[0, 0, 0, 1], [0, 0, 1]]]  # the Schur complement of 1 is x^2 - x^4 = x^2 (1 - x) (1 + x)


def matrix(*blocks):
    """A with Jordan blocks (eigenvalue, size)."""
    size = sum(n for _, n in blocks)
    rows, start = [[0] * size for _ in range(size)], 0
    for value, n in blocks:
        for i in range(start, start + n):
            rows[i][i] = value
            if i > start:
                rows[i][i - 1] = 1
        start += n
    return flint.fmpq_mat(size, size, [x for row in rows for x in row])


def rank(f, a):
    """Of the block matrix [f_mn(A)], the coefficients of f_mn from x^0 on."""
    size = a.nrows()
    one = flint.fmpq_mat(size, size, [int(i == j) for i in range(size) for j in range(size)])
    rows = [[] for _ in range(2 * size)]
    for m, row in enumerate(f):
        for coefficients in row:
            value = one * 0
            for c in reversed(coefficients):
                value = value * a + one * c
            for i in range(size):
                rows[m * size + i] += [value[i, j] for j in range(size)]
    return flint.fmpq_mat(2 * size, 2 * size, [x for row in rows for x in row]).rank()


@pytest.mark.parametrize(
    ("blocks", "complement"),
    [
        ([(0, SIZE)], SIZE - 2),  # x^2 is a zero of order 2 at 0, where f(0) has rank one
        ([(1, SIZE)], SIZE - 1),
        ([(2, SIZE)], SIZE),
        ([(0, 3), (1, 4)], 1 + 3),
        ([(0, SIZE), (0, 2)], SIZE - 2),  # x^2 is 0 in R[x]/(x^2)
        ([(value, 1) for value in range(SIZE)], SIZE - 2),  # diagonalisable: f has rank one at 0 and 1 only
    ],
)
def test_the_rank_is_that_of_the_units_and_their_schur_complements(blocks, complement):
    """N if f = u v^T, else N and the complement's rank: so d_k = N forces the complement, and every minor, to 0."""
    a = matrix(*blocks)
    assert rank(RANK_ONE, a) == a.nrows()
    assert rank(NOT, a) == a.nrows() + complement


def test_below_the_degree_other_factors_appear():
    """mu = x^2 (x - 1)(x + 1) divides the minor: degree 4 < 2 k - 1, and f is of rank one modulo mu only."""
    a = matrix((0, 2), (1, 1), (-1, 1))
    assert rank(NOT, a) == a.nrows()
