"""What `bench hybrid` times: the schedule of App. C, and work that falls with the window."""

import json

import pytest

from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.fused import kernel
from iha_theory.speed import schedule
from iha_theory.speed.schedule import Schedule, layers

SMALL = Schedule(160, (80, 20, 5), (1, 2))


def test_the_layers():
    assert [(type(own), own.window) for own in layers(2, 20)] == [(InterleavedHeadAttention, 20)] * 4 + [
        (MultiHeadAttention, None)
    ]
    assert [own.window for own in layers(1, 20)] == [20] * 4 + [None]
    assert [type(own) for own in layers(2, None)] == [InterleavedHeadAttention] * 5


def test_flops_match_at_the_windows_of_app_c():
    """At N / (2 P^2): 3/5 of the maps' up to edges, so that the rest is the projections and the mixing."""
    size = Schedule()
    full, matched = (
        size.flops("mha"),
        {p: size.flops(name) for p, name in ((1, "mha window=1024"), (2, "iha P=2 window=256"))},
    )
    pairs = 5 * 4 * 2048**2 * 2 * 2 * 64
    mixing = {1: 0, 2: 4 * 2 * 2048 * 4**2 * 2 * 4 * 64}
    for pseudo, found in matched.items():
        share = 3 / 5 - 1 / (10 * pseudo**2) + 1 / (5 * 2048)
        assert found == pytest.approx(full - pairs * (1 - share) + mixing[pseudo], rel=1e-12)


def test_the_work_falls_with_the_window(monkeypatch):
    """Scores that the kernel is asked for, forward: what is outside a window is not among them but for its blocks."""
    scores = []
    real = kernel.forward

    def counted(q, k, v, scale, **given):
        scores.append(q.shape[1] * q.shape[2] * k.shape[2])
        return real(q, k, v, scale, **given)

    monkeypatch.setattr(kernel, "forward", counted)
    work = {}
    for name, run in SMALL.passes().items():
        scores.clear()
        run()
        work[name] = sum(scores)
    for name, least in (("mha", 1.0), ("iha P=2", 4.0)):
        own = [work[f"{name} window={w}"] for w in SMALL.windows]
        assert own[0] > own[1] > own[2] > 0
        pairs = 4 * 4 * least * (160 * 5 - 5 * 4 // 2)  # four layers of four heads, the last window
        assert pairs <= own[2] < 16 * pairs + 4 * 160**2  # and at most all pairs of the global layer


def test_the_table(call, tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "Schedule", lambda: SMALL)
    code, out, err = call("bench", "hybrid", "--repeats", "1", "--json", str(tmp_path / "b.json"))
    assert code == 0, err
    assert "iha P=2 window=20" in out
    found = {own["way"]: own for own in json.loads((tmp_path / "b.json").read_text())["schedules"]}
    assert found["mha"]["ratio"] == found["mha"]["flops_ratio"] == 1
    assert found["iha P=2"]["window"] is None
    assert [found[f"mha window={w}"]["window"] for w in SMALL.windows] == [80, 20, 5]
