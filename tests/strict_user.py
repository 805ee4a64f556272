"""What a user writes in a strict project: every public name, with the type that it should have."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import constructions
import iha_theory
from constructions import Construction
from figures import spectra
from figures.style import Picture
from iha_theory import (
    Certificate,
    DifferentialAttention,
    GroupedQueryAttention,
    InterleavedHeadAttention,
    MultiHeadAttention,
    TalkingHeadsAttention,
    TwoLayerAttention,
    TwoSimplicialAttention,
)
from iha_theory.options import option
from synthetic import graphs
from synthetic.systems import stable
from synthetic.tasks.task import Measured, Samples, Split, Task
from synthetic.training import loop, sweep
from synthetic.training.config import TrainConfig

version: str = iha_theory.__version__


class Block(nn.Module):
    """A layer in a model."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = InterleavedHeadAttention(width, heads, num_pseudo_heads=2, rotary=True, causality="token")

    def forward(self, x: Tensor) -> Tensor:
        """Causal self-attention."""
        out: Tensor = self.attention(x, x, x, is_causal=True)
        return out


def layers(width: int, heads: int) -> list[nn.Module]:
    """Every layer."""
    mha = MultiHeadAttention(width, heads, pattern="linear", bias=True)
    iha = InterleavedHeadAttention.from_mha(mha, num_pseudo_heads=2)
    pseudo_heads: int = iha.num_pseudo_heads
    queries: Tensor = iha.q_proj.weight
    print(pseudo_heads, queries.shape, mha.num_heads, mha.window)
    return [
        mha,
        iha,
        DifferentialAttention(width, heads),
        GroupedQueryAttention(width, heads, num_kv_heads=1),
        TalkingHeadsAttention(width, heads, mix="logits"),
        TwoLayerAttention(width, heads),
        TwoSimplicialAttention(width, heads),
    ]


def bounds(a: list[list[float]], terms: int) -> tuple[int, str | None]:
    """Lower bounds on heads, exactly and within an error."""
    exact = iha_theory.power_rank(a, terms)
    certificate: Certificate | None = exact.certificate
    assert certificate is not None
    proved: bool = iha_theory.verify(certificate, a, terms)
    matrix = torch.tensor(a, dtype=torch.float64)
    maps = torch.stack([matrix, matrix @ matrix])
    of_bank = iha_theory.bank_rank([*maps]).certificate
    assert of_bank is not None
    same: str | None = iha_theory.bank_refusal(of_bank, [*maps])
    values = iha_theory.spectrum(iha_theory.unit_norm(maps))
    rank: int = iha_theory.least_rank(values, 0.01)
    floor: float = iha_theory.error_floor(values, 1) + iha_theory.content_floor(maps, 1)
    capacity: int = iha_theory.capacity_bound("iha", 3, 3, "global")
    limit: int = iha_theory.limit_heads(a, terms, 1)
    print(proved, same, rank, floor, capacity, limit)
    return iha_theory.least_heads("iha", exact.rank), iha_theory.refusal(certificate, a, terms)


def measured(module: nn.Module) -> bool:
    """The capacity of a module, and an input on which a layer with too few heads is wrong."""
    found = iha_theory.measure_module("mine", module, 4, embed_dim=8)
    wrong = iha_theory.witness(lambda x: x, torch.eye(3, dtype=torch.float64)[None])
    print(wrong.error)
    return found.reached and found.rank > found.bound


def weights() -> list[Construction]:
    """Explicit weights."""
    identity = torch.eye(3, dtype=torch.float64)
    bank = constructions.bank("iha", lambda t: identity, terms=4, width=1)
    slots = constructions.workspace("mha", 3)
    kernel = torch.ones(2, 2, 3, 3, dtype=torch.float64)
    net = constructions.network(slots, 5, 2)
    confused = constructions.confusion(slots, 5, 2)
    heads: int = bank.heads + net.attention.heads
    out: Tensor = bank(torch.ones(1, 3, 1, dtype=torch.float64))
    print(heads, out.shape, confused is None)
    image = constructions.convolution("iha", kernel, (3, 3), padding="circular")
    taps = constructions.fir("iha", [[[1.0]], [[0.5]]], tokens=4)
    system = constructions.state_space("iha", stable(order=2, seed=0), tokens=4, rounded=True)
    return [bank, slots, image, taps, system]


@dataclass(frozen=True)
class Mirror(Task):
    """A task of one's own."""

    summary = "tokens in reverse order"
    tokens: int = option(6, "tokens N", 2)

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """Content, and its mirror image."""
        x = generator.standard_normal((count, self.tokens, 1))
        return x, x[:, ::-1].copy()

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Squared error."""
        return (model(x) - y).square().mean()

    def measure(self, model: nn.Module, run: Callable[..., Any], validation: Samples, test: Samples) -> Measured:
        """Squared error."""
        x, y = (torch.as_tensor(array) for array in test)
        return Measured(error=float((run(x) - y).square().mean()))


def trained(folder: Path) -> list[dict[str, Any]]:
    """A run, by itself and in a sweep."""
    options: dict[str, Any] = {"graph": "cycle:4", "terms": 2, "attention": "mha", "heads": 2, "steps": 1}
    config = TrainConfig.for_task("polynomial", options | {"eval_size": 8})
    (run,) = loop.train([config])
    outcome: str | None = run.outcome
    losses: list[float] = run.losses
    print(outcome, losses, config.but(heads=1).capacity, Mirror(tokens=3).names())
    return sweep.sweep([config], folder)


def drawn(folder: Path) -> Picture:
    """The spectrum of a graph."""
    graph: graphs.Graph = graphs.load("petersen")
    found = spectra.spectrum_of(graphs.normalise(graph, "none"), terms=3)
    rank: int = found.rank
    print(rank, graphs.sentence(graph))
    return spectra.draw([found], folder)


if __name__ == "__main__":
    x = torch.randn(2, 5, 8)
    assert Block(8, 2)(x).shape == x.shape
    assert len(layers(8, 2)) == 7
    assert bounds([[0, 1], [1, 0]], 3) == (2, None)
    assert not measured(MultiHeadAttention(8, 4))
    assert len(weights()) == 5
    with TemporaryDirectory() as place:
        assert len(trained(Path(place))) == 1
        assert len(drawn(Path(place)).files) == 2
