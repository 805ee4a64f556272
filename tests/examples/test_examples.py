"""The examples do what they say. What their command lines do, docs/use.md shows and tests/test_pages.py runs."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


def example(name):
    return runpy.run_path(str(FOLDER / f"{name}.py"), run_name=name)


def test_the_swap_is_short_changes_nothing_and_trains():
    source = (FOLDER / "swap_attention.py").read_text(encoding="utf-8")
    _, _, rest = source.partition("# The swap.\n")
    swap, end, _ = rest.partition("# End of the swap.\n")
    assert end
    assert len(swap.splitlines()) < 30
    before, difference, mha, iha = example("swap_attention")["main"](steps=12)
    assert difference < 1e-5
    assert max(mha, iha) < before
    assert mha != iha


def test_the_swap_is_of_every_layer():
    names = example("swap_attention")
    model = names["swap"](names["GPT"](5, layers=3))
    assert [type(module).__name__ for module in model.modules()].count("InterleavedHeadAttention") == 3
    assert "MultiheadAttention" not in {type(module).__name__ for module in model.modules()}


def test_capacities():
    assert example("measure_layers")["main"](heads=(1, 3)) == {
        "torch.nn.MultiheadAttention": [1, 3],
        "InterleavedHeadAttention": [1, 9],
        "OneMap": [1, 1],
    }


def test_loaded_weights_make_the_powers(call, tmp_path):
    file = tmp_path / "w.safetensors"
    assert call("heads", "cycle:5", "--terms", "4", "--tolerance", "0", "--weights", file)[0] == 0
    differences = example("load_weights")["main"](str(file))
    assert {"mha", "iha"} < set(differences)
    assert max(differences.values()) < 1e-12
    with pytest.raises(SystemExit, match="usage"):
        example("load_weights")["arguments"]([])


def test_the_picture_has_the_bounds_of_heads(call, tmp_path):
    names = example("plot_heads")
    found = names["counts"]("petersen")
    assert found["mha"][-1] == 3  # the minimal polynomial's degree, whatever k
    assert found["iha"][-1] == 2
    assert sorted(found["mha"]) == found["mha"]
    for name in ("a.svg", "a.png"):
        names["main"](["petersen", str(tmp_path / name)])
        assert (tmp_path / name).stat().st_size > 2000
