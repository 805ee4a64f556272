"""Every layer equals the reference in every setting; IHA equals Definition 3 for whatever parameters and sizes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .layers import BY_NAME, KINDS, LAYERS, PATTERNS, ROTARY, VARIANTS, Layer, tokens

T = 5
DEAD_ROW = torch.rand(T, T, generator=torch.Generator().manual_seed(3)) < 0.6
DEAD_ROW[2] = False
BATCH_MASK = torch.rand(2, T, T, generator=torch.Generator().manual_seed(4)) < 0.7
SETTINGS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"window": 2},
    "causal window": {"is_causal": True, "window": 3},
    "mask": {"mask": DEAD_ROW},
    "mask of the batch": {"mask": BATCH_MASK},
    "mask of batch 1": {"mask": BATCH_MASK[:1]},
    "all": {"is_causal": True, "window": 3, "mask": BATCH_MASK},
    "bias": {"bias": True, "is_causal": True},
    "no output projection": {"out_proj": False},
    "widths": {"kdim": 3, "vdim": 6, "head_dim": 4, "value_head_dim": 3, "out_dim": 7},
    "scale": {"scale": -0.7},
}
ROTARY_SETTINGS = {
    "plain": {},
    "causal": {"is_causal": True, "window": 4, "rotary_base": 50.0},
    "positions": {"positions": torch.tensor([3, 0, 10, 11, 40])},
    "positions of batch 1": {"positions": torch.tensor([[3, 0, 10, 11, 40]]), "is_causal": True},
    "fractions, of the batch": {"positions": tokens(2, T)},
}
CALL = ("is_causal", "mask", "positions")


def compare(row: Layer, options, query, key, value):
    call = {name: options[name] for name in CALL if name in options}
    layer = row.build(**{name: option for name, option in options.items() if name not in CALL})
    got = layer(query, key, value, **call)
    expected = row.reference(layer, query, key, value, **call)
    assert got.shape == expected.shape
    assert expected.numel() > 0
    assert expected.abs().max() > 1e-3  # a comparison of zeros shows nothing
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("row", [*LAYERS, *VARIANTS], ids=str)
def test_equals_reference(row, setting, pattern):
    options = {"pattern": pattern} | SETTINGS[setting]
    key, value = tokens(2, T, options.get("kdim", 8), seed=2), tokens(2, T, options.get("vdim", 8), seed=3)
    compare(row, options, tokens(2, T, 8), key, value)


@pytest.mark.parametrize("setting", ROTARY_SETTINGS)
@pytest.mark.parametrize(("row", "rotary"), ROTARY, ids=str)
def test_rotary_equals_reference(row, rotary, setting):
    options = {"rotary": rotary, "head_dim": 6} | ROTARY_SETTINGS[setting]
    compare(row, options, tokens(2, T, 8), tokens(2, T, 8, seed=2), tokens(2, T, 8, seed=3))


@pytest.mark.parametrize("setting", ["plain", "causal", "mask", "mask of the batch", "widths"])
@pytest.mark.parametrize("row", LAYERS, ids=str)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_queries_and_keys_shared_by_the_batch(row, setting, pattern):
    options = {"pattern": pattern} | SETTINGS[setting]
    if setting == "mask of the batch" or "kdim" in options:
        query, key = tokens(1, T, 8), tokens(1, T, options.get("kdim", 8), seed=2)
    else:
        query = key = tokens(1, T, 8)
    compare(row, options, query, key, tokens(2, T, options.get("vdim", 8), seed=3))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("row", [row for row in LAYERS if not row.one_sequence], ids=str)
def test_other_numbers_of_queries_and_keys(row, pattern):
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]], dtype=torch.bool)
    query, key, value = tokens(2, 3, 8), tokens(2, 4, 8, seed=2), tokens(2, 4, 8, seed=3)
    compare(row, {"pattern": pattern}, query, key, value)
    compare(row, {"pattern": pattern, "mask": mask}, query, key, value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_definition_3_is_the_layer(data):
    """The algorithm (token-major) and the definition (pseudo-major) are one function, for all sizes and parameters."""
    draw = data.draw
    heads, pseudo, length = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    rotary = draw(st.sampled_from([None, "token", "virtual"]))
    options = {
        "num_pseudo_heads": pseudo,
        "collapse": draw(st.sampled_from(["global", "per_head"])),
        "causality": draw(st.sampled_from(["token", "virtual"])),
        "pattern": draw(st.sampled_from(PATTERNS)),
        "rotary": rotary,
        "window": draw(st.sampled_from([None, 1, 2, 4])),
        "head_dim": 2 if rotary else draw(st.integers(1, 3)),
        "value_head_dim": draw(st.integers(1, 3)),
        "bias": draw(st.booleans()),
        "out_proj": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }
    is_causal = draw(st.booleans())
    mask = None
    if draw(st.booleans()):
        generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
        mask = torch.rand(length, length, generator=generator) < 0.7
    row = BY_NAME["iha-P3-global-token"]
    layer = row.build(5, heads, **options)
    query, key, value = (tokens(2, length, 5, seed=s) for s in range(3))
    got = layer(query, key, value, mask=mask, is_causal=is_causal)
    expected = row.reference(layer, query, key, value, mask=mask, is_causal=is_causal)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("row", LAYERS, ids=str)
def test_position_only_is_linear_in_content(row, pattern):
    layer = row.build(pattern=pattern, vdim=3)
    pos, x, y = tokens(1, T, 8), tokens(2, T, 3, seed=2), tokens(2, T, 3, seed=3)
    mixed = layer(pos, pos, 2 * x - 0.5 * y, is_causal=True)
    apart = 2 * layer(pos, pos, x, is_causal=True) - 0.5 * layer(pos, pos, y, is_causal=True)
    torch.testing.assert_close(mixed, apart, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("mha", 2),
        ("iha-P1", 2),
        ("iha-P3-global-token", 4),
        ("iha-P2-per_head-token", 4),
        ("mqa", 2),
        ("mla", 2),
        ("tensor-product", 4),
        ("talking", 2),
        ("composable", 2),
        ("multi-token", 2),
        ("gated-linear", 2),
        ("forgetting", 2),
        ("differential", 2),
        ("simplicial", 6),
        ("strassen", 6),
        ("gated", 6),
        ("gated-headwise", 2),
        ("two-layer", 4),
    ],
)
@pytest.mark.parametrize("pattern", ["softmax", "linear"])
def test_operator_rank_is_the_capacity(name, rank, pattern):
    """docs/results.md T1 with H = 2, N = 6, d = 4, d_v = 3: rank of the realignment, (i,j) by (in, out)."""
    n, d = 6, 4
    layer = BY_NAME[name].build(9, 2, head_dim=3, value_head_dim=3, vdim=d, out_dim=8, pattern=pattern)
    pos = 2 * tokens(1, n, 9)
    outputs = layer(pos, pos, torch.eye(n * d, dtype=torch.float64).reshape(n * d, n, d)).detach()
    realigned = outputs.reshape(n, d, n, -1).permute(2, 0, 1, 3).reshape(n * n, -1)
    values = torch.linalg.svdvals(realigned) / torch.linalg.matrix_norm(realigned, 2)
    assert values[rank - 1] > 1e-4
    assert values[rank] < 1e-13


@pytest.mark.parametrize("row", KINDS, ids=str)
def test_default_scale(row):
    """1/sqrt(d_k), and 1 for the linear pattern, as the paper's linear constructions have it."""
    for pattern, scale in (("softmax", 1 / 3), ("hard", 1 / 3), ("linear", 1.0)):
        layer = row.build(pattern=pattern, head_dim=9)
        assert getattr(layer, "second", layer).scale == pytest.approx(scale, rel=1e-15)


def test_attention_maps_count_the_maps():
    counts = {row.name: row.build().attention_maps for row in (*LAYERS, *VARIANTS)}
    assert counts == {
        "mha": 4,
        "iha-P1": 4,
        "iha-P3-global-token": 36,
        "iha-P3-global-virtual": 36,
        "iha-P2-per_head-token": 16,
        "iha-P5-per_head-virtual": 100,
        "iha-P2-grouped": 16,
        "iha-start-token": 36,
        "iha-start-virtual": 36,
        "gqa": 4,
        "mqa": 4,
        "mla": 4,
        "mla-query-latent": 4,
        "tensor-product": 4,
        "tensor-product-132": 4,
        "talking": 4,
        "talking-logits": 4,
        "talking-weights": 4,
        "composable": 4,
        "composable-1": 4,
        "multi-token": 4,
        "multi-token-pairs": 4,
        "gated-linear": 4,
        "forgetting": 4,
        "differential": 8,
        "simplicial": 4,
        "strassen": 4,
        "gated": 4,
        "gated-headwise": 4,
        "two-layer": 8,
    }
