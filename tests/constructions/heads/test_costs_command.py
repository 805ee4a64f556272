"""`iha-theory costs` as a user calls it."""

import json

import pytest

from constructions.heads import costs as layer_costs
from constructions.heads import costs_command
from iha_theory.costs.formulas import LAYERS


def test_json_has_formulas_counts_and_crossovers(call, tmp_path):
    file = tmp_path / "new" / "costs.json"
    code, out, _ = call("costs", "--tokens", "5", "--width", "2", "--terms", "4", "9", "--json", str(file))
    content = json.loads(file.read_text())
    assert code == 0
    assert content["schema"] == "iha-theory/costs/1"
    assert content["complete"]
    rows = content["costs"]
    assert {(r["task"], r["layer"], r["size"]) for r in rows} == {
        (task, layer, size) for task, size in (("bank", 4), ("bank", 9), ("cpm3", 5)) for layer in LAYERS
    }
    for row in rows:
        assert row["parameters_formula"] == row["parameters_counted"]
        assert row["flops_formula"] == row["flops"] > 0
        assert row["cache_formula"] == row["cache_counted"] > 0
        assert row["mixed_cache_formula"] == row["mixed_cache_counted"] >= row["cache_formula"]
        assert {"heads", "pseudo_heads", "attention_maps", "parameters_paper", "part"} <= row.keys()
    (paper,) = (r for r in rows if r["layer"] == "mha" and r["part"] == "total")
    assert (paper["parameters_paper"], paper["parameters_counted"]) == (4 * 125 + 25 - 5, 3 * 125 + 4 * 25 + 5)
    assert {f["layer"] for f in content["formulas"]} == set(LAYERS)
    for crossover in content["crossovers"]:
        assert crossover["layer"] != "mha"
        assert crossover["searched"] == 10**6
    assert "iha, cpm3 total, parameters: first at N = 4, from N = 6 on" in out
    assert "iha, bank d = 2, N = 5, FLOPs: never (proved for all sizes)" in out
    assert "iha, cpm3 attention, cache: from N = 3 on" in out
    assert "iha, cpm3 attention, cache of pseudo-heads: never (proved for all sizes)" in out
    assert "All 16 rows have" in out.splitlines()[-1]


def test_json_to_standard_output_is_all_there_is(call, monkeypatch):
    monkeypatch.setattr(costs_command, "_crossovers", lambda *_: [])
    code, out, err = call("costs", "--task", "cpm3", "--tokens", "4", "--json", "-")
    assert code == 0
    assert {row["task"] for row in json.loads(out)["costs"]} == {"cpm3"}
    assert "All 8 rows" in err


def test_a_wrong_formula_fails_the_command(call, monkeypatch):
    monkeypatch.setattr(costs_command, "_crossovers", lambda *_: [])
    real = layer_costs.cost
    monkeypatch.setattr(layer_costs, "cost", lambda quantity, *sizes: real(quantity, *sizes) + (quantity == "flops"))
    code, out, _ = call("costs", "--task", "bank", "--tokens", "3", "--terms", "2")
    assert code == 1
    assert "DIFFERS bank mha attention, N = 3, d = 1, k = 2: parameters 56, counted 56" in out
    assert "4 of 4 rows DIFFER" in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("sizes", "says"),
    [((2, 4, 8), None), ((2, 3, 8), "its 3 heads do not divide the width 8"), ((2, 2, 8), "mha has rank 2 with its 2")],
)
def test_a_line_that_is_left_out_is_named(call, sizes, says):
    heads, capacity, width = sizes
    code, out, _ = call("costs", "--heads", heads, "--capacity", capacity, "--embed-dim", width, "--tokens", 3)
    assert code == 0
    assert (", narrow" in out, 'No line "narrow"' in out) == (says is None, says is not None)
    assert says is None or says in out


def test_the_price_of_a_capacity(call, tmp_path, monkeypatch):
    file = tmp_path / "p.json"
    arguments = ("costs", "--heads", "3", "--capacity", "5", "--embed-dim", "24", "--tokens", "7", "--json", str(file))
    code, out, _ = call(*arguments)
    rows = {row["layer"]: row for row in json.loads(file.read_text())["prices"]}
    assert code == 0
    assert (rows["iha, kept"]["pseudo_heads"], rows["iha, kept"]["collapse"]) == (2, "per_head")
    assert rows["iha, kept"]["cache_counted"] == 2 * rows["iha, mixed maps"]["cache_counted"] == 96
    assert out.splitlines()[-1] == "All 8 layers have the parameters, FLOPs at 7 tokens, and cache of their formulas."
    monkeypatch.setattr("iha_theory.bounds.price.cache_numbers", lambda *_, **__: 1)
    code, out, _ = call(*arguments)
    assert code == 1
    assert out.splitlines()[-1] == "8 of 8 layers DIFFER from their formulas"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--task", "conv"],
        ["--tokens", "0"],
        ["--terms", "-1"],
        ["--width", "0"],
        ["--terms", "two"],
        ["--task", "cpm3", "--terms", "4"],
        ["--task", "cpm3", "--width", "2"],
        ["--task", "cpm3", "--tokens", "129"],
        ["--task", "bank", "--tokens", "1000000"],
        ["--unknown"],
        ["--heads", "4", "--capacity", "17"],
        ["--heads", "0"],
        ["--heads", "4", "--embed-dim", "10"],
        ["--heads", "4", "--task", "bank"],
        ["--heads", "4", "--tokens", "3", "4"],
        ["--capacity", "4"],
    ],
)
def test_bad_usage_is_one_line(refused, arguments):
    refused("costs", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--heads", "100000"],
        ["--heads", "1000000007"],
        ["--heads", "4", "--capacity", str(10**15), "--of", "rows"],
        ["--heads", "2", "--embed-dim", str(10**9)],
        ["--heads", "2", "--tokens", str(10**15)],
    ],
)
def test_what_torch_cannot_lay_out_is_refused(refused, arguments):
    """Before anything is built, and before a large prime's divisor is looked for."""
    assert "accepted are at most 2^53" in refused("costs", *arguments)
