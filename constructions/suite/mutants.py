"""Mutants: constructions with one thing damaged. A check that does not notice one is no check.

Whether a mutant changes the function at all is decided by running the torch layers, the damaged one and the intact one,
on the same random inputs. (Transposed keys of a symmetric matrix, say, change nothing.) A mutant is killed if the check
that holds for the intact construction does not hold for it, or refuses it.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from sympy import QQ
from torch import Tensor, nn

from constructions.checks import exact_error, float64_error, gamma
from constructions.construction import Construction
from constructions.cpm3 import CountPairsNetwork, network, shift, workspace
from constructions.inclusion import inclusion, repeated, witness
from constructions.polynomial import Powers, bank, powers
from constructions.suite import inclusion as inclusion_suite
from constructions.suite.bank import LARGEST_PRIME, WIDTH
from constructions.suite.cpm3 import counts_error
from iha_theory import exact
from iha_theory.attention import InterleavedHeadAttention
from iha_theory.attention.base import AttentionLayer
from iha_theory.position_only import with_positions
from synthetic.cpm3 import CountPairs
from synthetic.graphs import builtin
from synthetic.polynomial import power_blocks, power_blocks_float

CHANGED = 1e-9
"""Outputs that differ by more than this, relative to the largest, belong to another function."""


@dataclass(frozen=True)
class Subject:
    """A check to be tested.

    check: its id. build: makes the construction. error: the measured error of a construction, and the bound. outputs:
    of a construction, on fixed random inputs. layer: its attention layer. extra: damages that only this construction
    has.
    """

    check: str
    build: Callable[[], Any]
    error: Callable[[Any], tuple[float, float]]
    outputs: Callable[[Any], Tensor]
    layer: Callable[[Any], AttentionLayer]
    extra: dict[str, Callable[[Any], Any]]


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
    if not _holds(subject, intact):
        raise ValueError(f"{subject.check} does not hold for the intact construction")
    before = subject.outputs(intact)
    for name, make in {**_layer_damages(subject), **subject.extra}.items():
        mutant = make(copy.deepcopy(intact))
        if mutant is not None:
            yield MutantResult(subject.check, name, _changed(subject, mutant, before), not _holds(subject, mutant))


def _holds(subject: Subject, construction: Any) -> bool:
    try:
        error, bound = subject.error(construction)
    except ValueError:  # refused: not position-only, not an integer
        return False
    return error <= bound


def _changed(subject: Subject, construction: Any, before: Tensor) -> bool:
    try:
        after = subject.outputs(construction)
    except ValueError:
        return True
    return after.shape != before.shape or float((after - before).abs().max()) > CHANGED * float(before.abs().max())


def _layer_damages(subject: Subject) -> dict[str, Callable[[Any], Any]]:
    """Damages to the attention layer, each in place; None where the layer has no such part."""

    def on_layer(change: Callable[[Any], bool | None]) -> Callable[[Any], Any]:
        def make(construction: Any) -> Any:
            with torch.no_grad():
                return None if change(subject.layer(construction)) is False else construction

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

    def content_in_queries(layer: AttentionLayer) -> None:
        layer.q_proj.weight[:, 0] += 0.5

    return {
        "one query entry off by 0.5": on_layer(query_entry),
        "two pseudo-head coefficients swapped": on_layer(coefficients_swapped),
        "keys transposed": on_layer(keys_transposed),
        "collapse (MHA: values) scaled by 0.99": on_layer(scaled),
        "noise of 1e-3": on_layer(noise),
        "first head's values dropped": on_layer(dropped_head),
        "content in the queries": on_layer(content_in_queries),
    }


def subjects() -> list[Subject]:
    """The checks that are tested, on small cases of each kind."""
    out = []
    for graph, terms in (("karate", 9), ("cycle:16", 16), ("random:12", 9)):
        for layer in ("mha", "iha"):
            out += _bank(graph, terms, layer)
    for tokens, modulus, coefficient in ((5, 3, 8), (9, 5, 11)):
        for layer in ("mha", "iha"):
            out += _cpm3(tokens, modulus, coefficient, layer)
    return out + _inclusion() + _strictness()


def _bank(name: str, terms: int, layer: str) -> list[Subject]:
    adjacency = builtin(name).adjacency
    a = exact.matrix(adjacency, QQ)
    floats = adjacency.astype(np.float64)
    blocks = list(power_blocks(a, terms))
    modular = list(power_blocks(exact.residues(a, LARGEST_PRIME), terms))
    targets, majorants = (np.stack(list(power_blocks_float(x, terms))) for x in (floats, np.abs(floats)))
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(floats), WIDTH)))
    power = powers(a)

    def wrong_power(construction: Construction) -> Construction:
        used = (construction.heads - 1) * construction.pseudo_heads  # the last base query's power
        wrong: Powers = lambda i: power(i + 1) if i == used else power(i)  # noqa: E731
        return bank(layer, wrong, terms, WIDTH)

    common = {
        "build": lambda: bank(layer, power, terms, WIDTH),
        "outputs": lambda construction: _evaluate(construction, x),
        "layer": lambda construction: construction.layer,
        "extra": {
            "one wrong power": wrong_power,
            "two readout blocks swapped": _swap_blocks,
            "a readout block shifted by one": _shift_block,
        },
    }
    tiers: dict[str, Callable[[Construction], tuple[float, float]]] = {
        "exact": lambda c: (exact_error(c, blocks), 0.0),
        "modular": lambda c: (exact_error(c, modular, exact.gf(LARGEST_PRIME)), 0.0),
        "float64": lambda c: (float64_error(c, targets, majorants), gamma(100 * terms * len(floats))),
    }
    return [Subject(f"bank/{name}/k={terms}/{layer}/{tier}", error=error, **common) for tier, error in tiers.items()]


def _cpm3(tokens: int, modulus: int, coefficient: int, layer: str) -> list[Subject]:
    generator = np.random.default_rng(1)
    x = torch.from_numpy(generator.standard_normal((2, tokens, 1)))
    sequences = torch.from_numpy(generator.integers(0, modulus, (50, tokens)))
    blocks = [shift(tokens, t) for t in range(tokens)]
    task = CountPairs(modulus, coefficient)

    def one_shift_wrong(subject_layer: AttentionLayer) -> None:
        with torch.no_grad():
            block = subject_layer.q_proj.weight[tokens : 2 * tokens, -tokens:]  # the second base query
            block.copy_(block.roll(1, 0))

    def on_workspace(construction: Construction) -> Construction:
        one_shift_wrong(construction.layer)
        return construction

    def on_network(net: CountPairsNetwork) -> CountPairsNetwork:
        one_shift_wrong(net.attention.layer)
        return net

    def g_shifted(net: CountPairsNetwork) -> CountPairsNetwork:
        with torch.no_grad():
            rows = net.mlp.pairs.weight.view(tokens, tokens, -1)
            for s, block in enumerate(net.attention.readout):
                rows[s, :, block.start] += 1
        return net

    def swapped(net: CountPairsNetwork) -> CountPairsNetwork:
        first, second = (net.attention.readout[i].start for i in (0, 1))
        with torch.no_grad():
            weight = net.mlp.pairs.weight
            weight[:, [first, second]] = weight[:, [second, first]]
        return net

    def noisy(net: CountPairsNetwork) -> CountPairsNetwork:
        with torch.no_grad():
            net.mlp.pairs.weight.add_(1e-3)
        return net

    return [
        Subject(
            f"cpm3-workspace/N={tokens}/{layer}/exact",
            build=lambda: workspace(layer, tokens),
            error=lambda construction: (exact_error(construction, blocks), 0.0),
            outputs=lambda construction: _evaluate(construction, x),
            layer=lambda construction: construction.layer,
            extra={
                "one wrong power": on_workspace,
                "two readout blocks swapped": _swap_blocks,
                "a readout block shifted by one": _shift_block,
            },
        ),
        Subject(
            f"cpm3/N={tokens}/M={modulus}/G={coefficient}/{layer}/exact",
            build=lambda: network(workspace(layer, tokens), modulus, coefficient),
            error=lambda net: (counts_error(net, task, tokens)[0], 0.0),
            outputs=lambda net: net(sequences).double(),
            layer=lambda net: net.attention.layer,
            extra={
                "one wrong power": on_network,
                "two readout blocks swapped": swapped,
                "G shifted by 1 in the weights only": g_shifted,
                "noise of 1e-3 in the MLP": noisy,
            },
        ),
    ]


def _inclusion() -> list[Subject]:
    heads, pseudo = 2, 3
    out = []
    for pattern in ("linear", "hard"):
        mha = inclusion_suite.integer_mha(heads, pattern, torch.Generator().manual_seed(0))
        out.append(_included(f"inclusion/{pattern}/exact", mha, pseudo, inclusion_suite.operators_error))
    mha = inclusion_suite.real_mha(heads, torch.Generator().manual_seed(0))
    out.append(_included("inclusion/softmax/exact", mha, pseudo, inclusion_suite.copies_error))
    out.append(_included("inclusion/softmax/float64", mha, pseudo, inclusion_suite.outputs_error))
    return out


def _included(check: str, mha: Any, pseudo: int, error: Callable[[Any, Any], Any]) -> Subject:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(4, inclusion_suite.TOKENS, mha.embed_dim, dtype=torch.float64, generator=generator)
    if mha.pattern != "softmax":  # position-only, on [X, I_N]
        x = with_positions(x[..., : inclusion_suite.WIDTH])

    def measured(iha: Any) -> tuple[float, float]:
        found = error(mha, iha)
        return found if isinstance(found, tuple) else (found, 0.0)

    return Subject(
        check,
        build=lambda: inclusion(mha, pseudo),
        error=measured,
        outputs=lambda iha: iha(x, x, x).detach(),
        layer=lambda iha: iha,
        extra={"another head's row read": _collapse_crossed},
    )


def _strictness() -> list[Subject]:
    weights = inclusion_suite.witness_weights(seed=0)
    x = np.random.default_rng(1).standard_normal((4, inclusion_suite.WITNESS_WIDTH))
    inputs = repeated(torch.from_numpy(x), inclusion_suite.TOKENS)

    def printed(layer: InterleavedHeadAttention) -> InterleavedHeadAttention:
        with torch.no_grad():
            layer.alpha_v[0, 0, 1] = 1
        return layer

    return [
        Subject(
            f"strictness/P={pseudo}/iha/float64",
            build=lambda pseudo=pseudo: witness(*weights, pseudo),
            error=lambda layer: inclusion_suite.witness_error(layer, weights)[:2],
            outputs=lambda layer: layer(inputs, inputs, inputs).detach(),
            layer=lambda layer: layer,
            extra={"pseudo-value +1, as printed": printed},
        )
        for pseudo in (2, 3)
    ]


def _collapse_crossed(iha: InterleavedHeadAttention) -> nn.Module:
    with torch.no_grad():
        iha.collapse.copy_(iha.collapse.roll(1, 0))
    return iha


def _evaluate(construction: Construction, x: Tensor) -> Tensor:
    return construction(x).detach()


def _swap_blocks(construction: Construction) -> Construction:
    first, second, *rest = construction.readout
    return replace(construction, readout=(second, first, *rest))


def _shift_block(construction: Construction) -> Construction:
    first, *rest = construction.readout
    return replace(construction, readout=(replace(first, start=first.start + 1), *rest))
