"""Bits of parity and the least number of errors: docs/parity.md, Theorems 1 and 4."""

import itertools
import math
from inspect import unwrap
from math import comb

import pytest
import torch
import torch.nn.functional as F

from iha_theory.attention import MultiHeadAttention, TwoLayerAttention
from iha_theory.bounds import parity
from iha_theory.bounds.parity import ParityCapacity, bits_reached, parity_bits, parity_capacity
from iha_theory.bounds.parity_errors import least_errors


def test_bits_of_each_layer():
    found = {kind: parity_bits(kind, 3) for kind in ("mha", "mqa", "gqa", "talking-heads", "differential", "strassen")}
    assert found == {"mha": 3, "mqa": 3, "gqa": 3, "talking-heads": 3, "differential": 6, "strassen": 6}
    assert [parity_bits("iha", 3, p) for p in (1, 2, 3)] == [3, 6, 9]
    assert parity_bits("two-layer", 3) is None
    assert [parity_bits(kind, 3, pattern="linear") for kind in ("mha", "simplicial", "two-layer")] == [1, 2, 2]
    assert parity_bits("mha", 3, pattern="hard") == 3
    assert [parity_bits("iha", h, p, "hard") for h, p in ((1, 2), (1, 50), (2, 3))] == [2, 3, 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mhla", 2), "^unknown kind"),
        (("mha", 0), "^heads must be"),
        (("iha", 2), "pseudo_heads goes with iha"),
        (("mha", 2, 2), "pseudo_heads goes with iha"),
        (("iha", 2, 0), "^pseudo_heads must be"),
        (("mha", 2, None, "cosine"), "^unknown pattern"),
        (("multi-token", 2), "^key_window goes with multi-token"),
        (("multi-token", 2, None, "softmax", 0), "^key_window must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        unwrap(parity_bits)(*arguments)  # past the tests' type checks


def test_least_errors_is_reached_by_the_best_signs_with_so_many_changes():
    """Symmetric functions p(c)/Q(c), deg p <= R, have at most R changes of sign along c = 0..n; the best of them."""
    for n in range(1, 9):
        for r in range(1, n + 2):
            fewest = min(
                sum(comb(n, c) for c in range(n + 1) if signs[c] != (-1) ** c)
                for signs in itertools.product((1, -1), repeat=n + 1)
                if sum(a != b for a, b in itertools.pairwise(signs)) <= r
            )
            assert least_errors(n, r) == fewest
    assert [least_errors(9, r) for r in range(1, 11)] == [186, 130, 74, 46, 18, 10, 2, 1, 0, 0]


def test_two_layers_of_softmax_with_one_head_have_no_bound():
    """docs/parity.md, Section 7. Coordinates: s, two constant tokens, log r, which of them, log p, 1."""
    n, other = 5, 3.0
    tau = torch.tensor([1.0, 2.0, 3.5, 6.0, 10.0], dtype=torch.float64)
    rest = 2 + math.exp(-other)
    r = (rest + (rest**2 + 4 * tau * (tau + n)).sqrt()) / (2 * tau)  # d = rest + r c + (n - c) / r is 0 at c = -tau
    ones = torch.arange(n + 1, dtype=torch.float64)[:, None]
    rows = 1 / (rest + r * ones + (n - ones) / r)
    theta, *w = torch.linalg.solve(torch.cat((torch.ones_like(ones), rows), 1), (-1.0) ** ones[:, 0]).tolist()
    layer = TwoLayerAttention(7, 1, head_dim=3, value_head_dim=1, out_dim=1, scale=1.0, dtype=torch.float64)
    x = torch.zeros(2**n, n + 3, 7, dtype=torch.float64)
    bits = torch.tensor(list(itertools.product((0, 1), repeat=n)))
    x[:, :n, 0], x[:, n, 1], x[:, n + 1, 2] = 2 * bits.double() - 1, 1, 1
    weights = torch.tensor(w, dtype=torch.float64)
    x[:, :n, 3], x[:, :n, 4], x[:, :n, 5], x[..., 6] = r.log(), weights.sign(), weights.abs().log(), 1
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        first, second = layer.first, layer.second
        first.q_proj.weight[:, 3:5] = torch.tensor([[1.0, 0.0], [0.0, other / 2], [0.0, -other / 2]])
        first.q_proj.weight[1:, 6] = -other / 2
        first.k_proj.weight[:, :3] = torch.eye(3)
        first.v_proj.weight[0, 1:3] = torch.tensor([1.0, -1.0])
        second.q_proj.weight[0, 6] = second.k_proj.weight[0, 5] = second.v_proj.weight[0, 0] = 1
        second.get_parameter("out_proj.weight").fill_(1)
    out = layer(x, x, x)[:, -1, 0]
    total = 3 + sum(map(abs, w))  # of the second layer's weights
    parity = theta + total / (1 - math.exp(-other)) * out
    torch.testing.assert_close(parity, (-1.0) ** bits.sum(1).double(), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "bits"),
    [
        (("mha", 3), 3),
        (("differential", 2), 4),
        (("iha", 2, 2, "per_head"), 4),
        (("simplicial", 1, None, None, "linear"), 2),
    ],
)
def test_random_weights_reach_what_is_proved(arguments, bits):
    found = parity_capacity(*arguments)
    assert (found.bits, found.reached, found.holds) == (bits, bits, True)
    assert found.sum is not None
    assert found.sum < 1e-15


def test_a_claim_of_a_bit_less_is_refuted_by_its_sum(monkeypatch):
    monkeypatch.setattr(parity, "parity_bits", lambda kind, *options: parity_bits(kind, *options) - 1)
    found = parity_capacity("mha", 3)
    assert (found.bits, found.reached, found.holds) == (2, 3, False)
    assert found.sum > 1e4 * found.rounding


def test_two_layers_with_random_weights_reach_more_than_their_heads():
    found = parity_capacity("two-layer", 1)
    assert (found.bits, found.unbounded, found.holds) == (None, True, False)
    assert 1 < found.reached < 9


@pytest.mark.parametrize(("noise", "found"), [(1e-9, False), (2e-10, False), (5e-11, True), (torch.nan, False)])
def test_signs_count_by_ten_times_their_noise(noise, found):
    """1 + 1e-9 s, s the signs, on 64 inputs: noise of 1e-10 is a tenth of s."""
    signs = torch.ones(64, dtype=torch.float64)
    signs[::2] = -1
    outputs = torch.stack((torch.ones_like(signs), 1 + 1e-9 * signs), 1)
    assert parity._fitted(outputs, signs, torch.tensor([0.0, noise], dtype=torch.float64)) == found


@pytest.mark.parametrize(("rounded", "least"), [("nothing", 3), ("weights", 3), ("inputs", 1), ("outputs", 1)])
def test_rounding_is_not_read_as_bits(rounded, least):
    """3 heads, with weights in float32, inputs in bfloat16 or outputs to 1e-3; a bias of logits by position."""
    torch.manual_seed(1)
    layer = torch.nn.MultiheadAttention(24, 3, batch_first=True)
    bias = torch.arange(10.0, dtype=torch.float64).expand(10, -1) * 0.01

    class Rounded(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, query, key, value):
            if rounded == "inputs":
                query, key, value = (x.bfloat16().double() for x in (query, key, value))
            q, k, v = F.linear(query, self.layer.in_proj_weight).unflatten(-1, (9, 8)).transpose(1, 2).chunk(3, 1)
            logits = q @ k.mT / 8**0.5 + bias[: q.shape[2], : q.shape[2]]
            weights = logits.softmax(-1, torch.float32 if rounded == "weights" else torch.float64).double()
            out = (weights @ v).transpose(1, 2).flatten(2)
            return out.round(decimals=3) if rounded == "outputs" else out

    assert least <= bits_reached(Rounded(), 24) <= 3


def test_equal_heads_reach_less_and_a_kink_behind_the_layer_more():
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, dtype=torch.float64)
    assert bits_reached(layer, 8) == 2
    behind = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()).double()

    class WithMlp(torch.nn.Module):
        def forward(self, query, key, value):
            return behind(10 * layer(query, key, value))

    assert bits_reached(WithMlp(), 8) > 2
    with torch.no_grad():
        for name in ("q_proj.weight", "k_proj.weight"):
            weight = layer.get_parameter(name)
            weight[4:] = weight[:4]
    assert bits_reached(layer, 8) == 1


def test_what_contradicts_the_proof_does_not_hold():
    assert ParityCapacity(3, 3, 1e-17, 1e-15).holds
    assert ParityCapacity(12, 9).holds
    for found in (
        ParityCapacity(None, 9, unbounded=True),
        ParityCapacity(3, 2),
        ParityCapacity(3, 4),
        ParityCapacity(3, 3, 1e-14, 1e-15),
        ParityCapacity(12, 8),
    ):
        assert not found.holds
