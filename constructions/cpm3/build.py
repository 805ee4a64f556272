"""The construction of a task by a kind of layer, at given sizes."""

from typing import Literal

import torch

from constructions.construction import Construction
from constructions.cpm3.workspace import LAYERS, workspace
from constructions.filter_bank.layers import LARGEST, bank
from constructions.filter_bank.paper import powers
from iha_theory.costs.formulas import bank_sizes
from iha_theory.rounding import require_count

Task = Literal["bank", "cpm3"]

LARGEST_CPM3 = 128
"""Most tokens of a CPM-3 network that is built."""


def require_buildable(task: Task, layer: str, tokens: int, width: int, terms: int) -> None:
    """A ValueError for sizes below 1, or larger than is built."""
    for name, size in (("tokens", tokens), ("width", width), ("terms", terms)):
        require_count(name, size)
    if task == "cpm3" and tokens > LARGEST_CPM3:
        raise ValueError(f"networks for CPM-3 are built and counted up to {LARGEST_CPM3} tokens, got {tokens}")
    weights = int(sum(sizes.parameters for sizes in bank_sizes(layer, tokens, width, terms)))
    if weights > 4 * LARGEST:
        sizes = f"{tokens} tokens, width {width} and {terms} terms"
        raise ValueError(f"{layer} has {weights} weights for {sizes}; up to {4 * LARGEST} are built")


def build(task: Task, layer: str, tokens: int, width: int, terms: int) -> Construction:
    """The construction; sizes do not depend on the matrix, which is the cyclic shift.

    For "cpm3" the two layers of MHA are linear attention, as for the bank of the shift, which is the workspace.

    Raises:
        ValueError: as `require_buildable`.
    """
    require_buildable(task, layer, tokens, width, terms)
    if task == "cpm3" and layer in LAYERS:
        return workspace(layer, tokens)
    return bank(layer, powers(torch.eye(tokens, dtype=torch.float64).roll(1, 1)), terms, width)
