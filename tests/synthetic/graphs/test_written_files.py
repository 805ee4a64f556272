"""Random graphs, written in every format, are read back as they are; damaged, they are refused or counted."""

import io
import json
import re
from fractions import Fraction
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synthetic.graphs import fields, read, sentence

LABEL = st.text("aZ09 _[](){}<>#%$&^.,;:|\"'\\/-=+*é東ß𝒳\u3000\u00a0", max_size=8).map(lambda text: f"n{text}".strip())
WEIGHT = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**30), 10**30),
    st.sampled_from([2**53 + 1, 2**63, -(2**63), 10**300]),
    st.fractions(max_denominator=999),
    st.decimals(-9, 9, places=3).map(Fraction),
)


@st.composite
def graphs(draw):
    """Labels, edges (u, v, weight), directed; and the adjacency matrix that they are."""
    n = draw(st.integers(1, 5))
    numbered = draw(st.booleans())
    labels = st.integers(-99, 10**20) if numbered else LABEL
    nodes = draw(st.lists(labels, min_size=n, max_size=n, unique=True))
    nodes = sorted(nodes) if numbered else nodes
    place = st.integers(0, n - 1)
    edges = draw(st.lists(st.tuples(place, place, WEIGHT), max_size=7))
    directed = draw(st.booleans())
    matrix = [[Fraction(0)] * n for _ in range(n)]
    for u, v, w in edges:
        matrix[u][v] += w
        if u != v and not directed:
            matrix[v][u] += w
    return nodes, edges, directed, matrix


def written(x):
    """A number in one of the ways that are accepted."""
    x = Fraction(x)
    if x.denominator == 1:
        return str(x.numerator)
    if 1000 % x.denominator == 0:
        return f"{x.numerator * (1000 // x.denominator)}e-3"
    return f"{x.numerator}/{x.denominator}"


def edge_list(separator, header):
    def write(nodes, edges, directed, matrix):
        def label(u):
            text = str(nodes[u])
            return text if re.fullmatch(r"-?[0-9]+|[A-Za-z_]+", text) else '"' + text.replace('"', '""') + '"'

        lines = [label(u) for u in range(len(nodes))]
        lines += [separator.join((label(u), label(v), written(w))) for u, v, w in edges]
        return "\n".join([*["source target weight".replace(" ", separator)] * header, *lines])

    return write


def graphml(nodes, edges, directed, matrix):
    kind = "directed" if directed else "undirected"
    lines = ['<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    lines += ['<key id="w" for="edge" attr.name="weight" attr.type="double"/>', f'<graph edgedefault="{kind}">']
    lines += [f"<node id={quoteattr(str(node))}/>" for node in nodes]
    ends = [quoteattr(str(node)) for node in nodes]
    lines += [
        f'<edge source={ends[u]} target={ends[v]}><data key="w">{escape(written(w))}</data></edge>' for u, v, w in edges
    ]
    return "\n".join([*lines, "</graph></graphml>"])


def matrix_market(nodes, edges, directed, matrix):
    stored = edges if directed else [(max(u, v), min(u, v), w) for u, v, w in edges]
    head = f"%%MatrixMarket matrix coordinate real {'general' if directed else 'symmetric'}"
    lines = [f"{u + 1} {v + 1} {written(w)}" for u, v, w in stored]
    return "\n".join([head, f"{len(nodes)} {len(nodes)} {len(edges)}", *lines])


def array(matrix):
    """The matrix as numpy has it: int64, or rounded."""
    fits = all(x.denominator == 1 and -(2**63) <= x < 2**63 for row in matrix for x in row)
    return np.array([[int(x) if fits else float(x) for x in row] for row in matrix])


def npz(nodes, edges, directed, matrix):
    file = io.BytesIO()
    np.savez(file, a=array(matrix))
    return file.getvalue()


FORMATS = {
    "tabs.txt": edge_list("\t", False),
    "commas.csv": edge_list(",", True),
    "semicolons.txt": edge_list(";", True),
    "blanks.txt": edge_list(" ", False),
    "headed.txt": edge_list(" ", True),
    "g.graphml": graphml,
    "g.mtx": matrix_market,
    "g.npz": npz,
}


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs())
def test_what_is_written_is_read(tmp_path, name, graph):
    nodes, _, directed, matrix = graph
    if name == "g.npz":
        matrix = array(matrix).tolist()
    got = read(put(tmp_path, name, FORMATS[name](*graph)), directed)
    if name.endswith(("mtx", "npz")):
        assert got.nodes == tuple(range(len(nodes)))
        assert got.directed == any(matrix[i][j] != matrix[j][i] for i in range(len(nodes)) for j in range(i))
    else:
        assert (got.nodes, got.directed) == (tuple(nodes), directed)
    assert got.adjacency.tolist() == matrix


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), graph=graphs())
def test_damage_is_refused_or_counted(tmp_path, name, data, graph):
    content = FORMATS[name](*graph)
    content = content if isinstance(content, bytes) else content.encode()
    at = data.draw(st.integers(0, len(content) - 1))
    byte = content[at : at + 1]
    other = data.draw(
        st.sampled_from([b"", 2 * byte, b"0", b"9", b" ", b"\t", b"\n", b",", b";", b"#", b'"', b"<", b"\xff"])
    )
    damaged = put(tmp_path, name, content[:at] + other + content[at + 1 :])
    try:
        got = read(damaged, graph[2])
    except ValueError as error:
        assert re.fullmatch(r"cannot read [^\n]+", str(error))  # noqa: PT017
    else:
        found = fields(got)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert f"{found['nodes']} node" in sentence(got)
        assert f"{found['edges']} edge" in sentence(got)
