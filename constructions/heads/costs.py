"""Parameters, FLOPs and caches of the built constructions, counted, beside the formulas of `iha_theory.costs`."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from constructions.construction import count
from constructions.cpm3 import workspace as cpm3
from constructions.cpm3.build import Task, build
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.generation import kept_numbers
from iha_theory.costs.counted import flops
from iha_theory.costs.formulas import PAPER, bank_parameters, cost

MODULUS, COEFFICIENT = 5, 11
"""Of the MLP that is counted: they change no size."""


@dataclass(frozen=True)
class LayerCost:
    """A construction's cost.

    task: "bank" or "cpm3". layer: one of `iha_theory.costs.formulas.LAYERS`. part: "attention", or "total" with CPM-3's
    MLP. size: k or N. heads: H, in each layer. parameters_formula, flops_formula: `iha_theory.costs`.
    parameters_counted: numel() of the built layer. flops: counted, of one sequence. parameters_paper: as printed; None
    where the paper has no such layer. cache: numbers that generation keeps of a token in layers of this shape, and
    mixed_cache with IHA's pseudo-heads kept; the same with an MLP.
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
    cache_formula: int
    cache_counted: int
    mixed_cache_formula: int
    mixed_cache_counted: int

    @property
    def agrees(self) -> bool:
        """Whether all formulas equal what was counted."""
        caches = self.cache_formula, self.mixed_cache_formula
        formulas = self.parameters_formula, self.flops_formula, *caches
        return formulas == (self.parameters_counted, self.flops, self.cache_counted, self.mixed_cache_counted)

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def layer_costs(task: Task, layer: str, tokens: int, width: int, terms: int) -> list[LayerCost]:
    """The attention's cost; for "cpm3" (width 1, terms = tokens) then the total with the MLP."""
    construction = build(task, layer, tokens, width, terms)
    attention = construction.layer
    parameters, spent = count(attention), flops(attention, *[(1, tokens, tokens + width)] * 3)
    parts = (attention.first, attention.second) if isinstance(attention, TwoLayerAttention) else (attention,)
    caches: dict[str, Any] = {}
    for name, mixed in (("cache", False), ("mixed_cache", True)):
        caches[f"{name}_formula"] = cost(name, layer, tokens, width, terms)
        caches[f"{name}_counted"] = sum(kept_numbers(part, mixed=mixed) for part in parts)
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
            **caches,
        )

    rows = [row("attention", parameters, paper, spent)]
    if task == "cpm3":
        mlp = cpm3.network(construction, MODULUS, COEFFICIENT).mlp
        paper = None if paper is None else paper + PAPER[f"{layer} mlp"](tokens)
        rows.append(row("total", parameters + count(mlp), paper, spent + flops(mlp, (1, tokens, attention.out_dim))))
    return rows
