"""`iha-theory train --certify` and `certify` as a user calls them."""

import json

import pytest

SMALL = ("--eval-size", "16", "--batch", "8", "--steps", "20")
ONE = ("train", "polynomial", *SMALL, "--graph", "orthogonal:4", "--terms", "3", "--attention", "mha", "--heads", "2")


def test_a_run_is_certified_and_checked(call, tmp_path):
    folder, told = tmp_path / "runs", tmp_path / "told.json"
    code, out, _ = call(*ONE, "--out", folder, "--certify", "--json", told)
    assert code == 0
    (file,) = (folder / "certified").iterdir()
    assert f"iha-theory certify {file}" in out
    (claimed,) = json.loads(told.read_text())["claims"]
    claim = json.loads(file.read_text())
    assert claimed.pop("file") == str(file)
    assert {name: claim[name] for name in claimed} == claimed
    assert call("certify", file)[0] == 0
    code, out, _ = call("certify", folder, "--json", told)
    assert code == 0
    assert "All 1 claims hold" in out
    (row,) = json.loads(told.read_text())["claims"]
    assert (row["holds"], row["error"]) == (True, claim["error"])
    weights = folder / claim["weights"]
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, out, _ = call("certify", file, "--json", told)
    assert code == 1
    assert "FAILS" in out
    assert "1 of 1 claims do NOT hold" in out
    assert "SHA-256" in json.loads(told.read_text())["claims"][0]["reason"]
    weights.unlink()
    assert "there are no weights" in call("certify", file)[1]


def test_the_runs_of_a_sweep_are_certified(call, tmp_path):
    sweep = (
        "sweep",
        "polynomial",
        *SMALL,
        "--graph",
        "cycle:4",
        "--terms",
        "3",
        "--normalise",
        "none",
        "--no-unit-norm",
    )
    arguments = (*sweep, "--attention", "mha", "--heads", "1", "3", "--seeds", "2", "--jobs", "1", "--out", tmp_path)
    assert call(*arguments)[0] == 0
    assert call(*ONE, "--lr", "1e6", "--out", tmp_path, "--certify")[0] == 1
    code, out, _ = call("certify", tmp_path)
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert [line[:6] for line in lines if "mha" in line] == [
        ["cycle:4", "k=3", "mha", "1", "2", "0.666667"],
        ["cycle:4", "k=3", "mha", "3", "2", "0"],
    ]
    assert "1 runs have no claim: the run diverged" in out
    assert len(list((tmp_path / "certified").iterdir())) == 4


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (ONE, "needs --out"),
        (("train", "cpm3", "--out", "o"), "accepted are workspace, polynomial"),
        (("train", "polynomial", "--mode", "content", "--out", "o"), "estimated from samples"),
        (("train", "polynomial", "--heads", "4", "--kv-heads", "2", "--out", "o"), "without kv_heads"),
        (("train", "polynomial", "--attention", "gqa", "--out", "o"), "accepted are mha, iha"),
    ],
)
def test_what_cannot_be_certified_is_one_line(refused, monkeypatch, tmp_path, arguments, word):
    monkeypatch.chdir(tmp_path)
    assert word in refused(*arguments, "--certify")
    assert not list(tmp_path.iterdir())


def test_what_is_no_claim_is_one_line(call, refused, tmp_path):
    assert "no such claim or folder" in refused("certify", tmp_path / "x.json")
    assert "it holds no runs" in refused("certify", tmp_path)
    for text in ("[1]", "{", "\0"):
        (tmp_path / "x.json").write_text(text)
        assert "is no claim" in refused("certify", tmp_path / "x.json")
    (tmp_path / "x.json").write_text("{}")
    assert "there are no weights" in call("certify", tmp_path / "x.json")[1]
    assert call("train", "parity", "--bits", "2", "--steps", "5", "--out", tmp_path / "w")[0] == 0
    assert "can be certified: no run on this task" in refused("certify", tmp_path / "w")


def test_a_claim_is_about_the_run_of_its_name(call, tmp_path):
    arguments = ("train", "polynomial", "--graph", "petersen", "--terms", 3, "--attention", "mha", "--heads", 1)
    for seed in (0, 1):
        more = ("--steps", 2, "--gain", 3000, "--seed", seed, "--out", tmp_path, "--certify")
        assert call(*arguments, *more)[0] == 0
    first, second = sorted((tmp_path / "certified").glob("*.json"))
    assert call("certify", tmp_path)[0] == 0  # an error far above 1
    true = second.read_text()
    second.write_text(first.read_text())
    code, out, _ = call("certify", tmp_path)
    assert code == 1
    assert "are to be named so" in out
    second.write_text(true)
    claim = json.loads(true)
    for changed, word in (
        ({"run": first.stem}, "are to be named so"),
        ({"config": claim["config"] | {"nonsense": 1}}, "none of a run"),
        ({"floor": ["-1e99999999", claim["floor"][1]]}, "exponent"),
    ):
        second.write_text(json.dumps(claim | changed))
        code, out, _ = call("certify", first, second)
        assert (code, word in out, "1 of 2 claims" in out) == (1, True, True)
