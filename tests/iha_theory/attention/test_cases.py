"""Cases 9 to 14, for every layer they apply to, with the values written there."""

import math

import pytest
import torch

from iha_theory.attention import ComposableAttention, GatedLinearAttention, InterleavedHeadAttention
from iha_theory.attention.higher_order.pairs import PairAttention

from .layers import DTYPES, LAYERS, PATTERNS, average, tokens

F64 = torch.float64
all_layers = pytest.mark.parametrize("row", LAYERS, ids=str)
all_patterns = pytest.mark.parametrize("pattern", PATTERNS)
normalised = pytest.mark.parametrize("pattern", ["softmax", "hard"])
INTEGERS = [row for row in LAYERS if row.kind not in (ComposableAttention, GatedLinearAttention)]
one_way_to_see_oneself = pytest.mark.parametrize("options", [{"window": 1}, {"mask": torch.eye(5, dtype=torch.bool)}])


def options_of(options):
    """Constructor options and call options."""
    return {n: o for n, o in options.items() if n != "mask"}, {n: o for n, o in options.items() if n == "mask"}


# Case 9: a token that sees only itself.


def own_token(layer, x):
    """x W_V W_O for each token, whatever the layer does with more than one."""
    if hasattr(layer, "second"):
        return own_token(layer.second, own_token(layer.first, x))
    down = layer.kv_down.weight.T if hasattr(layer, "kv_down") else torch.eye(x.shape[-1], dtype=x.dtype)
    v = x @ down @ layer.v_proj.weight.T
    if hasattr(layer, "v_heads"):  # sum_r a_r (x) b_r / R
        a, b = ((x @ w.T).unflatten(-1, (layer.value_rank, -1)) for w in (layer.v_heads.weight, layer.v_proj.weight))
        v = (a.unsqueeze(-1) * b.unsqueeze(-2)).mean(-3).flatten(-2)
    if hasattr(layer, "v2_proj"):
        v = v * (x @ layer.v2_proj.weight.T)
    if hasattr(layer, "num_kv_heads"):  # each key/value head serves num_heads / num_kv_heads heads
        v = v.unflatten(-1, (layer.num_kv_heads, -1)).repeat_interleave(layer.num_heads // layer.num_kv_heads, -2)
        v = v.flatten(-2)
    if hasattr(layer, "gate_proj"):
        gates = torch.sigmoid(x @ layer.gate_proj.weight.T)
        v = v * gates.repeat_interleave(v.shape[-1] // gates.shape[-1], -1)
    return v if layer.out_proj is None else v @ layer.out_proj.weight.T


@normalised
@one_way_to_see_oneself
@all_layers
def test_case_9_own_token_only(row, options, pattern):
    build, call = options_of(options)
    layer = row.build(4, 2, pattern=pattern, **build)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name == "lam" or name.startswith("compose"):
                parameter.zero_()
            elif name.startswith("mix"):
                parameter.copy_(torch.eye(2))
    if isinstance(layer, InterleavedHeadAttention):
        layer.reset_mixing("mha")
    x = tokens(1, 5, 4)
    got = layer(x, x, x, **call)
    torch.testing.assert_close(got, own_token(layer, x), rtol=1e-12, atol=1e-12)


@all_patterns
@one_way_to_see_oneself
@pytest.mark.parametrize("row", [row for row in LAYERS if not row.neighbours], ids=str)
def test_case_9_token_3_changes_row_3_only(row, options, pattern):
    build, call = options_of(options)
    layer = row.build(4, 2, pattern=pattern, **build)
    x = tokens(1, 5, 4)
    y = x.clone()
    y[0, 3] += 1
    changed = (layer(x, x, x, **call) != layer(y, y, y, **call)).any(-1)[0]
    assert changed.tolist() == [False, False, False, True, False]


# Cases 10 and 11: averages of V with zero logits.

CAUSAL_WINDOW_2 = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]], dtype=F64)
CAUSAL_3 = torch.tensor([[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]], dtype=F64)


def averaged(row, values, pattern, call=None, **options):
    """Output for zero logits and these values, all heads equal, as a vector over tokens."""
    layer = average(row.build(4, 2, vdim=1, value_head_dim=1, out_proj=False, pattern=pattern, **options))
    n = len(values)
    ones, v = torch.ones(1, n, 4, dtype=F64), torch.tensor(values, dtype=F64).reshape(1, n, 1)
    out = layer(ones, ones, v, **(call or {}))
    assert out.shape == (1, n, 2)
    torch.testing.assert_close(out[..., 0], out[..., 1])
    return out[0, :, 0]


def expected_average(row, matrix, values):
    """The averaging matrix applied once, or twice by two layers."""
    return torch.linalg.matrix_power(matrix, row.depth) @ torch.tensor(values, dtype=F64)


@normalised
@all_layers
def test_case_10_window_counts_the_own_token(row, pattern):
    values, causal = [1.0, 2.0, 3.0, 4.0], {"is_causal": True}
    right = expected_average(row, CAUSAL_WINDOW_2, values)
    if row.depth == 1:
        assert right.tolist() == [1, 1.5, 2.5, 3.5]
    torch.testing.assert_close(averaged(row, values, pattern, causal, window=2), right)
    torch.testing.assert_close(averaged(row, values, pattern, causal, window=1), torch.tensor(values, dtype=F64))
    torch.testing.assert_close(
        averaged(row, values, pattern, causal, window=4), averaged(row, values, pattern, causal), rtol=0, atol=0
    )
    with pytest.raises(ValueError, match="window must be an integer of at least 1, got 0"):
        averaged(row, values, pattern, causal, window=0)


@normalised
@pytest.mark.parametrize("causality", ["token", "virtual"])
def test_case_10_a_query_sees_whole_tokens(causality, pattern):
    """P = 2, window 2, not causal: a pseudo-query of token i weighs both copies of the tokens i-1, i, i+1, no other."""
    layer = InterleavedHeadAttention(
        4, 2, num_pseudo_heads=2, causality=causality, window=2, pattern=pattern, out_proj=False, dtype=F64
    )
    average(layer)
    with torch.no_grad():
        layer.v_proj.weight.copy_(torch.eye(4))  # so the output row is the row of weights
    ones, each = torch.ones(1, 4, 4, dtype=F64), torch.eye(4, dtype=F64).unsqueeze(0)
    near = torch.tensor([[3, 3, 0, 0], [2, 2, 2, 0], [0, 2, 2, 2], [0, 0, 3, 3]], dtype=F64) / 6
    torch.testing.assert_close(layer(ones, ones, each)[0], near)


@normalised
@pytest.mark.parametrize("kind", ["bool", "float"])
@all_layers
def test_case_11_lower_triangle(row, kind, pattern):
    values = [1.0, 2.0, 3.0]
    mask = torch.ones(3, 3, dtype=torch.bool).tril()
    if kind == "float":
        mask = torch.zeros(3, 3).masked_fill(~mask, -math.inf)
    right = expected_average(row, CAUSAL_3, values)
    if row.depth == 1:
        assert right.tolist() == [1, 1.5, 2]
    torch.testing.assert_close(averaged(row, values, pattern, {"mask": mask}), right)
    torch.testing.assert_close(averaged(row, values, pattern, {"is_causal": True}), right)


@all_layers
def test_case_11_other_masks_are_refused(row):
    layer, x = row.build(), tokens(1, 3, 8)
    lower = torch.ones(3, 3).tril()
    with pytest.raises(ValueError, match=r"mask of dtype torch.float32 .* 0 \(may attend\) and -inf"):
        layer(x, x, x, mask=lower)
    for dtype in (torch.uint8, torch.int64):
        with pytest.raises(TypeError, match=f"mask of dtype {dtype}: accepted are bool"):
            layer(x, x, x, mask=lower.to(dtype))
    with pytest.raises(ValueError, match="mask of dtype"):
        layer(x, x, x, mask=torch.full((3, 3), math.nan))


# Case 12: what is at a forbidden key.


@all_patterns
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@all_layers
def test_case_12_forbidden_keys(row, pattern, dtype):
    """1e30 at a forbidden key changes nothing; what is not finite changes nothing or shows as NaN: the stated limit.

    Two layers in float32 are part of the limit: 1e30 overflows in the first layer's row 3, a value of the second; and
    so does its square, where keys and values are products.
    """
    layer = row.build(pattern=pattern, dtype=dtype)
    x = tokens(1, 4, 8, dtype=dtype)
    right = layer(x, x, x, is_causal=True)[:, :3]
    for bad in (1e30, math.nan, math.inf):
        y = x.clone()
        y[:, 3] = bad
        got = layer(y, y, y, is_causal=True)[:, :3]
        same = torch.isclose(got, right, rtol=1e-5, atol=1e-6)
        if bad == 1e30 and ((row.depth == 1 and not row.products) or dtype == torch.float64):
            assert same.all()
        else:
            assert (same | got.isnan()).all()


# Case 13: left padding.

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}


def check_finite(layer, x, out):
    """Outputs and every gradient, on the way too, with a gradient at every output, small enough for float16."""
    assert out.isfinite().all()
    with torch.autograd.set_detect_anomaly(True):  # a NaN that a later step hides is an error
        (out.float() * tokens(*out.shape, dtype=torch.float32)).mean().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad != 0).any()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@all_patterns
@all_layers
def test_case_13_left_padding(row, pattern, dtype):
    """[pad, pad, a, b, c]: the real rows equal [a, b, c] alone, the padded rows are 0, gradients are finite.

    Hard attention in half precision may see ties that rounding made, so it is only checked for NaN there.
    """
    options = {"rotary": "token", "head_dim": 4} if row.rotary else {}
    options |= {"num_pseudo_heads": 2} if row.kind is InterleavedHeadAttention else {}
    layer = row.build(pattern=pattern, dtype=dtype, **options)
    x = tokens(1, 5, 8, dtype=dtype)
    real = torch.tensor([False, False, True, True, True])
    padded = x.clone().requires_grad_()
    got = layer(padded, padded, padded, mask=real.expand(5, 5), is_causal=True)
    assert (got[:, :2] == 0).all()
    alone = layer(x[:, 2:], x[:, 2:], x[:, 2:], is_causal=True)
    if pattern != "hard" or dtype in (torch.float64, torch.float32):
        scale = alone.detach().abs().max().item()
        torch.testing.assert_close(got[:, 2:], alone, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * scale)
    check_finite(layer, padded, got)
    assert padded.grad is not None
    assert (padded.grad[:, :2] == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@all_patterns
@all_layers
def test_fully_masked_row_is_0_with_finite_gradients(row, pattern, dtype):
    layer = row.build(pattern=pattern, dtype=dtype)
    mask = torch.ones(2, 4, 4, dtype=torch.bool)
    mask[0, 1] = False
    mask[1] = False
    x = tokens(2, 4, 8, dtype=dtype).requires_grad_()
    out = layer(x, x, x, mask=mask)
    assert (out[0, 1] == 0).all()
    assert (out[1] == 0).all()
    assert (out[0, 0] != 0).any()
    check_finite(layer, x, out)


# Hard attention in half precision: its scores, its ties and its sums do not fit there.


@all_layers
def test_hard_attention_in_float16_averages_many_large_values(row):
    """1200 values of 60000, for pairs of keys 300 x 300: their sum, and the number of pairs, exceed float16's 65504."""
    layer = row.build(4, 2, vdim=1, value_head_dim=1, out_proj=False, pattern="hard", dtype=torch.float16)
    x = torch.ones(1, 300 if issubclass(row.kind, PairAttention) else 1200, 4, dtype=torch.float16)
    out = average(layer)(x if row.one_sequence else x[:, :3], x, 60_000 * x[..., :1])
    assert out.dtype == torch.float16
    assert (out == 60_000).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "row", [row for row in LAYERS if row.kind not in (ComposableAttention, GatedLinearAttention)], ids=str
)
def test_hard_attention_in_half_precision_finds_the_largest_score(row, dtype):
    """Integers that projections keep exactly, with scores that half precision would round to ties or to infinity.

    Not of composable heads, whose outputs do not fit, nor of gates, whose logarithms are rounded.
    """
    high, low = (row.build(pattern="hard", scale=1.0, dtype=dtype) for dtype in (torch.float64, dtype))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in high.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=generator))
        low.load_state_dict(high.state_dict())
        x, value = (torch.randint(-m, m + 1, (2, 40, 8), generator=generator).double() for m in (31, 3))
        right, got = high(x, x, value), low(*(tensor.to(dtype) for tensor in (x, x, value))).double()
    assert (got - right).abs().max() <= 4 * torch.finfo(dtype).eps * right.abs().max()


# Case 14: dropout.


@all_patterns
@all_layers
def test_case_14_dropout(row, pattern):
    layer, without = row.build(dropout=0.5, pattern=pattern), row.build(dropout=0.0, pattern=pattern)
    without.load_state_dict(layer.state_dict())
    x = tokens(2, 6, 8)
    right = without(x, x, x)
    assert without.training
    assert torch.equal(without.eval()(x, x, x), right)
    assert not torch.allclose(layer(x, x, x), right)
    layer.eval()
    assert torch.equal(layer(x, x, x), right)
    assert torch.equal(layer(x, x, x), right)


@all_patterns
@all_layers
def test_case_14_dropout_keeps_the_mean(row, pattern):
    """The output is linear in the weights that are dropped, so its mean over draws is the output without dropout."""
    draws = 4000
    layer = row.build(4, 2, dropout=0.25, pattern=pattern)
    x = tokens(1, 3, 4)
    right = layer.eval()(x, x, x)
    many = layer.train()(*(x.expand(draws, -1, -1),) * 3)
    error = (many.mean(0) - right[0]).abs()
    assert (error <= 5 * many.std(0) / draws**0.5 + 1e-12).all()
