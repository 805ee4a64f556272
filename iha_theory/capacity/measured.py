"""Operator Schmidt ranks by measurement: of any module with the call (query, key, value), at generic positions.

A bound is reached by generic parameters as soon as one instance reaches it: ranks are lower semicontinuous, and where
the parameters enter analytically (softmax and linear patterns) the parameters of smaller rank are the zeros of a
minor, which is not 0 everywhere, so a set of measure 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from iha_theory.operators.numerical import position_only
from iha_theory.operators.rank import CLEAR_GAP, Rank, rank

SEED = 0


@dataclass(frozen=True)
class Capacity:
    """A measured operator Schmidt rank beside its bound.

    Attributes:
        layer: a `Kind`, torch's class, or the name of a module of the user's.
        heads: H.
        pseudo_heads: P, for IHA; None for other layers.
        collapse: "global" or "per_head", for IHA; None for other layers.
        pattern: "softmax" or "linear"; None where it is not known.
        rank: measured.
        bound: proved for our layers and torch's; for a module of the user's MHA's H, to compare with.
        gap: of the singular values, which decides the rank: see `iha_theory.operators.rank.Rank`.
    """

    layer: str
    heads: int
    pseudo_heads: int | None
    collapse: str | None
    pattern: str | None
    rank: int
    bound: int
    gap: float

    @property
    def clear(self) -> bool:
        """Whether the gap is large enough for the rank to be trusted."""
        return self.gap >= CLEAR_GAP

    @property
    def reached(self) -> bool:
        """Whether the rank is the bound, clearly."""
        return self.clear and self.rank == self.bound


def measure(module: nn.Module, embed_dim: int, *, tokens: int, width: int | None = None) -> Rank:
    """The rank of layer(query, key, X) at random normal positions, seeded.

    Args:
        module: see `iha_theory.operators.numerical.position_only`. Its attribute `kdim`, if it has one, is the key's
            width.
        embed_dim: width of the query, and of the key without `kdim`.
        tokens: N, of queries and of keys. Positions are the same for both where their widths are.
        width: of the content; default as in `position_only`.

    Raises:
        ValueError: as `position_only`.
    """
    generator = torch.Generator().manual_seed(SEED)
    kdim = getattr(module, "kdim", embed_dim)
    query = torch.randn(tokens, embed_dim, generator=generator, dtype=torch.float64)
    key = query if kdim == embed_dim else torch.randn(tokens, kdim, generator=generator, dtype=torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # matrices this small are faster so: ten times on a machine whose cores are busy
    try:
        return rank(position_only(module, query, key, width=width))
    finally:
        torch.set_num_threads(threads)


def measure_module(name: str, module: nn.Module, heads: int, *, embed_dim: int | None = None) -> Capacity:
    """A module of the user's as it is, with MHA's bound H to compare with.

    Its parameters are not touched, so the rank is theirs: a layer that starts at zeros or copies shows less than it
    can. A larger rank than H is no fault: it says that the layer does more than any MHA with H heads.

    Args:
        name: for the result.
        module: with the call (query, key, value) and attributes as in `measure`.
        heads: H.
        embed_dim: width of the query; default the module's attribute of this name.

    Raises:
        ValueError: as `position_only`; no embed_dim given, nor told by the module.
    """
    if embed_dim is None:
        embed_dim = getattr(module, "embed_dim", None)
        if not isinstance(embed_dim, int):
            raise ValueError(f"{name} makes a module without an integer attribute embed_dim, the width of its query")
    found = measure(module, embed_dim, tokens=tokens_for(heads))
    return Capacity(name, heads, None, None, None, found.rank, heads, found.gap)


def tokens_for(heads: int) -> int:
    """How many tokens show the rank of a layer with so many heads."""
    return max(20, 3 * heads)


def generic(build: Callable[[], nn.Module]) -> nn.Module:
    """The module with normal numbers of variance 1 / fan-in in every parameter: logits of about 1.

    Larger logits would make softmax rows almost one-hot, and maps that are only almost equal would be told apart by
    small singular values.
    """
    with torch.random.fork_rng(devices=[]):  # constructors draw from the global stream: leave it as it was
        module = build().double()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in module.parameters():
            normal = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(normal / fan_in(parameter) ** 0.5)
    return module


def fan_in(parameter: torch.Tensor) -> int:
    """How many numbers a parameter adds up: of weights the last axis, of mixings (from, to, pseudo-head) the first."""
    return parameter.shape[-1] if parameter.ndim == 2 else parameter.shape[0]
