"""What attention costs: parameters and FLOPs, as formulas and counted, and from which sizes on IHA needs fewer.

- `formulas`: closed forms, for integers, sympy symbols and arrays alike, and the paper's beside them.
- `layers`: closed forms for every attention layer.
- `schedule`: the hybrid schedule, layers with a window and global ones.
- `counted`: FLOPs that a torch module spends, counted while it runs.
- `crossovers`: where IHA is cheaper than MHA, exactly.
- `cache`: numbers that generation keeps of each token, and FLOPs of the next one.
"""

from iha_theory.costs.formulas import bank_parameters, mixing_parameters, pair_count_parameters, workspace_parameters
from iha_theory.rounding import ceil_sqrt

__all__ = ["bank_parameters", "ceil_sqrt", "mixing_parameters", "pair_count_parameters", "workspace_parameters"]
