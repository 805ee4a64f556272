"""The theory: what an attention layer is, what it can do, what it costs.

- `attention`: the layers, one call convention, one definition of a pattern.
- `operators`, `schmidt_rank`: any module as a linear map of content, its realignment and numerical rank.
- `capacity`: the largest rank of each kind of attention, proved and measured.
- `bounds`, `exact_rank`, `certificates`: lower bounds on heads, exactly or within an error, and what proves them.
- `content_bounds`: the same where queries may use content.
- `exact`: exact matrices over the rationals and modulo primes.
- `position_only`: the weights of a position-only layer, to and from torch, and its exact operator.
- `costs`: parameters and FLOPs, as formulas and counted; where IHA needs fewer than MHA.
- `cli`: the commands. It is the only part that imports from the other packages.

Everything else in this package imports nothing from `synthetic`, `constructions` or `figures`.
"""

from importlib.metadata import version

__version__ = version("iha-theory")
