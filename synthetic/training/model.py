"""The model of a run, its initial weights, and its trained ones from a folder of records."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor, nn

from iha_theory.attention import (
    InterleavedHeadAttention,
    LayerOptions,
    TwoLayerAttention,
)
from iha_theory.attention.base import AttentionLayer
from iha_theory.attention.higher_order.pairs import PairAttention
from iha_theory.attention.kinds import IHA
from synthetic.tasks.task import Problem
from synthetic.training import records, report
from synthetic.training.config import TrainConfig


def build(config: TrainConfig, problem: Problem) -> nn.Module:
    """The model of a run, on the run's device in the run's dtype, with weights that `initialise` must set.

    Raises:
        ValueError: sizes that the layer refuses.
    """
    return problem.model(config.layer.make).to(torch.device(config.device), getattr(torch, config.dtype))


def load_model(folder: Path, run: str | Mapping[str, Any]) -> nn.Module:
    """The trained model of a run, on the CPU.

    Args:
        folder: of records and weights.
        run: its id, or its record, so that the folder's records are not read again.

    Raises:
        ValueError: no such record or weights, or weights that do not belong to this kind of model; a graph's file that
            no longer holds what the run was trained on.
    """
    name = run if isinstance(run, str) else run["id"]
    file = folder / "weights" / f"{name}.safetensors"
    if not file.exists():
        raise ValueError(f"no weights {file}")
    record = next((r for r in records.read(folder) if r["id"] == name), None) if isinstance(run, str) else run
    if record is None:
        raise ValueError(f"no record {name} in {folder}")
    config = TrainConfig.from_json(record["config"], device="cpu")
    if stale := report.stale(record):
        raise ValueError(stale)
    model = build(config, config.build())
    restore(model, file)
    return model


def restore(model: nn.Module, file: Path) -> None:
    """Loads weights into a model: every one of them, or none.

    Raises:
        ValueError: names or shapes that differ from the model's, such as MHA's weights for IHA.
    """
    weights = load_file(file)
    own = {name: p.shape for name, p in model.named_parameters()}
    if own != {name: p.shape for name, p in weights.items()}:
        odd = [
            name for name in own.keys() | weights.keys() if own.get(name) != getattr(weights.get(name), "shape", None)
        ]
        raise ValueError(f"{file} holds weights of another model: {', '.join(sorted(odd))} differ")
    model.load_state_dict(weights, strict=False)  # buffers stay


@torch.no_grad()
def initialise(model: nn.Module, config: TrainConfig, problem: Problem, generator: torch.Generator) -> None:
    """Sets all weights; made on the CPU in float64, so that they are the same on every device.

    A layer of ours starts as `start` says, the rest of the model as its method `initialise(generator)` does, and
    whatever is left as its constructor makes it from the generator's seed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        double = problem.model(config.layer.make).to(torch.float64)
    if isinstance(config.layer, LayerOptions):
        start(double.get_submodule("layer"), config.layer, generator)
    if hasattr(double, "initialise"):
        double.initialise(generator)  # type: ignore[operator]
    model.load_state_dict(double.state_dict())


def start(layer: nn.Module, options: LayerOptions, generator: torch.Generator) -> None:
    """Sets a layer's projections, and the mixing of IHA.

    Query and key projections: each head's is orthogonal (semi-orthogonal if not square) times `gain`; if `circulant`,
    `circulant_orthogonal` on positions and 0 on content. Value projections: each head's is semi-orthogonal; but for
    IHA, whose heads' values are mixed, all heads', as vectors, are orthogonal to each other. Output projection: normal
    with variance 1 / inputs. What other layers mix with starts as they make it. Mixing of IHA, by `init`:

    - random: normal entries of variance 1/H (alphas) and 1/(H P) or 1/P (collapse);
    - construction: the pattern of App. B.2, alpha_q[m,h,p] = 1[m=h], alpha_k[m,h,j] = alpha_v[m,h,j] = 1[m = j mod G],
      collapse[o,h,p] = 1[o=h], plus noise;
    - random-keys: the same, but alpha_k as in random;
    - identity: all four are 1[m=h], with G < H base keys and values 1[m = floor(h G / H)], plus noise;
    - mha: exactly MHA (`InterleavedHeadAttention.reset_mixing`).

    Biases are 0. Of several layers in a list each starts so.
    """
    parts = [layer.first, layer.second] if isinstance(layer, TwoLayerAttention) else layer
    if isinstance(parts, list | nn.ModuleList):
        for part in parts:
            start(part, options, generator)
        return
    assert isinstance(layer, AttentionLayer)
    for linear in layer.children():
        if isinstance(linear, nn.Linear) and linear.bias is not None:
            linear.bias.zero_()
    second = [layer.second_keys] if isinstance(layer, PairAttention) else []
    for linear in (layer.q_proj, layer.k_proj, *second):
        for head in linear.weight.unflatten(0, (-1, layer.head_dim)):
            if options.circulant:
                if len(head) > head.shape[1]:
                    raise ValueError(
                        f"circulant projections to width {len(head)} need inputs as wide, got {head.shape[1]}"
                    )
                head.zero_()[:, -len(head) :] = options.gain * circulant_orthogonal(len(head), generator)
            else:
                head.copy_(options.gain * _orthogonal(head.shape, generator))
    mixed = isinstance(layer, InterleavedHeadAttention)
    second = [layer.v2_proj] if isinstance(layer, PairAttention) else []
    for linear in (layer.v_proj, *second):
        for values in [linear.weight] if mixed else linear.weight.unflatten(0, (-1, layer.value_head_dim)):
            rows = layer.num_kv_heads if mixed else layer.value_head_dim
            scale = min(layer.vdim, layer.value_head_dim) ** 0.5 if mixed else 1.0
            values.copy_(scale * _orthogonal((rows, values.numel() // rows), generator).reshape(values.shape))
    if layer.out_proj is not None:
        layer.out_proj.weight.copy_(_normal(layer.out_proj.weight, layer.out_proj.in_features**-0.5, generator))
    if isinstance(layer, InterleavedHeadAttention):
        assert isinstance(options, IHA)
        _start_mixing(layer, options, generator)


def _start_mixing(layer: InterleavedHeadAttention, options: IHA, generator: torch.Generator) -> None:
    if options.init == "mha":
        layer.reset_mixing("mha", options.noise, generator=generator)
        return
    heads, pseudo = layer.num_heads, layer.num_pseudo_heads
    for name in ("alpha_q", "alpha_k", "alpha_v", "collapse"):
        parameter = layer.get_parameter(name)
        base = len(parameter)
        own = torch.eye(heads, dtype=torch.float64).unflatten(0, (base, -1)).sum(1).unsqueeze(-1).expand(-1, -1, pseudo)
        each = (torch.arange(base)[:, None] == torch.arange(pseudo) % base).double().unsqueeze(1).expand(-1, heads, -1)
        if options.init == "random" or (options.init == "random-keys" and name == "alpha_k"):
            inputs = base if name != "collapse" else math.prod(parameter.shape[1:])
            parameter.copy_(_normal(parameter, inputs**-0.5, generator))
        else:
            pattern = each if options.init != "identity" and name in ("alpha_k", "alpha_v") else own
            if parameter.ndim == 2:  # a collapse a head
                pattern = torch.ones_like(parameter)
            parameter.copy_(pattern + _normal(parameter, options.noise, generator))


def circulant_orthogonal(size: int, generator: torch.Generator) -> Float[Tensor, "size size"]:
    """A random orthogonal circulant matrix, (size, size) float64: C[i,j] = c[(i - j) mod size].

    Its eigenvalues, the discrete Fourier transform of c, have modulus 1 and random phases (a random sign where they
    must be real). Products and sums of circulants are circulant, so base queries and keys of this kind, mixed in any
    way, give a pattern that treats all positions alike: an MLP that they share then meets one task, not N.
    """
    phases = 2 * torch.pi * torch.rand(size // 2 + 1, dtype=torch.float64, generator=generator)
    spectrum = torch.polar(torch.ones_like(phases), phases)
    for real in (0, size // 2) if size % 2 == 0 else (0,):
        spectrum[real] = 1.0 if phases[real] < torch.pi else -1.0
    at = torch.arange(size)
    return torch.fft.irfft(spectrum, size)[(at[:, None] - at) % size]


class Filled(nn.Module):
    """A layer of the user's behind zeros that fill its inputs up, before a linear map to the output's width.

    Args:
        inner: called as torch.nn.MultiheadAttention; of a tuple the first counts; its `batch_first` is obeyed.
        widths: of its query, key and value.
        example: query, key and value of one batch, to see how wide the output is.
        out: width after the linear map; None for none.
    """

    def __init__(self, inner: nn.Module, widths: Sequence[int], example: Sequence[Tensor], out: int | None) -> None:
        super().__init__()
        self.inner, self.widths = inner, tuple(widths)
        self.batch_first = bool(getattr(inner, "batch_first", True))
        self.map: nn.Module = nn.Identity()
        with torch.no_grad():
            found = self(*example)
        if found.shape[:-1] != example[0].shape[:-1]:
            raise ValueError(f"gives shape {tuple(found.shape)} for a query of shape {tuple(example[0].shape)}")
        self.out_dim = found.shape[-1]
        if out is not None:
            self.map, self.out_dim = nn.Linear(self.out_dim, out, bias=False), out

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """(batch, queries, out_dim).

        Raises:
            ValueError: a mask, or causality: each class has its own way of saying which.
        """
        if mask is not None or is_causal:
            raise ValueError("a layer of your own takes no mask, which this task needs: choose a layer of ours")
        batch = len(value)
        inputs = [
            nn.functional.pad(x.expand(batch, -1, -1), (0, width - x.shape[-1]))
            for x, width in zip((query, key, value), self.widths, strict=True)
        ]
        found = self.inner(*(inputs if self.batch_first else [x.transpose(0, 1) for x in inputs]))
        found = found[0] if isinstance(found, tuple) else found
        return self.map(found if self.batch_first else found.transpose(0, 1))


def _orthogonal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """A random matrix with orthonormal rows, or columns if there are fewer of these."""
    return nn.init.orthogonal_(torch.empty(tuple(shape), dtype=torch.float64), generator=generator)


def _normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return deviation * torch.randn(like.shape, dtype=torch.float64, generator=generator)
