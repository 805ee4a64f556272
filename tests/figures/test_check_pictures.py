"""Pictures of checks, spectra and costs, and the style of all."""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from figures import bits, costs, heads, spectra, style
from iha_theory.costs.formulas import LAYERS, cost
from iha_theory.rounding import ceil_sqrt
from synthetic.graphs import builtin

DOCS = Path(__file__).parents[2] / "docs"
SIZES = {"bank": (1, 4, 5, 9, 30), "workspace": (1, 4, 5, 9, 30), "parity": (1, 4, 5, 9)}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def points():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heads, "SIZES", SIZES)
        patch.setattr(heads, "STEPS", dict.fromkeys(heads.TASKS, ()))
        return [point for _, step in heads.steps() for point in step()]


def counts(points, task, kind):
    return {(p.layer, p.size): p.heads for p in points if (p.task, p.kind, p.verdict) == (task, kind, "holds")}


def test_constructions_are_on_the_bounds(points):
    """The karate club has 25 independent powers: from there on an output projection needs fewer heads."""
    for task in heads.TASKS:
        built, bound = counts(points, task, "construction"), counts(points, task, "bound")
        sizes = SIZES[task]
        assert built == {(layer, n): n if layer == "mha" else ceil_sqrt(n) for layer in heads.LAYERS for n in sizes}
        assert bound.keys() == built.keys()
        assert all(bound[at] == built[at] for at in built if at[1] <= 25 or task != "bank")
    assert counts(points, "bank", "projected") == {("mha", 30): 25, ("iha", 30): 5}
    assert {at: h for at, h in counts(points, "bank", "bound").items() if at[1] == 30} == {
        ("mha", 30): 25,
        ("iha", 30): 5,
    }
    assert not counts(points, "workspace", "projected") | counts(points, "parity", "projected")


def test_every_head_count_is_in_the_table_and_drawn(points, tmp_path, drawn):
    picture = heads.draw(points, tmp_path / "new" / "folder")
    rows = table(picture.data_files[0])
    assert [(r["task"], r["layer"], int(r["size"]), int(r["heads"]), r["kind"]) for r in rows] == [
        (p.task, p.layer, p.size, p.heads, p.kind) for p in points
    ]
    shown = {(x, y) for axes in drawn[0].axes for line in axes.lines for x, y in line.get_xydata()}
    assert shown == {(p.size, p.heads) for p in points}
    assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in drawn[0].axes)


def test_a_check_that_fails_is_a_cross(points, tmp_path, drawn):
    damaged = [replace(p, verdict="fails") if p == points[0] else p for p in points]
    picture = heads.draw(damaged, tmp_path)
    labels = drawn[0].axes[0].get_legend_handles_labels()[1]
    assert sum("CHECK FAILS" in label for label in labels) == 1
    assert table(picture.data_files[0])[0]["verdict"] == "fails"


def test_constructions_can_come_from_verify():
    about = {"tier": "exact", "layer": "mha", "heads": 2, "verdict": "holds"}
    checks = [
        about | {"id": "bank/karate/k=2/mha/exact", "setting": {"terms": 2}},
        about | {"id": "bank/davis/k=2/mha/exact", "setting": {"terms": 2}},
        about | {"id": "bank/karate/k=2/mha/float64", "setting": {"terms": 2}, "tier": "float64"},
        about | {"id": "parity-more/rows=1/mha/exact", "setting": {"bits": 2}},
        about | {"id": "parity/k=2/mha/exact", "setting": {"bits": 2}},
    ]
    found = [point for _, step in heads.steps(checks) for point in step()]
    assert counts(found, "bank", "construction") == {("mha", 2): 2}
    assert counts(found, "bank", "bound") == {("mha", 2): 2, ("iha", 2): 2}
    assert counts(found, "parity", "construction") == {("mha", 2): 2}
    assert counts(found, "parity", "bound") == {("mha", 2): 2, ("iha", 2): 2}
    with pytest.raises(ValueError, match="its setting has terms None"):
        heads.steps([checks[0] | {"setting": {}}])
    with pytest.raises(ValueError, match="no exact check"):
        heads.steps(checks[1:-1])


def test_packed_heads_are_not_below_the_bound_and_on_it_where_tokens_fill_a_number(tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(bits, "SIZES", {16: (2, 3, 53), 5: (4,)})
    found = [point for _, step in bits.steps() for point in step()]
    built = {(p.layer, p.tokens, p.bits): p.heads for p in found if p.kind == "construction"}
    assert built == {
        **{("mha", 16, 2): 15, ("iha", 16, 2): 4, ("mha", 16, 3): 15, ("iha", 16, 3): 4, ("mha", 16, 53): 1},
        **{("iha", 16, 53): 1, ("mha", 5, 4): 2, ("iha", 5, 4): 2},
    }
    bound = {(p.layer, p.tokens, p.bits): p.heads for p in found if p.kind == "bound"}
    assert [at for at in built if bound[at] != built[at]] == [("mha", 16, 3)]
    assert all(h == -(-2 * (n - 1) // p) for (layer, n, p), h in bound.items() if layer == "mha")
    found[0] = replace(found[0], verdict="fails")
    picture = bits.draw(found, tmp_path)
    rows = table(picture.data_files[0])
    assert [(r["layer"], int(r["tokens"]), int(r["bits"]), int(r["heads"]), r["kind"], r["verdict"]) for r in rows] == [
        (p.layer, p.tokens, p.bits, p.heads, p.kind, p.verdict) for p in found
    ]
    crosses = [line for axes in drawn[0].axes for line in axes.lines if line.get_marker() == "x"]
    assert [tuple(map(int, line.get_xydata()[0])) for line in crosses] == [(2, 15)]


def test_spectra_have_exact_zeros_and_the_known_heads(tmp_path, drawn):
    """docs/bounds.md, Theorem 4: karate takes 4, 7, 11, 16 heads of MHA; Petersen's graph has 3 independent powers."""
    found = [spectra.spectrum_of(builtin(name)) for name in ("karate", "petersen", "cycle:16")]
    mha = [[s.heads[e]["mha"][0] for e in (1e-1, 1e-2, 1e-4, 1e-8, 0)] for s in found]
    assert mha == [[4, 7, 11, 16, 16], [3] * 5, [16] * 5]
    assert all(lower == got for s in found for e, row in s.heads.items() if e for lower, got in row.values())
    assert [s.rank for s in found] == [16, 3, 16]
    assert found[1].values[3:] == (0.0,) * 13
    assert found[1].values[2] > 0.1
    assert found[2].values == pytest.approx([1.0] * 16)
    picture = spectra.draw(found, tmp_path)
    rows = table(picture.data_files[0])
    values = {(s.graph, str(i)): v for s in found for i, v in enumerate(s.values, 1)}
    assert {(r["graph"], r["index"]): float(r["singular_value"]) for r in rows if r["index"]} == values
    left, right = drawn[0].axes
    assert len([y for line in left.lines[-6:] for y in line.get_ydata()]) == 3 * 16
    assert "0" in [t.get_text() for t in left.get_yticklabels()]
    assert [t.get_text() for t in right.texts][:2] == ["4 / 2", "7 / 3"]


def test_costs_are_the_closed_forms_with_their_crossovers(tmp_path, drawn):
    curves = costs.compute(tokens=20, width=3)
    assert {(c.quantity, c.layer) for c in curves} == {(q, layer) for q in costs.QUANTITIES for layer in LAYERS}
    by_name = {(c.quantity, c.layer): c for c in curves}
    for curve in curves:
        assert list(curve.values) == [cost(curve.quantity, curve.layer, 20, 3, k) for k in range(1, 21)]
        mha = by_name[curve.quantity, "mha"].values
        below = [
            k for k in range(1, 21) if all(a < b for a, b in zip(curve.values[k - 1 :], mha[k - 1 :], strict=True))
        ]
        assert curve.cheaper_from == (below[0] if below else None)
    picture = costs.draw(curves, tmp_path, tokens=20, width=3)
    rows = table(picture.data_files[0])
    assert [int(r["value"]) for r in rows] == [v for c in curves for v in c.values]
    assert "values" not in rows[0]


TESTED = re.search(r'"matplotlib==(.*)"', (DOCS.parent / "pyproject.toml").read_text())


@pytest.mark.skipif(TESTED is None or TESTED[1] != matplotlib.__version__, reason="bytes differ between versions")
def test_the_committed_pictures_are_what_the_command_gives(tmp_path):
    numbers: list[dict[str, Any]] = [
        {k: int(v) if k in ("size", "heads") else v for k, v in row.items()} for row in table(DOCS / "heads.csv")
    ]
    assert {row["verdict"] for row in numbers} == {"holds"}
    for task, sizes in heads.SIZES.items():
        built = {row["size"] for row in numbers if (row["task"], row["kind"]) == (task, "construction")}
        assert built == set(sizes)
    heads.draw([heads.Point(**row) for row in numbers], tmp_path)
    costs.draw(costs.compute(), tmp_path)
    packed = [
        bits.Point(**{k: int(v) if k in ("tokens", "bits", "heads") else v for k, v in row.items()})  # type: ignore[arg-type]
        for row in table(DOCS / "bits.csv")
    ]
    assert {p.verdict for p in packed} == {"holds"}
    built = {(p.tokens, p.bits) for p in packed if p.kind == "construction"}
    assert built == {(n, p) for n, chosen in bits.SIZES.items() for p in chosen}
    bits.draw(packed, tmp_path)
    for name in ("heads.svg", "heads.csv", "bits.svg", "bits.csv", "costs.svg", "costs.csv"):
        assert named(tmp_path / name) == named(DOCS / name), f"iha-theory figures --out docs: {name}"


def named(file):
    """A file's text, clip paths by their number: matplotlib names them by floats, which differ between processors."""
    text = file.read_text(encoding="utf-8")
    for number, own in enumerate(dict.fromkeys(re.findall(r"\bp[0-9a-f]{10}\b", text))):
        text = text.replace(own, f"clip{number}")
    return text


def test_looks_differ_in_more_than_colour():
    for part in ("colour", "marker", "line"):
        assert len({str(getattr(look, part)) for look in style.LOOKS}) == len(style.LOOKS)


def test_the_same_data_gives_the_same_bytes_whatever_the_user_has_set(points, tmp_path):
    one = heads.draw(points, tmp_path / "one")
    with matplotlib.rc_context({"font.size": 20, "svg.fonttype": "none", "savefig.dpi": 30}):
        two = heads.draw(points, tmp_path / "two")
    for a, b in zip((*one.files, *one.data_files), (*two.files, *two.data_files), strict=True):
        assert a.read_bytes() == b.read_bytes()
    svg = one.files[0].read_text()
    assert "<dc:date>" not in svg
    assert "matplotlib.org" not in svg


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_a_log_axis_refuses_what_it_cannot_show(value):
    with pytest.raises(ValueError, match="finite numbers of at least 0"):
        style.ZeroRow(style.Figure().subplots(), [1.0, value])
