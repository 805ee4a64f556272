"""What stands in the report, and the command that writes it."""

import re
from dataclasses import replace
from functools import partial

import networkx as nx
import pytest

from constructions.ledger import graph
from figures import records
from figures.report import drawing, page, pictures, proofs, work

FIRST = "proof-cpm3-2-theorem-1-the-layer-must-carry-the-whole-sequence"


def test_the_page_needs_nothing_else(text):
    for address in re.findall(r'(?:src|href|action|url)[=(]"?([^")> ]+)', text):
        assert address.startswith(("#", "data:", "https://arxiv.org/", "https://doi.org/")), address
    assert "@import" not in text


def test_every_link_has_a_target_and_every_id_is_one(text):
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_every_node_is_drawn_and_told_of(text, nodes):
    for name in nodes:
        assert text.count(f'id="node-{name}"') == 1
        assert text.count(f'data-name="{name}"') == 1


def test_what_fails_is_said_first(found, nodes):
    claims = [claim | {"sound": False} if claim["id"] == "E1" else claim for claim in found.claims]
    rows = [row | {"reached": False} if row["layer"] == "mqa" else row for row in found.capacities]
    broken = replace(found, claims=claims, capacities=rows)
    text = page.render(broken, nodes, [], [], None)
    assert "statement E1 is not sound" in text
    assert "capacity of mqa, H = 2" in text
    assert text.index("statement E1 is not sound") < text.index("In a minute</h2>")
    assert "All checks behind this page hold" not in text
    assert "docs/cpm3.md, Theorem 1" in text  # named, where docs/ is not there


def test_capacity_tables_have_a_column_for_each_number_of_heads(found):
    ranks = {line.layer: line.cells for line in page.capacity_lines(found.capacities, [1, 2], lambda r: str(r["rank"]))}
    assert ranks["iha, P = 2, global, softmax"] == ("", "4")
    assert ranks["mha, linear"] == ("1", "2")
    bits = {line.layer: line.cells for line in page.capacity_lines(found.capacities, [1, 2], page._bits)}
    assert bits["iha, P = 2, global, softmax"] == ("", "4")
    assert bits["two-layer, softmax"][0].startswith("any (")


def test_statements_are_about_the_attentions_that_they_rest_on(theory):
    kinds = page.attentions(theory)
    assert kinds["T8"] == ["mha"]
    assert kinds["P-two-definitions"] == ["iha"]
    assert {"mha", "iha", "differential", "simplicial"} <= set(kinds["T1"])
    assert kinds["E13"] == kinds["E1"] == []


def test_shapes_are_apart_and_arcs_are_what_is_not_implied(theory):
    drawn = drawing.draw(theory, {"E1": "holds"})
    places = {(shape.x, shape.y) for shape in drawn.shapes}
    assert len(places) == len(theory) == len(drawn.shapes)
    whole = graph.digraph(theory)
    assert nx.transitive_closure_dag(nx.DiGraph([(a.user, a.used) for a in drawn.arcs])).edges == (
        nx.transitive_closure_dag(whole).edges
    )
    assert next(shape for shape in drawn.shapes if shape.name == "E1").classes == "statement exact holds"
    assert len({drawing.outline(kind, 0, 0, 50) for kind in page.KINDS}) == 4


def test_proofs_have_formulas_links_and_anchors(root):
    found = proofs.gather(
        ["docs/cpm3.md, Theorem 1", "constructions.filter_bank.tiled", "docs/bounds.md, Setting"], root
    )
    assert [name for name, *_ in found.pages] == ["cpm3"]
    assert found.anchors == {
        "docs/cpm3.md, Theorem 1": FIRST,
        "constructions.filter_bank.tiled": "proof-constructions.filter_bank.tiled",
    }
    assert f'id="{FIRST}"' in found.pages[0][2]
    assert found.docstrings[0][1].startswith("The constructions with about sqrt(H)")
    html = proofs.rendered(
        "# A\n\n$x$ [b](b.md) [c](c.md) [d](https://arxiv.org/abs/1) ![e](e.svg)", "docs/a.md", {"b.md"}
    )
    assert '<h3 id="proof-a-a">' in html
    assert "<math" in html
    assert re.findall('href="([^"]+)"', html) == ["#proof-page-b", "https://arxiv.org/abs/1"]
    assert "[picture: e]" in html
    assert proofs.formula(r"\left(", {"display_mode": False}) == r"<code>\left(</code>"


def test_runs_of_any_task_are_a_table(record, write):
    made = [record(heads=h, seed=s, error=0.1 * h + s / 100) for h in (1, 2) for s in range(3)]
    runs = records.read(write([*made, record(task="cpm3", accuracy=0.9, heads=3)]))
    rows = pictures.summary(runs)
    assert [(row["task"], row["heads"], row["runs"]) for row in rows] == [
        ("cpm3", 3, 1),
        ("polynomial", 1, 3),
        ("polynomial", 2, 3),
    ]
    assert rows[0]["median accuracy"] == "0.9"
    assert rows[2]["median error"] == "0.21"


@pytest.fixture
def small(monkeypatch):
    """The command on little."""
    few = {"statements": ("E13",), "heads": (1,), "picture": False, "tolerances": (0.0,)}
    monkeypatch.setattr(work, "Wanted", partial(work.Wanted, **few))
    monkeypatch.setattr(work, "GRAPHS", ())


def test_the_command_writes_the_page_with_the_users_graph_and_runs(call, small, tmp_path, record, write):
    edges, file = tmp_path / "mine.txt", tmp_path / "new" / "report.html"
    edges.write_text("a b\nb c\n")
    folder = write([record(heads=h, seed=s) for h in (1, 2) for s in range(2)])
    code, out, _ = call("report", "--out", file, "--graph", edges, "--terms", 3, "--from", folder, "--jobs", 1)
    assert code == 0
    assert f"wrote {file}" in out
    text = file.read_text(encoding="utf-8")
    assert "3 nodes, 2 edges" in text
    assert "drawn now from the runs given" in text
    assert "4 records in 1 files" in text
    assert list(file.parent.iterdir()) == [file]


def test_stopped_it_leaves_what_was_there(call, small, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, "gather", stop)
    file = tmp_path / "report.html"
    file.write_text("old")
    assert call("report", "--out", file)[0] == 130
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--out", "{folder}"), "a file is needed"),
        (("--out", "{folder}/a.html", "--terms", "0"), "--terms takes an integer of at least 1"),
        (("--out", "{folder}/a.html", "--jobs", "0"), "--jobs takes an integer of at least 1"),
        (("--out", "{folder}/a.html", "--graph", "nowhere.txt"), "nowhere.txt"),
        (("--out", "{folder}/a.html", "--from", "{folder}"), "no runs.jsonl"),
        ((), "--out"),
    ],
)
def test_bad_usage_is_one_line_and_writes_nothing(refused, small, tmp_path, arguments, says):
    assert says in refused("report", *(argument.format(folder=tmp_path) for argument in arguments))
    assert list(tmp_path.iterdir()) == []
