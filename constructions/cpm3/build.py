"""The construction of a task by a kind of layer, at given sizes."""

from typing import Literal

import torch

from constructions.construction import Construction
from constructions.cpm3 import workspace as cpm3
from constructions.cpm3.tiled import workspace as tiled_workspace
from constructions.filter_bank import paper as polynomial
from constructions.filter_bank import tiled, two_layer
from iha_theory.costs.formulas import bank_sizes

Task = Literal["bank", "cpm3"]


LARGEST_CPM3 = 128
"""Most tokens of a CPM-3 network that is built."""


def require_buildable(task: Task, layer: str, tokens: int, width: int, terms: int) -> None:
    """A ValueError for sizes below 1, or larger than is built."""
    if min(tokens, width, terms) < 1:
        raise ValueError(f"sizes must be at least 1, got tokens {tokens}, width {width}, terms {terms}")
    if task == "cpm3" and tokens > LARGEST_CPM3:
        raise ValueError(f"networks for CPM-3 are built and counted up to {LARGEST_CPM3} tokens, got {tokens}")
    weights = int(sum(sizes.parameters for sizes in bank_sizes(layer, tokens, width, terms)))
    if weights > 4 * polynomial.LARGEST:
        sizes = f"{tokens} tokens, width {width} and {terms} terms"
        raise ValueError(f"{layer} has {weights} weights for {sizes}; up to {4 * polynomial.LARGEST} are built")


def build(task: Task, layer: str, tokens: int, width: int, terms: int) -> Construction:
    """The construction; sizes do not depend on the matrix, which is the cyclic shift.

    For "cpm3" the two layers of MHA are linear attention, as for the bank of the shift, which is the workspace.

    Raises:
        ValueError: as `require_buildable`.
    """
    require_buildable(task, layer, tokens, width, terms)
    if task == "cpm3" and layer != "mha-two-layer":
        return tiled_workspace(tokens) if layer == "iha-tiled" else cpm3.workspace(layer, tokens)
    power = polynomial.powers(torch.eye(tokens, dtype=torch.float64).roll(1, 1))
    if layer == "iha-tiled":
        return tiled.bank(power, terms, width)
    return (
        two_layer.bank(power, terms, width) if layer == "mha-two-layer" else polynomial.bank(layer, power, terms, width)
    )
