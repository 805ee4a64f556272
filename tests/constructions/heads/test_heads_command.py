"""`iha-theory heads` as a user calls it: counts, certificates, files of weights."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from constructions.filter_bank.layers import LAYERS
from constructions.heads import command
from constructions.heads import exact as exact_heads
from constructions.heads.files import digest, read, write
from iha_theory.bounds import exact_rank
from iha_theory.bounds.certificates import Certificate, verify
from iha_theory.cli.main import Parser
from synthetic.graphs import load


@pytest.fixture
def heads(call):
    return partial(call, "heads")


def rows(text, **wanted):
    return [row for row in json.loads(text)["heads"] if all(row[name] == x for name, x in wanted.items())]


@pytest.mark.parametrize(
    ("graph", "terms", "mha", "iha"),
    [
        ("karate", 9, 9, 3),
        ("petersen", 9, 3, 2),
        ("complete:12", 9, 2, 2),
        ("cycle:16", 16, 16, 4),
        ("path:5", 9, 5, 3),
        ("karate", 1, 1, 1),
    ],
)
def test_exact_counts_are_achieved_with_a_certificate(heads, graph, terms, mha, iha):
    code, out, err = heads(graph, "--terms", terms, "--tolerance", 0, "--json", "-")
    assert code == 0
    assert json.loads(out)["schema"] == "iha-theory/heads/1"
    assert {row["layer"] for row in rows(out)} == {"mha", "iha", "iha-tiled", "mha-two-layer"}
    for row in rows(out):
        assert row["tolerance"] == 0
        assert row["lower"] == row["achieved"] == (mha if row["layer"] == "mha" else iha)
        assert (row["error"], row["tier"]) == (0, "exact")
        assert row["certificate_verified"]
        certificate = Certificate.from_json(row["certificate"])
        assert certificate.rank == mha
        assert verify(certificate, load(graph).adjacency, terms)
    assert f"rank {mha} (certificate verified)" in err
    assert "4 of 4 bounds are achieved" in err


def test_a_file_that_floating_point_gets_wrong(heads, tmp_path):
    np.savez(tmp_path / "diagonal.npz", a=np.diag(np.arange(1, 13)))
    code, out, _ = heads(tmp_path / "diagonal.npz", "--terms", 12, "--tolerance", 0, "--json", "-")
    assert code == 0
    (mha,) = rows(out, layer="mha")
    assert mha["lower"] == mha["achieved"] == 12


def test_tolerances_of_karate(heads, tmp_path):
    file = tmp_path / "new" / "heads.json"
    code, out, _ = heads("karate", "--terms", 16, "--tolerance", 0.1, 0.01, 1e-4, 1e-8, "--json", file)
    assert code == 0
    assert "numerical" in out
    assert "D^-1/2 A D^-1/2" in out
    text = file.read_text()
    for tolerance, mha, iha in ((0.1, 4, 2), (0.01, 7, 3), (1e-4, 11, 4), (1e-8, 16, 4)):
        for row in rows(text, tolerance=tolerance):
            assert row["certificate"] is None
            assert row["lower"] == (mha if row["layer"] == "mha" else iha)
            assert 0 <= row["error"] <= tolerance * (1 + 1e-4)
            assert row["achieved"] >= row["lower"]
            if row["layer"] in ("mha", "iha-wide"):
                assert row["achieved"] == row["lower"]
    assert len(rows(text)) == 20


def test_cost_columns(heads):
    _, out, _ = heads("karate", "--terms", 16, "--tolerance", 0, "--json", "-")
    assert [len(setting["bounds_hold_for"]) for setting in json.loads(out)["settings"]] == [3]
    maps = {row["layer"]: (row["pseudo_heads"], row["attention_maps"]) for row in rows(out)}
    assert maps == {"mha": (1, 16), "iha": (4, 64), "iha-tiled": (2, 16), "mha-two-layer": (1, 8)}
    parameters = {row["layer"]: row["parameters"] for row in rows(out)}
    assert parameters["mha"] == 2 * 34 * 35 * 16 + 35 * 16
    assert parameters["iha"] == 2 * 34 * 35 * 4 + 35 * 16 + 4 * 4**3
    _, wide, _ = heads("karate", "--terms", 16, "--tolerance", 0, "--layer", "mha", "--width", 3, "--json", "-")
    assert [row["parameters"] for row in rows(wide)] == [2 * 34 * 37 * 16 + 3 * 37 * 16]


@pytest.mark.parametrize(
    ("graph", "options", "target"),
    [
        ("cycle:5", [], "A the matrix as given"),
        ("karate", ["--normalise", "row"], "A the row-normalised matrix"),
        ("petersen", ["--normalise", "symmetric"], "A D^-1/2 A D^-1/2"),
    ],
)
def test_normalisation_is_said(heads, graph, options, target):
    code, out, _ = heads(graph, "--terms", 4, "--tolerance", 0, 0.1, "--layer", "mha", *options)
    assert code == 0
    assert out.count(target) == 2
    assert out.count("the lower bounds hold for positions only") == 2
    assert out.count("content anywhere: linear without a mask or rotary positions") == 1


def test_numbers_that_float64_cannot_hold_are_exact_modulo_primes(heads, tmp_path):
    """Row-normalised: the powers' denominators grow. Large weights: the powers leave 2^53."""
    file = tmp_path / "w.safetensors"
    for graph in ("petersen", "florentine"):
        code, out, _ = heads(
            graph, "--terms", 6, "--normalise", "row", "--tolerance", 0, "--json", "-", "--weights", file
        )
        assert code == 0
        assert {(row["tier"], row["error"]) for row in rows(out)} == {("exact", 0)}
        code, out, _ = heads(graph, "--terms", 6, "--check-weights", file)
        assert code == 0
    (tmp_path / "big.edges").write_text(f"0 1 {10**9}\n1 2 {10**9 + 7}\n2 3 5\n3 3 {10**18}\n")
    code, out, _ = heads(tmp_path / "big.edges", "--terms", 7, "--tolerance", 0, "--json", "-")
    assert code == 0
    assert {(row["tier"], row["lower"]) for row in rows(out)} == {("exact", 4), ("exact", 2)}


def test_small_and_odd_graphs(heads, tmp_path):
    (tmp_path / "edge.txt").write_text("0\n1\n2\n3\n4\n0 1\n")
    (tmp_path / "zero.txt").write_text("a\nb\n")
    for graph, rank in ((tmp_path / "edge.txt", 3), (tmp_path / "zero.txt", 1), ("complete:1", 1)):
        code, out, _ = heads(graph, "--terms", 3, "--json", "-")
        assert code == 0
        assert {row["lower"] for row in rows(out, layer="mha", tolerance=0)} == {rank}


def test_a_large_graph_is_measured_in_float64_and_says_so(heads):
    code, out, _ = heads("ring:300", "--terms", 4, "--tolerance", 0, "--json", "-")
    assert code == 0
    for row in rows(out):
        assert row["tier"] == "float64"
        assert 0 <= row["error"] <= row["bound"] < 1e-11
        assert row["certificate"]["rank"] == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere", "--terms", "3"],
        ["missing.edges", "--terms", "3"],
        ["karate"],
        ["karate", "--terms", "0"],
        ["karate", "--terms", "x"],
        ["karate", "--terms", "3", "--tolerance", "1"],
        ["karate", "--terms", "3", "--tolerance", "-0.1"],
        ["karate", "--terms", "3", "--tolerance", "nan"],
        ["karate", "--terms", "3", "--tolerance", "1e-14"],
        ["karate", "--terms", "3", "--layer", "gqa"],
        ["karate", "--terms", "3", "--layer", "iha-wide", "--tolerance", "0"],
        ["karate", "--terms", "3", "--width", "0"],
        ["cycle:4", "--terms", "3", "--normalise", "symmetric"],
        ["karate", "--terms", "3", "--check-weights", "missing.safetensors"],
        ["karate", "--terms", "3", "--check-weights", "f", "--tolerance", "0"],
        ["karate", "--terms", "3", "--check-weights", "f", "--weights", "g"],
        ["karate", "--terms", "3", "--weights", "/dev/null/w.safetensors"],
        ["karate", "--terms", "3", "--weights", "/"],
        ["karate", "--terms", "3", "--unknown"],
    ],
)
def test_bad_usage_is_one_line_and_exit_2(refused, arguments):
    refused("heads", *arguments)


# ---- files of weights


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Petersen, k = 5, at tolerances 0 and 0.3: one file each."""
    folder = tmp_path_factory.mktemp("weights")
    made = {}
    for tolerance in ("0", "0.3"):
        made[tolerance] = folder / f"{tolerance}.safetensors"
        arguments = ["petersen", "--terms", "5", "--tolerance", tolerance, "--weights", str(made[tolerance])]
        parser = Parser()
        command.add_parser(parser.add_subparsers(dest="command"))
        assert command.run(parser.parse_args(["heads", *arguments])) == 0
    return made


def content_of(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata())  # noqa: SIM118


def signed(tensors, metadata):
    """Metadata with the right digest: what somebody would write who means to deceive."""
    rest = {name: text for name, text in metadata.items() if name != "sha256"}
    return rest | {"sha256": digest(tensors, rest)}


@pytest.mark.parametrize("tolerance", ["0", "0.3"])
def test_written_weights_pass(heads, files, tolerance):
    code, out, _ = heads("petersen", "--terms", 5, "--check-weights", files[tolerance])
    assert code == 0
    assert "All" in out.splitlines()[-1]
    code, out, _ = heads("petersen", "--terms", 5, "--check-weights", files[tolerance], "--json", "-")
    checked = json.loads(out)
    assert checked["intact"]
    assert {row["verdict"] for row in checked["weights"]} == {"holds"}
    assert len(checked["weights"]) == (4 if tolerance == "0" else 5)


def test_weights_load_in_a_fresh_process(files):
    """Strictly, with nothing but the metadata; the outputs are [X, A X, ..., A^4 X]."""
    code = """
import json, sys, torch
from safetensors import safe_open
import iha_theory.attention as attention
from synthetic.graphs import load
with safe_open(sys.argv[1], "pt") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
    metadata = file.metadata()
A = torch.tensor(load(metadata["graph"]).adjacency).double()
x = torch.randn(1, len(A), int(metadata["width"]), dtype=torch.float64)
powers = [x]
for _ in range(int(metadata["terms"]) - 1):
    powers.append(A @ powers[-1])
for name, layer in json.loads(metadata["layers"]).items():
    module = getattr(attention, layer["class"])(**layer["options"], dtype=torch.float64)
    own = {key.removeprefix(name + "."): t for key, t in tensors.items() if key.startswith(name + ".")}
    module.load_state_dict(own, strict=True)
    inputs = torch.cat((x, torch.eye(len(A), dtype=torch.float64)[None]), -1)
    out = module(inputs, inputs, inputs)
    blocks = [out[..., start : start + width] for _, start, width in layer["readout"]]
    torch.testing.assert_close(torch.cat(blocks, -1), torch.cat(powers, -1))
    print(name, layer["heads"], layer["pseudo_heads"])
"""
    done = subprocess.run([sys.executable, "-c", code, files["0"]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(
        ["mha", "3", "1", "iha", "2", "2", "iha-tiled", "2", "2", "mha-two-layer", "2", "1"]
    )


@pytest.mark.parametrize("tolerance", ["0", "0.3"])
def test_any_one_changed_number_fails(heads, files, tmp_path, tolerance):
    tensors, metadata = content_of(files[tolerance])
    generator = np.random.default_rng(0)
    for number, name in enumerate(tensors):
        changed = {key: tensor.clone() for key, tensor in tensors.items()}
        flat = changed[name].view(-1)
        at = int(generator.integers(len(flat)))
        flat[at] = np.nextafter(float(flat[at]), 9.0) if number % 2 else flat[at] + 1
        save_file(changed, tmp_path / "changed.safetensors", metadata)
        code, out, _ = heads("petersen", "--terms", 5, "--check-weights", tmp_path / "changed.safetensors")
        assert code == 1, name
        assert "SHA-256" in out


def test_a_wrong_operator_fails_with_the_right_digest(heads, files, tmp_path):
    """Each projection of each exact layer: the operator itself is checked, and that no content is in the queries."""
    tensors, metadata = content_of(files["0"])
    layers = json.loads(metadata["layers"])
    for name in tensors:
        if name.endswith(("alpha_q", "alpha_k", "alpha_v", "collapse")):
            continue  # some pseudo-heads are not read
        for at in (0, -1):  # a column of content, one of positions
            changed = {key: tensor.clone() for key, tensor in tensors.items()}
            row = int(tensors[name].any(-1).nonzero()[0])
            changed[name][row, at] += 0.5
            save_file(changed, tmp_path / "changed.safetensors", signed(changed, metadata))
            code, out, _ = heads("petersen", "--terms", 5, "--check-weights", tmp_path / "changed.safetensors")
            assert "SHA-256" not in out
            assert code == 1, (name, at)
            assert f"FAILS {max((x for x in layers if name.startswith(x + '.')), key=len)}:" in out


def test_approximate_weights_are_measured(heads, files, tmp_path):
    tensors, metadata = content_of(files["0.3"])
    for change in (lambda t: 2 * t, lambda t: torch.full_like(t, torch.nan), lambda t: t + 1):
        changed = {name: change(t) if name == "mha.q_proj.weight" else t for name, t in tensors.items()}
        save_file(changed, tmp_path / "changed.safetensors", signed(changed, metadata))
        code, out, _ = heads("petersen", "--terms", 5, "--check-weights", tmp_path / "changed.safetensors")
        assert code == 1
        assert "FAILS mha:" in out
        assert out.count("FAILS") == 1


def test_a_changed_claim_fails(heads, files, tmp_path):
    """The metadata are signed too: a looser tolerance, another graph's name."""
    tensors, metadata = content_of(files["0.3"])
    for change in ({"tolerance": "0.9"}, {"graph": "karate"}, {"note": "mine"}):
        save_file(tensors, tmp_path / "changed.safetensors", metadata | change)
        code, out, _ = heads("petersen", "--terms", 5, "--check-weights", tmp_path / "changed.safetensors")
        assert code == 1
        assert "SHA-256" in out


def test_weights_of_another_graph_fail(heads, refused, files):
    for graph in ("complete:10", "karate"):
        code, out, _ = heads(graph, "--terms", 5, "--check-weights", files["0"])
        assert code == 1
        assert "does NOT hold" in out
    checked = ("--check-weights", files["0"])
    assert "--terms 5" in refused("heads", "petersen", "--terms", 4, *checked)
    assert "--normalise none" in refused("heads", "petersen", "--terms", 5, "--normalise", "row", *checked)


def test_files_of_another_kind_are_one_line(refused, files, tmp_path):
    tensors, metadata = content_of(files["0"])
    layers = json.loads(metadata["layers"])
    name = "iha.alpha_q"
    broken = {
        "text": None,
        "no metadata": (tensors, None),
        "another schema": (tensors, metadata | {"schema": "other"}),
        "a key missing": ({key: t for key, t in tensors.items() if key != name}, metadata),
        "a key too many": (tensors | {"other.weight": torch.zeros(2)}, metadata),
        "another shape": (tensors | {name: torch.zeros(3, 3, 3, dtype=torch.float64)}, metadata),
        "another dtype": (tensors | {name: tensors[name].float()}, metadata),
        "layers no JSON": (tensors, metadata | {"layers": "{"}),
        "layers of another form": (tensors, metadata | {"layers": "[1]"}),
        "an unknown class": (tensors, metadata | {"layers": json.dumps(layers | {"iha": {"class": "os.system"}})}),
        "an unknown layer": (
            {key.replace("iha-tiled", "mine"): t for key, t in tensors.items()},
            metadata | {"layers": json.dumps({k.replace("iha-tiled", "mine"): v for k, v in layers.items()})},
        ),
        "a tolerance of 2": (tensors, metadata | {"tolerance": "2"}),
        "terms no number": (tensors, metadata | {"terms": "five"}),
        "a size beyond memory": (
            tensors,
            metadata | {"layers": metadata["layers"].replace('"embed_dim": 11', '"embed_dim": 99999999999')},
        ),
    }
    for content in broken.values():
        path = tmp_path / "broken.safetensors"
        if content is None:
            path.write_text("0 1\n1 2\n")
        else:
            save_file(content[0], path, content[1])
        refused("heads", "petersen", "--terms", 5, "--check-weights", path)


def test_files_round_trip(files, tmp_path):
    content = read(files["0"])
    assert content.intact
    write(tmp_path / "again.safetensors", content)
    again = read(tmp_path / "again.safetensors")
    assert (again.graph, again.terms, again.normalisation, again.tolerance) == ("petersen", 5, "none", 0.0)
    for name, construction in content.constructions.items():
        assert again.constructions[name].readout == construction.readout
        for key, tensor in construction.layer.state_dict().items():
            assert torch.equal(again.constructions[name].layer.state_dict()[key], tensor)


def test_a_layer_that_misses_its_target_is_a_failure(heads, monkeypatch):
    right = LAYERS["mha"]
    wrong = replace(right, weights=lambda power, *rest: right.weights(lambda i: power(max(i, 1)), *rest))
    monkeypatch.setitem(LAYERS, "mha", wrong)
    code, out, err = heads("karate", "--terms", 4, "--tolerance", 0, "--json", "-")
    assert code == 1
    assert [row["achieved"] for row in rows(out)] == [None, 2, 2, 2]
    assert "FAILS mha at 0: error" in err
    assert "do NOT" in err


def test_a_certificate_that_proves_nothing_is_a_failure(heads, monkeypatch):
    found = exact_rank.power_rank(load("karate").adjacency, 4)
    assert found.certificate is not None
    wrong = replace(found, certificate=replace(found.certificate, minor=found.certificate.minor + 1))
    monkeypatch.setattr(exact_heads, "power_rank", lambda *_: wrong)
    code, out, err = heads("karate", "--terms", 4, "--tolerance", 0, "--json", "-")
    assert code == 1
    assert {row["certificate_verified"] for row in rows(out)} == {False}
    assert "FAILS mha at 0: the certificate proves nothing: the minor is" in err


def test_how_time_grows_is_said_and_the_rank_is_found_once(call, monkeypatch):  # case 44
    from constructions.filter_bank import reduced
    from constructions.heads import exact

    calls = []
    for module in (exact, reduced):
        real = module.power_rank
        monkeypatch.setattr(module, "power_rank", lambda *args, real=real: calls.append(args) or real(*args))
    _, out, _ = call("heads", "--help")
    assert "Grows as N^2 to N^3" in out
    assert call("heads", "cycle:6", "--terms", 4, "--tolerance", 0)[0] == 0
    assert len(calls) == 1
