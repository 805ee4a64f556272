"""What `bench decode` measures: the next token of causal layers, with caches of some lengths."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.generation import KeyValueCache, Mix, extend, take_up
from iha_theory.speed import measure

LENGTHS = (1024, 2048, 4096, 8192, 16384)
"""Tokens in the cache before the next one."""
TOKENS = 4
"""Are generated in each round, so that the clock's own time does not count."""
PIECE = 1024
"""So many tokens at once are taken up before."""


@dataclass(frozen=True)
class Generator:
    """A layer that generates. cache: an empty one of it. mix: as of `extend`."""

    layer: AttentionLayer
    cache: KeyValueCache
    mix: Mix | None = None

    @torch.inference_mode()
    def fill(self, length: int) -> None:
        """Takes up random tokens until there are so many."""
        weight = self.layer.k_proj.weight
        while (missing := min(PIECE, length - self.cache.tokens)) > 0:
            x = torch.randn(1, missing, self.layer.embed_dim, device=weight.device, dtype=weight.dtype)
            take_up(self.layer, x, x, self.cache)

    def step(self) -> Callable[[], None]:
        """A function that generates `TOKENS` tokens."""
        weight = self.layer.k_proj.weight
        x = torch.randn(TOKENS, 1, 1, self.layer.embed_dim, device=weight.device, dtype=weight.dtype)

        @torch.inference_mode()
        def run() -> None:
            for token in x:
                extend(self.layer, token, token, token, self.cache, mix=self.mix)

        return run


def times(make: Mapping[str, Callable[[], Generator]], length: int, rounds: int, device: str) -> list[dict[str, Any]]:
    """Of each generator after so many tokens: seconds of a token and bytes of the cache.

    All generators run in each round. `over_first` is the median over the rounds of their time over the first one's.
    Caches grow by the tokens that are generated: `TOKENS` (rounds + 1).
    """
    generators = {name: build() for name, build in make.items()}
    for generator in generators.values():
        generator.fill(length)
    sizes = {name: generator.cache.nbytes for name, generator in generators.items()}
    seconds = measure.alternated({name: g.step() for name, g in generators.items()}, rounds, device)
    first = next(iter(seconds.values()))
    return [
        {
            "length": length,
            "layer": name,
            "median_s": statistics.median(own) / TOKENS,
            "least_s": min(own) / TOKENS,
            "over_first": statistics.median(a / b for a, b in zip(own, first, strict=True)),
            "cache_bytes": sizes[name],
            "n": rounds,
        }
        for name, own in seconds.items()
    ]


@dataclass(frozen=True)
class Processor:
    """A processor on paper: FLOP/s of products of matrices, bytes/s from its memory."""

    name: str
    flops_per_s: float
    bytes_per_s: float
    source: str

    @property
    def balance(self) -> float:
        """FLOPs in the time that a byte takes: work of less for each byte that is read costs no time."""
        return self.flops_per_s / self.bytes_per_s


PAPER = (
    Processor("A100 80 GB, bfloat16", 312e12, 2.039e12, "NVIDIA A100 datasheet: SXM, dense"),
    Processor("H100, bfloat16", 989e12, 3.35e12, "NVIDIA H100 datasheet: SXM, dense"),
    Processor("H200, bfloat16", 989e12, 4.8e12, "NVIDIA H200 datasheet: SXM, dense"),
)


def most_free_rows(balance: float, itemsize: int, pseudo_heads: int, head_dim: int) -> int:
    """The largest H P with which IHA's next token takes no longer than its cache of base heads takes to be read.

    Mixing maps takes 2 H^2 P N (2 d + 2 P) FLOPs for 2 H d N numbers: 2 H P (1 + P / d) for each. MHA's P = 1 map a
    head takes 2. So H P <= balance itemsize / (2 (1 + P / d)), if all of it runs at the processor's limits and maps
    do not go through memory.
    """
    return int(balance * itemsize / (2 * (1 + pseudo_heads / head_dim)))
