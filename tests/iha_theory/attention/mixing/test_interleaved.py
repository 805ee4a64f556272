"""IHA's own: its start is MHA and not symmetry-locked (docs/results.md T11), P = 1 fuses (case 18), conversion,
loading."""

import pytest
import torch
from torch import nn

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention

from ..layers import BY_NAME, PATTERNS, tokens

MHA, IHA = BY_NAME["mha"], BY_NAME["iha-P1"]
F64 = torch.float64
MASK = torch.tensor(
    [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 1, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool
)
SETTINGS = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"window": 2},
    "causal window": {"window": 2, "is_causal": True},
    "mask": {"mask": MASK},
    "padding and causal": {"mask": torch.tensor([0, 0, 1, 1, 1], dtype=torch.bool).expand(5, 5), "is_causal": True},
    "rotary": {"rotary": True, "is_causal": True, "head_dim": 4},
    "rotary at": {"rotary": "virtual", "positions": torch.tensor([2, 3, 5, 7, 11]), "head_dim": 4},
    "bias": {"bias": True},
    "bias without projection": {"bias": True, "out_proj": False, "is_causal": True},
    "widths and scale": {"kdim": 3, "vdim": 6, "head_dim": 4, "value_head_dim": 3, "out_dim": 7, "scale": 0.3},
    "rotary base": {"rotary": True, "rotary_base": 30.0, "head_dim": 4},
}
every_setting = pytest.mark.parametrize("setting", SETTINGS)
every_pattern = pytest.mark.parametrize("pattern", PATTERNS)
both_causalities = pytest.mark.parametrize("causality", ["token", "virtual"])
both_collapses = pytest.mark.parametrize("collapse", ["global", "per_head"])


def mha_and_call(setting, pattern, **options):
    """A random MHA of this setting, its inputs and its call options."""
    build = dict(SETTINGS[setting]) | options
    call = {name: build.pop(name) for name in ("mask", "is_causal", "positions") if name in build}
    layer = MHA.build(8, 4, pattern=pattern, **build)
    inputs = tokens(2, 5, 8), tokens(2, 5, layer.kdim, seed=2), tokens(2, 5, layer.vdim, seed=3)
    return layer, inputs, call


@every_pattern
@every_setting
@both_causalities
@both_collapses
@pytest.mark.parametrize("pseudo", [1, 2, 5])
def test_from_mha_is_the_mha(setting, pattern, causality, collapse, pseudo):
    if pattern == "hard" and "rotary" in setting:
        pytest.skip("copies of a rotated key tie up to rounding only, and on some machines not exactly")
    mha, inputs, call = mha_and_call(setting, pattern)
    if pattern == "hard":  # integers, so that copies of a key tie exactly, in whatever order a machine adds
        with torch.no_grad():
            for p in (*mha.parameters(), *inputs):
                p.copy_((4 * p).round())
    layer = InterleavedHeadAttention.from_mha(mha, pseudo, causality=causality, collapse=collapse)
    torch.testing.assert_close(layer(*inputs, **call), mha(*inputs, **call), rtol=1e-11, atol=1e-12)
    assert layer.num_pseudo_heads == pseudo
    assert layer.causality == causality
    assert layer.collapse.ndim == (3 if collapse == "global" else 2)
    if pseudo > 1:
        assert layer.alpha_v.std(-1).mean() > 0.02  # equal although the values are perturbed


@every_pattern
@both_causalities
def test_init_mha_is_the_mha_of_its_projections(pattern, causality):
    layer = InterleavedHeadAttention(8, 4, causality=causality, pattern=pattern, rotary=True, dtype=F64)
    mha = MultiHeadAttention(8, 4, pattern=pattern, rotary=True, dtype=F64)
    mha.load_state_dict({name: p for name, p in layer.state_dict().items() if "proj" in name})
    x = tokens(2, 6, 8)
    torch.testing.assert_close(layer(x, x, x, is_causal=True), mha(x, x, x, is_causal=True), rtol=1e-11, atol=1e-12)


ALPHAS = ("alpha_q", "alpha_k", "alpha_v")


def alphas(layer):
    """The alphas as they are now."""
    return {name: layer.get_parameter(name).detach().clone() for name in ALPHAS}


def spreads(layer, start):
    """How differently training moved the pseudo-heads: the standard deviation over j of alpha - start, averaged."""
    moves = {name: now - start[name] for name, now in alphas(layer).items()}
    moves["alpha_q, rows not read at first"] = moves["alpha_q"][..., :-1]
    return {name: move.std(-1).mean().item() for name, move in moves.items()}


def train(layer, steps, causal):
    """A few steps of plain gradient descent towards a fixed random layer's outputs."""
    x = tokens(4, 6, 8)
    target = BY_NAME["iha-P3-global-token"].build(seed=7)(x, x, x, is_causal=causal).detach()
    rate = 0.3 if layer.pattern == "softmax" else 0.03
    parameters = list(layer.parameters())
    for _ in range(steps):
        loss = (layer(x, x, x, is_causal=causal) - target).pow(2).mean()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter -= rate * gradient


@pytest.mark.parametrize("pattern", ["softmax", "linear"])
@both_causalities
@both_collapses
def test_start_breaks_the_symmetry(pattern, causality, collapse):
    """T11: gradients of alpha_q, alpha_k differ over j at once, and pseudo-heads of every alpha move apart.

    The gradients of alpha_v are equal until the keys differ, since equal keys get equal weights.
    """
    options = {"causality": causality, "collapse": collapse}
    layer = InterleavedHeadAttention.from_mha(MHA.build(pattern=pattern, scale=0.3), 3, **options)
    x = tokens(4, 6, 8)
    layer(x, x, x, is_causal=True).pow(2).mean().backward()
    for name in ("alpha_q", "alpha_k"):
        gradient = layer.get_parameter(name).grad
        assert gradient is not None
        assert (gradient.std(-1) > 1e-3 * gradient.abs().mean()).all(), name
    start, seen = alphas(layer), []
    for _ in range(3):
        train(layer, 10, causal=True)
        seen.append(spreads(layer, start))
    for name in seen[0]:
        assert 1e-7 < seen[0][name] < seen[1][name] < seen[2][name], (name, seen)


@pytest.mark.parametrize("pattern", ["softmax", "linear"])
@both_collapses
def test_without_noise_the_symmetry_stays(pattern, collapse):
    """The fault of the public versions: with replicated pseudo-heads, keys and values stay alike for ever."""
    layer = InterleavedHeadAttention.from_mha(MHA.build(pattern=pattern, scale=0.3), 3, collapse=collapse, noise=0.0)
    start = alphas(layer)
    train(layer, 30, causal=True)
    assert (layer.alpha_k[..., 0] - torch.eye(4)).abs().max() > 1e-3  # it did train
    assert spreads(layer, start)["alpha_k"] < 1e-12
    assert spreads(layer, start)["alpha_v"] < 1e-12
    assert layer.alpha_q[..., :-1].std(-1).max() < 1e-12


def test_noise_has_the_size_asked_for_and_its_own_generator():
    layer = InterleavedHeadAttention(8, 4, num_pseudo_heads=50)
    layer.reset_mixing("mha", 0.2, generator=torch.Generator().manual_seed(5))
    first = layer.alpha_v.detach().clone()
    own = torch.eye(4).unsqueeze(-1)
    assert (first - own).std().item() == pytest.approx(0.2, rel=0.1)
    torch.testing.assert_close((first - own).sum(-1), torch.zeros(4, 4), atol=1e-5, rtol=0)
    assert torch.equal(layer.alpha_k, own.expand(4, 4, 50))
    layer.reset_mixing("random", generator=torch.Generator().manual_seed(5))
    assert layer.alpha_v.std().item() == pytest.approx(0.5, rel=0.1)
    layer.reset_mixing("mha", 0.2, generator=torch.Generator().manual_seed(5))
    assert torch.equal(layer.alpha_v, first)


# Case 18: P = 1 is MHA.


@every_pattern
@every_setting
@both_collapses
def test_case_18_fuse(setting, pattern, collapse):
    build = dict(SETTINGS[setting])
    call = {name: build.pop(name) for name in ("mask", "is_causal", "positions") if name in build}
    layer = IHA.build(8, 4, pattern=pattern, collapse=collapse, causality="virtual", **build)
    fused = layer.fuse()
    inputs = tokens(2, 5, 8), tokens(2, 5, layer.kdim, seed=2), tokens(2, 5, layer.vdim, seed=3)
    torch.testing.assert_close(fused(*inputs, **call), layer(*inputs, **call), rtol=1e-12, atol=1e-12)
    assert type(fused) is MultiHeadAttention
    assert fused.attention_maps == layer.attention_maps == 4


@both_collapses
def test_case_18_counts(collapse):
    """Formula = numel(): projections d (2 H d_k + H d_v) + H d_v d, mixing 3 H^2 P and H^2 P or H P."""
    d, heads, pseudo, dk, dv = 8, 4, 3, 5, 2
    layer = InterleavedHeadAttention(
        d, heads, num_pseudo_heads=pseudo, collapse=collapse, head_dim=dk, value_head_dim=dv
    )
    last = heads**2 * pseudo if collapse == "global" else heads * pseudo
    formula = d * heads * (2 * dk + dv) + heads * dv * d + 3 * heads**2 * pseudo + last
    assert sum(p.numel() for p in layer.parameters()) == formula
    assert layer.attention_maps == heads * pseudo**2


def test_case_18_fuse_keeps_dropout_and_mode_and_refuses_more_pseudo_heads():
    layer = IHA.build(dropout=0.3).eval()
    assert layer.fuse().dropout == 0.3
    assert not layer.fuse().training
    with pytest.raises(ValueError, match=r"only P = 1 .* P = 3"):
        BY_NAME["iha-P3-global-token"].build().fuse()


# From torch.


@pytest.mark.parametrize(
    "options", [{}, {"bias": False}, {"kdim": 3, "vdim": 5}, {"kdim": 3, "vdim": 5, "bias": False}]
)
@both_causalities
def test_from_torch(options, causality):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(8, 4, batch_first=True, dtype=F64, **options).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # torch starts its biases at 0, which would hide a lost one
            parameter.normal_(std=0.5)
    ours = MultiHeadAttention.from_torch(theirs)
    mixed = InterleavedHeadAttention.from_mha(theirs, 3, causality=causality)
    inputs = tokens(2, 5, 8), tokens(2, 5, theirs.kdim, seed=2), tokens(2, 5, theirs.vdim, seed=3)
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    for mask in (None, causal):
        right, _ = theirs(*inputs, attn_mask=None if mask is None else ~mask)
        torch.testing.assert_close(ours(*inputs, mask=mask), right, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(mixed(*inputs, mask=mask), right, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(mixed(*inputs, is_causal=True), right, rtol=1e-11, atol=1e-12)
    assert not ours.training
    with torch.no_grad():
        theirs.out_proj.weight.zero_()
    assert ours.out_proj is not None
    assert ours.out_proj.weight.abs().max() > 0  # copied, not shared


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_from_torch_refuses_what_has_no_counterpart(option):
    with pytest.raises(ValueError, match="add_bias_kv or add_zero_attn"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(8, 4, **{option: True}))


def test_mha_weights_into_iha_are_an_error():
    """Case 27: never silently random mixing."""
    weights = MHA.build().state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*alpha_q.*alpha_k.*alpha_v.*collapse"):
        BY_NAME["iha-P3-global-token"].build().load_state_dict(weights)
    with pytest.raises(RuntimeError, match=r"size mismatch for collapse"):
        BY_NAME["iha-P3-global-token"].build().load_state_dict(
            BY_NAME["iha-P3-global-token"].build(collapse="per_head").state_dict()
        )
    with pytest.raises(RuntimeError, match=r"size mismatch for alpha_q"):
        BY_NAME["iha-P3-global-token"].build().load_state_dict(IHA.build().state_dict())
