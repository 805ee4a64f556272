"""MHA inside IHA, strictly."""

import pytest
import torch

from constructions.suite import inclusion as suite
from constructions.targets.inclusion import inclusion, repeated, witness
from iha_theory.attention import MultiHeadAttention


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_any_row_may_be_read_without_causality(heads):
    mha = suite.real_mha(heads, torch.Generator().manual_seed(0))
    x = torch.randn(2, 6, mha.embed_dim, dtype=torch.float64)
    for pick in (0, 1, -1):
        assert torch.allclose(inclusion(mha, 3, pick)(x, x, x), mha(x, x, x), atol=1e-12)


def test_virtual_causality_needs_the_last_row():  # ledger E4: H = 1, P = 2, zero logits, V = [1, 3]
    mha = MultiHeadAttention(1, 1, out_proj=False, dtype=torch.float64)
    with torch.no_grad():
        for linear, value in ((mha.q_proj, 0), (mha.k_proj, 0), (mha.v_proj, 1)):
            linear.weight.fill_(value)
    x = torch.tensor([[[1.0], [3.0]]], dtype=torch.float64)
    for pick, second in ((0, 5 / 3), (-1, 2.0)):
        iha = inclusion(mha, 2, pick)
        iha.causality = "virtual"
        out = iha(x, x, x, is_causal=True).flatten()
        assert out.tolist() == pytest.approx([1, second], abs=1e-15)
    assert mha(x, x, x, is_causal=True).flatten().tolist() == [1, 2]


@pytest.mark.parametrize(("name", "value"), [("scale", 2.0), ("pattern", "hard"), ("window", 1), ("rotary", "virtual")])
def test_layers_that_run_differently_are_not_equal(name, value):
    mha = suite.real_mha(2, torch.Generator().manual_seed(0))
    iha = inclusion(mha, 2)
    assert suite.copies_error(mha, iha) == 0
    setattr(iha, name, value)
    with pytest.raises(ValueError, match=name):
        suite.copies_error(mha, iha)


def test_the_printed_witness_is_linear():  # ledger E8
    wq, wk, wv = suite.witness_weights(0)
    layer = witness(wq, wk, wv, 2)
    with torch.no_grad():
        layer.alpha_v[0, 0, 1] = 1
    x = torch.randn(5, suite.WITNESS_WIDTH, dtype=torch.float64)
    out = layer(*[repeated(x, 4)] * 3)
    assert torch.allclose(out, repeated(x @ wv.T, 4), atol=1e-12)
    assert suite.witness_error(layer, (wq, wk, wv))[2] < 1e-12


def test_the_witness_needs_two_pseudo_heads():
    with pytest.raises(ValueError, match="P >= 2"):
        witness(*suite.witness_weights(0), 1)
