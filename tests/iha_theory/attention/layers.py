"""The table of layers that the contract tests run over, each with its reference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from iha_theory.attention import (
    ComposableAttention,
    DifferentialAttention,
    GatedAttention,
    GatedLinearAttention,
    GroupedQueryAttention,
    InterleavedHeadAttention,
    MultiHeadAttention,
    MultiHeadLatentAttention,
    MultiTokenAttention,
    StrassenAttention,
    TalkingHeadsAttention,
    TensorProductAttention,
    TwoLayerAttention,
    TwoSimplicialAttention,
)

from . import reference

PATTERNS = ("softmax", "linear", "hard")
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Layer:
    """One row: how to build the layer and how the reference evaluates it."""

    name: str
    kind: Callable[..., Any]
    evaluate: Callable[..., np.ndarray]
    options: tuple[tuple[str, Any], ...] = ()
    generic: bool = True  # random numbers in every parameter, rather than the layer's own start
    rotary: bool = True
    depth: int = 1  # how often a value is averaged
    products: bool = False  # keys and values, or mixing, are products of two functions of a token
    one_sequence: bool = False  # queries and keys are of the same tokens
    neighbours: int = 0  # how many queries before it enter a query's row

    def __str__(self) -> str:
        return self.name

    def build(self, embed_dim: int = 8, num_heads: int = 4, *, seed: int = 0, **options: Any) -> nn.Module:
        """The layer, with parameters from the seed; options override those of the row."""
        given = dict(self.options) | options
        torch.manual_seed(seed)
        layer = self.kind(embed_dim, num_heads, **{"dtype": torch.float64} | given)
        return randomise(layer, seed) if self.generic else layer

    def reference(self, layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, **call: Any) -> Tensor:
        """What the call should give, in float64."""
        return reference.evaluate(self.evaluate, layer, query, key, value, **call)


def randomise(layer: Any, seed: int) -> Any:
    """Generic numbers in every parameter, mixing ones included; scores of moderate size."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            fan_in = parameter.shape[-1] if parameter.ndim == 2 else parameter.shape[0]
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(noise / fan_in**0.5)
    return layer


def _iha(name: str, *, generic: bool = True, **options: Any) -> Layer:
    return Layer(f"iha-{name}", InterleavedHeadAttention, reference.iha, tuple(options.items()), generic)


RANKS = (("query_rank", 1), ("key_rank", 3), ("value_rank", 2))
SMALL = (("rank", 1), ("hidden_dim", 3))
WINDOWS = (("query_window", 2), ("key_window", 3))
PAIRS = (("query_window", 3), ("key_window", 4), ("head_group", 2))
LAYERS = (
    Layer("mha", MultiHeadAttention, reference.mha),
    _iha("P1", num_pseudo_heads=1, init="random"),
    _iha("P3-global-token", num_pseudo_heads=3, init="random"),
    _iha("P3-global-virtual", num_pseudo_heads=3, causality="virtual", init="random"),
    _iha("P2-per_head-token", num_pseudo_heads=2, collapse="per_head", init="random"),
    _iha("P5-per_head-virtual", num_pseudo_heads=5, collapse="per_head", causality="virtual", init="random"),
    _iha("P2-grouped", num_pseudo_heads=2, num_kv_heads=2, init="random"),
    _iha("start-token", generic=False, num_pseudo_heads=3),
    _iha("start-virtual", generic=False, num_pseudo_heads=3, collapse="per_head", causality="virtual"),
    Layer("gqa", GroupedQueryAttention, reference.gqa, (("num_kv_heads", 2),)),
    Layer("mqa", GroupedQueryAttention, reference.gqa, (("num_kv_heads", 1),)),
    Layer("mla", MultiHeadLatentAttention, reference.mla, (("latent_dim", 5),)),
    Layer("tensor-product", TensorProductAttention, reference.tensor_product, products=True),
    Layer("talking", TalkingHeadsAttention, reference.talking_heads),
    Layer("talking-logits", TalkingHeadsAttention, reference.talking_heads, (("mix", "logits"),)),
    Layer("talking-weights", TalkingHeadsAttention, reference.talking_heads, (("mix", "weights"),)),
    Layer("composable", ComposableAttention, reference.composable, products=True),
    Layer("multi-token", MultiTokenAttention, reference.multi_token, WINDOWS, neighbours=1),
    Layer("gated-linear", GatedLinearAttention, reference.gated_linear, one_sequence=True),
    Layer("differential", DifferentialAttention, reference.differential),
    Layer("simplicial", TwoSimplicialAttention, reference.simplicial, rotary=False),
    Layer("strassen", StrassenAttention, reference.strassen),
    Layer("gated", GatedAttention, reference.gated),
    Layer("two-layer", TwoLayerAttention, reference.two_layer, depth=2, one_sequence=True),
)
VARIANTS = (
    Layer("mla-query-latent", MultiHeadLatentAttention, reference.mla, (("query_latent_dim", 3),)),
    Layer("tensor-product-132", TensorProductAttention, reference.tensor_product, RANKS, products=True),
    Layer("composable-1", ComposableAttention, reference.composable, SMALL, products=True),
    Layer("multi-token-pairs", MultiTokenAttention, reference.multi_token, PAIRS, neighbours=2),
    Layer("gated-headwise", GatedAttention, reference.gated, (("gate", "headwise"),)),
    Layer("forgetting", GatedLinearAttention, reference.gated_linear, (("temperature", 1.0),), one_sequence=True),
)
"""Other options of layers above, compared with the reference only."""
BY_NAME = {layer.name: layer for layer in (*LAYERS, *VARIANTS)}
KINDS = tuple({layer.kind: layer for layer in LAYERS}.values())  # one row a class
ROTARY = [
    (row, rotary)
    for row in LAYERS
    if row.rotary
    for rotary in ("token", "virtual")
    if row.generic or rotary == "token"  # a start as MHA with virtual positions is refused
]


def tokens(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers of this shape."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def average(layer: Any) -> Any:
    """Turns the layer into plain averaging: zero logits, values passed on, second values 1 for keys of ones."""
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "q_proj" in name:
                parameter.zero_()
            elif "v_proj" in name or "v2_proj" in name or "down" in name or "v_heads" in name:
                parameter.fill_(1 / parameter.shape[-1])
            elif name.startswith("compose"):
                parameter.zero_()
            elif "gate_proj" in name or "decay_proj" in name:
                parameter.fill_(1000)  # of keys of ones: gates of 1
            elif name == "lam":
                parameter.zero_()
            elif name.startswith("mix"):
                parameter.copy_(torch.eye(parameter.shape[-1]))
        if isinstance(layer, InterleavedHeadAttention):
            layer.reset_mixing("mha")
    return layer
