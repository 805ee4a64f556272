"""Folders of records: what the data was, what counts twice, who writes, and sizes (cases 33 to 41)."""

import hashlib
import json
from pathlib import Path

import pytest

from figures import groups
from figures import records as pictured
from iha_theory.places import only_writer, try_file, try_folder
from iha_theory.processes import Lost
from synthetic.training import records, report, sweep
from synthetic.training.config import TrainConfig

OLD = Path(__file__).with_name("old_format") / "runs.jsonl"
SMALL = {"terms": 2, "eval_size": 4, "batch": 4, "steps": 3, "attention": "mha", "heads": 2}
WORDS = ("--terms", "2", "--eval-size", "4", "--batch", "4", "--steps", "3", "--attention", "mha", "--heads", "2")


def config(**options):
    return TrainConfig.for_task("polynomial", SMALL | options)


@pytest.fixture
def three(tmp_path, monkeypatch):
    """g.txt, the same graph as same.mtx, and train(FILE, seed): a run on it, recorded in the folder r."""
    monkeypatch.chdir(tmp_path)
    Path("g.txt").write_text("0 1 2\n1 2 0.5\n")
    Path("same.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 2\n3 2 0.5\n")

    def train(file, seed=0, **options):
        return sweep.sweep([config(graph=file, seed=seed, **options)], Path("r"))[0]

    return train


def test_a_run_is_its_file_s_content(call, three):  # case 33
    first = three("g.txt")
    assert len(first["content"]["graph"]) == 64
    assert three("same.mtx") == first  # equal content is the same run, whatever the name and the format
    Path("g.txt").rename("h.txt")
    assert three("h.txt") == first
    Path("g.txt").write_text("0 1 2\n1 2 0.25\n")  # other weights, as many nodes
    second = three("g.txt", seed=1)
    assert second["content"] != first["content"]
    found = records.read(Path("r"))
    assert [len(seeds) for seeds in report.points(found).values()] == [1, 1]
    assert len(groups.panels(pictured.read(Path("r")))) == 2
    Path("h.txt").unlink()
    code, out, err = call("learned", "r", "--json", "l.json")
    assert code == 0
    assert "read 2 records in r/runs.jsonl: 2 different runs" in err
    assert f"left out: g.txt does not hold what it did when run {first['id']} was trained" in err
    assert "1 of 1 angles are within what the error allows" in out
    assert "1 runs left out, whose data are gone" in out
    content = json.loads(Path("l.json").read_text())
    assert [run["id"] for run in content["runs"]] == [second["id"]]
    assert list(content["read"]["left_out"]) == [first["id"]]
    Path("g.txt").unlink()
    code, _, err = call("learned", "r")
    assert (code, err.count("\n")) == (2, 1)


def test_names_of_one_content_are_pooled(three):  # case 33
    one, two = three("g.txt"), three("same.mtx", seed=1)
    assert one["content"] == two["content"]
    (point,) = report.points([one, two]).items()
    assert (point[0][0], len(point[1])) == ("g.txt k=2", 2)
    (panel,) = groups.panels(pictured.read(Path("r")))
    assert panel.seeds == "n = 2"
    older = {name: value for name, value in one.items() if name != "content"} | {"id": "0" * 16}
    Path("r/runs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in (older, two)))
    labels = [label for label, *_ in report.points(records.read(Path("r")))]
    assert sorted(labels) == ["g.txt k=2", "same.mtx k=2"]  # nobody knows whether they are the same


def test_settings_are_rows_and_duplicates_count_once(tmp_path):  # case 34
    plain = {"graph": "orthogonal:4"}
    others = [plain | {"normalise": "row", "unit_norm": True}, plain | {"steps": 2}]
    found = sweep.sweep([config(**own) for own in [plain, *others]], tmp_path)
    other = config(**plain, checkpoint_every=7, device="cuda")
    again = found[0] | {"id": other.identity, "config": other.to_json(), "device": "cuda"}
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write(json.dumps(again) + "\n" + json.dumps(found[1]) + "\n")
    read = records.read(tmp_path)
    assert len(read) == 5
    assert [len(seeds) for seeds in report.points(read).values()] == [1, 1, 1]
    assert len(report.unique(read)) == len(pictured.read(tmp_path)) == 3
    iha = {"task": "polynomial", "attention": "iha", "heads": 2, "pseudo_heads": 2, "seed": 0, "content": {}}
    for options in ({}, {"pseudo_heads": 2}):  # P = H, said or not
        iha[str(options)] = iha | {"config": config(attention="iha", **options).to_json()}
    assert len(report.unique([iha["{}"], iha["{'pseudo_heads': 2}"]])) == 1


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda r: {"schema": r["schema"]}, "'id' is missing"),
        (lambda r: r | {"config": r["config"] | {"depth": 3}}, "unknown option 'depth'"),
        (lambda r: {name: r[name] for name in r if name != "wall_s"}, "'wall_s' is missing"),
        (lambda r: r | {"seed": "0"}, "seed '0'"),
    ],
)
def test_a_line_that_is_no_record_is_named_by_every_reader(refused, tmp_path, monkeypatch, damage, reason):  # case 38
    monkeypatch.chdir(tmp_path)
    record = json.loads(OLD.read_text().splitlines()[0])
    Path("runs.jsonl").write_text(json.dumps(record) + "\n" + json.dumps(damage(record)) + "\n")
    before = Path("runs.jsonl").read_bytes()
    for command in (
        ("learned", "."),
        ("figures", "floors", "--from", "."),
        ("train", "polynomial", *WORDS, "--out", "."),
        ("sweep", "polynomial", "--seeds", "1", "--out", "."),
    ):
        said = refused(*command)
        assert f"runs.jsonl, line 2: not a record of a run: {reason}" in said
    assert Path("runs.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"seed": 9}, "seed 9, and in its config 0"),
        ({"heads": 5}, "heads 5, and in its config 3"),
        ({"attention": "mha"}, "attention 'mha', and in its config 'iha'"),
        ({"pseudo_heads": 7}, "pseudo_heads 7, and in its config 3"),
        ({"device": "cuda"}, "device 'cuda', and in its config 'cpu'"),
        ({"id": "../x"}, "id '../x', and its config's is "),
        ({"id": "0" * 16, "content": {}}, "id '0000000000000000', and its config's is "),
        ({"error": None}, "outcome 'finished' without error and accuracy"),
        ({"content": {"foo": "x"}}, "content 'foo'"),
        ({"content": {"tokens": "x"}}, "content 'tokens'"),
        ({"config": {"task": "evil:X"}}, "and in its config 'evil:X'"),
        ({"config": {"attention": "evil:X"}}, "and in its config 'evil:X'"),
    ],
)
def test_a_record_that_contradicts_its_config_is_refused(tmp_path, monkeypatch, change, reason):
    monkeypatch.chdir(tmp_path)
    Path("evil.py").write_text("raise SystemExit('data ran code')")
    record = json.loads(OLD.read_text().splitlines()[0])
    record |= change | {"config": record["config"] | change.get("config", {})}
    if change.get("content"):
        options = json.dumps(record["config"] | record["content"], sort_keys=True)
        record["id"] = hashlib.sha256(options.encode()).hexdigest()[:16]
    Path("runs.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(ValueError, match="line 1: not a record of a run: ") as caught:
        records.read(Path())
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", ["runs.jsonl", "pending.jsonl"])
def test_a_line_of_brackets_is_no_record(tmp_path, name):
    (tmp_path / name).write_text("[" * 10**5 + "\n")
    with pytest.raises(ValueError, match=f"{name}, line 1: not a record of a run"), records.writing(tmp_path):
        raise AssertionError


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/below", "n" * 300])
def test_output_places_are_tried_before_work_begins(refused, tmp_path, monkeypatch, out):  # case 41
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "train_group", None)
    Path("file").touch()
    for command in (("train", "polynomial", *WORDS), ("sweep", "workspace"), ("figures", "floors")):
        refused(*command, "--out", out)
        if out != "file":
            refused(*command, "--out", "new", "--json", f"{out}/x.json")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_trying_a_place_leaves_nothing(tmp_path):
    try_folder(tmp_path / "a" / "b")
    try_file(tmp_path / "a" / "b.json")
    assert not list(tmp_path.iterdir())
    (tmp_path / "curves").touch()
    with pytest.raises(NotADirectoryError, match="curves is a file"), records.writing(tmp_path):
        raise AssertionError
    with pytest.raises(IsADirectoryError, match="a file is needed"):
        try_file(tmp_path)


def test_a_folder_has_one_writer(refused, tmp_path, monkeypatch):  # case 35
    monkeypatch.setattr("sys.argv", ["x", "\udcff"])  # a byte that is not UTF-8
    with only_writer(tmp_path):
        for command in (("train", "polynomial", *WORDS), ("sweep", "workspace")):
            assert "is in use by process" in refused(*command, "--out", tmp_path)
    (tmp_path / ".writer").write_text("process 1 (of long ago)")  # its lock went with it
    with records.writing(tmp_path):
        pass


def test_what_a_killed_writer_left_is_done_by_the_next(tmp_path):
    runs = [config(graph="orthogonal:4", seed=seed) for seed in range(2)]
    found = sweep.sweep(runs, tmp_path)
    first, second = (tmp_path / "runs.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "runs.jsonl").write_text(first + second[:99])
    (tmp_path / "pending.jsonl").write_text(first + second)
    own, of_others = "0123456789abcdef", ("notes.partial", "x.csv.partial", "data.csv.01234567.partial")
    ended = ("weights/{}.safetensors", "curves/{}.csv", "checkpoints/{}-1.safetensors", "certified/{}.json")
    left = ["runs.jsonl", "pending.jsonl", *(name.format(own) for name in ended)]
    for name in ("certified", "checkpoints", "theirs"):
        (tmp_path / name).mkdir(exist_ok=True)
    for name in (*(f"{name}.01234567.partial" for name in left), *of_others):
        (tmp_path / name).touch()
    (tmp_path / "theirs" / f"{own}.csv.01234567.partial").touch()
    assert sweep.sweep(runs, tmp_path) == found
    assert (tmp_path / "runs.jsonl").read_text() == first + second
    kept = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.partial")}
    assert kept == {*of_others, f"theirs/{own}.csv.01234567.partial"}
    assert not (tmp_path / "pending.jsonl").exists()


def test_a_program_that_costs_its_processes_is_named_and_tried_again(call, monkeypatch, tmp_path):  # case 35
    def spread(function, calls, jobs):
        yield 0, Lost("its process was killed (SIGKILL)")
        yield from ((i, function(*calls[i])) for i in range(1, len(calls)))

    words = ("--tokens", 4, "--heads", 1, 2, "--seeds", 1, "--steps", 2, "--eval-size", 4, "--out", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sweep, "spread", spread)
        code, out, _ = call("sweep", "workspace", *words, "--jobs", 2)
    assert (code, out.count("FAILED"), out.count("its process was killed (SIGKILL)")) == (1, 1, 1)
    assert "3 of 4 runs finished" in out
    code, out, _ = call("sweep", "workspace", *words, "--jobs", 1)
    assert code == 0
    assert "4 of 4 runs finished" in out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("train", "polynomial", "--width", 10**5), "width"),
        (("train", "polynomial", "--heads", 10**12), "heads"),
        (("train", "polynomial", "--terms", 10**8), "terms"),
        (("train", "polynomial", "--eval-size", 10**12), "eval_size"),
        (("train", "cpm3", "--tokens", 10**9), "tokens"),
        (("train", "cpm3", "--hidden", 10**9), "hidden"),
        (("train", "retrieval", "--positions", "rotary", "--test-lengths", 10**9), "test_lengths"),
        (("sweep", "workspace", "--heads", 2, 10**6, "--out", "x"), "heads"),
        (("sweep", "cpm3", "--heads", 10**12, "--out", "x"), "heads"),
        (("heads", "petersen", "--terms", 10**12), "--terms"),
        (("verify", "petersen", "--terms", 10**12), "--terms"),
        (("verify", "cpm3", "--n-max", 10**9), "--n-max"),
        (("capacity", "--heads", 10**6), "--heads"),
    ],
)
def test_sizes_are_refused_before_memory_is_taken(refused, monkeypatch, tmp_path, words, name):  # case 39
    monkeypatch.chdir(tmp_path)
    said = refused(*words)
    assert f"error: {name} " in said
    most = int(said.split("at most ")[1].split()[0])
    assert 1 <= most < max(word for word in words if isinstance(word, int))
    assert not list(tmp_path.iterdir())


def test_two_sizes_that_are_too_large(refused):
    said = refused("train", "workspace", "--heads", 10**9, "--tokens", 10**6)
    assert "heads 1000000000 needs" in said
    assert "not even 1 fits beside the other sizes" in said


def test_a_sweep_of_too_many_runs_is_refused(refused, tmp_path):
    assert "at most 100000" in refused("sweep", "workspace", "--seeds", 10**9, "--out", tmp_path / "x")
