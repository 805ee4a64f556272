"""T1: the largest operator Schmidt rank of each attention layer, by proof and by measurement.

- `bound`: `capacity_bound`, with the proof of each row.
- `measured`: any module with the call (query, key, value) at generic positions.
- `rows`: `table`, our layers and torch's with generic parameters.

Source: docs/results.md T1.
"""

from iha_theory.capacity.bound import COLLAPSES, KINDS, Kind, capacity_bound
from iha_theory.capacity.measured import SEED, Capacity, fan_in, generic, measure, measure_module
from iha_theory.capacity.rows import HEADS, KEY_WINDOW, TORCH, VALUE_DIM, between, table

__all__ = [
    "COLLAPSES",
    "HEADS",
    "KEY_WINDOW",
    "KINDS",
    "SEED",
    "TORCH",
    "VALUE_DIM",
    "Capacity",
    "Kind",
    "between",
    "capacity_bound",
    "fan_in",
    "generic",
    "measure",
    "measure_module",
    "table",
]
