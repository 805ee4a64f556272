"""docs/attentions.md, Theorems 3 and 4: weights and tokens made for parity, run through the layers."""

import itertools

import numpy as np
import pytest
import torch

from iha_theory.attention import GatedLinearAttention, MultiTokenAttention

F64 = torch.float64


def sequence(f):
    """Tokens (bit, c, a) with u -> a(x) u + c(x), which from any u make A(x) u + f(x); and A, on all inputs."""
    if f.ndim == 0:
        return [(None, (f, f), (0.5, 0.5))], np.array(0.5)
    off, on = f[..., 0], f[..., 1]
    behind, product = sequence(off + 2 * (on - off))  # off - a_0 / (a_1 - a_0) (on - off) for a = 1/2, 1/4
    before, other = sequence((on - off) / (product * -0.25))
    whole = other[..., None] * np.array([0.5, 0.25]) * product[..., None]
    return [*before, (f.ndim - 1, (0.0, 0.0), (0.5, 0.25)), *behind], whole


def gated(f, pattern):
    """Outputs at a query token behind the sequence, for all inputs, of one head of width 1."""
    row = [*sequence(f)[0], (None, (0.0, 0.0), (0.5, 0.5))]
    layer = GatedLinearAttention(
        3, 1, head_dim=1, value_head_dim=1, scale=1.0, temperature=1.0, out_proj=False, pattern=pattern, dtype=F64
    )
    one, value, gate = torch.eye(3, dtype=F64).unsqueeze(1)  # the token: 1, c, logit of a
    with torch.no_grad():
        for name, weight in (("q_proj", one), ("k_proj", one), ("v_proj", value), ("decay_proj", gate)):
            layer.get_parameter(f"{name}.weight").copy_(weight)
    inputs = list(itertools.product((0, 1), repeat=f.ndim))
    x = torch.zeros(len(inputs), len(row), 3, dtype=F64)
    x[..., 0] = 1
    for at, bits in enumerate(inputs):
        for n, (bit, c, a) in enumerate(row):
            seen = 0 if bit is None else bits[bit]
            x[at, n, 1], x[at, n, 2] = float(c[seen]), float(np.log(a[seen] / (1 - a[seen])))
    assert len(row) == 2 ** (f.ndim + 1)
    return layer(x, x, x, is_causal=True)[:, -1, 0].detach().numpy()


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_one_head_of_gated_linear_attention_computes_parity(bits):
    signs = np.array([(-1.0) ** sum(x) for x in itertools.product((0, 1), repeat=bits)])
    f = signs.reshape((2,) * bits)
    np.testing.assert_allclose(gated(f, "linear"), signs / 2, rtol=1e-9)
    assert (np.sign(gated(f, "softmax")) == signs).all()  # the forgetting transformer: divided by a positive sum


def test_one_head_of_gated_linear_attention_computes_any_function():
    f = np.random.default_rng(0).normal(size=(2, 2, 2))
    np.testing.assert_allclose(gated(f, "linear"), f.ravel() / 2, rtol=1e-9)


@pytest.mark.parametrize(("window", "bits"), [(2, True), (1, False)])
def test_one_head_of_multi_token_attention_computes_as_many_bits_as_its_kernel_sees_keys(window, bits):
    """Two bits on three tokens: blocks (x1, x2) and (2, x2) of weights (2 - s1) and 2, values s2 and -s2: -s1 s2."""
    layer = MultiTokenAttention(
        2, 1, query_window=1, key_window=window, head_dim=1, value_head_dim=1, scale=1.0, out_proj=False, dtype=F64
    )
    with torch.no_grad():
        for name, weight in (("q_proj", [1.0, 0.0]), ("k_proj", [1.0, 0.0]), ("v_proj", [0.0, 1.0])):
            layer.get_parameter(f"{name}.weight").copy_(torch.tensor([weight]))
        layer.kernel.fill_(1)
    far = (-60.0, 0.0)  # between blocks: log weight, value
    for s1, s2 in itertools.product((1, -1), repeat=2):
        row = [far, (np.log(2 - s1), 0), (0, s2), far, far, (np.log(2), 0), (0, -s2), far, (0, 0)]
        x = torch.tensor(row, dtype=F64).unsqueeze(0)
        query = torch.tensor([[[1.0, 0.0]]], dtype=F64)
        found = float(layer(query, x, x)[0, 0, 0].detach())
        assert (found * -s1 * s2 > 1e-3) == bits


@pytest.mark.parametrize(("queries", "bits"), [(2, True), (1, False)])
def test_a_token_before_the_query_token_gives_multi_token_attention_one_bit_more(queries, bits):
    """Theorem 4, c_k = 1: token x has key s1, the one before the query token the query s2, so x has the logit s1 s2."""
    layer = MultiTokenAttention(
        3, 1, query_window=queries, key_window=1, head_dim=1, value_head_dim=1, scale=1.0, out_proj=False, dtype=F64
    )
    with torch.no_grad():
        for name, row in (("q_proj", 0), ("k_proj", 1), ("v_proj", 2)):
            layer.get_parameter(f"{name}.weight").copy_(torch.eye(3, dtype=F64)[row : row + 1])
        layer.kernel.fill_(1)
        for s1, s2 in itertools.product((1.0, -1.0), repeat=2):
            x = torch.tensor([[[0, s1, 1.0], [s2, 0, 0], [0, 0, 0]]], dtype=F64)
            found = float(layer(x, x, x, is_causal=True)[0, -1, 0])
            assert ((found - 0.36) * s1 * s2 > 0.1) == bits
