"""A layer as an operator on content: written down, read back, measured.

- `weights`: the weights of a position-only layer, to torch and back, split by position and content.
- `exact`: its operator over the rationals or modulo a prime, one layer or two.
- `stacked`: of many linear layers at once, from their stacked weights.
- `numerical`: any module as a linear map of content, in float64; the realignment.
- `rank`: the operator Schmidt rank in float64, with the gap that decides it.

Imports `iha_theory.attention`, `iha_theory.exact` and `iha_theory.rounding`.
"""
