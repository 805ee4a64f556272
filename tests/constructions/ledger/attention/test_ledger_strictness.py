"""Strictness: the printed witness, and heads of linear attention."""

import pytest
import torch

from constructions.ledger.attention.linear import diagonal


def test_mha_on_repeated_tokens(judged):
    """Cubic with linear attention."""
    found = {tuple(case.values()): finding.values for case, finding in judged("P-repeated-linear").evidence[0].findings}
    assert found[1, 3, "linear", "none"]["degree"] == pytest.approx(3, abs=1e-12)


def test_the_printed_witness(judged):
    """P = 2 returns v; from P = 3 on the zeroed pseudo-heads make it non-linear after all."""
    _, finding = judged("E8").counterexample
    assert finding.values["gap_to_v"] < 1e-14
    assert finding.values["departure"] < 1e-14
    assert {c["pseudo"] for c, f in judged("E8").evidence[0].findings if f.holds} == {3}


def test_one_linear_head_is_an_mha_head(judged):
    assert {case["heads"] for case, _ in judged("P-strict").evidence[0].failures} == {1}


@pytest.mark.parametrize(("heads", "pseudo"), [(2, 2), (2, 4), (3, 3)])
def test_diagonal(heads, pseudo):
    """sum_j sum_a X[i,a] X[j,a]^2, in integers."""
    x = torch.randint(-5, 6, (3, 4, heads**2), generator=torch.Generator().manual_seed(0)).double()
    out = diagonal(heads, pseudo)(x, x, x)[..., 0]
    assert torch.equal(out, (x * x.square().sum(1, keepdim=True)).sum(-1))
