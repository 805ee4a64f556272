"""Pictures of trained runs: what is read, pooled, drawn and written."""

import csv
import dataclasses

import pytest

from figures import floors, frontier, groups, records
from figures.groups import Summary
from synthetic.tasks import TASKS
from synthetic.training.config import TrainConfig
from synthetic.training.records import RunRecord


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def heights(axes):
    """All y that an axes shows."""
    return [y for line in axes.lines for y in line.get_ydata()]


def filter_bank(record):
    """MHA with 1 and 2 heads, IHA with 1; two seeds each, floor 0 at 2 heads."""
    points = [("mha", 1, 0.25), ("mha", 2, 0.0), ("iha", 1, 0.25)]
    return [
        record(attention=layer, heads=heads, seed=seed, floor=floor, error=floor * (1 + 1e-3 * seed) + 1e-7 * heads)
        for layer, heads, floor in points
        for seed in (0, 1)
    ]


def test_the_format_is_that_of_training():
    assert {f.name for f in dataclasses.fields(records.Run)} <= {f.name for f in dataclasses.fields(RunRecord)}
    for task in TASKS:
        run = TrainConfig.for_task(task)
        assert set(TASKS[task].learned) | records.POINT <= set(run.to_json())


def test_every_number_of_floors_is_in_its_table_and_is_the_records(record, write, tmp_path, drawn):
    written = filter_bank(record)
    picture = floors.draw(records.read(write(written)), tmp_path / "out")
    rows, summary = map(table, picture.data_files)
    by_id = {r["id"]: r for r in written}
    assert len(rows) == len(written)
    for row in rows:
        own = by_id[row["record"]]
        assert (float(row["error"]), float(row["floor"])) == (own["error"], own["floor"])
        assert (int(row["heads"]), int(row["seed"]), int(row["steps"])) == (own["heads"], own["seed"], own["steps"])
    (axes,) = drawn[0].axes
    zero = next(tick.label1 for tick in axes.yaxis.get_major_ticks() if tick.label1.get_text() == "0")
    zero_height = zero.get_position()[1]
    numbers = {float(v) for row in rows + summary for k, v in row.items() if k in ("error", "floor", "median") and v}
    shown = {y for line in axes.lines if line.get_transform() == axes.transData for y in line.get_ydata()}
    assert shown <= numbers - {0.0} | {zero_height}
    assert {r["error"] for r in written} <= shown  # every seed


def test_an_exact_zero_has_its_own_row_below_everything(record, write, tmp_path, drawn):
    runs = [record(attention="mha", heads=9, floor=0.0, error=error, seed=seed) for seed, error in enumerate((0, 1e-9))]
    floors.draw(records.read(write(runs)), tmp_path)
    (axes,) = drawn[0].axes
    ticks = dict(zip([t.get_text() for t in axes.get_yticklabels()], axes.get_yticks(), strict=True))
    assert ticks["0"] == min(ticks.values())
    assert 0 < ticks["0"] < 1e-9
    assert axes.get_ylim()[0] < ticks["0"]
    dots = next(line for line in axes.lines if line.get_label() == "MHA, each seed")
    assert sorted(dots.get_ydata()) == [ticks["0"], 1e-9]


def test_without_zeros_there_is_no_such_row(record, write, tmp_path, drawn):
    floors.draw(records.read(write([record(heads=1)])), tmp_path)
    assert "0" not in [t.get_text() for t in drawn[0].axes[0].get_yticklabels()]


def test_one_seed_has_no_band_and_n_is_shown(record, write, tmp_path, drawn):
    """Case 25."""
    picture = frontier.draw(records.read(write([record("cpm3", accuracy=0.9, attention="mha", heads=2)])), tmp_path)
    above, below = drawn[0].axes
    assert "n = 1" in above.get_title()
    assert heights(above) == [0.9, 0.9, 0.99, 0.99]  # the seed, the median, the threshold: no bar
    assert heights(below) == [0.0]
    (summary,) = table(picture.data_files[1])
    assert (summary["n"], summary["sample_sd"], summary["median"]) == ("1", "", "0.9")


def test_the_spread_is_named_and_no_band_exceeds_1(record, write, tmp_path, drawn):
    """Case 25: accuracies .9, 1, 1 have the sample standard deviation .0577."""
    runs = [record("cpm3", accuracy=a, heads=3, seed=seed) for seed, a in enumerate((0.9, 1, 1))]
    picture = frontier.draw(records.read(write(runs)), tmp_path)
    above, _ = drawn[0].axes
    assert max(heights(above)) == 1.0
    bar = next(line for line in above.lines if line.get_linewidth() == 0.8 and line.get_linestyle() == "-")
    assert list(bar.get_ydata()) == pytest.approx([0.9667 - 0.0577, 1.0], abs=1e-4)
    assert "sample standard deviation (ddof = 1)" in drawn[0].get_supxlabel()
    (summary,) = table(picture.data_files[1])
    assert float(summary["sample_sd"]) == pytest.approx(0.0577, abs=1e-4)
    assert (float(summary["median"]), float(summary["success_rate"])) == (1, 2 / 3)
    assert Summary.of([0.9, 1.0, 1.0]).sample_sd == float(summary["sample_sd"])


def test_accuracies_and_success_rates_are_the_records(record, write, tmp_path, drawn):
    runs = [
        record("cpm3", accuracy=0.99 - 0.01 * (layer == "mha") * seed, attention=layer, heads=heads, seed=seed)
        for layer, heads in (("mha", 1), ("mha", 4), ("iha", 2))
        for seed in range(4)
    ]
    picture = frontier.draw(records.read(write(runs)), tmp_path)
    rows, summary = map(table, picture.data_files)
    by_id = {r["id"]: r for r in runs}
    assert all(float(row["accuracy"]) == by_id[row["record"]]["accuracy"] for row in rows)
    rates = {(row["series"], row["heads"]): float(row["success_rate"]) for row in summary}
    assert rates == {("MHA", "1"): 0.25, ("MHA", "4"): 0.25, ("IHA", "2"): 1.0}
    above, below = drawn[0].axes
    numbers = {float(row[name]) for row in summary for name in ("median", "success_rate")}
    assert {r["accuracy"] for r in runs} <= set(heights(above))
    assert set(heights(below)) <= numbers


def test_a_diverged_run_is_no_success(record, write, tmp_path, drawn):
    runs = [record("cpm3", accuracy=1.0, heads=3, seed=seed) for seed in range(3)]
    runs.append(record("cpm3", heads=3, seed=3, outcome="diverged"))
    picture = frontier.draw(records.read(write(runs)), tmp_path)
    (summary,) = table(picture.data_files[1])
    assert (summary["n"], summary["diverged"], float(summary["success_rate"])) == ("3", "1", 0.75)
    assert heights(drawn[0].axes[1]) == [0.75]
    assert "Not drawn: 1 diverged." in drawn[0].get_supxlabel().replace("\n", " ")


def test_problems_and_steps_have_their_own_panels(record, write, tmp_path, drawn):
    banks = [
        record(heads=1),
        record(heads=1, terms=16),
        record(heads=1, mode="content"),
        record("workspace", heads=1),
        record("parity", heads=1),
    ]
    counts = [record("cpm3", accuracy=0.8, heads=1, steps=steps) for steps in (2000, 5000)]
    runs = records.read(write([*banks, *counts]))
    floors.draw(runs, tmp_path)
    frontier.draw(runs, tmp_path)
    assert len({axes.get_title() for axes in drawn[0].axes}) == len(drawn[0].axes) == 5
    assert (drawn[0].axes[-1].get_title(), drawn[0].axes[-1].get_ylabel()) == (
        "parity of k bits\nk = 3, n = 1",
        "wrong inputs",
    )
    assert len(drawn[1].axes) == 2 * 2


def test_settings_are_never_pooled(record):
    def run(**options):
        made = record(**options)
        return records.Run(**{name: made[name] for name in records.Run.__dataclass_fields__})

    runs = [run(heads=2, seed=0), run(heads=2, seed=1), run(heads=2, seed=2, lr=0.5), run(heads=2, pseudo_heads=1)]
    (panel,) = groups.panels([*runs, run(attention="mha", heads=2, device="cpu")])
    assert [series.label for series in panel.series] == ["IHA", "IHA, P = 1", "IHA, lr = 0.5", "MHA"]
    assert [len(series.runs) for series in panel.series] == [2, 1, 1, 1]
    assert panel.seeds == "n = 1 to 2"
    many = [run(heads=2, lr=0.01 * i) for i in range(1, 10)]
    (panel,) = groups.panels(many)
    assert (len(panel.series), panel.left_out) == (6, 3)


def test_runs_that_did_not_end_well_are_named_and_not_drawn(record, write, tmp_path, drawn):
    runs = [record(heads=1, seed=0), record(heads=1, seed=1, outcome="stopped", error=0.45)]
    runs += [record(heads=1, seed=seed, outcome="diverged", error=None) for seed in (2, 3)]
    runs += [record(heads=1, seed=4, outcome="failed", error=None, floor=None)]
    runs += [record(heads=1, seed=5, outcome="failed", error=0.39)]
    picture = floors.draw(records.read(write(runs)), tmp_path)
    text = drawn[0].get_supxlabel().replace("\n", " ")
    assert "Not drawn: 1 BELOW THE FLOOR, against theory, 2 diverged, 1 failed." in text
    assert [row["outcome"] for row in table(picture.data_files[0])] == ["finished", "stopped"]
    assert "n = 2" in drawn[0].axes[0].get_title()


def test_the_last_record_of_a_run_counts_and_none_twice(record, write):
    first, again = record(heads=1, outcome="failed", error=None), record(heads=1)
    write([first, again], "a")
    (run,) = records.read(write([again], "b"))
    assert run.outcome == "finished"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line[:-9], "line 2"),
        (lambda line: "[1, 2]", "not a JSON object"),
        (lambda line: "", "line 2"),
        (lambda line: line.replace('"error": 0.5', '"error": NaN'), "NaN is no JSON number"),
        (lambda line: line.replace('"error": 0.5', '"error": 1e999'), "error inf"),
        (lambda line: line.replace('"error": 0.5', '"error": -0.5'), "error -0.5"),
        (lambda line: line.replace('"error": 0.5', '"error": "0.5"'), "error '0.5'"),
        (lambda line: line.replace('"accuracy": null', '"accuracy": 1.5', 1), "accuracy 1.5"),
        (lambda line: line.replace("run/1", "run/2"), "schema 'iha-theory/run/2'"),
        (lambda line: line.replace('"outcome": "finished"', '"outcome": "good"'), "outcome 'good'"),
        (lambda line: line.replace('"heads": 1', '"heads": true', 1), "heads True"),
        (lambda line: line.replace('"seed": 0', '"sead": 0', 1), "'seed' is missing"),
        (lambda line: line.replace('"graph"', '"graf"'), "config has no graph"),
    ],
)
def test_a_damaged_file_is_refused_by_file_and_line(record, write, change, reason):
    folder = write([record(heads=1), record(heads=1)])
    file = folder / "p" / "runs.jsonl"
    first, second = file.read_text().splitlines()
    damaged = change(second)
    assert damaged != second
    file.write_text(f"{first}\n{damaged}\n")
    with pytest.raises(ValueError, match="line 2: not a record of a run: ") as caught:
        records.read(folder)
    assert str(file) in str(caught.value)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_last_line_that_was_cut_off_is_left_out(record, write):
    folder = write([record(heads=1), record(heads=2)])
    file = folder / "p" / "runs.jsonl"
    file.write_text(file.read_text()[:-9])
    assert [run.heads for run in records.read(folder)] == [1]


def test_a_folder_without_runs_is_refused_with_what_to_run(record, write, tmp_path):
    with pytest.raises(ValueError, match=r"no runs\.jsonl in .*run iha-theory sweep polynomial --out"):
        records.read(tmp_path / "nowhere")
    runs = records.read(write([record(heads=1)]))
    with pytest.raises(ValueError, match="run iha-theory sweep cpm3"):
        frontier.draw(runs, tmp_path)
    with pytest.raises(ValueError, match="run iha-theory sweep polynomial"):
        floors.draw([], tmp_path)


def test_the_order_of_lines_changes_nothing(record, write, tmp_path):
    runs = [*filter_bank(record), record("workspace", heads=2, floor=0.3)]
    one = floors.draw(records.read(write(runs)), tmp_path / "one")
    two = floors.draw(records.read(write(runs[::-1])), tmp_path / "two")
    for a, b in zip((*one.files, *one.data_files), (*two.files, *two.data_files), strict=True):
        assert a.read_bytes() == b.read_bytes()


def test_a_seed_counts_once_whatever_options_that_change_nothing(record, write, tmp_path):
    same = [record(attention="mha"), record(attention="mha"), record(attention="mha", checkpoint_every=400)]
    same[1]["config"] |= {"tokens": 99, "modulus": 5, "noise": 0.3}  # as older records: the options of all tasks
    same[1]["id"] = "0" * 16
    (panel,) = groups.panels(records.read(write([*same, record(attention="mha", seed=1)])))
    assert panel.seeds == "n = 2"
    assert [series.label for series in panel.series] == ["MHA"]


def test_heads_at_which_every_seed_diverged_are_shown(record, write, tmp_path, drawn):
    good = [record("cpm3", accuracy=1.0, heads=3, seed=seed) for seed in range(2)]
    lost = [record("cpm3", heads=heads, seed=seed, outcome="diverged") for heads in (2, 5) for seed in range(2)]
    other = [record("cpm3", attention="mha", heads=4, outcome="diverged")]
    frontier.draw(records.read(write(good)), tmp_path)
    picture = frontier.draw(records.read(write([*good, *lost, *other])), tmp_path)
    summary = table(picture.data_files[1])
    found = {(row["series"], row["heads"]): (row["n"], row["diverged"], row["success_rate"]) for row in summary}
    assert found == {
        ("IHA", "3"): ("2", "0", "1.0"),
        ("IHA", "2"): ("0", "2", "0.0"),
        ("IHA", "5"): ("0", "2", "0.0"),
        ("MHA", "4"): ("0", "1", "0.0"),
    }
    without, below = drawn[0].axes[1], drawn[1].axes[1]
    assert [list(line.get_xdata()) for line in below.lines if line.get_marker() == "X"] == [[2, 5], [4]]
    assert [list(line.get_ydata()) for line in below.lines if line.get_marker() != "X"] == [[0.0, 1.0, 0.0], [0.0]]
    assert "X" not in {line.get_marker() for line in without.lines}
    assert below.get_xlim()[1] > 5
    assert "Crosses: every seed diverged." in drawn[1].get_supxlabel()
    assert "Crosses" not in drawn[0].get_supxlabel()
    with pytest.raises(ValueError, match="no run of cpm3 that ended well"):
        frontier.draw(records.read(write(lost)), tmp_path)


def test_layers_and_tasks_beyond_ours(record, write, tmp_path):
    """Other layers are series by their names; the runs of a task of the user's are in no picture."""
    own, task, layer = record(attention="talking-heads"), record(), record(attention="mine:Layer", heads=2)
    task["task"] = task["config"]["task"] = "mine:Task"
    (panel,) = groups.panels(records.read(write([own, task, layer])))
    assert [series.label for series in panel.series] == ["mine:Layer", "talking-heads"]


@pytest.mark.parametrize(
    ("graph", "missing"),
    [
        ("Ba$$in.txt", ""),
        ("cost$a_b$.txt", ""),
        ("a^{b}_c\\d#%&.txt", ""),
        ("x" * 200 + ".txt", ""),
        ("\u56fe.txt", "\u56fe"),
        ("\u56fe-\u8def.txt", "\u56fe\u8def"),
    ],
)
def test_graphs_of_any_name(record, write, tmp_path, monkeypatch, graph, missing):  # case 40
    monkeypatch.chdir(tmp_path)
    (tmp_path / graph).write_text("0 1\n1 2\n")
    runs = records.read(write([record(graph=graph, attention=layer, heads=1) for layer in ("mha", "iha")]))
    assert floors.draw(runs, tmp_path).missing == missing
    (panel,) = groups.panels(runs)
    assert floors.title(panel).replace("\n", "").startswith(graph.replace("$", r"\$"))
