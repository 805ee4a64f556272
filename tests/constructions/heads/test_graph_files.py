"""Graphs from files, through the commands: what is certified is what was written, and what was read is said."""

import json

import numpy as np
import pytest

from constructions.suite import bank
from iha_theory.bounds.certificates import Certificate, verify
from synthetic.graphs import read


def matrix_market(weights):
    size = len(weights)
    lines = [f"{i} {i} {x}" for i, x in enumerate(weights, 1)]
    return "\n".join(["%%MatrixMarket matrix coordinate real general", f"{size} {size} {size}", *lines, ""])


def loops(weights):
    return "".join(f"{name},{name},{x}\n" for name, x in zip("abcd", weights, strict=False))


@pytest.mark.parametrize(("name", "write"), [("g.mtx", matrix_market), ("g.csv", loops)])
@pytest.mark.parametrize(
    ("weights", "rank"),
    [
        (["9007199254740993", "9007199254740992", "0.5"], 3),
        (["9007199254740993", "9007199254740992", "1/3", "-1e-30"], 4),
        (["0.3", "3e-1", "0.30000000000000000001"], 2),
        (["123456789012345678901", "123456789012345678901", "0.1"], 2),
    ],
)
def test_ranks_are_of_what_is_written(call, tmp_path, name, write, weights, rank):  # case 32
    (tmp_path / name).write_text(write(weights))
    terms = len(weights)
    code, out, err = call("heads", tmp_path / name, "--terms", terms, "--tolerance", 0, "--json", "-")
    found = json.loads(out)
    assert code == 0
    assert f"rank {rank} (certificate verified)" in err
    assert f"{name}: {terms} nodes, {terms} edges, undirected, weights fractions" in err
    assert (found["nodes"], found["self_loops"], found["components"]) == (terms, terms, terms)
    assert found["weights"]["kind"] == "fractions"
    (mha,) = (row for row in found["heads"] if row["layer"] == "mha")
    assert (mha["lower"], mha["achieved"], mha["error"], mha["certificate_verified"]) == (rank, rank, 0, True)
    assert verify(Certificate.from_json(mha["certificate"]), read(tmp_path / name).adjacency, terms)


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        (["0.1", "1/3", "7"], None),
        (["1/9007199254740881", "3", "0.1"], None),  # a denominator that is a prime the exact check would take
        (["9007199254740993", "0.5", "1"], "not a float64"),
        (["1e-400", "1", "2"], "underflow"),
        (["1e400", "1", "0.5"], "overflow"),
    ],
)
def test_constructions_hold_exactly_on_fractions(tmp_path, weights, reason):
    (tmp_path / "g.csv").write_text(loops(weights) + "a,b,1\n")
    graph = read(tmp_path / "g.csv")
    results = list(bank.graph_checks(graph, 3, exact_only=False))
    assert [result.holds for result in results] == [True] * (2 if reason else 4)
    assert reason is None or reason in results[0].compared


def test_verify_says_what_it_read(call, tmp_path):
    (tmp_path / "net[v2].txt").write_text("from,to\n0,1\n1,2\n2,2\n")
    (tmp_path / "r.npz").write_bytes(b"")
    np.savez(tmp_path / "r.npz", a=np.array([[0, 0.5], [0, 0]]))
    files = [tmp_path / "net[v2].txt", tmp_path / "r.npz"]
    code, out, err = call("verify", "--graph", files[0], "--graph", files[1], "--terms", 2, "--json", "-")
    assert code == 0
    assert "net[v2].txt: 3 nodes, 3 edges, undirected, weights 1, 1 component, 1 self-loop, line 1 is a header" in err
    assert "r.npz: 2 nodes, 1 edge, directed, weights 0.5, 1 component, no self-loops" in err
    first, second = json.loads(out)["graphs"]
    assert first["weights"] == {"kind": "integers", "least": 1, "greatest": 1}
    assert (second["directed"], second["weights"]["kind"]) == (True, "floats")


@pytest.mark.parametrize("command", ["heads", "verify"])
def test_what_does_not_fit_is_one_line(call, tmp_path, command):
    (tmp_path / "g.txt").write_text("0;1\n1;2;0,5\n")
    code, out, err = call(command, tmp_path / "g.txt", "--terms", 3)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "g.txt" in err
    assert "line 2" in err


def test_weights_go_through_a_link_with_the_users_mode(call, tmp_path):  # case 43
    target, link = tmp_path / "real.safetensors", tmp_path / "link.safetensors"
    link.symlink_to(target.name)
    plain = tmp_path / "plain"
    plain.touch()
    assert call("heads", "petersen", "--terms", 2, "--tolerance", 0, "--weights", link)[0] == 0
    assert link.is_symlink()
    assert target.stat().st_mode == plain.stat().st_mode
    target.chmod(0o640)
    assert call("heads", "petersen", "--terms", 2, "--tolerance", 0, "--weights", link)[0] == 0
    assert target.stat().st_mode & 0o777 == 0o640
