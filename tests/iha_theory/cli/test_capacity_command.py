"""`iha-theory capacity` as a user calls it."""

import json
from pathlib import Path
from typing import Any

import pytest

from iha_theory import capacity
from iha_theory.bounds import parity
from iha_theory.capacity import rows
from iha_theory.cli import capacity as command
from iha_theory.cli.main import Parser

SIMPLE = tuple(kind for kind in capacity.KINDS if kind not in ("gqa", "iha", "gated-linear"))
NOT_H = {"differential": 4, "simplicial": 4, "strassen": 4, "multi-token": 4, "two-layer": None, "forgetting": None}
"""Bits of parity of two heads. Beside these kinds the table has four IHA, gated-linear and torch's layer then."""


def run(*arguments: str) -> int:
    parser = Parser(prog="iha-theory")
    command.add_parser(parser.add_subparsers(parser_class=Parser))
    parsed = parser.parse_args(["capacity", *arguments])
    return parsed.run(parsed)


def test_the_help_names_the_numbers_of_the_table():
    assert f"H d_v, here d_v = {capacity.VALUE_DIM}\n" in command.EPILOG
    assert command.PARITY_BITS == parity.MOST_BITS


def test_the_command_writes_strict_json_and_one_summary_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    target = tmp_path / "out" / "c.json"
    assert run("--heads", "2", "--json", str(target)) == 0
    out = capsys.readouterr().out
    assert sum(line.startswith("gqa is left out at H = 2: ") for line in out.splitlines()) == 1
    rows = 2 * len(SIMPLE) + 10
    assert out.splitlines()[-2] == (
        f"All {rows - 4} layers with a proved bound reach it, up to 9 bits, 1 with tokens made for it; on one more "
        f"{rows - 5} sums are 0. Not counted: 4 that some weights take to any number."
    )
    assert out.splitlines()[-1].startswith(f"All {rows} measured ranks are their bounds")
    content = json.loads(target.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["schema"] == "iha-theory/capacity/1"
    assert content["complete"] is True
    assert len(content["capacities"]) == rows
    fields = ["layer", "heads", "pseudo_heads", "collapse", "pattern", "rank", "bound", "gap", "parity"]
    assert all(list(row) == fields and row["rank"] == row["bound"] for row in content["capacities"])
    bits = {
        (r["layer"], r["heads"], r["pseudo_heads"]): r["parity"] for r in content["capacities"][::-1]
    }  # softmax last
    assert {at: p["bits"] for at, p in bits.items() if at[0] not in ("iha", "gated-linear")} == {
        (kind, 2, None): NOT_H.get(kind, 2) for kind in (*SIMPLE, capacity.TORCH)
    }
    assert [bits["iha", 2, p]["bits"] for p in (1, 2)] == [2, 4]
    assert [bits["two-layer", 2, None][name] for name in ("unbounded", "sum")] == [True, None]


def test_narrow_content_by_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "PATTERNS", ("linear",))
    assert run("--heads", "2", "--width", "1", "--value-dim", "9") == 0
    assert f"All {len(SIMPLE) + 6} measured ranks are their bounds" in capsys.readouterr().out
    with pytest.raises(ValueError, match="--width takes an integer of at least 1, got 0"):
        run("--width", "0")
    with pytest.raises(ValueError, match="--value-dim is for the table"):
        run("--layer", "torch.nn:MultiheadAttention", "--value-dim", "2")


def test_a_parity_that_is_not_as_proved_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    right = parity.parity_bits
    monkeypatch.setattr(parity, "parity_bits", lambda kind, *a, **k: 2 if kind == "mqa" else right(kind, *a, **k))
    monkeypatch.setattr(rows, "PATTERNS", ("linear",))
    assert run("--heads", "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("FAILS mqa linear H = 2: parity of 1 bits") for line in lines) == 1
    assert lines[-2].startswith(f"1 of {len(SIMPLE) + 4} parities are NOT as proved")


def test_a_rank_that_is_not_its_bound_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    right = capacity.capacity_bound
    monkeypatch.setattr(rows, "capacity_bound", lambda kind, *a, **k: right(kind, *a, **k) + (kind == "mqa"))
    assert run("--heads", "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("FAILS mqa ") for line in lines) == 2
    assert lines[-1].startswith(f"2 of {2 * len(SIMPLE) + 10} ranks are NOT their bound")


def test_torch_mha_through_layer(capsys: pytest.CaptureFixture[str]):
    assert run("--layer", "torch.nn:MultiheadAttention", "--json", "-") == 0
    rows = json.loads(capsys.readouterr().out)["capacities"]
    assert [(row["rank"], row["bound"]) for row in rows] == [(h, h) for h in range(1, 7)]
    assert all(row["gap"] > 1e6 for row in rows)
    assert [row["parity"]["reached"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert {row["parity"]["bits"] for row in rows} == {None}


SOURCE = """
import sys
print("loud")

import torch
from torch import nn
from iha_theory.attention import InterleavedHeadAttention

class Content(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
    def forward(self, query, key, value):
        return self.inner(value, value, value)

class Zero(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
    def forward(self, query, key, value):
        return 0 * value

class Failing(nn.Module):
    def __init__(self, embed_dim, num_heads):
        raise RuntimeError("two\\nlines")

class Unclear(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
    def forward(self, query, key, value):
        return sum(10.0**-k * value.roll((k, k), (1, 2)) for k in range(16))

def iha(num_heads):
    return InterleavedHeadAttention(8 * num_heads, num_heads, init="random")

def number(num_heads):
    return num_heads

class Leaves(nn.Module):
    def __init__(self, embed_dim, num_heads):
        sys.exit(0)

class LeavesLater(Zero):
    def forward(self, query, key, value):
        raise SystemExit

class Aborts(Zero):
    def forward(self, query, key, value):
        raise GeneratorExit

class Prints(nn.MultiheadAttention):
    def forward(self, *args, **kwargs):
        print("noise")
        return super().forward(*args, **kwargs)

def nameless(num_heads):
    return Zero(8, 1)

constant = 3
"""


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "capacity_users_layers.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "capacity_users_layers", raising=False)
    return "capacity_users_layers"


def test_a_factory_in_the_current_directory(users_module: str, capsys: pytest.CaptureFixture[str]):
    assert run("--layer", f"{users_module}:iha", "--heads", "1", "2", "3") == 0
    summary = capsys.readouterr().out.splitlines()[-1]
    assert "has rank 1, 4, 9 for H = 1, 2, 3: more than any MHA with as many heads at H = 2, 3" in summary


def test_what_a_layer_prints_is_not_in_the_json(users_module: str, call: Any):  # case 42
    code, out, err = call("capacity", "--layer", f"{users_module}:Prints", "--heads", "2", "--json", "-")
    assert code == 0
    assert json.loads(out)["capacities"][0]["rank"] == 2
    assert "loud\nnoise" in err


def test_less_than_h_is_reported(users_module: str, capsys: pytest.CaptureFixture[str]):
    assert run("--layer", f"{users_module}:Zero", "--heads", "2") == 0
    assert "less than MHA's H with these weights at H = 2" in capsys.readouterr().out


def test_a_rank_without_a_gap_is_not_reported_as_clear(users_module: str, capsys: pytest.CaptureFixture[str]):
    assert run("--layer", f"{users_module}:Unclear", "--heads", "2") == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"UNCLEAR {users_module}:Unclear H = 2: the gap") for line in lines)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Content", r"Content\(8, 1\): not linear in its value at fixed query and key"),
        ("Failing", r"Failing\(8, 1\): RuntimeError: two\nlines"),
        ("Leaves", r"Leaves\(8, 1\): SystemExit: 0"),
        ("LeavesLater", r"LeavesLater\(8, 1\): SystemExit"),
        ("Aborts", r"Aborts\(8, 1\): GeneratorExit"),
        ("number", r"number\(1\): TypeError: gives int, not a torch module"),
        ("nameless", r"nameless\(1\): .* without an integer attribute embed_dim"),
        ("constant", "neither a class of torch modules nor a function"),
        ("absent", "cannot load capacity_users_layers:absent: AttributeError"),
    ],
)
def test_layers_that_cannot_be_measured(users_module: str, name: str, message: str):
    with pytest.raises(ValueError, match=message):
        run("--layer", f"{users_module}:{name}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--layer", "torch.nn"), "--layer takes MODULE:NAME, such as torch.nn:MultiheadAttention, got 'torch.nn'"),
        (("--layer", "no.such:Thing"), "cannot load no.such:Thing: ModuleNotFoundError"),
        (("--layer", "builtins:dict"), "neither a class of torch modules nor a function"),
        (("--heads", "0"), "--heads takes integers of at least 1, got 0"),
    ],
)
def test_bad_usage(arguments: tuple[str, ...], message: str):
    with pytest.raises(ValueError, match=message):
        run(*arguments)


def test_an_incomplete_run_says_so(users_module: str, tmp_path: Path):
    with pytest.raises(ValueError, match="not linear"):
        run("--layer", f"{users_module}:Content", "--json", str(tmp_path / "c.json"))
    content = json.loads((tmp_path / "c.json").read_text())
    assert content["complete"] is False
    assert content["capacities"] == []
