"""T1: bounds by formula, ranks by measurement."""

import math
from dataclasses import replace
from inspect import unwrap
from typing import Any

import pytest
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
from iha_theory.capacity import Capacity, capacity_bound, measure, measure_module, table
from iha_theory.operators.numerical import position_only
from iha_theory.operators.rank import rank

SIZES: dict[str, Any] = {"vdim": 5, "head_dim": 4, "value_head_dim": 3, "dtype": torch.float64}


def generic(layer: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64) / math.sqrt(p.shape[-1]))
    return layer


def measured(layer: nn.Module, **options: Any) -> int:
    pos = torch.randn(16, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = rank(position_only(layer, pos, **options))
    assert found.clear
    assert found.rank < found.limit  # so it is the layer that bounds the rank
    return found.rank


@pytest.fixture(scope="module")
def rows() -> list[Capacity]:
    return [measurement() for _, measurement in table()]


# Bounds.


@pytest.mark.parametrize("kind", ["mha", "mqa", "gqa", "mla", "talking-heads", "differential", "gated-headwise"])
def test_one_map_a_head(kind: Any):
    assert [capacity_bound(kind, h) for h in range(1, 7)] == [1, 2, 3, 4, 5, 6]


def test_iha_bounds():
    assert [capacity_bound("iha", h, h, "global") for h in range(1, 7)] == [1, 4, 9, 16, 25, 36]
    assert [capacity_bound("iha", h, h, "per_head") for h in range(1, 7)] == [1, 4, 9, 16, 25, 36]
    for collapse in ("global", "per_head"):
        assert [capacity_bound("iha", h, 1, collapse) for h in range(1, 7)] == [1, 2, 3, 4, 5, 6]
        assert capacity_bound("iha", 3, 8, collapse) == 9
    assert [capacity_bound("iha", 5, p, "global") for p in (1, 2, 3)] == [5, 20, 25]
    assert [capacity_bound("iha", 5, p, "per_head") for p in (1, 2, 3)] == [5, 10, 15]
    assert [capacity_bound("iha", 4, 4, "global", kv_heads=g) for g in (1, 2, 4)] == [4, 8, 16]
    assert capacity_bound("iha", 4, 1, "global", kv_heads=2) == 4


def test_narrow_content_and_values():
    """H d d_v: written out for H = 4 = P, d = 1, and measured, for both collapses and patterns."""
    for value_dim in (1, 2, 3):
        assert capacity_bound("iha", 4, 4, "global", value_dim, 1) == 4 * value_dim
        found = [row for f in narrow(value_dim) if (row := f()).pseudo_heads == 4 or row.layer == "two-layer"]
        assert len(found) == 6
        assert {row.rank for row in found} == {4 * value_dim}
        assert all(row.reached for row in found)
    assert capacity_bound("iha", 4, 4, "global", 2, 3) == 16
    assert capacity_bound("simplicial", 3, value_dim=2, width=1) == 6
    assert capacity_bound("mha", 3, value_dim=1, width=1) == 3


def narrow(value_dim: int) -> list[Any]:
    names = ("iha H = 4, P = 4", "two-layer H = 4")
    return [f for label, f in table([4], width=1, value_dim=value_dim) if label in names]


def test_two_layers_and_simplicial():
    assert [capacity_bound("two-layer", h) for h in (1, 2, 5)] == [1, 4, 25]
    assert [capacity_bound("tensor-product", 3, value_rank=r) for r in (1, 2, 5)] == [3, 6, 15]
    for kind in ("simplicial", "strassen", "gated"):
        assert [capacity_bound(kind, h, value_dim=5) for h in range(1, 6)] == [5, 10, 15, 20, 25]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "mhla", "heads": 2}, "unknown kind 'mhla': accepted are mha"),
        ({"kind": "mha", "heads": 0}, "heads must be an integer of at least 1"),
        ({"kind": "mha", "heads": 2, "pseudo_heads": 2}, "pseudo_heads goes with iha"),
        ({"kind": "iha", "heads": 2, "collapse": "global"}, "pseudo_heads goes with iha"),
        ({"kind": "iha", "heads": 2, "pseudo_heads": 2}, "collapse goes with iha"),
        ({"kind": "iha", "heads": 2, "pseudo_heads": 2, "collapse": "local"}, "unknown collapse 'local'"),
        ({"kind": "iha", "heads": 2, "pseudo_heads": 0, "collapse": "global"}, "pseudo_heads must be an integer"),
        (
            {"kind": "simplicial", "heads": 2},
            "value_dim goes with width, and with simplicial and strassen and gated; got value_dim=None",
        ),
        ({"kind": "tensor-product", "heads": 2}, "value_rank goes with tensor-product"),
        ({"kind": "gqa", "heads": 2, "kv_heads": 2}, "kv_heads goes with iha"),
        ({"kind": "iha", "heads": 3, "pseudo_heads": 2, "collapse": "global", "kv_heads": 2}, "divides heads"),
        ({"kind": "mla", "heads": 2, "value_rank": 2}, "value_rank goes with tensor-product"),
        ({"kind": "tensor-product", "heads": 2, "value_rank": 0}, "value_rank must be an integer"),
        ({"kind": "simplicial", "heads": 2, "value_dim": 0}, "value_dim must be an integer"),
        ({"kind": "two-layer", "heads": 2, "value_dim": 4}, "got value_dim=4, width=None for two-layer"),
        ({"kind": "mha", "heads": 2, "width": 4}, "got value_dim=None, width=4 for mha"),
        ({"kind": "mha", "heads": 2, "width": 0, "value_dim": 1}, "width must be an integer"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        unwrap(capacity_bound)(**arguments)  # past the tests' type checks


# The table.

SIMPLE = (
    "mha",
    "mqa",
    "mla",
    "tensor-product",
    "talking-heads",
    "composable",
    "multi-token",
    "differential",
    "simplicial",
    "strassen",
    "two-layer",
    "gated",
    "gated-headwise",
    "forgetting",
)


def test_every_rank_is_its_bound_with_a_wide_gap(rows: list[Capacity]):
    assert [row for row in rows if row.rank != row.bound] == []
    assert min(row.gap for row in rows) > 1e6
    assert all(row.reached for row in rows)


def test_the_table_is_complete(rows: list[Capacity]):
    keys = [(r.layer, r.heads, r.pseudo_heads, r.collapse, r.pattern) for r in rows]
    assert len(set(keys)) == len(keys)
    expected = {
        (kind, h, None, None, pattern) for kind in SIMPLE for h in range(1, 7) for pattern in ("softmax", "linear")
    }
    expected |= {("gated-linear", h, None, None, "linear") for h in range(1, 7)}
    expected |= {("gqa", h, None, None, pattern) for h in (4, 6) for pattern in ("softmax", "linear")}
    expected |= {
        ("iha", h, p, collapse, pattern)
        for h in range(1, 7)
        for p in range(1, h + 1)
        for collapse in ("global", "per_head")
        for pattern in ("softmax", "linear")
    }
    expected |= {("torch.nn.MultiheadAttention", h, None, None, "softmax") for h in range(1, 7)}
    assert set(keys) == expected


def test_bounds_in_the_table_are_those_of_t1(rows: list[Capacity]):
    """Written out again from docs/results.md, sharing nothing with `capacity_bound`."""
    for row in rows:
        h, p = row.heads, row.pseudo_heads or 0
        expected = {
            "two-layer": h * h,
            "simplicial": 4 * h,
            "gated": 4 * h,
            "strassen": 4 * h,
            "tensor-product": 2 * h,
            "iha": min(h * h, h * p * p if row.collapse == "global" else h * p),
        }.get(row.layer, h)
        assert row.bound == expected, row


def test_the_table_is_the_same_each_time_and_leaves_the_random_state():
    before = torch.get_rng_state()
    (first,) = [f() for label, f in table([3]) if label == "mqa H = 3"][:1]
    assert torch.equal(torch.get_rng_state(), before)
    (again,) = [f() for label, f in table([3]) if label == "mqa H = 3"][:1]
    assert first == again


def test_the_sizes_grow_with_the_heads():
    """More heads than the default table has are measured at sizes that do not bound the rank."""
    found = [f() for label, f in table([9]) if label in ("two-layer H = 9", "iha H = 9, P = 3")]
    assert sorted(row.rank for row in found) == [27, 27, 81, 81, 81, 81]
    assert all(row.reached for row in found)


# The bound holds for any parameters, masks and patterns: nothing random or degenerate may exceed it.

KINDS = {
    "mha": lambda **o: (MultiHeadAttention(24, 3, **o), 3),
    "gqa": lambda **o: (GroupedQueryAttention(24, 4, num_kv_heads=2, **o), 4),
    "mla": lambda **o: (MultiHeadLatentAttention(24, 3, latent_dim=2, **o), 3),
    "tensor-product": lambda **o: (TensorProductAttention(24, 3, value_rank=3, **o), 9),
    "talking": lambda **o: (TalkingHeadsAttention(24, 3, **o), 3),
    "differential": lambda **o: (DifferentialAttention(24, 3, **o), 3),
    "iha": lambda **o: (InterleavedHeadAttention(24, 3, num_pseudo_heads=2, collapse="per_head", **o), 6),
    "iha-grouped": lambda **o: (InterleavedHeadAttention(24, 4, num_pseudo_heads=2, num_kv_heads=2, **o), 8),
    "iha-virtual": lambda **o: (InterleavedHeadAttention(24, 3, causality="virtual", **o), 9),
    "strassen": lambda **o: (StrassenAttention(24, 2, **o), 6),
    "composable": lambda **o: (ComposableAttention(24, 3, **o), 3),
    "multi-token": lambda **o: (MultiTokenAttention(24, 3, query_window=2, key_window=3, **o), 3),
    "gated-linear": lambda **o: (GatedLinearAttention(24, 3, **o), 3),
    "gated": lambda **o: (GatedAttention(24, 2, **o), 6),
    "gated-headwise": lambda **o: (GatedAttention(24, 3, gate="headwise", **o), 3),
    "two-layer": lambda **o: (TwoLayerAttention(24, 2, **o), 4),
    "simplicial": lambda **o: (TwoSimplicialAttention(24, 2, **o), 6),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pattern", ["softmax", "linear", "hard"])
def test_masks_biases_and_windows_do_not_raise_the_rank(kind: str, pattern: Any):
    layer, bound = KINDS[kind](pattern=pattern, bias=True, window=9, **SIZES)
    generic(layer)
    mask = torch.rand(16, 16, generator=torch.Generator().manual_seed(2)) < 0.7
    found = measured(layer, mask=mask, is_causal=True)
    assert found <= bound
    assert pattern == "hard" or found == bound


@pytest.mark.parametrize("kind", KINDS)
def test_special_parameters_stay_below(kind: str):
    for p in (0.0, 0.3):
        layer, bound = KINDS[kind](**SIZES)
        generic(layer)
        with torch.no_grad():
            for i, parameter in enumerate(layer.parameters()):
                keep = torch.rand(parameter.shape, generator=torch.Generator().manual_seed(i)) < p
                parameter.mul_(keep)
        assert measured(layer) <= bound


@pytest.mark.parametrize("kind", KINDS)
def test_an_output_projection_never_raises_the_rank(kind: str):
    for width in (2, 24):
        layer, bound = KINDS[kind](out_dim=width, **SIZES)
        generic(layer)
        bare = KINDS[kind](out_proj=False, **SIZES)[0]
        bare.load_state_dict({name: p for name, p in layer.state_dict().items() if name in bare.state_dict()})
        pos = torch.randn(16, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        projected, plain = (rank(position_only(m, pos)) for m in (layer, bare))
        assert projected.clear
        assert projected.rank <= plain.rank == bound


# What T1 does not say, and what mutants do.


def test_two_layers_of_different_heads_multiply():
    first = {"num_heads": 2, "value_head_dim": 3}
    layer = generic(TwoLayerAttention(24, 3, first=first, **SIZES))
    assert measured(layer) == 6


def test_linear_simplicial_is_limited_by_the_key_width_too():
    """S_hc = Q_h diag(.) K_h^T: d_k = 2 independent maps a head, not d_v = 3; softmax has no such limit."""
    sizes = SIZES | {"head_dim": 2}
    assert measured(generic(TwoSimplicialAttention(24, 2, pattern="linear", **sizes))) == 4
    assert measured(generic(TwoSimplicialAttention(24, 2, pattern="softmax", **sizes))) == 6


def test_iha_with_replicated_pseudo_heads_is_mha():
    layer = InterleavedHeadAttention(24, 3, **SIZES)
    layer.reset_mixing("mha")
    assert measured(layer) == 3
    layer.reset_mixing("random", generator=torch.Generator().manual_seed(0))
    assert measured(layer) == 9


def test_equal_heads_lower_the_rank():
    layer = generic(MultiHeadAttention(24, 3, **SIZES))
    with torch.no_grad():
        for name in ("q_proj", "k_proj"):
            weight = layer.get_parameter(f"{name}.weight").unflatten(0, (3, -1))
            weight[2] = weight[0]
    assert measured(layer) == 2


def test_saturated_softmax_loses_rank():
    """T1's warning: both heads of every query prefer token 0, by s and by 2 s; at s = 100 both see nothing else."""
    layer = MultiHeadAttention(2, 2, vdim=3, head_dim=1, value_head_dim=3, dtype=torch.float64)
    pos = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)  # (constant, is token 0)
    ranks = []
    for s in (1.0, 100.0):
        with torch.no_grad():
            layer.get_parameter("q_proj.weight").copy_(torch.tensor([[s, 0], [2 * s, 0]]))
            layer.get_parameter("k_proj.weight").copy_(torch.tensor([[0, 1], [0, 1]]))
        ranks.append(rank(position_only(layer, pos)).rank)
    assert ranks == [2, 1]


def test_reached_needs_a_clear_gap_and_the_bound():
    row = Capacity("mha", 2, None, None, "softmax", rank=2, bound=2, gap=1e12)
    assert row.reached
    for other in ({"rank": 1}, {"rank": 3}, {"gap": 10.0}):
        assert not replace(row, **other).reached


# Modules of the user's.


class Residual(nn.Module):
    """MHA plus its value: one operator more."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.embed_dim = embed_dim
        self.inner = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return value + self.inner(query, key, value, need_weights=False)[0]


def test_a_users_layer_may_exceed_mha():
    torch.manual_seed(0)
    found = measure_module("Residual", Residual(16, 2), 2)
    assert (found.rank, found.bound, found.pattern) == (3, 2, None)
    assert found.clear
    assert not found.reached


def test_key_and_value_widths_are_read_from_the_module():
    layer = nn.MultiheadAttention(8, 2, kdim=5, vdim=3)
    assert measure_module("kdim", layer, 2).rank == 2
    assert measure(layer, 8, tokens=20, width=3).rank == 2


def test_a_module_without_embed_dim_is_refused():
    module = Residual(16, 2)
    module.embed_dim = None  # type: ignore[assignment]
    with pytest.raises(ValueError, match="without an integer attribute embed_dim"):
        measure_module("Residual", module, 2)
    assert measure_module("Residual", module, 2, embed_dim=16).rank == 3


def test_measuring_leaves_the_threads():
    before = torch.get_num_threads()
    measure_module("mha", nn.MultiheadAttention(8, 1), 1)
    assert torch.get_num_threads() == before
