"""`bench decode` measures the next token of the layers that it names, at the lengths that it names."""

import json

import pytest
import torch

from iha_theory.bounds.price import prices
from iha_theory.costs.cache import map_flops
from iha_theory.speed import decode
from iha_theory.speed.decode import PAPER, TOKENS, Generator, most_free_rows

ROWS = {row.name: row for row in prices(2, 4, embed_dim=16)}


def build(row):
    layer = row.build()
    return Generator(layer, row.cache_for(layer), row.mix)


def test_each_length_has_each_layer_with_its_cache(monkeypatch):
    monkeypatch.setattr(decode, "PIECE", 4)
    make = {name: lambda row=row: build(row) for name, row in ROWS.items()}
    found = [decode.times(make, length, 2, "cpu") for length in (3, 10)]
    assert [[(r["length"], r["layer"]) for r in rows] for rows in found] == [
        [(n, name) for name in ROWS] for n in (3, 10)
    ]
    for row in (row for rows in found for row in rows):
        assert row["cache_bytes"] == 4 * row["length"] * ROWS[row["layer"]].cache
        assert row["n"] == 2
        assert row["median_s"] >= row["least_s"] > 0
    assert all(rows[0]["over_first"] == 1 for rows in found)


def test_a_step_is_so_many_tokens_more():
    generator = build(ROWS["iha, mixed maps"])
    generator.fill(5)
    assert len(generator.cache) == 5
    generator.step()()
    assert len(generator.cache) == 5 + TOKENS


@pytest.mark.parametrize("name", [name for name in ROWS if name.startswith("iha")])
def test_all_ways_of_iha_give_the_same(name):
    torch.manual_seed(0)
    x = torch.randn(1, 6, 16)
    reference, row = ROWS["iha, formed anew"].build(), ROWS[name]
    layer = row.build()
    layer.load_state_dict(reference.state_dict())
    cache = row.cache_for(layer)
    outputs = [decode.extend(layer, t, t, t, cache, mix=row.mix) for t in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(outputs, 1), reference(x, x, x, is_causal=True))


@pytest.mark.parametrize("device", PAPER, ids=lambda device: device.name)
def test_free_rows_are_those_whose_flops_fit_into_the_reading(device):
    for pseudo, width in ((1, 64), (4, 64), (2, 128)):
        rows = most_free_rows(device.balance, 2, pseudo, width)
        for heads, fits in ((rows // pseudo, True), (rows // pseudo + 2, False)):
            spent = map_flops(1, heads, width, width, pseudo, "mixed maps") / device.flops_per_s
            assert (spent <= 2 * 2 * heads * width / device.bytes_per_s) == fits


def test_the_table(call, tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "LENGTHS", (8, 16))
    code, out, _ = call("bench", "decode", "--repeats", "2", "--json", str(tmp_path / "d.json"))
    assert code == 0
    found = json.loads((tmp_path / "d.json").read_text())
    assert found["complete"]
    rows = found["decode"]
    assert {row["length"] for row in rows} == {8, 16}
    assert all(row["cache_bytes"] == 4 * row["length"] * row["cache_formula"] for row in rows)
    assert found["environment"]["threads"] == torch.get_num_threads()
    assert found["balance"] == found["peaks"]["product_flops_per_s"] / found["peaks"]["copy_bytes_per_s"]
    assert len(found["paper"]) == len(PAPER)
    assert "FLOPs a byte" in out


def test_what_was_measured_is_kept_when_it_is_stopped(call, tmp_path, monkeypatch):
    def times(make, length, rounds, device):
        if length == 16:
            raise KeyboardInterrupt
        return [{"length": length, "layer": "mha", "median_s": 1.0, "over_first": 1.0, "cache_bytes": 1, "n": rounds}]

    monkeypatch.setattr(decode, "LENGTHS", (8, 16))
    monkeypatch.setattr(decode, "times", times)
    monkeypatch.setattr(decode.measure, "peaks", lambda _: {"product_flops_per_s": 2e9, "copy_bytes_per_s": 1e9})
    code, _, _ = call("bench", "decode", "--json", str(tmp_path / "d.json"))
    found = json.loads((tmp_path / "d.json").read_text())
    assert code == 130
    assert not found["complete"]
    assert [row["length"] for row in found["decode"]] == [8]
