"""The error of softmax attention between two fractions: its maps in ball arithmetic (Arb), all else exact."""

from fractions import Fraction
from typing import Any

import flint
from sympy.polys.matrices import DomainMatrix

from iha_theory import exact
from iha_theory.operators.weights import PositionWeights
from synthetic.tasks.task import ExactTarget
from synthetic.training.certified.spectrum import PRECISION, ends


def relative_error(weights: PositionWeights, target: ExactTarget) -> tuple[Fraction, Fraction]:
    """Ends around sum |M[c][a] - 1[c = t d + a] T_t|_F^2 / (d sum |T_t|_F^2), as `claim.relative_error`.

    With S_h[j,j'] the blocks of the softmax of head h over all pseudo-keys, and U[o,m] as in
    `iha_theory.operators.weights`, M[c][a] = sum_{o,m} (sum_b W_O[(o,b),c] B_m[a,b]) U[o,m].

    Args:
        weights: of a layer with the softmax pattern, over QQ.
        target: T and d.
    """
    with flint.ctx.workprec(PRECISION):
        maps = _maps(weights)
        heads, bank = range(weights.num_heads), [_balls(m) for m in target.bank]
        values = [v.to_list() for v in weights.value]
        out: Any = weights.out
        rows = out.to_list()
        coordinates = range(len(values[0][0]))
        total = norm = flint.arb(0)
        for c in range(out.shape[1]):
            for a in range(target.width):
                found = bank[c // target.width] * (-1 if c % target.width == a else 0)
                for o in heads:
                    own = [rows[o * len(coordinates) + b][c] for b in coordinates]
                    for m in heads:
                        found = found + maps[o][m] * _ball(sum(w * values[m][a][b] for b, w in enumerate(own)))
                total += _square(found)
        for block in bank:
            norm += _square(block) * target.width
        return ends(total / norm)


def _maps(weights: PositionWeights) -> list[list[Any]]:
    """U[o][m], matrices of balls."""
    heads, tokens = range(weights.num_heads), weights.tokens
    maps = [[flint.arb_mat(tokens, tokens) for _ in heads] for _ in heads]
    one = [[[int(m == h)] for h in heads] for m in heads]
    mixing: Any = weights.mixing
    names = ("alpha_q", "alpha_k", "alpha_v", "collapse")
    alpha_q, alpha_k, alpha_v, collapse = (getattr(mixing, name) if mixing else one for name in names)
    pseudo = range(len(alpha_q[0][0]))
    for h in heads:
        made = [
            [exact.combination([alpha[m][h][j] for m in heads], blocks) for j in pseudo]  # type: ignore[arg-type]
            for alpha, blocks in ((alpha_q, weights.query), (alpha_k, weights.key))
        ]
        for j, query in enumerate(made[0]):
            for i, block in enumerate(_softmax(query, made[1], tokens)):
                for o in heads:
                    for m in heads:
                        if factor := collapse[o][h][j] * alpha_v[m][h][i]:
                            maps[o][m] = maps[o][m] + block * _ball(factor)
    return maps


def _softmax(query: DomainMatrix | None, keys: list[DomainMatrix | None], tokens: int) -> list[Any]:
    """Weights of one pseudo-query over all pseudo-keys, a block for each."""
    blocks = []
    for key in keys:
        scores = None if query is None or key is None else _balls(query * key.transpose()).tolist()
        blocks.append([[s.exp() for s in row] for row in scores] if scores else [[flint.arb(1)] * tokens] * tokens)
    sums = [sum((x for block in blocks for x in block[n]), flint.arb(0)) for n in range(tokens)]
    return [flint.arb_mat([[x / s for x in row] for row, s in zip(block, sums, strict=True)]) for block in blocks]


def _balls(m: DomainMatrix) -> Any:
    whole, common = exact.numerators([m])
    return flint.arb_mat([[flint.arb(flint.fmpq(int(x), common)) for x in row] for row in whole[0].tolist()])


def _ball(x: Any) -> flint.arb:
    return flint.arb(flint.fmpq(int(x.numerator), int(x.denominator)))


def _square(m: Any) -> flint.arb:
    return sum((x * x for x in m.entries()), flint.arb(0))
