"""`iha-theory claims` as a user calls it."""

import json

import pytest

from constructions import ledger
from constructions.ledger import page


def test_a_page_has_verdict_counterexample_and_repair(call):
    code, out, _ = call("claims", "e1")
    assert code == 0
    assert out.startswith("E1  DOES NOT HOLD AS PRINTED")
    for part in (
        "source: Sec. 4.3",
        "counterexample: modulus = 2, coefficient = 5",
        "repaired: ",
        "all hold",
        "note: ",
    ):
        assert part in out


def test_a_number_without_a_letter_is_all_its_parts():
    assert [s.id for s in ledger.select(["t17"])] == ["T17a", "T17b", "T17c"]
    assert [s.id for s in ledger.select(["T16", "E1"])] == ["E1", "T16"]


def test_json_is_strict_and_complete(call, tmp_path):
    file = tmp_path / "new" / "claims.json"
    code, out, _ = call("claims", "E1", "E7", "--json", str(file))
    assert code == 0
    assert "2 statements" in out
    content = json.loads(file.read_text(), parse_constant=pytest.fail)
    assert (content["schema"], content["complete"]) == ("iha-theory/claims/1", True)
    assert [c["id"] for c in content["claims"]] == ["E1", "E7"]
    first = content["claims"][0]
    assert first["verdict"] == "does-not-hold-as-printed"
    assert first["counterexample"]["case"] == {"modulus": 2, "coefficient": 5}
    assert {e["role"] for e in first["evidence"]} == {"printed", "repaired"}


def test_the_list_checks_nothing_and_shows_every_statement(call):
    code, out, _ = call("claims", "--list")
    assert code == 0
    assert "E13" in out
    assert "1[m = i]" in out  # not taken for markup


def test_a_table_is_made_anew_and_other_text_stays(call, tmp_path, monkeypatch):
    chosen = ledger.select(["E7"])
    monkeypatch.setattr(ledger, "statements", lambda: chosen)
    monkeypatch.setattr(page, "TELLING", ())
    files = [tmp_path / "table.md", tmp_path / "digest.md"]
    for file in files:
        file.write_text(f"before\n<!-- claims, {file.stem}: made -->\nstale row\n<!-- end of claims -->\nafter\n")
    assert call("claims", "--update", *map(str, files))[0] == 0
    table, digest = (file.read_text() for file in files)
    for text in (table, digest):
        assert text.startswith("before\n<!-- claims, ")
        assert text.endswith("\n<!-- end of claims -->\nafter\n")
        assert "stale row" not in text
    assert "| E7 |" in table
    assert "| E7 |" not in digest
    assert "1 statements: 1 does not hold as printed." in digest
    assert call("claims", "--update", *map(str, files))[1].count("up to date") == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--update", "docs/results.md"), "<!-- claims, table: ... --> or <!-- claims, digest: ... -->"),
        (("E99",), "unknown statement 'E99'"),
        (("--update", "nowhere.md"), "nowhere.md"),
        (("E1", "--update", "README.md"), "leave the ids out"),
    ],
)
def test_bad_usage_is_one_line(refused, arguments, says):
    assert says in refused("claims", *arguments)
