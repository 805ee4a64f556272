"""Rows of the scaling tables: in processes of their own, with growth, and JSON that a failing row does not stop."""

import json

import pytest

from constructions.scaling import rows, tables


def test_rows_hold_at_small_sizes():
    for name, run in rows.ROWS.items():
        holds, outcome = run(9 if "workspace" in name else 12)
        assert holds, (name, outcome)
        assert outcome


def test_a_row_is_printed_as_json(capsys, monkeypatch):
    monkeypatch.setattr(rows.sys, "argv", ["rows", "rank", "20"])
    rows._main()
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["size"], row["holds"], row["outcome"]) == ("rank", 20, True, "rank 16")
    assert 0 <= row["seconds"] < 60
    assert 2**26 < row["peak_bytes"] < 2**33


def test_a_row_runs_in_a_process_of_its_own(tmp_path, monkeypatch):
    """Python is called as `python -m constructions.scaling.rows NAME SIZE`, and its last line of errors is told."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$4" = 3 ] && { echo first >&2; echo last >&2; exit 1; }\necho "[\\"$*\\"]"\n')
    python.chmod(0o755)
    monkeypatch.setattr(rows.sys, "executable", str(python))
    assert rows.measured("rank", 20) == ["-m constructions.scaling.rows rank 20"]
    with pytest.raises(RuntimeError, match="rank 3: last"):
        rows.measured("rank", 3)


def test_growth_is_the_slope():
    assert tables.slope([(10, 5.0), (20, 40.0), (40, 320.0)]) == pytest.approx(3)
    assert tables.slope([(10, 5.0)]) is None
    found = tables.exponents(
        [{"size": n, "cpu_seconds": 1e-3 * n, "peak_bytes": 10**6 + n**2} for n in (10, 100, 1000)]
    )
    assert found["time"] == pytest.approx(1)
    assert 2 < found["memory"] < 2.01


def test_the_command(call, tmp_path, monkeypatch):
    def made(name, size):
        row = {"name": name, "size": size, "seconds": 1.0, "cpu_seconds": size / 100, "peak_bytes": 2**20 * size}
        return row | {"holds": (name, size) != ("heads", 3000), "outcome": "so"}

    monkeypatch.setattr(tables, "measured", made)
    code, out, _ = call("bench", "verify", "rank", "--json", tmp_path / "b.json")
    assert code == 1
    assert "time n^1.0" in out
    assert "FAILS: so" in out
    found = json.loads((tmp_path / "b.json").read_text())
    assert found["complete"]
    assert {row["name"] for row in found["verify"]["rows"]} == set(tables.VERIFY)
    assert found["rank"]["growth"]["rank"]["time"] == pytest.approx(1)
    assert set(rows.ROWS) == {*tables.VERIFY, *tables.RANK}


def test_what_was_measured_is_kept_when_it_is_stopped(call, tmp_path, monkeypatch):
    done = []

    def stopped(name, size):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(name)
        return {"name": name, "size": size, "seconds": 1.0, "cpu_seconds": 1.0, "peak_bytes": 1} | {
            "holds": True,
            "outcome": "so",
        }

    monkeypatch.setattr(tables, "measured", stopped)
    assert call("bench", "rank", "--json", tmp_path / "b.json")[0] == 130
    found = json.loads((tmp_path / "b.json").read_text())
    assert not found["complete"]
    assert len(found["rank"]["rows"]) == 2
