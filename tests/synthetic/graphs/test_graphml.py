"""GraphML by its schema: read whole, or refused by line."""

import re
from fractions import Fraction

import pytest

from synthetic.graphs import read

XMLNS = 'xmlns="http://graphml.graphdrawing.org/xmlns"'
WEIGHT = '<key id="w" for="edge" attr.name="weight" attr.type="double"/>'
NODES = '<node id="a"/>\n<node id="b"/>'


@pytest.fixture
def given(tmp_path):
    def write(body, keys=WEIGHT, default="directed", head="", encoding="utf-8"):
        text = f'{head}<graphml {XMLNS}>\n{keys}\n<graph edgedefault="{default}">\n{body}\n</graph></graphml>'
        (tmp_path / "g.graphml").write_bytes(text.encode(encoding))
        return read(tmp_path / "g.graphml")

    return write


def refused(call, *words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are below)
        call()
    assert re.fullmatch(r"cannot read \S+ as .graphml: [^\n]+", str(caught.value))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("word", "directed"), [("true", True), ("1", True), (" 1 ", True), ("false", False), ("0", False)]
)
def test_direction_of_an_edge_is_a_schema_boolean(given, word, directed):  # case 31
    body = f'{NODES}\n<edge source="a" target="b" directed="{word}"/>'
    right, wrong = ("directed", "undirected") if directed else ("undirected", "directed")
    graph = given(body, default=right)
    assert graph.directed == directed
    assert graph.adjacency.tolist() == [[0, 1], [0 if directed else 1, 0]]
    refused(lambda: given(body, default=wrong), "line 6", f"directed='{word}'", wrong)


@pytest.mark.parametrize("word", ["True", "yes", "2", ""])
def test_other_directions_are_refused(given, word):
    refused(lambda: given(f'{NODES}<edge source="a" target="b" directed="{word}"/>'), "line 5", "true, false, 1 and 0")


@pytest.mark.parametrize(
    ("weight", "kind", "number"),
    [
        ("9007199254740993", "long", 2**53 + 1),
        ("0.1", "double", Fraction(1, 10)),
        ("-1e-3", "float", Fraction(-1, 1000)),
        (" 7\n", "int", 7),
        ("1/3", "string", Fraction(1, 3)),
    ],
)
def test_weights_are_what_is_written(given, weight, kind, number):
    body = f'{NODES}<edge source="a" target="b"><data key="w">{weight}</data></edge>'
    assert given(body, WEIGHT.replace("double", kind)).adjacency[0, 1] == number


def test_defaults_ports_of_programs_and_notes(given):
    keys = (
        '<key id="w" for="all" attr.name="Weight" attr.type="int"><desc>how much</desc><default>4</default></key>'
        '<key id="g" for="edge" yfiles.type="edgegraphics"/><key id="c" attr.name="colour" for="node"/>'
    )
    body = (
        '<desc>a graph</desc><node id="b"><data key="c">red</data></node><node id="a"/>'
        '<edge id="e" source="b" target="a"><data key="g"><y:Line xmlns:y="urn:y"><y:graph>x</y:graph></y:Line></data>'
        '</edge><edge id="e" source="a" target="b"><data key="w">5</data></edge>'
    )
    graph = given(body, keys)
    assert (graph.nodes, graph.adjacency.tolist()) == (("b", "a"), [[0, 4], [5, 0]])
    assert graph.notes == ("attributes that are no weights of edges: colour, g",)


def test_encodings_and_names(given):
    node = '<node id="Zoë [東] $x$ &amp; &#10;"/>'
    assert given(node, head="<?xml version='1.0'?>").nodes == ("Zoë [東] $x$ & \n",)
    assert given('<node id="é"/>', head="<?xml version='1.0' encoding='iso-8859-1'?>", encoding="latin-1").nodes == (
        "é",
    )


EDGE = '<edge source="a" target="b"/>'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (f'{NODES}</graph>\n<graph edgedefault="directed">', ["line 6", "second <graph>"]),
        ('<node id="a"><graph edgedefault="directed"/></node>', ["second <graph>"]),
        ('<node id="a"><port name="p"/></node>', ["<port>"]),
        (f'{NODES}<hyperedge><endpoint node="a"/></hyperedge>', ["<hyperedge>"]),
        (f'{NODES}<edge source="a" sourceport="p" target="b"/>', ["sourceport"]),
        (f'{NODES}<edge source="a" target="b" weight="5"/>', ["line 5", "weight=", "<data>"]),
        (f'{NODES}<edge id="e" source="a" target="b"/><edge id="e" source="a" target="b"/>', ["'e'", "twice"]),
        (
            f'{NODES}<edge source="a" target="b"><data key="w">2<x:f xmlns:x="u">3</x:f>4</data></edge>',
            ["<f> in a weight"],
        ),
        ('<locator xmlns:xlink="x" xlink:href="y"/>', ["<locator>"]),
        (f'{NODES}<edge source="a" target="c"/>', ["line 5", "'c'"]),
        (f'{NODES}\n<node id="a"/>', ["line 6", "twice"]),
        ("<node/>", ["without id"]),
        (f'{NODES}<edge source="a"/>', ["without target"]),
        (f'{NODES}<edge source="a" target="b"><data key="v">1</data></edge>', ["'v'", "declared"]),
        (
            f'{NODES}<edge source="a" target="b"><data key="w">1</data><data key="w">1</data></edge>',
            ["twice in one edge"],
        ),
        (f'{NODES}<edge source="a" target="b"><data key="w">x</data></edge>', ["line 5", "'x'"]),
        (f'{NODES}<edge source="a" target="b"><data key="w">NaN</data></edge>', ["finite"]),
        (f'{NODES}<edge source="a" target="b"><data key="w"/></edge>', ["''"]),
        ('<node id="a"><data key="w">3</data></node>', ["for edge, not for node"]),
        (f"{NODES}<arc/>", ["<arc>"]),
        (f"{NODES} 1 2", ["'1 2'"]),
        (f"{NODES}{EDGE}{EDGE[:-2]}", ["line "]),
        (f"{NODES}&lol;", ["line "]),
    ],
)
def test_what_is_refused(given, body, words):
    refused(lambda: given(body), *words)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (WEIGHT + WEIGHT, ["twice"]),
        (WEIGHT + WEIGHT.replace('"w"', '"v"'), ["second edge attribute"]),
        (WEIGHT.replace("double", "boolean"), ["'boolean'"]),
        (WEIGHT.replace("double", "int"), ["0.5"]),
        (f"{WEIGHT[:-2]}><default>1</default><default>2</default></key>", ["a second default"]),
        ('<key id="w" for="node" attr.name="weight" attr.type="double"/>', ["for node, not for edge"]),
        ("<key/>", ["without id"]),
    ],
)
def test_keys_that_are_refused(given, keys, words):
    refused(lambda: given(f'{NODES}<edge source="a" target="b"><data key="w">0.5</data></edge>', keys), *words)


def test_frames_that_are_refused(given, tmp_path):
    bomb = '<!DOCTYPE graphml [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    refused(lambda: given(NODES, head=bomb), "line 1", "DTD")
    refused(lambda: given(NODES, default="both"), "'both'")
    refused(lambda: given("", WEIGHT), "empty")
    for encoding in ("foo", "base64"):
        refused(lambda encoding=encoding: given(NODES, head=f"<?xml version='1.0' encoding='{encoding}'?>"), "line 1")
    for text in (f"<graphml {XMLNS}/>", "<gexf/>", "<graphml xmlns='http://www.gexf.net/1.2draft'/>", "junk", ""):
        (tmp_path / "f.graphml").write_text(text)
        refused(lambda: read(tmp_path / "f.graphml"))
    counted = f'<graphml {XMLNS}><graph edgedefault="directed" parse.nodes="3">{NODES}</graph></graphml>'
    (tmp_path / "f.graphml").write_text(counted)
    refused(lambda: read(tmp_path / "f.graphml"), "parse.nodes", "there are 2")
