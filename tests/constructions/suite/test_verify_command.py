"""`iha-theory verify` as a user calls it."""

import json

import numpy as np
import pytest
import scipy.sparse

from constructions import suite
from iha_theory.rounding import ceil_sqrt


def test_json_has_heads_errors_and_verdicts(call, tmp_path):
    file = tmp_path / "new" / "out.json"
    code, out, _ = call("verify", "karate", "cpm3", "--terms", "5", "9", "--n-max", "1", "4", "--json", str(file))
    content = json.loads(file.read_text())
    assert code == 0
    assert "All" in out.splitlines()[-1]
    assert content["schema"] == "iha-theory/verify/1"
    assert content["complete"]
    assert {c["setting"].get("terms") for c in content["checks"]} == {5, 9, None}
    for check in content["checks"]:
        size = check["setting"].get("terms") or check["setting"]["n_max"]
        assert check["verdict"] == "holds"
        assert check["heads"] == (size if check["layer"] == "mha" else ceil_sqrt(size))
        assert check["error"] == 0 or check["tier"] == "float64"
        assert {"id", "claim", "layer", "heads", "pseudo_heads", "tier", "error", "bound", "setting"} <= check.keys()
    assert len({check["id"] for check in content["checks"]}) == len(content["checks"])


def test_json_to_standard_output_is_all_there_is(call):
    code, out, err = call("verify", "petersen", "--terms", "2", "--exact-only", "--json", "-")
    assert code == 0
    assert len(json.loads(out)["checks"]) == 2
    assert "hold" in err


def test_the_default_covers_every_size():
    assert len([step for step in suite.steps(("bank",)) if ", k = " in step.label and "N" not in step.label]) == 7 * 8
    assert len(suite.steps(("cpm3",))) == 26
    assert len(suite.steps()) == sum(len(suite.steps((group,))) for group in suite.GROUPS)


@pytest.mark.parametrize(
    ("name", "content"),
    [("g.edges", "0 1\n1 2\n"), ("g.csv", "source,target\n0,1\n1,2\n"), ("g.txt", "a b 2\nb c 1\nd\n")],
)
def test_files_of_edges(call, tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert call("verify", "--graph", str(tmp_path / name), "--terms", "3")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere"],
        ["--graph", "missing.edges"],
        ["karate", "--terms", "0"],
        ["karate", "--terms", "two"],
        ["cpm3", "--modulus", "0", "--coefficient", "1"],
        ["cpm3", "--modulus", "3"],
        ["cpm3", "--n-max", "-1"],
        ["cycle:-3"],
        ["cycle:0"],
        ["--unknown"],
        ["strictness", "--exact-only"],
        ["--mutants", "karate"],
        ["karate", "--normalise", "other"],
        ["cycle:4", "--normalise", "symmetric"],
    ],
)
def test_bad_usage_is_one_line(call, arguments):
    code, out, err = call("verify", *arguments)
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert err.startswith("iha-theory")
    assert ": error: " in err


@pytest.mark.parametrize(
    "matrix", [np.zeros((2, 3)), np.full((2, 2), np.nan), np.zeros((0, 0)), np.full((2, 2), np.inf)]
)
def test_bad_matrices_are_one_line(call, tmp_path, matrix):
    np.savez(tmp_path / "a.npz", a=matrix)
    code, _, err = call("verify", "--graph", str(tmp_path / "a.npz"), "--terms", "2")
    assert code == 2
    assert len(err.strip().splitlines()) == 1


def test_a_sparse_matrix_file(call, tmp_path):
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array(np.array([[0, 1.5], [0, 0]])))
    assert call("verify", "--graph", str(tmp_path / "a.npz"), "--terms", "3")[0] == 0


def test_a_failing_check_fails_the_command(call, monkeypatch):
    from constructions.suite import bank

    real = bank.power_blocks
    monkeypatch.setattr(bank, "power_blocks", lambda a, k: (m.transpose() for m in real(a, k)))
    code, out, _ = call("verify", "cycle:5", "--terms", "3", "--exact-only")
    assert code == 1
    assert "FAILS bank/cycle:5/k=3/mha/exact" in out


def test_stopping_keeps_what_was_done(call, monkeypatch, tmp_path):
    from constructions.suite import bank

    real = bank.graph_checks

    def stop(graph, terms, exact_only):
        if terms == 3:
            raise KeyboardInterrupt
        return real(graph, terms, exact_only)

    monkeypatch.setattr(bank, "graph_checks", stop)
    file = tmp_path / "out.json"
    code, _, err = call("verify", "petersen", "--terms", "2", "3", "--json", str(file))
    content = json.loads(file.read_text())
    assert code == 130
    assert "stopped" in err
    assert not content["complete"]
    assert len(content["checks"]) == 4


def test_mutants(call, tmp_path, monkeypatch):
    few = suite.subjects()[:9]
    monkeypatch.setattr(suite, "subjects", lambda: few)
    code, out, _ = call("verify", "--mutants", "--json", str(tmp_path / "m.json"))
    content = json.loads((tmp_path / "m.json").read_text())
    assert code == 0
    assert len(content["mutants"]) >= 60
    assert all(mutant.keys() == {"check", "mutant", "killed"} and mutant["killed"] for mutant in content["mutants"])
    assert "are caught" in out
