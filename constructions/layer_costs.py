"""Parameters and FLOPs of the built constructions, counted, beside the formulas of `iha_theory.costs`."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

from constructions import cpm3, polynomial, tiled, two_layer
from constructions.construction import Construction, count
from iha_theory.costs.counted import flops
from iha_theory.costs.formulas import PAPER, bank_parameters, bank_sizes, cost

Task = Literal["bank", "cpm3"]
MODULUS, COEFFICIENT = 5, 11
"""Of the MLP that is counted: they change no size."""
LARGEST_CPM3 = 128
"""Most tokens of a CPM-3 network that is built."""


@dataclass(frozen=True)
class LayerCost:
    """A construction's cost.

    task: "bank" or "cpm3". layer: one of `iha_theory.costs.formulas.LAYERS`. part: "attention", or "total" with CPM-3's
    MLP. size: k or N. heads: H, in each layer. parameters_formula, flops_formula: `iha_theory.costs`.
    parameters_counted: numel() of the built layer. flops: counted, of one sequence. parameters_paper: as printed; None
    where the paper has no such layer.
    """

    task: Task
    layer: str
    part: Literal["attention", "total"]
    size: int
    tokens: int
    width: int
    heads: int
    pseudo_heads: int
    attention_maps: int
    parameters_formula: int
    parameters_counted: int
    parameters_paper: int | None
    flops_formula: int
    flops: int

    @property
    def agrees(self) -> bool:
        """Whether both formulas equal what was counted."""
        return self.parameters_formula == self.parameters_counted and self.flops_formula == self.flops

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


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
        return tiled.workspace(tokens) if layer == "iha-tiled" else cpm3.workspace(layer, tokens)
    power = polynomial.powers(torch.eye(tokens, dtype=torch.float64).roll(1, 1))
    if layer == "iha-tiled":
        return tiled.bank(power, terms, width)
    return (
        two_layer.bank(power, terms, width) if layer == "mha-two-layer" else polynomial.bank(layer, power, terms, width)
    )


def layer_costs(task: Task, layer: str, tokens: int, width: int, terms: int) -> list[LayerCost]:
    """The attention's cost; for "cpm3" (width 1, terms = tokens) then the total with the MLP."""
    construction = build(task, layer, tokens, width, terms)
    attention = construction.layer
    parameters, spent = count(attention), flops(attention, *[(1, tokens, tokens + width)] * 3)
    paper = None
    if layer in ("mha", "iha"):
        paper = bank_parameters(layer, tokens, width, terms) if task == "bank" else PAPER[f"{layer} attention"](tokens)

    def row(part: Literal["attention", "total"], parameters: int, paper: int | None, spent: int) -> LayerCost:
        formulas = (cost(q, layer, tokens, width, terms, part == "total") for q in ("parameters", "flops"))
        parameters_formula, flops_formula = formulas
        return LayerCost(
            task=task,
            layer=layer,
            part=part,
            size=terms,
            tokens=tokens,
            width=width,
            heads=construction.heads,
            pseudo_heads=construction.pseudo_heads,
            attention_maps=attention.attention_maps,
            parameters_formula=parameters_formula,
            parameters_counted=parameters,
            parameters_paper=paper,
            flops_formula=flops_formula,
            flops=spent,
        )

    rows = [row("attention", parameters, paper, spent)]
    if task == "cpm3":
        mlp = cpm3.network(construction, MODULUS, COEFFICIENT).mlp
        paper = None if paper is None else paper + PAPER[f"{layer} mlp"](tokens)
        rows.append(row("total", parameters + count(mlp), paper, spent + flops(mlp, (1, tokens, attention.out_dim))))
    return rows
