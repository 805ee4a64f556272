"""The trained models: the attention layers of `iha_theory.attention`, and what each task puts around one.

Every model has its attention layer at `layer`. N tokens, d the content's width, k blocks.
"""

import copy
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from synthetic.training.config import TrainConfig
from synthetic.training.problems import Bank, Counting


def build(config: TrainConfig, problem: Bank | Counting) -> "PositionOnly | ContentQueries | Counter":
    """The model of a run, on the run's device in the run's dtype, with weights that `initialise` must set.

    Raises:
        ValueError: sizes that the layer refuses.
    """
    if isinstance(problem, Counting):
        return Counter(config, len(problem.counts))
    out = {"out_dim": problem.terms * problem.width}
    if config.mode == "content":
        return ContentQueries(config, problem.tokens, problem.width, out)
    return PositionOnly(config, problem.tokens, problem.width, out)


def attention(
    config: TrainConfig, query: int, key: int, value: int, content: int, tokens: int, options: dict[str, Any]
) -> MultiHeadAttention | InterleavedHeadAttention:
    """The layer of a run, without biases; scale 1, since the initial weights set the size of the logits.

    Values are as wide as the theory's constructions need: d for MHA, d H for IHA, whose H base values must be
    independent (App. B.2).

    Args:
        config: the run.
        query: width of the query's input.
        key: of the key's.
        value: of the value's.
        content: d, or the output's width where values hold more than content.
        tokens: N, the default width of queries and keys.
        options: further arguments of the layer.
    """
    common: dict[str, Any] = {
        "kdim": key,
        "vdim": value,
        "head_dim": tokens if config.head_dim is None else config.head_dim or None,
        "pattern": "linear" if config.task in ("polynomial", "unstructured") else "softmax",
        "scale": 1.0,
        "dtype": getattr(torch, config.dtype),
        "device": torch.device(config.device),
    } | options
    if config.attention == "mha":
        return MultiHeadAttention(query, config.heads, value_head_dim=content, **common)
    wide = {"value_head_dim": content * config.heads, "num_pseudo_heads": config.pseudo}
    return InterleavedHeadAttention(query, config.heads, **wide, **common)


class PositionOnly(nn.Module):
    """layer(positions, positions, X), one-hot positions: (batch, N, d) -> (batch, N, k d)."""

    positions: Tensor

    def __init__(self, config: TrainConfig, tokens: int, width: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.layer = attention(config, tokens, tokens, width, width, tokens, options)
        self.register_buffer("positions", _one_hot_positions(config, tokens), persistent=False)

    def forward(self, X: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N kd"]:
        """The blocks side by side."""
        return self.layer(self.positions, self.positions, X)


class ContentQueries(nn.Module):
    """layer([X, I], I, [X, I]): queries and values see content and positions, keys positions only (docs/content.md).

    A head's values are as wide as the output, so that those of X and those of positions can be kept apart.
    """

    positions: Tensor

    def __init__(self, config: TrainConfig, tokens: int, width: int, options: dict[str, Any]) -> None:
        super().__init__()
        self.layer = attention(config, width + tokens, tokens, width + tokens, options["out_dim"], tokens, options)
        self.register_buffer("positions", _one_hot_positions(config, tokens), persistent=False)

    def forward(self, X: Float[Tensor, "batch N d"]) -> Float[Tensor, "batch N kd"]:
        """The blocks side by side."""
        positions = self.positions.expand(len(X), -1, -1)
        both = torch.cat((X, positions), dim=-1)
        return self.layer(both, positions, both)


class Sine(nn.Module):
    """x -> sin x: a smooth stand-in for the construction's periodic activation "mod M" (App. B.3, ledger E10)."""

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Elementwise."""
        return torch.sin(x)


class Counter(nn.Module):
    """CPM-3: attention over embedded tokens, then an MLP at each position: (batch, N) -> (batch, N, classes) logits.

    A token is its value minus the mean over its standard deviation ("scalar"), or its one-hot residue. Queries and keys
    see positions, in content mode tokens too; values see tokens. The MLP sees the attention's output, with `skip` the
    position's own token beside it.
    """

    positions: Tensor

    def __init__(self, config: TrainConfig, classes: int) -> None:
        super().__init__()
        self.modulus, self.scalar, self.content = config.modulus, config.embedding == "scalar", config.mode == "content"
        self.skip = config.skip
        tokens, width = config.tokens, 1 if self.scalar else config.modulus
        seen = tokens + width if self.content else tokens
        self.layer = attention(config, seen, seen, width, width, tokens, {"out_proj": False})
        sizes = [self.layer.out_dim + width * config.skip] + [config.hidden] * config.layers
        active = {"relu": nn.ReLU, "sin": Sine}[config.activation]
        like = {"dtype": getattr(torch, config.dtype), "device": torch.device(config.device)}
        hidden = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b, **like), active())]
        self.mlp = nn.Sequential(*hidden, nn.Linear(sizes[-1], classes, **like))
        self.register_buffer("positions", _one_hot_positions(config, tokens), persistent=False)

    def embed(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N width"]:
        """The tokens' features."""
        dtype = self.positions.dtype
        if not self.scalar:
            return (x.unsqueeze(-1) == torch.arange(self.modulus, device=x.device)).to(dtype)
        deviation = max(1.0, (self.modulus**2 - 1) / 12) ** 0.5
        return ((x.to(dtype) - (self.modulus - 1) / 2) / deviation).unsqueeze(-1)

    def seen(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N features"]:
        """What the MLP sees at each position."""
        tokens = self.embed(x)
        where = self.positions
        if self.content:
            where = torch.cat((tokens, where.expand(len(x), -1, -1)), dim=-1)
        mixed = self.layer(where, where, tokens)
        return torch.cat((tokens, mixed), dim=-1) if self.skip else mixed

    def forward(self, x: Shaped[Tensor, "batch N"]) -> Float[Tensor, "batch N classes"]:
        """Logits of the counts that occur (`Counting.counts`) at each position."""
        return self.mlp(self.seen(x))


def _one_hot_positions(config: TrainConfig, tokens: int) -> Tensor:
    return torch.eye(tokens, dtype=getattr(torch, config.dtype), device=torch.device(config.device)).unsqueeze(0)


@torch.no_grad()
def initialise(model: nn.Module, config: TrainConfig, generator: torch.Generator) -> None:
    """Sets all weights; made in float64 on the CPU, so that they are the same on every device.

    Query and key projections: each head's is orthogonal (semi-orthogonal if not square) times `gain`; if `circulant`,
    `circulant_orthogonal` on positions and 0 on content. Value projections: each head's is semi-orthogonal for MHA; for
    IHA, whose heads' values are mixed, all heads', as vectors, are orthogonal to each other. Output projection and MLP:
    normal with variance 1 / inputs (2 / inputs before an activation), biases 0, but `sine_layer` for the first layer of
    an MLP of sines. Mixing of IHA, by `init`:

    - random: normal entries of variance 1/H (alphas) and 1/(H P) (collapse);
    - construction: the pattern of App. B.2, alpha_q[m,h,p] = 1[m=h], alpha_k[m,h,j] = alpha_v[m,h,j] = 1[m = j mod H],
      collapse[o,h,p] = 1[o=h], plus noise;
    - random-keys: the same, but alpha_k as in random;
    - identity: all four are 1[m=h], plus noise;
    - mha: exactly MHA (`InterleavedHeadAttention.reset_mixing`).
    """
    double = copy.deepcopy(model).to("cpu", torch.float64)
    layer = double.get_submodule("layer")
    assert isinstance(layer, MultiHeadAttention | InterleavedHeadAttention)
    mixed = isinstance(layer, InterleavedHeadAttention)
    for linear in (layer.q_proj, layer.k_proj):
        for head in linear.weight.unflatten(0, (layer.num_heads, -1)):
            if config.circulant:
                head.zero_()[:, -len(head) :] = config.gain * circulant_orthogonal(len(head), generator)
            else:
                head.copy_(config.gain * _orthogonal(head.shape, generator))
    for values in layer.v_proj.weight.unflatten(0, (1 if mixed else layer.num_heads, -1)):
        rows = layer.num_heads if mixed else layer.value_head_dim
        scale = layer.vdim**0.5 if mixed else 1.0
        values.copy_(scale * _orthogonal((rows, values.numel() // rows), generator).reshape(values.shape))
    if layer.out_proj is not None:
        layer.out_proj.weight.copy_(_normal(layer.out_proj.weight, layer.out_proj.in_features**-0.5, generator))
    if mixed:
        _initialise_mixing(layer, config, generator)
    linears = [m for name, m in double.named_modules() if name.startswith("mlp") and isinstance(m, nn.Linear)]
    for linear in linears:
        gain = 1.0 if linear is linears[-1] else 2.0
        linear.weight.copy_(_normal(linear.weight, (gain / linear.in_features) ** 0.5, generator))
        linear.bias.zero_()
    if isinstance(double, Counter) and config.activation == "sin":
        x = torch.randint(config.modulus, (256, config.tokens), generator=generator)
        sine_layer(linears[0], double.seen(x), generator)
    for parameter, value in zip(model.parameters(), double.parameters(), strict=True):
        parameter.copy_(value)


def _initialise_mixing(layer: InterleavedHeadAttention, config: TrainConfig, generator: torch.Generator) -> None:
    if config.init == "mha":
        layer.reset_mixing("mha", config.noise, generator=generator)
        return
    heads, pseudo = layer.num_heads, layer.num_pseudo_heads
    own = torch.eye(heads, dtype=torch.float64).unsqueeze(-1).expand(-1, -1, pseudo)
    each = (torch.arange(heads)[:, None] == torch.arange(pseudo) % heads).double().unsqueeze(1).expand(-1, heads, -1)
    for name in ("alpha_q", "alpha_k", "alpha_v", "collapse"):
        parameter = layer.get_parameter(name)
        if config.init == "random" or (config.init == "random-keys" and name == "alpha_k"):
            parameter.copy_(_normal(parameter, (heads * (pseudo if name == "collapse" else 1)) ** -0.5, generator))
        else:
            start = each if config.init != "identity" and name in ("alpha_k", "alpha_v") else own
            parameter.copy_(start + _normal(parameter, config.noise, generator))


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


@torch.no_grad()
def sine_layer(linear: nn.Linear, features: Float[Tensor, "... inputs"], generator: torch.Generator) -> None:
    """Weights for which the arguments of sin(W z + b) start with variance about 2 + 1, whatever the size of z.

    W: normal with variance 2 / (inputs * variance of `features`); b: standard normal, without which every sine is odd.

    Args:
        linear: the MLP's first layer.
        features: z for random content; soft patterns average, so these are small.
        generator: of the weights.
    """
    deviation = (2 / linear.in_features) ** 0.5 / features.double().std()
    linear.weight.copy_(deviation * _normal(linear.weight, 1.0, generator))
    linear.bias.copy_(_normal(linear.bias, 1.0, generator))


def _orthogonal(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """A random matrix with orthonormal rows, or columns if there are fewer of these."""
    return nn.init.orthogonal_(torch.empty(tuple(shape), dtype=torch.float64), generator=generator)


def _normal(like: Tensor, deviation: float, generator: torch.Generator) -> Tensor:
    return deviation * torch.randn(like.shape, dtype=torch.float64, generator=generator)
