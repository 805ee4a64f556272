"""What is refused, and that the words name the argument and what is accepted.

The checks of shapes and types that tests install would refuse most of this first; users do not have them: off here.
"""

import re

import jaxtyping
import pytest
import torch

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
    TalkingHeadsAttention,
    TensorProductAttention,
    TwoLayerAttention,
    TwoSimplicialAttention,
)

from .layers import BY_NAME, KINDS, tokens

all_kinds = pytest.mark.parametrize("row", KINDS, ids=str)


@pytest.fixture(autouse=True)
def _as_users_have_it():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


COUNTS = ("embed_dim", "num_heads", "kdim", "vdim", "head_dim", "value_head_dim", "out_dim", "window")
COMMON = [({name: bad}, f"{name} must be an integer of at least 1, got {bad!r}") for name in COUNTS for bad in (0, -1)]
COMMON += [
    ({"num_heads": 2.0}, "num_heads must be an integer of at least 1, got 2.0"),
    ({"window": True}, "window must be an integer of at least 1, got True"),
    ({"embed_dim": 9}, "embed_dim 9 is not a multiple of num_heads 4: give head_dim"),
    ({"pattern": "relu"}, "unknown pattern 'relu': accepted are softmax, linear, hard"),
    ({"scale": float("nan")}, "scale must be a finite number, got nan"),
    ({"scale": float("inf")}, "scale must be a finite number, got inf"),
    ({"dropout": 1.0}, "dropout must be in [0, 1), got 1.0"),
    ({"dropout": -0.1}, "dropout must be in [0, 1), got -0.1"),
    ({"dropout": float("nan")}, "dropout must be in [0, 1), got nan"),
    ({"rotary": "tokens"}, 'unknown rotary \'tokens\': accepted are None, False, True, "token", "virtual"'),
    ({"rotary": 1}, "unknown rotary 1: accepted are"),
    ({"rotary_base": 0.0}, "rotary_base must be a positive finite number, got 0.0"),
    ({"rotary_base": float("inf")}, "rotary_base must be a positive finite number, got inf"),
    ({"out_proj": False, "out_dim": 8}, "out_dim is the width after an output projection: leave it out with out_proj"),
]


@pytest.mark.parametrize(("options", "message"), COMMON, ids=str)
@all_kinds
def test_common_options(row, options, message):
    sizes = {"embed_dim": 8, "num_heads": 4} | options
    with pytest.raises(ValueError, match=re.escape(message)):
        row.kind(**dict(row.options) | sizes)


@all_kinds
def test_odd_head_width_with_rotary(row):
    with pytest.raises(ValueError, match="rotary positions turn pairs of coordinates: head_dim must be even, got 3"):
        row.build(rotary=True, head_dim=3)


@all_kinds
def test_unknown_options(row):
    with pytest.raises(TypeError, match="num_head"):
        row.build(num_head=3)


OWN = [
    (InterleavedHeadAttention, {"num_pseudo_heads": 0}, "num_pseudo_heads must be an integer of at least 1, got 0"),
    (InterleavedHeadAttention, {"collapse": "local"}, "unknown collapse 'local': accepted are global, per_head"),
    (InterleavedHeadAttention, {"causality": "tokens"}, "unknown causality 'tokens': accepted are token, virtual"),
    (InterleavedHeadAttention, {"init": "zeros"}, "unknown init 'zeros': accepted are mha, random"),
    (
        InterleavedHeadAttention,
        {"rotary": "virtual"},
        'init="mha" is MHA only with rotary="token"; with rotary="virtual" use init="random"',
    ),
    (GroupedQueryAttention, {"num_kv_heads": 3}, "num_kv_heads must divide num_heads 4, got 3"),
    (GroupedQueryAttention, {"num_kv_heads": 8}, "num_kv_heads must divide num_heads 4, got 8"),
    (GroupedQueryAttention, {"num_kv_heads": 0}, "num_kv_heads must be an integer of at least 1, got 0"),
    (TalkingHeadsAttention, {"mix": "neither"}, "unknown mix 'neither': accepted are both, logits, weights"),
    (DifferentialAttention, {"lambda_init": float("nan")}, "lambda_init must be a finite number, got nan"),
    (TwoSimplicialAttention, {"rotary": True}, "rotary 'token': accepted is None"),
    (MultiHeadLatentAttention, {"latent_dim": 0}, "latent_dim must be an integer of at least 1, got 0"),
    (MultiHeadLatentAttention, {"query_latent_dim": 0}, "query_latent_dim must be an integer of at least 1, got 0"),
    (MultiHeadLatentAttention, {"rope_dim": 2}, "rope_dim is for rotary layers: this one was made with rotary=None"),
    (MultiHeadLatentAttention, {"rotary": True, "head_dim": 2, "rope_dim": 3}, "rope_dim must be even, got 3"),
    (TensorProductAttention, {"query_rank": 0}, "query_rank must be an integer of at least 1, got 0"),
    (TensorProductAttention, {"key_rank": 0}, "key_rank must be an integer of at least 1, got 0"),
    (TensorProductAttention, {"value_rank": -1}, "value_rank must be an integer of at least 1, got -1"),
    (ComposableAttention, {"rank": 0}, "rank must be an integer of at least 1, got 0"),
    (ComposableAttention, {"hidden_dim": 0}, "hidden_dim must be an integer of at least 1, got 0"),
    (MultiTokenAttention, {"query_window": 0}, "query_window must be an integer of at least 1, got 0"),
    (MultiTokenAttention, {"key_window": 0}, "key_window must be an integer of at least 1, got 0"),
    (MultiTokenAttention, {"head_group": 3}, "head_group must divide num_heads 4, got 3"),
    (GatedLinearAttention, {"temperature": 0.0}, "temperature must be a positive finite number, got 0.0"),
    (GatedLinearAttention, {"temperature": float("inf")}, "temperature must be a positive finite number, got inf"),
    (GatedAttention, {"gate": "tanh"}, "unknown gate 'tanh': accepted are elementwise, headwise"),
    (TwoLayerAttention, {"second": {"vdim": 3}}, "vdim of the second layer is the first layer's out_dim"),
    (TwoLayerAttention, {"first": {"window": 0}}, "window must be an integer of at least 1, got 0"),
]


@pytest.mark.parametrize(("kind", "options", "message"), OWN, ids=str)
def test_own_options(kind, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(8, 4, **options)


def test_grouped_needs_num_kv_heads():
    with pytest.raises(TypeError, match="num_kv_heads"):
        GroupedQueryAttention(8, 4)  # type: ignore[call-arg]


def test_virtual_rotary_without_pseudo_heads_is_mha():
    InterleavedHeadAttention(8, 4, num_pseudo_heads=1, rotary="virtual")


def test_reset_mixing_and_from_mha():
    layer = InterleavedHeadAttention(8, 4)
    with pytest.raises(ValueError, match="unknown init 'zeros': accepted are mha, random"):
        layer.reset_mixing("zeros")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layer of type Linear: accepted are MultiHeadAttention"):
        InterleavedHeadAttention.from_mha(torch.nn.Linear(2, 2), 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layer of type GroupedQueryAttention"):
        InterleavedHeadAttention.from_mha(GroupedQueryAttention(8, 4, num_kv_heads=4), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_pseudo_heads must be an integer of at least 1, got 0"):
        InterleavedHeadAttention.from_mha(MultiHeadAttention(8, 4), 0)


X = tokens(2, 5, 8)
CALLS = [
    ((X[0], X, X), {}, "query of shape (5, 8): expected (batch, tokens, 8)"),
    ((X, X[..., :3], X), {}, "key of shape (2, 5, 3): expected (batch, tokens, 8)"),
    ((X, X, X[..., :3]), {}, "value of shape (2, 5, 3): expected (batch, tokens, 8)"),
    ((X, X[:1], X), {}, "batches (2, 1, 2) of query, key, value differ"),
    ((X, X, X[:1]), {}, "batches (2, 2, 1) of query, key, value differ"),
    ((X, X, X[:, :4]), {}, "key and value differ in tokens: 5 keys but 4 values"),
    (
        (X, X, X),
        {"mask": torch.ones(5, 4, dtype=torch.bool)},
        "mask of shape (5, 4): accepted are (5, 5) and (2, 5, 5)",
    ),
    ((X, X, X), {"mask": torch.ones(5, dtype=torch.bool)}, "mask of shape (5,): accepted are (5, 5) and (2, 5, 5)"),
    ((X, X, X), {"mask": torch.ones(3, 5, 5, dtype=torch.bool)}, "mask of shape (3, 5, 5): accepted are"),
    ((X, X, X), {"positions": torch.arange(5)}, "positions are for rotary layers: this one was made with rotary=None"),
]


@pytest.mark.parametrize(("inputs", "options", "message"), CALLS, ids=lambda x: x if isinstance(x, str) else "")
@all_kinds
def test_calls(row, inputs, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        row.build()(*inputs, **options)


@all_kinds
def test_causality_and_windows_of_two_sequences(row):
    message = "is_causal and window compare positions in one sequence, got 3 queries and 5 keys"
    if row.one_sequence:
        message = "query and key differ in tokens: 3 and 5"
    with pytest.raises(ValueError, match=message):
        row.build()(X[:, :3], X, X, is_causal=True)
    with pytest.raises(ValueError, match=message):
        row.build(window=2)(X[:, :3], X, X)


@pytest.mark.parametrize(
    "name",
    ["mha", "iha-P3-global-token", "gqa", "mla", "tensor-product", "talking", "differential", "gated", "two-layer"],
)
def test_positions(name):
    layer = BY_NAME[name].build(rotary=True)
    with pytest.raises(ValueError, match=re.escape("positions of shape (4,): expected (5,) or (batch, 5)")):
        layer(X, X, X, positions=torch.arange(4))
    with pytest.raises(ValueError, match="positions of batch 3: accepted are 1 and 2"):
        layer(X, X, X, positions=torch.zeros(3, 5))
