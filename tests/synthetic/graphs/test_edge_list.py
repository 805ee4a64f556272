"""Edge lists: what is read is what is written, or it is refused by line and by name."""

import re
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest

from iha_theory.bounds.exact_rank import power_rank
from synthetic.graphs import MAX_NODES, read


@pytest.fixture
def given(tmp_path):
    def write(content, name="g.txt", directed=False):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path, directed)

    return write


def refused(call, *words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are below)
        call()
    message = str(caught.value)
    assert re.fullmatch(r"cannot read \S+ as an edge list: [^\n]+", message)
    for word in words:
        assert word in message


@pytest.mark.parametrize("separator", [";", ",", "\t", " ", " ; ", ", ", "  "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_triangle_in_any_separator_has_rank_2(given, separator, end):  # case 30
    graph = given("".join(f"{u}{separator}{v}{end}" for u, v in [(0, 1), (1, 2), (2, 0)]))
    assert graph.adjacency.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert power_rank(graph.adjacency, 3).rank == 2


@pytest.mark.parametrize(
    ("content", "nodes", "edges"),
    [
        ("from,to\n0,1\n1,2\n", (0, 1, 2), 2),
        ("Source;Target;Weight\na;b;2\nb;c;2\n", ("a", "b", "c"), 2),
        ('"from"\t"to"\nalice\tbob\n', ("alice", "bob"), 1),
        ("FromNodeId ToNodeId\n3 4\n", (3, 4), 1),
        ("u v w\n3 4 1\n", (3, 4), 1),
        ("i,j\n3,4\n4,5\n", (3, 4, 5), 2),
        ("source target\nu v\nv u\n", ("u", "v"), 1),
        ("u v\nv w\n", ("u", "v", "w"), 2),  # no header: its words are labels
        ("source target\n0 1\n1 0\n", (0, 1), 1),
        ("source target weight\n0 1 0\n1 0 1\n0 1 0\n", (0, 1), 1),
        ("New York\t2\n", ("New York", "2"), 1),
        ("New York\tLos Angeles\t0.5\n", ("New York", "Los Angeles"), 1),
        ("New York,Boston\nLos Angeles,Boston\n", ("New York", "Boston", "Los Angeles"), 2),
        ('"New York" Boston 2\n"Smith, J" Boston 1\n', ("New York", "Boston", "Smith, J"), 2),
        ('"say ""hi""",b\n', ('say "hi"', "b"), 1),
        ("alice,#climate\n", ("alice", "#climate"), 1),
        ('alice "#climate"\n', ("alice", "#climate"), 1),
        ('alice,"#climate"\n"#climate",bob\n# a comment, really\n', ("alice", "#climate", "bob"), 2),
        ("a[b] c(d)\n", ("a[b]", "c(d)"), 1),
        ("a$b$ c\n", ("a$b$", "c"), 1),
        ("Ærøskøbing 東京 3\n", ("Ærøskøbing", "東京"), 1),
        ("\ufeff0 1\n", (0, 1), 1),
        ("2 1\n1 0\n0 3\n", (0, 1, 2, 3), 3),
        ("0\n1\n2\n", (0, 1, 2), 0),
        ("5\n7 8\n8 9\n", (5, 7, 8, 9), 2),
        ("source target\n5\n1 2\n2 3\n3 1\n", (1, 2, 3, 5), 3),
        ("1 apple 5\n1 pear 3\n", ("1", "apple", "pear"), 2),
        ("0 4 1\n1 0 2\n2 1 3\n", (0, 1, 2, 4), 3),
        ("solo\n", ("solo",), 0),
        ('"a-b"\n"c d"\n', ("a-b", "c d"), 0),
        ("01 1\n", ("01", "1"), 1),
    ],
)
def test_what_is_read(given, content, nodes, edges):
    graph = given(content, "g.csv" if "New York," in content else "g.txt")
    assert graph.nodes == nodes
    assert np.triu(graph.adjacency != 0).sum() == edges


def test_notes_name_what_is_no_edge(given):
    graph = given("# mine\nfrom,to\n0,1\n\n% end\n")
    assert graph.notes == ("2 comment lines", "line 2 is a header: from to")
    assert given("0 1\n").notes == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("0;1;0,5\n", ["semicolons (line 1)", "commas (line 1)", "point"]),
        ("0 1 0,5\n", ["line 1"]),
        ("0\t1\t0,5\n", ["line 1", "'0,5'", "decimal point"]),
        ("0|1\n1|2\n", ["line 1", "separator"]),
        ("0:1\n", ["line 1", "separator"]),
        ("0-1\n1-2\n", ["line 1", "separator"]),
        ("0 -> 1\n1 -> 2\n", ["line 1"]),
        ("0 - 1\n", ["line 1"]),
        ("0 1\n1\t2\n", ["line 1", "separator"]),
        ("0\t1 5\n1\t2 5\n", ["line 1", "'1 5'", "blanks"]),
        ("New York,Boston\n", ["line 1", "'New York'", "quotes"]),
        ("'New York' 2\n", ["line 1"]),
        ("0\u00a01\n", ["line 1", "U+00A0"]),
        *((f"0 1\n1 2{x}\n", ["line 2", f"U+{ord(x):04X}"]) for x in "\u200b\u200e\u202a\u2060\u00ad"),
        ("1 pp 2\n2 pp 3\n3 pp 1\n", ["SIF"]),
        ("1\tpp\t2\n2\tpp\t3\n", ["SIF"]),
        ("0 to 1\n", ["SIF"]),
        ("0 4 1\n1 0 2\n2 1 3\n3 2 4\n4 3 0\n", ["an adjacency list"]),
        ("a b c\nb c a\nc a b\n", ["an adjacency list"]),
        ("5\n1 2\n2 3\n3 1\n", ["begins with the number of nodes"]),
        ("3\n0 1\n1 2\n2 0\n", ["begins with the number of nodes"]),
        ("0 1;\n1 2;\n", ["line 1"]),
        ("0 1\n1 2 3\n", ["line 2", "3 columns", "expected 'u v [weight]'", "and 2 columns, as the edges above"]),
        ("0 1 2\n1 2\n", ["line 2", "2 columns", "expected 'u v [weight]'", "and 3 columns, as the edges above"]),
        ("0,1,\n", ["line 1", "empty"]),
        ("a,,2\n", ["line 1", "empty"]),
        ('a "b c"d\n', ["line 1", "quotes"]),
        ('a "b c\n', ["line 1", "quotes"]),
        ("alice #climate\n", ["line 1", "#"]),
        ("0 1 # note\n", ["line 1"]),
        ("0 1\n1 2% note\n", ["line 2"]),
        ("alice,#climate\n#climate,bob\n", ["line 2", "comment"]),
        ("0 1 1_000\n", ["1_000"]),
        ("0 1 0x10\n", ["0x10"]),
        ("0 1 1/0\n", ["finite"]),
        ("0 1 1e999999999\n", ["digits"]),
        ("1 2 1e-9999\n2 3 1\n", ["line 1", "weight '1e-9999' has more than 1000 digits"]),
        ("person,friend\n1,2\n2,3\n", ["line 1", "header"]),
        ("a,b,c\n0,1,0\n1,0,1\n0,1,0\n", ["line 1", "header"]),
        ("target source\na b\n", ["line 1", "header"]),
        ("source target time\na b 3\n", ["'time'"]),
        ("from to\nfrom there\n", ["header or an edge"]),
        ("from to\n", ["only a header"]),
        ("0 1\n1 0\n", ["a matrix"]),
        ("0 1 0\n1 0 1\n0 1 0\n", ["a matrix"]),
        ("0 1 0\n0 0 1\n1 0 0\n", ["a matrix"]),
        ("0,1,0,0\n1,0,1,0\n0,1,0,1\n0,0,1,0\n", ["a matrix"]),
        (",a,b,c\na,0,1,0\nb,1,0,1\nc,0,1,0\n", ["a matrix"]),
        (",a,b\na,0,1\nb,1,0\n", ["line 1"]),
        ("0.0e+00 1.0e+00\n1.0e+00 0.0e+00\n", ["line 1", "fraction"]),
        ("0 1 2\n1 2\n2\n", ["line 2"]),
        ("a b c d\nb c\nc d\n", ["an adjacency list"]),
        ("0: 1 2\n1: 2 3\n", ["line 1", "adjacency list"]),
        ("0 1 2\n1\n2\n", ["weight", "before"][1:]),
        ("3 2\n0 1\n1 2\n", ["numbers of nodes and edges"]),
        ("4 4\n1 2\n2 3\n3 4\n4 1\n", ["numbers of nodes and edges"]),
        ("3 2\n2\n1 3\n2\n", ["METIS"]),
        ("3 3\n2 3\n1 3\n1 2\n", ["line 1"]),
        ("c a graph\np edge 3 2\ne 1 2\ne 2 3\n", ["DIMACS"]),
        ("e 1 2\ne 2 3\n", ["DIMACS"]),
        ("graph [\n node [ id 0 ]\n]\n", ["GML"]),
        ('Creator "x"\nVersion 1\ngraph\n[\n directed 1\n', ["GML"]),
        ("graph {\n a -- b;\n}\n", ["DOT"]),
        ("// c\nstrict digraph G {\n a -> b\n}\n", ["DOT"]),
        ("*Vertices 3\n1 a\n*Edges\n1 2\n", ["Pajek"]),
        ("<?xml version='1.0'?>\n<gexf/>\n", ["GEXF"]),
        ("<?xml version='1.0'?>\n<graphml/>\n", ["GraphML", ".graphml"]),
        ("<html>\n", ["XML"]),
        ('{"nodes": []}\n', ["JSON"]),
        ("[[0, 1], [1, 0]]\n", ["JSON"]),
        ("(0, 1)\n(1, 2)\n", ["line 1"]),
        ("LEDA.GRAPH\nstring\n", ["LEDA"]),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n", ["Matrix Market"]),
        (">>graph6<<Bw\n", ["graph6"]),
        ("Bw\n", ["graph6"]),
        ("nodedef>name VARCHAR\na\nedgedef>a VARCHAR,b VARCHAR\n", ["GDF"]),
        ("1 first\n2 second\n#\n1 2\n", ["Trivial Graph Format"]),
        ("0 1 {}\n1 2 {}\n", ["line 1", "{}"]),
        ("0 1 {'weight': 3}\n1 2 {'weight': 3}\n", ["networkx"]),
        ("", ["empty"]),
        ("\n \n", ["empty"]),
        (b"0 1\n1 \xe9\n", ["line 2", "UTF-8"]),
        (b"\xff\xfe0\x00", ["UTF-16"]),
        (b"0 1\n\x00\n", ["binary"]),
        (b"\x1f\x8b\x08", ["gzip"]),
        (b"PK\x03\x04", ["zip"]),
        ("\n".join(map(str, range(MAX_NODES + 1))), [str(MAX_NODES)]),
    ],
)
def test_what_is_refused(given, content, words):
    refused(lambda: given(content), *words, "")


@pytest.mark.parametrize(
    ("name", "form"), [("g.adjlist", "adjacency list"), ("g.lgl", "LGL"), ("g.g6", "graph6"), ("g.sif", "SIF")]
)
def test_formats_that_only_a_name_tells(given, name, form):
    refused(lambda: given("0 1\n", name), form, "accepted are edge lists")


def test_a_directed_two_cycle_is_the_same_as_its_matrix(given):
    assert given("0 1\n1 0\n", directed=True).adjacency.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("write", [nx.write_adjlist, nx.write_multiline_adjlist, nx.write_gml, nx.write_pajek])
def test_other_formats_of_networkx_are_refused(tmp_path, write):
    write(nx.karate_club_graph(), tmp_path / "g.txt")
    refused(lambda: read(tmp_path / "g.txt"))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("9007199254740993", 2**53 + 1),
        ("0.5", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        ("1e-3", Fraction(1, 1000)),
        ("-1/3", Fraction(-1, 3)),
        ("4/2", 2),
        ("2.50e1", 25),
        ("1e999", 10**999),
        ("+.5", Fraction(1, 2)),
        ("1.", 1),
    ],
)
def test_numbers_are_what_is_written(given, text, number):  # case 32
    graph = given(f"a b {text}\nb c 1\n")
    assert graph.adjacency[0, 1] == number
    assert graph.adjacency[1, 2] == 1
    assert graph.adjacency.dtype == (np.int64 if isinstance(number, int) and number < 2**63 else object)


def test_repeated_decimals_add_exactly(given):
    assert given("a b 0.1\na b 0.2\n").adjacency[0, 1] == Fraction(3, 10)
    assert given("a b 0.5\na b 0.5\n").adjacency.dtype == np.int64


def test_names_of_files_are_only_names(given):  # cases 37, 40
    for name in ("net[v2].txt", "Ba$$in.txt", "cost$a_b$.txt", "図.txt", "x" * 200 + ".txt"):
        assert given("0 1\n", name).name == name
