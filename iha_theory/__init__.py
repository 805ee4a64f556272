"""The theory: what an attention layer is, what it can do, what it costs.

- `attention`: the layers, one call convention, one definition of a pattern.
- `exact`: exact matrices over the rationals and modulo primes.
- `exact_operator`: a position-only layer, read from its weights, as an exact linear operator.
- `costs`: parameter and attention-map counts, as formulas.
- `cli`: the commands. It is the only module here that imports from the other packages.

Everything else in this package imports nothing from `synthetic`, `constructions` or `figures`.
"""

from importlib.metadata import version

__version__ = version("iha-theory")
