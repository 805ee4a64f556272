"""`iha-theory verify` as a user calls it."""

import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

from constructions import suite
from iha_theory.processes import Lost
from iha_theory.rounding import ceil_sqrt

FAMILIES = """
    bank bank-every-matrix bank-random-matrix cpm3-workspace cpm3 cpm3-one-head cpm3-two-heads cpm3-packed causal-bank
    causal-workspace causal-cpm3 inclusion strictness tiled-bank projected-bank two-layer-bank tiled-workspace
    reduced reduced-tiled reduced-two-layer within convolution state-space state-space-every
    state-space-feedthrough state-space-derogatory fir parity parity-more relations relations-copied
    relation-paths
"""


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """The checks of `iha-theory verify`, the README's first command, run once for all tests in a process of its own."""
    file = tmp_path_factory.mktemp("verify") / "new" / "all.json"
    command = [sys.executable, "-m", "iha_theory.cli", "verify", "--json", str(file)]
    done = subprocess.run(command, cwd=file.parents[1], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All" in done.stdout.splitlines()[-1]
    content = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert (content["schema"], content["complete"]) == ("iha-theory/verify/1", True)
    return content["checks"]


def test_every_check_holds_with_its_own_id(everything):
    assert len({check["id"] for check in everything}) == len(everything)
    assert [check["id"] for check in everything if check["verdict"] != "holds"] == []


def test_every_family_is_checked(everything):
    assert {check["id"].partition("/")[0] for check in everything} == set(FAMILIES.split())
    assert len(everything) >= 1040


def test_errors_are_exact_or_within_bounds_of_rounding(everything):
    for check in everything:
        if check["tier"] == "exact":
            assert check["error"] == check["bound"] == 0
        elif check["id"].startswith("within/"):  # a tolerance is asked for
            assert check["setting"]["floor"] <= check["bound"]
        else:
            assert 0 < check["bound"] < 1e-11


def test_heads_are_those_of_the_claims_and_attain_the_lower_bounds(everything):
    for check in everything:
        setting = check["setting"]
        if check["claimed_heads"] is not None:
            assert check["heads"] == check["claimed_heads"]
        if "lower_bound_heads" in setting:
            assert check["heads"] == setting["lower_bound_heads"]
        if check["id"].startswith(("bank/", "cpm3/")):
            size = setting.get("terms") or setting["n_max"]
            assert check["heads"] == (size if check["layer"] == "mha" else ceil_sqrt(size))
    within = {
        layer: [c["heads"] for c in everything if c["id"].startswith("within/") and c["layer"] == layer]
        for layer in ("mha", "iha")
    }
    assert within == {"mha": [4, 7, 11, 16], "iha": [2, 3, 4, 4]}
    parity = {(c["layer"], c["setting"]["bits"]): c["heads"] for c in everything if c["id"].startswith("parity/")}
    assert parity == {
        (layer, k): k if layer == "mha" else ceil_sqrt(k) for layer in ("mha", "iha") for k in range(1, 17)
    }
    feedthrough = {(c["layer"], c["heads"]) for c in everything if c["id"].startswith("state-space-feedthrough/")}
    assert feedthrough == {("mha", 5), ("iha", 3)}


def test_json_to_standard_output_is_all_there_is(call):
    code, out, err = call("verify", "petersen", "--terms", "2", "--exact-only", "--json", "-")
    assert code == 0
    assert len(json.loads(out)["checks"]) == 2
    assert "hold" in err


def test_the_default_covers_every_size():
    assert len([step for step in suite.steps(("bank",)) if ", k = " in step.label and "N" not in step.label]) == 7 * 8
    assert len([step for step in suite.steps(("cpm3",)) if step.label.startswith("CPM-3, N_max")]) == 26
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
        ["--mutants", "--exact-only"],
        ["cpm3", "--terms", "4"],
        ["karate", "--n-max", "4"],
        ["inclusion", "--modulus", "3", "--coefficient", "1"],
        ["cpm3", "--directed"],
        ["bank", "--normalise", "row"],
        ["--jobs", "0"],
        ["karate", "--normalise", "other"],
        ["cycle:4", "--normalise", "symmetric"],
    ],
)
def test_bad_usage_is_one_line(refused, arguments):
    refused("verify", *arguments)


@pytest.mark.parametrize(
    "matrix", [np.zeros((2, 3)), np.full((2, 2), np.nan), np.zeros((0, 0)), np.full((2, 2), np.inf)]
)
def test_bad_matrices_are_one_line(refused, tmp_path, matrix):
    np.savez(tmp_path / "a.npz", a=matrix)
    refused("verify", "--graph", tmp_path / "a.npz", "--terms", "2")


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


def only(monkeypatch, subjects, results=()):
    """Lets `verify --mutants` damage these alone."""
    module = SimpleNamespace(__name__="suite.few", subjects=lambda: subjects)
    monkeypatch.setattr(suite, "MODULES", [module])
    monkeypatch.setattr(suite, "small_steps", lambda: [suite.Step("few", lambda: iter(results))])


def test_mutants(call, tmp_path, monkeypatch):
    few = suite.subjects()[:2]
    only(monkeypatch, few)
    code, out, _ = call("verify", "--mutants", "--json", str(tmp_path / "m.json"))
    content = json.loads((tmp_path / "m.json").read_text())
    assert code == 0
    assert len(content["mutants"]) >= 12
    assert "filter_bank.paper.powers damaged" in {mutant["mutant"] for mutant in content["mutants"]}
    assert {mutant["check"] for mutant in content["mutants"]} == {subject.check for subject in few}
    assert all(mutant.keys() == {"check", "mutant", "killed"} and mutant["killed"] for mutant in content["mutants"])
    assert "are caught" in out


@pytest.mark.parametrize("first", [True, False])
def test_stopping_mutants_leaves_json_that_says_so(call, tmp_path, monkeypatch, first):
    few = suite.subjects()[:3]

    def stop():
        raise KeyboardInterrupt

    stopped = [*few[:2], dataclasses.replace(few[2], build=stop)]
    only(monkeypatch, stopped)
    if first:
        monkeypatch.setattr(suite, "subjects", stop)
    file = tmp_path / "m.json"
    code, _, err = call("verify", "--mutants", "--json", str(file))
    content = json.loads(file.read_text())
    assert code == 130
    assert "stopped" in err
    assert not content["complete"]
    assert {mutant["check"] for mutant in content["mutants"]} == (set() if first else {s.check for s in few[:2]})


def test_processes_change_nothing_but_the_order_of_work(call, tmp_path):
    """Exact checks, whose errors are 0, and counts: with 16 steps two processes are worth it."""
    files = []
    for jobs in (1, 2):
        files.append(tmp_path / f"{jobs}.json")
        n_max = [str(n) for n in range(1, 10)]
        code, *_ = call(
            "verify",
            "cpm3",
            "--modulus",
            "3",
            "--coefficient",
            "8",
            "--n-max",
            *n_max,
            "--jobs",
            jobs,
            "--json",
            files[-1],
        )
        assert code == 0
    assert files[0].read_text() == files[1].read_text()


def test_a_process_that_dies_is_one_line(refused, monkeypatch):
    monkeypatch.setattr(suite, "spread", lambda *_: iter([(0, Lost("its process was killed (SIGKILL)"))]))
    said = refused("verify", "cpm3", "--jobs", "2")
    assert "CPM-3, N_max = 10: its process was killed (SIGKILL); --jobs 1 runs in one" in said
