"""`iha-theory train --certify` and `certify` as a user calls them."""

import json
from fractions import Fraction

import pytest

from synthetic.training.certified import claim as maker

SMALL = ("--eval-size", "16", "--batch", "8", "--steps", "20")
ONE = ("train", "polynomial", *SMALL, "--graph", "orthogonal:4", "--terms", "3", "--attention", "mha", "--heads", "2")


def test_a_run_is_certified_and_checked(call, tmp_path):
    folder, told = tmp_path / "runs", tmp_path / "told.json"
    code, out, _ = call(*ONE, "--out", folder, "--certify", "--json", told)
    assert code == 0
    (file,) = (folder / "certified").iterdir()
    assert f"checked by other code; again with: iha-theory certify {file}" in out
    (claimed,) = json.loads(told.read_text())["claims"]
    claim = json.loads(file.read_text())
    assert claimed.pop("file") == str(file)
    assert claimed.pop("holds") is True
    assert {name: claim[name] for name in claimed} == claimed
    assert call("certify", file)[0] == 0
    code, out, _ = call("certify", folder, "--json", told)
    assert code == 0
    assert "1 claim holds: its error and floor are proved" in out
    heading, line, *_ = out.splitlines()
    assert heading.split()[-7:] == ["floor", "error/floor", "median", "farthest", "excess", "median", "farthest"]
    assert float(line.split()[-4]) == pytest.approx(float(Fraction(claim["ratio"][0])), rel=0.05)
    (row,) = json.loads(told.read_text())["claims"]
    assert (row["holds"], row["error"]) == (True, claim["error"])
    weights = folder / claim["weights"]
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    code, out, _ = call("certify", file, "--json", told)
    assert code == 1
    assert "FAILS" in out
    assert "1 of 1 do NOT hold" in out
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
    assert "1 run has no claim: the run diverged" in out
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
    texts = {"[1]": "no JSON object", "{": "no claim", "\0": "no claim", "{}": "no config", "[" * 10**5: "no claim"}
    texts |= {'{"config": {"task": 1}}': "no task", '{"x": NaN}': "no JSON number", "9" * 5000: "no claim"}
    for text, word in texts.items():
        (tmp_path / "x.json").write_text(text)
        code, out, _ = call("certify", tmp_path / "x.json")
        assert (code, word in out, "FAILS" in out) == (1, True, True), text[:20]
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
    for bad in ("[1]", "{"):
        second.write_text(bad)
        code, out, _ = call("certify", first, second)
        assert (code, "petersen" in out, f"FAILS {second}" in out, "1 of 2 do NOT" in out) == (1, True, True, True)
    second.write_text(true)
    claim = json.loads(true)
    for changed, word in (
        ({"run": first.stem}, "are to be named so"),
        ({"config": claim["config"] | {"nonsense": 1}}, "none of a run"),
        ({"floor": ["-1e99999999", claim["floor"][1]]}, "exponent"),
        ({"error": "1" * 10**5 + "1/3"}, "more than 100000 digits"),
    ):
        second.write_text(json.dumps(claim | changed))
        code, out, _ = call("certify", first, second)
        assert (code, word in out, "1 of 2 do NOT" in out) == (1, True, True)


def test_fractions_of_any_length_are_written_and_read(call, tmp_path):
    """Beyond the 4300 digits that Python writes: 700 digits to the eighth power."""
    told, graph = tmp_path / "told.json", tmp_path / "long.txt"
    graph.write_text(f"0 1 {10**400 + 1}/{10**401 + 7}\n1 0 {10**390 + 3}/{10**390 + 9}\n")
    few = ("--steps", 2, "--batch", 4, "--eval-size", 4, "--attention", "mha", "--heads", 1)
    arguments = ("train", "polynomial", "--graph", graph, "--terms", 5, *few, "--out", tmp_path / "r")
    code, out, err = call(*arguments, "--certify")
    assert (code, "checked by other code" in out) == (0, True), err
    assert call("certify", tmp_path / "r", "--json", told)[0] == 0
    (claim,) = json.loads(told.read_text())["claims"]
    assert len(claim["error"]) > 2 * 4300


def test_a_claim_that_the_check_refuses_fails_the_training_command(call, monkeypatch, tmp_path):
    monkeypatch.setattr(maker, "relative_error", lambda got, target: Fraction(1, 2))
    code, out, _ = call(*ONE, "--out", tmp_path, "--certify")
    assert (code, "FAILS its check: the error is" in out) == (1, True)
    monkeypatch.setattr(maker, "relative_error", lambda got, target: Fraction(10**100001 + 1, 3))
    code, out, _ = call(*ONE, "--seed", 1, "--out", tmp_path, "--certify")
    assert (code, "not certified: a fraction of 100002 digits" in out) == (1, True)
