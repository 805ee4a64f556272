"""What is measured is what it says: the same functions, alternated, memory above the process."""

import json

import pytest
import torch

from iha_theory.attention import InterleavedHeadAttention, patterns
from iha_theory.speed import measure
from iha_theory.speed.ways import SIZES, WINDOW, PlainIHA, Size, kernel_flops, way, ways

SMALL = Size(12, 4, 3)


@pytest.mark.parametrize("causality", ["token", "virtual"])
@pytest.mark.parametrize("most", [0, 10**9])
def test_the_plain_layer_is_the_layer(causality, most, monkeypatch):
    monkeypatch.setattr(patterns, "DENSE", most)
    options = {"num_pseudo_heads": 3, "causality": causality, "init": "random", "dtype": torch.float64}
    layer, plain = (kind(8, 4, **options) for kind in (InterleavedHeadAttention, PlainIHA))
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    outputs = [kind(x, x, x, is_causal=True) for kind in (layer, plain)]
    torch.testing.assert_close(*outputs, rtol=1e-11, atol=1e-12)
    both = zip(outputs, (layer, plain), strict=True)
    gradients = (torch.autograd.grad(out.sin().sum(), tuple(own.parameters())) for out, own in both)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-11)


def test_every_way_runs_in_every_round():
    calls = []
    found = measure.alternated({name: lambda name=name: calls.append(name) for name in "ab"}, 3)
    assert calls == ["a", "b"] * 4  # the first round warms up
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 3, "b": 3}
    for name, run in (ways(SMALL) | ways(Size(16, 4, 2, 4))).items():
        run()
        assert name
    assert WINDOW.window == WINDOW.tokens // 8


@pytest.mark.skipif(not measure.RESET.exists(), reason="only Linux tells")
def test_peak_memory_is_that_of_the_pass():
    """A causal pass by token saves at least queries, keys, values and outputs; the plain one several (N P)^2 maps."""
    size = Size(256, 4, 4)
    virtual_tokens = 2 * size.heads * (size.tokens * size.pseudo) * 64 * 4
    maps = 2 * size.heads * (size.tokens * size.pseudo) ** 2 * 4
    token, plain = (measure.peak_memory(name, size) for name in ("token", "plain"))
    assert 4 * virtual_tokens < token < 16 * virtual_tokens < 2 * maps < plain


def test_the_kernels_arithmetic():
    """Two products forward and five backward, each of as many multiplications as pairs that may attend times width."""
    pairs = 2 * 4 * sum(range(1, 12 * 3 + 1))
    assert kernel_flops(SMALL) == 2 * (2 + 5) * pairs * (256 // 4)


def test_the_table(call, tmp_path, monkeypatch):
    monkeypatch.setattr("iha_theory.speed.ways.SIZES", (SMALL,))
    monkeypatch.setattr("iha_theory.speed.ways.WINDOW", Size(16, 4, 2, 4))
    monkeypatch.setattr(measure, "peak_memory", lambda *_: 2**20)
    code, out, _ = call("bench", "layer", "--repeats", "2", "--json", str(tmp_path / "b.json"))
    assert code == 0
    assert "N=12 H=4 P=3" in out
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["environment"]["threads"] == torch.get_num_threads()
    rows = {(row["size"], row["way"]): row for row in found["layers"]}
    assert rows[str(SMALL), "floor"]["over_first"] == rows[str(SMALL), "mha"]["over_mha"] == 1
    assert all(row["n"] == 2 and row["median_s"] >= row["least_s"] > 0 for row in rows.values())
    own = rows[str(SMALL), "kernel"]
    assert own["share"] * found["peaks"]["product_flops_per_s"] * own["least_s"] == pytest.approx(kernel_flops(SMALL))
    assert 0 < own["share"] < 1
    assert found["peaks"]["copy_bytes_per_s"] > 1e8
    assert [name for (_, name), row in rows.items() if row["share"] is not None] == ["kernel"]
    assert {way for _, way in rows} >= {"virtual", "token", "plain", "virtual, no window"}
    assert len(SIZES) == 4
    assert way("mha", SMALL)() is None
