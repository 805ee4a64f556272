"""The second capacity of a row of the capacity table: the bits whose parity the layer computes, beside its rank."""

from torch import nn

from iha_theory.bounds.parity import ParityCapacity, bits_reached, parity_bits, parity_capacity
from iha_theory.capacity import TORCH, Capacity, generic


def parity_of(row: Capacity) -> ParityCapacity:
    """Proved and measured with random weights; of torch's layer the bits are those of MHA, and no sum is computed."""
    if row.layer != TORCH:
        return parity_capacity(row.layer, row.heads, row.pseudo_heads, row.collapse, row.pattern)  # type: ignore[arg-type]
    width = 8 * row.heads
    module = generic(lambda: nn.MultiheadAttention(width, row.heads))
    return ParityCapacity(parity_bits("mha", row.heads), bits_reached(module, width))
