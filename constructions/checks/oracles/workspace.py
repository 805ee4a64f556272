"""What a workspace shows: slot t as a matrix over the rationals, from the definition. Position n is row n."""

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from iha_theory import exact


def slots(tokens: int) -> list[DomainMatrix]:
    """Slot t of position n shows token n + t mod N."""
    positions = range(tokens)
    return [exact.matrix([[int(j == (n + t) % tokens) for j in positions] for n in positions], QQ) for t in positions]


def slots_to_the_beginning(n_max: int) -> list[DomainMatrix]:
    """Slot t of position n shows position n - t, or BOS, position 0, if there is none."""
    positions = range(n_max + 1)
    return [exact.matrix([[int(j == max(n - t, 0)) for j in positions] for n in positions], QQ) for t in range(n_max)]
