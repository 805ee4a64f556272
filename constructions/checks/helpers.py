"""Damaged helpers: the functions that a construction is made of, one at a time, with a wrong result.

A target that came out of such a function would be wrong with it, and its check would hold: no damage to the finished
layer shows that. So here the subjects are made anew while the damage lasts, targets and all.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch, wraps
from types import FunctionType
from typing import Any

import numpy as np
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor, nn

from constructions.checks.mutants import MutantResult, Subject, changed, holds
from constructions.construction import Block, Construction
from constructions.cpm3.packing import PackedNetwork
from constructions.cpm3.workspace import CountPairsNetwork
from constructions.filter_bank.approximate import Decomposition
from constructions.filter_bank.layers import LAYERS
from constructions.filter_bank.product_fit import Products, Series
from constructions.filter_bank.reduced import ReducedBank
from constructions.filter_bank.tiled import Tile
from constructions.filter_bank.unstructured import Grid
from constructions.targets.copying import Copying
from constructions.targets.parity import ParityLayer
from constructions.targets.relations import Composition
from constructions.targets.state_space import RationalFilter
from iha_theory.attention import TwoLayerAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.operators.weights import Mixing, PositionWeights

ROOMS = ("constructions.construction", "constructions.filter_bank.", "constructions.cpm3.", "constructions.targets.")
UNDAMAGED = {
    "cpm3.packing.digits_held": "fewer digits in a number are right too, and more heads are not as claimed",
    "cpm3.mlp._pair_weights": "returns nothing; what it wrote is damaged as the network's result",
    "filter_bank.approximate.floor": "an error to be expected, which no weight depends on",
    "filter_bank.product_fit.chebyshev_maps": "a basis of polynomials; in a wrong one the fit falls back on the powers",
    "filter_bank.product_fit.least_degree": "a larger degree is right too",
    "filter_bank.tiled._side": "chooses among tilings, which are all right",
    "filter_bank.unstructured.heads": "chooses between two layouts, which are both right",
    "targets.relations.sharpness": "a larger scale is right too",
    "targets.parity.nodes": "any distinct ones are right: the weights are solved for them",
    "targets.state_space.tiled": "chooses between two layouts, which are both right",
}
"""Why a helper is not damaged."""


def helpers() -> dict[str, FunctionType]:
    """The functions of the constructions' modules, as many as are loaded, by module and name."""
    return {
        f"{name}.{attribute}".removeprefix("constructions."): value
        for name, module in sorted(sys.modules.items())
        if name.startswith(ROOMS)
        for attribute, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == name
    }


def damage_helpers(make: Callable[[], Sequence[Subject]]) -> Iterator[MutantResult]:
    """Every helper that builds a subject, damaged in each way, and what the subject's own check says.

    Of subjects of one family and tier that the same helpers build, the first stands for all.

    Args:
        make: the subjects, anew.

    Raises:
        TypeError: a helper whose results are of a type without a damage.
    """
    calls: dict[str, dict[str, type]] = {}
    before: dict[str, Tensor] = {}
    for subject in make():
        with recorded() as results:
            built = subject.build()
        check = subject.check
        if all((_kind(check), results) != (_kind(other), calls[other]) for other in calls):
            calls[check], before[check] = results, subject.outputs(built)
    for name in sorted({name for results in calls.values() for name in results}):
        for way, change in (("damaged", damaged), ("transposed", transposed)):
            using = {
                check
                for check, results in calls.items()
                if name in results and change.dispatch(results[name]) is not _nothing
            }
            if using:
                with replaced(name, change):
                    subjects = [subject for subject in make() if subject.check in using]
                    yield from (_judged(subject, before[subject.check], f"{name} {way}") for subject in subjects)


def _judged(subject: Subject, before: Tensor, mutant: str) -> MutantResult:
    try:
        built = subject.build()
    except ValueError:  # refused
        return MutantResult(subject.check, mutant, changes=True, killed=True)
    return MutantResult(subject.check, mutant, changed(subject, built, before), not holds(subject, built))


def _kind(check: str) -> tuple[str, str]:
    """Family and tier."""
    return check.partition("/")[0], check.rpartition("/")[2]


@contextmanager
def recorded() -> Iterator[dict[str, type]]:
    """The helpers that are called meanwhile, and the type of what they return."""
    results: dict[str, type] = {}

    def recorder(name: str, function: FunctionType) -> Callable[..., Any]:
        @wraps(function)
        def record(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            results[name] = type(result)
            return result

        return record

    with _bound({f: recorder(name, f) for name, f in helpers().items() if name not in UNDAMAGED}):
        yield results


@contextmanager
def replaced(name: str, change: Callable[[Any], Any]) -> Iterator[None]:
    """A helper returns `change` of its results."""
    function = helpers()[name]
    with _bound({function: wraps(function)(lambda *args, **kwargs: change(function(*args, **kwargs)))}):
        yield


@contextmanager
def _bound(others: dict[FunctionType, Callable[..., Any]]) -> Iterator[None]:
    """Other functions wherever these are bound: in our modules and in the table of layers."""
    owners = [module for name, module in sys.modules.items() if name.startswith("constructions.")]
    places = [
        (vars(owner), name, value)
        for owner in (*owners, *LAYERS.values())
        for name, value in vars(owner).items()
        if isinstance(value, FunctionType) and value in others
    ]
    try:
        for names, name, value in places:
            names[name] = others[value]
        yield
    finally:
        for names, name, value in places:
            names[name] = value


def _nothing(result: Any) -> Any:
    """Not every result can be transposed."""
    return result


transposed = singledispatch(_nothing)
"""Square matrices, or a function's, transposed: as consistent as before, since A^T has powers too."""


@transposed.register
def _(result: Tensor) -> Any:
    square = result.ndim > 1 and result.shape[-1] == result.shape[-2]
    return result.mT.contiguous() if square else result


@transposed.register
def _(result: DomainMatrix) -> Any:
    return result.transpose() if result.shape[0] == result.shape[1] else result


@transposed.register
def _(result: FunctionType) -> Any:
    return lambda i: transposed(result(i))


@singledispatch
def damaged(result: Any) -> Any:
    """A result of the same form that is not the same: most often its parts in reverse."""
    raise TypeError(f"constructions.checks.helpers.damaged has nothing for a {type(result).__name__}: register it")


@damaged.register
def _(result: Tensor) -> Any:
    return result.flip(0 if len(result) > 1 else -1)


@damaged.register
def _(result: np.ndarray) -> Any:
    return np.flip(result, 0 if len(result) > 1 else -1)


@damaged.register
def _(result: DomainMatrix) -> Any:
    return result.extract(range(result.shape[0])[::-1], range(result.shape[1]))


@damaged.register
def _(result: FunctionType) -> Any:
    return lambda i: result(i + 1)


@damaged.register(float)
@damaged.register(Fraction)
def _(result: Any) -> Any:
    return result + 1


@damaged.register
def _(result: bool) -> Any:
    return not result


@damaged.register(list)
def _(result: list[Any]) -> Any:
    return result[::-1]


@damaged.register(tuple)
def _(result: tuple[Any, ...]) -> Any:
    if len(result) == 1 or isinstance(result[0], (Tile, PositionWeights, Fraction)):
        return (damaged(result[0]), *result[1:])
    return result[::-1]


@damaged.register
def _(result: Tile) -> Any:
    return replace(result, rows=result.rows[1:])


@damaged.register
def _(result: Block) -> Any:
    return replace(result, start=result.start + 1)


FIELDS: dict[type, str] = {
    Construction: "readout",
    PositionWeights: "query",
    Mixing: "alpha_v",
    Decomposition: "maps",
    Products: "outer",
    Series: "p",
    ReducedBank: "coefficients",
    RationalFilter: "numerators",
    Grid: "queries",
}
"""Of results with many parts, the one to damage."""


def _field(result: Any) -> Any:
    name = FIELDS[type(result)]
    return replace(result, **{name: damaged(getattr(result, name))})


for _type in FIELDS:
    damaged.register(_type, _field)


@damaged.register
def _(result: CountPairsNetwork) -> Any:
    return replace(result, mlp=_weight_reversed(result.mlp, result.mlp.pairs, 1))


@damaged.register
def _(result: PackedNetwork) -> Any:
    return replace(result, count=_weight_reversed(result.count, result.count.select, 1))


@damaged.register
def _(result: AttentionLayer) -> Any:
    return _weight_reversed(result, result.q_proj, 0)


@damaged.register
def _(result: Composition | Copying) -> Any:
    linear = result.mlp.above if isinstance(result, Composition) else result.mlp.paths
    return replace(result, mlp=_weight_reversed(result.mlp, linear, 1))


@damaged.register
def _(result: ParityLayer) -> Any:
    _weight_reversed(result.layer, result.layer.q_proj, 1)
    return result


@damaged.register
def _(result: TwoLayerAttention) -> Any:
    damaged(result.first)
    return result


@torch.no_grad()
def _weight_reversed(module: nn.Module, part: nn.Linear, dim: int) -> nn.Module:
    part.weight.copy_(part.weight.flip(dim))
    return module
