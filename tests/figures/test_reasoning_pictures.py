"""Pictures of the reasoning tasks: every seed is drawn, rows tell settings apart, baselines stand beside."""

import csv

import pytest

from figures import command, reasoning, records

LENGTHS = ("N=32", "N=64", "N=128")


def guesses(**parts):
    own = {
        "baselines": {"own token": 0.6},
        "parts": parts,
        "parameters": 100,
        "flops": 2000,
        "wall_s": 6.0,
        "together": 3,
    }
    return {"more": own}


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_relations(record, write, tmp_path, drawn):
    common = {"attention": "mha", **guesses()}
    written = [record("relations", accuracy=0.8 + seed / 100, heads=4, seed=seed, **common) for seed in range(3)]
    written += [record("relations", accuracy=0.9, heads=16, **common)]
    written += [record("relations", accuracy=0.7, heads=4, width=96, **common)]
    written += [record("relations", accuracy=0.95, heads=4, attention="simplicial", **guesses())]
    written += [record("relations", error=None, outcome="diverged", heads=4, seed=5, attention="simplicial")]
    written += [record("relations", accuracy=0.85, heads=4, pseudo_heads=2, **guesses())]
    picture = reasoning.draw("relations", records.read(write(written)), tmp_path / "out")
    rows, summary = map(table, picture.data_files)
    assert len(rows) == 7
    assert {row["series"] for row in rows} == {
        "MHA, H = 4",
        "MHA, H = 16",
        "MHA, width = 96, H = 4",
        "simplicial",
        "IHA, P = 2",
    }
    assert {(row["own token"], row["commonest_label"], row["seconds"]) for row in rows} == {("0.6", "0.3", "2.0")}
    medians = {row["series"]: (row["n"], row["median"], row["diverged"]) for row in summary}
    assert medians["MHA, H = 4"] == ("3", "0.81", "0")
    assert medians["simplicial"] == ("1", "0.95", "1")
    (figure,) = drawn
    (axes,) = figure.axes
    dots = {(x, round(y)) for line in axes.lines if line.get_marker() in "so^" for x, y in line.get_xydata()}
    assert len(dots) == 7
    lines = {line.get_label(): line.get_xdata()[0] for line in axes.lines if not line.get_label().startswith("_")}
    assert lines == {"commonest label": 0.3, "own token": 0.6}
    assert any("1 diverged" in text.get_text() for text in axes.texts)


def test_hops_are_drawn_against_k(record, write, tmp_path, drawn):
    parts = {"k=0": 1.0, "k=1": 0.9, "k=2": 0.5}
    written = [
        record("hops", accuracy=0.8, attention="mha", layers=layers, seed=seed, **guesses(**parts))
        for layers in (2, 3)
        for seed in (0, 1)
    ]
    picture = reasoning.draw("hops", records.read(write(written)), tmp_path / "out")
    _, summary = map(table, picture.data_files)
    assert [(row["part"], row["median"]) for row in summary[:4]] == [
        ("all", "0.8"),
        ("k=0", "1.0"),
        ("k=1", "0.9"),
        ("k=2", "0.5"),
    ]
    (figure,) = drawn
    assert len(figure.axes) == 4  # two numbers of layers, each with a curve


def test_accuracy_against_length(record, write, tmp_path, drawn):
    """Hybrid and global models have names of their own; runs without longer tests are drawn beside them."""
    own = {"attention": "mha", "layers": 5, "positions": "rotary", "test_lengths": [64, 128]}
    written = [
        record("retrieval", accuracy=1.0, seed=seed, **own, **more, **guesses(**dict(zip(LENGTHS, parts, strict=True))))
        for more, parts in (({}, (1.0, 0.9, 0.4)), ({"window": 4}, (1.0, 1.0, 0.8)))
        for seed in (0, 1)
    ]
    written.append(record("retrieval", accuracy=0.7, attention="mha", layers=5, **guesses()))
    picture = reasoning.draw("retrieval", records.read(write(written)), tmp_path / "out")
    (figure,) = drawn
    lines = {line.get_label(): line.get_xydata().tolist() for line in figure.axes[1].lines}
    assert lines["MHA"] == [[0, 1.0], [1, 0.9], [2, 0.4]]
    assert lines["MHA, window = 4"] == [[0, 1.0], [1, 1.0], [2, 0.8]]
    assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == list(LENGTHS)
    _, summary = map(table, picture.data_files)
    told = {(row["series"], row["part"]): row["median"] for row in summary}
    assert told["MHA, window = 4", "N=128"] == "0.8"


def test_validation_losses_are_drawn(record, write, tmp_path, drawn):
    written = [record("match3", accuracy=0.8, attention="mha", seed=seed, **guesses()) for seed in (0, 1)]
    folder = write(written)
    (folder / "p" / "curves").mkdir()
    file = folder / "p" / "curves" / f"{written[0]['id']}.csv"
    file.write_text("step,loss,validation\n1,0.9,\n2,0.8,0.7\n3,0.6,\n4,0.5,0.4\n")
    curves = records.curves(folder)
    assert curves == {written[0]["id"]: [(2, 0.7), (4, 0.4)]}
    reasoning.draw("match3", records.read(folder), tmp_path / "out", curves)
    (figure,) = drawn
    (line,) = figure.axes[1].lines
    assert line.get_xydata().tolist() == [[2, 0.7], [4, 0.4]]


def test_from_the_command_line(call, record, write, tmp_path):
    assert tuple(reasoning.NAMES) == command.REASONING
    folder = write([record("match3", accuracy=0.8, attention="mha", **guesses())])
    code, out, err = call("figures", "match3", "--from", folder, "--out", tmp_path / "out")
    assert code == 0, err
    assert "match3.svg" in out


def test_no_run_of_the_task(record, write, tmp_path):
    with pytest.raises(ValueError, match="quotient: no run of it that ended well"):
        reasoning.draw("quotient", records.read(write([record(heads=1)])), tmp_path / "out")
