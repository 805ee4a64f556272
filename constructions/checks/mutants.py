"""Mutants: constructions with one thing damaged. A check that does not notice one is no check.

Whether a mutant changes the function at all is decided by running the torch layers, the damaged one and the intact one,
on the same random inputs. (Transposed keys of a symmetric matrix, say, change nothing.) A mutant is killed if the check
that holds for the intact construction does not hold for it, or refuses it.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from constructions.construction import Construction
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.base import AttentionLayer

CHANGED = 1e-9
"""Outputs that differ by more than this, relative to the largest, belong to another function."""


@dataclass(frozen=True)
class Subject:
    """A check to be tested.

    check: its id. build: makes the construction. error: the measured error of a construction, and the bound. outputs:
    of a construction, on fixed random inputs. layer: its attention layer, None if there is none to damage. extra:
    damages that only this construction has.
    """

    check: str
    build: Callable[[], Any]
    error: Callable[[Any], tuple[float, float]]
    outputs: Callable[[Any], Tensor]
    layer: Callable[[Any], AttentionLayer] | None
    extra: dict[str, Callable[[Any], Any]]
    copy: Callable[[Any], Any] = copy.deepcopy


@dataclass(frozen=True)
class MutantResult:
    """check: id of the check. mutant: what was damaged. changes: whether that changes the function. killed: by the
    check."""

    check: str
    mutant: str
    changes: bool
    killed: bool

    def to_json(self) -> dict[str, Any]:
        """check, mutant, killed."""
        return {"check": self.check, "mutant": self.mutant, "killed": self.killed}


def damage(subject: Subject) -> Iterator[MutantResult]:
    """Every mutant of a subject, judged.

    Raises:
        ValueError: the check does not hold for the intact construction.
    """
    intact = subject.build()
    if not holds(subject, intact):
        raise ValueError(f"{subject.check} does not hold for the intact construction")
    before = subject.outputs(intact)
    for name, make in {**_layer_damages(subject), **subject.extra}.items():
        mutant = make(subject.copy(intact))
        if mutant is not None:
            yield MutantResult(subject.check, name, changed(subject, mutant, before), not holds(subject, mutant))


def holds(subject: Subject, construction: Any) -> bool:
    """Whether the check holds for a construction, and does not refuse it."""
    try:
        error, bound = subject.error(construction)
    except ValueError:  # refused: not position-only, not an integer
        return False
    return error <= bound


def changed(subject: Subject, construction: Any, before: Tensor) -> bool:
    """Whether a construction's outputs are others than before."""
    try:
        after = subject.outputs(construction)
    except ValueError:
        return True
    return after.shape != before.shape or float((after - before).abs().max()) > CHANGED * float(before.abs().max())


def _layer_damages(subject: Subject) -> dict[str, Callable[[Any], Any]]:
    """Damages to the attention layer, each in place; None where the layer has no such part."""

    layer_of = subject.layer
    if layer_of is None:
        return {}

    def on_layer(change: Callable[[Any], bool | None]) -> Callable[[Any], Any]:
        def make(construction: Any) -> Any:
            with torch.no_grad():
                return None if change(layer_of(construction)) is False else construction

        return make

    def query_entry(layer: AttentionLayer) -> None:
        layer.q_proj.weight[-1, -1] += 0.5

    def coefficients_swapped(layer: AttentionLayer) -> bool | None:
        if not isinstance(layer, InterleavedHeadAttention) or layer.num_pseudo_heads < 2:
            return False
        swap = (1, 0, 0) if layer.num_heads > 1 else (0, 0, 1)
        for alpha in (layer.alpha_k, layer.alpha_v) if layer.num_heads > 1 else (layer.alpha_k,):
            first, second = alpha[0, 0, 0].clone(), alpha[swap].clone()
            alpha[0, 0, 0], alpha[swap] = second, first
            if layer.num_heads > 1:
                break
        return None

    def keys_transposed(layer: AttentionLayer) -> bool | None:
        blocks = layer.k_proj.weight.unflatten(0, (layer.num_heads, -1))[:, :, -layer.head_dim :]
        if blocks.shape[1] != blocks.shape[2]:
            return False
        blocks.copy_(blocks.transpose(1, 2).clone())
        return None

    def scaled(layer: AttentionLayer) -> None:
        target = layer.collapse if isinstance(layer, InterleavedHeadAttention) else layer.v_proj.weight
        target *= 0.99

    def noise(layer: AttentionLayer) -> None:
        generator = torch.Generator().manual_seed(0)
        for parameter in layer.parameters():
            parameter += 1e-3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)

    def dropped_head(layer: AttentionLayer) -> None:
        layer.v_proj.weight[: layer.value_head_dim] = 0

    def dropped_last(layer: AttentionLayer) -> None:
        layer.v_proj.weight[-layer.value_head_dim :] = 0

    def content_in_queries(layer: AttentionLayer) -> None:
        layer.q_proj.weight[:, 0] += 0.5

    return {
        "one query entry off by 0.5": on_layer(query_entry),
        "two pseudo-head coefficients swapped": on_layer(coefficients_swapped),
        "keys transposed": on_layer(keys_transposed),
        "collapse (MHA: values) scaled by 0.99": on_layer(scaled),
        "noise of 1e-3": on_layer(noise),
        "first head's values dropped": on_layer(dropped_head),
        "last head's values dropped": on_layer(dropped_last),
        "content in the queries": on_layer(content_in_queries),
    }


def in_place(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A damage that changes a construction's weights and returns it."""

    @torch.no_grad()
    def make(construction: Any) -> Any:
        change(construction)
        return construction

    return make


def of_parameter(name: str, change: Callable[[Tensor], Any]) -> Callable[[Any], Any]:
    """The damage of a parameter of the layer, in place."""
    return in_place(lambda construction: change(construction.layer.get_parameter(name)))


def swap_blocks(construction: Construction) -> Construction:
    """The first two blocks of the readout change places."""
    first, second, *rest = construction.readout
    return replace(construction, readout=(second, first, *rest))


def shift_block(construction: Construction) -> Construction:
    """The first block of the readout starts one coordinate later."""
    first, *rest = construction.readout
    return replace(construction, readout=(replace(first, start=first.start + 1), *rest))
