"""The graph of the theory: every statement in it, every edge, owner and proof there, and what is not there is found."""

from dataclasses import replace
from pathlib import Path

import pytest
from torch import nn

from constructions import ledger
from constructions.ledger import graph
from iha_theory import attention, blueprint
from iha_theory.blueprint import Node

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def nodes():
    return graph.theory()


def test_nothing_is_wrong_with_the_graph(nodes):
    assert graph.faults(nodes, ROOT) == []


def test_every_statement_is_a_node(nodes):
    assert {n.name for n in nodes.values() if n.kind == "statement"} == {s.id for s in ledger.statements()}


def test_every_attention_layer_is_a_node(nodes):
    layers = {code for name in attention.__all__ if isinstance(code := getattr(attention, name), type)}
    named = {graph.owner(n.owner) for n in nodes.values() if n.kind == "definition" and n.owner}
    assert {layer for layer in layers if issubclass(layer, nn.Module)} <= named


def test_every_statement_rests_on_something(nodes):
    alone = [n.name for n in nodes.values() if n.kind == "statement" and not n.uses]
    assert alone == ["E13"]  # arithmetic on what the paper reports


def test_a_statement_without_a_place_is_refused(monkeypatch):
    module = graph.MODULES[0]
    monkeypatch.setattr(module, "STATEMENTS", (replace(module.STATEMENTS[0], place=None), *module.STATEMENTS[1:]))
    with pytest.raises(ValueError, match=r"P-inclusion has no place"):
        graph.theory()


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("capacity", {"uses": ("mha", "nowhere")}, "capacity uses nowhere, which is unknown"),
        ("mha", {"uses": ("T2",)}, "a cycle: "),
        ("capacity", {"owner": ""}, "capacity has no owner"),
        ("capacity", {"owner": "iha_theory.capacity.no_bound"}, "no_bound is not there"),
        ("capacity", {"owner": "nothing.at_all"}, "nothing.at_all is not there"),
        ("capacity", {"proof": "docs/bounds.md, Theorem 9"}, "docs/bounds.md, Theorem 9 is not there"),
        ("capacity", {"proof": "docs/nothing.md, Theorem 1"}, "docs/nothing.md, Theorem 1 is not there"),
        ("depth", {"proof": "docs/bounds.md, Theorem 1, Depth"}, "Theorem 1, Depth is not there"),  # below Theorem 2
        ("bank-mha", {"proof": "constructions.nowhere"}, "no module with a docstring"),
        ("gqa", {"tests": ""}, "gqa is checked by no statement and by no tests"),
        ("mha", {"tests": "tests/test_nothing.py"}, "there is no tests/test_nothing.py"),
        ("strong-form", {"check": "exact"}, "strong-form has no owner"),
    ],
)
def test_damage_is_found(nodes, name, change, says):
    found = graph.faults({**nodes, name: replace(nodes[name], **change)}, ROOT)
    assert any(says in fault for fault in found), found


def test_a_definition_that_nothing_uses_is_found(nodes):
    lonely = Node("lonely", "definition", "", "exact", owner="iha_theory.blueprint.Node", tests="tests/conftest.py")
    assert graph.faults({**nodes, "lonely": lonely}, ROOT) == ["lonely is a definition that nothing uses"]


def test_two_nodes_of_one_name_are_refused(nodes):
    known = nodes["strong-form"]
    blueprint.unowned("proof only", known.name, known.text, proof=known.proof, uses=known.uses)  # as on a reload
    with pytest.raises(ValueError, match="two nodes 'strong-form'"):
        blueprint.unowned("open", known.name, known.text, proof=known.proof, uses=known.uses)


def test_decorating_changes_nothing():
    def bound():
        return 3

    assert blueprint.theorem("for-a-test", "", check="exact")(bound) is bound
    assert blueprint._NODES.pop("for-a-test").owner.endswith("bound")


def test_columns_are_right_of_what_they_use(nodes):
    columns = graph.layers(nodes)
    place = {name: i for i, column in enumerate(columns) for name in column}
    assert place.keys() == nodes.keys()
    assert all(place[used] < place[node.name] for node in nodes.values() for used in node.uses)


def test_columns_cross_less_than_in_alphabetical_order(nodes):
    def crossings(columns):
        rank = {name: (i, j) for i, column in enumerate(columns) for j, name in enumerate(column)}
        arcs = [(rank[u], rank[n.name]) for n in nodes.values() for u in n.uses if rank[n.name][0] == rank[u][0] + 1]
        return sum(a[0][0] == b[0][0] and (a[0][1] - b[0][1]) * (a[1][1] - b[1][1]) < 0 for a in arcs for b in arcs)

    columns = graph.layers(nodes)
    assert crossings(columns) < 0.6 * crossings([sorted(column) for column in columns])
