"""One set of rules on every path into a Graph, and one line for every refusal."""

import re
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from synthetic.graphs import MAX_NODES, NAMES, Graph, builtin, load, normalise, read


def through_edge_list(path, n, edges, directed, separator=" "):
    lines = ["# comment", *map(str, range(n)), *(separator.join(map(str, edge)) for edge in edges)]
    (path / "g.txt").write_text("\n".join(lines) + "\n% end")
    return read(path / "g.txt", directed)


def through_graphml(path, n, edges, directed):
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from(edges)
    nx.write_graphml(graph, path / "g.graphml")
    return read(path / "g.graphml")


def coordinates(n, edges, directed):
    both = edges if directed else edges + [(v, u, w) for u, v, w in edges if u != v]
    rows, columns, weights = zip(*both, strict=True) if both else ((), (), ())
    return scipy.sparse.coo_array((np.array(weights, dtype=np.float64), (rows, columns)), shape=(n, n))


def through_matrix_market(path, n, edges, directed):
    lower = [(max(u, v), min(u, v), w) for u, v, w in edges]
    kind, stored = ("general", edges) if directed else ("symmetric", lower)
    lines = [f"%%MatrixMarket matrix coordinate real {kind}", f"{n} {n} {len(edges)}"]
    lines += [f"{u + 1} {v + 1} {w}" for u, v, w in stored]
    (path / "g.mtx").write_text("\n".join(lines) + "\n")
    return read(path / "g.mtx")


def through_scipy_npz(path, n, edges, directed):
    scipy.sparse.save_npz(path / "s.npz", coordinates(n, edges, directed))
    return read(path / "s.npz")


def through_numpy_npz(path, n, edges, directed):
    np.savez(path / "n.npz", coordinates(n, edges, directed).toarray())
    return read(path / "n.npz")


PATHS = {
    "memory": lambda path, n, edges, directed: Graph.from_edges(edges, nodes=range(n), directed=directed),
    "edge list": through_edge_list,
    "csv": lambda *graph: through_edge_list(*graph, separator=", "),
    "graphml": through_graphml,
    "matrix market": through_matrix_market,
    "scipy npz": through_scipy_npz,
    "numpy npz": through_numpy_npz,
}


@pytest.fixture(params=PATHS)
def through(request, tmp_path):
    return lambda n, edges, directed: PATHS[request.param](tmp_path, n, edges, directed)


def test_an_edge_points_from_row_to_column(through):  # case 1
    graph = through(3, [(0, 1, 1), (1, 2, 1)], True)
    assert (graph.adjacency @ [2, 3, 5]).tolist() == [3, 5, 0]
    assert graph.directed
    assert graph.adjacency.dtype == np.int64


def test_row_order_and_features_follow_the_numbers(through):  # case 4
    graph = through(3, [(2, 0, 1), (0, 1, 1)], True)
    assert graph.nodes == (0, 1, 2)
    assert graph.adjacency.tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert graph.features({2: [5, 6], 0: [1, 2], 1: [3, 4]}).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_repeats_add_and_a_loop_counts_once(through):  # case 5
    graph = through(2, [(0, 1, 1), (0, 1, 1), (1, 1, 1)], False)
    assert graph.adjacency.tolist() == [[0, 2], [2, 1]]
    assert not graph.directed
    assert normalise(graph, "row").adjacency.tolist() == [[0, 1], [Fraction(2, 3), Fraction(1, 3)]]


@pytest.mark.parametrize("n", [1, 5])
def test_no_edges_and_isolated_nodes(through, n):  # case 6
    assert through(n, [], False).adjacency.tolist() == [[0] * n] * n
    if n > 1:
        assert through(n, [(0, 1, 1)], True).adjacency.tolist() == [[0, 1, 0, 0, 0]] + [[0] * 5] * 4


def test_weights(through):
    edges = [(0, 1, 0.25), (1, 2, -3.0), (1, 2, 0.5), (2, 0, 1e300)]
    graph = through(3, edges, True)
    assert graph.adjacency.astype(float).tolist() == [[0, 0.25, 0], [0, 0, -2.5], [1e300, 0, 0]]
    assert graph.adjacency.dtype in (np.float64, object)
    assert graph.adjacency[2, 0] == (1e300 if graph.adjacency.dtype == np.float64 else 10**300)
    assert through(2, [(0, 1, 0.5), (0, 1, 0.5)], True).adjacency.dtype == np.int64


@settings(max_examples=30, deadline=None)
@given(st.data(), st.integers(1, 5), st.booleans())
def test_every_path_gives_the_same_graph(tmp_path_factory, data, n, directed):
    node = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(node, node, st.integers(-8, 8).map(lambda w: w / 2)), max_size=8))
    expected = np.zeros((n, n))
    for u, v, w in edges:
        expected[u, v] += w
        if not directed and u != v:
            expected[v, u] += w
    for through in PATHS.values():
        graph = through(tmp_path_factory.mktemp("g"), n, edges, directed)
        assert graph.adjacency.tolist() == expected.tolist()
        assert graph.nodes == tuple(range(n))
        assert graph.directed or (expected == expected.T).all()


def test_text_labels_keep_the_order_of_first_appearance(tmp_path):
    (tmp_path / "g.csv").write_text('\ufeffSource,Target,Weight\nb, "a, c",2\n01\n1,b,1\n')
    graph = read(tmp_path / "g.csv", directed=True)
    assert graph.nodes == ("b", "a, c", "01", "1")
    assert graph.adjacency.tolist() == [[0, 2, 0, 0], [0] * 4, [0] * 4, [1, 0, 0, 0]]


def test_edge_list_details(tmp_path):
    (tmp_path / "g.edges").write_text(
        "# weight one\n10\t-2 \t 1e0\r\n\r\n%\r7\n-2\t7\t123456789012345678901234567890\n"
    )
    graph = read(tmp_path / "g.edges")
    assert graph.nodes == (-2, 7, 10)
    assert graph.adjacency.dtype == object
    assert graph.adjacency.tolist() == [
        [0, 123456789012345678901234567890, 1],
        [123456789012345678901234567890, 0, 0],
        [1, 0, 0],
    ]


def test_graphml_keeps_direction_strings_and_the_default_weight(tmp_path):
    (tmp_path / "g.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="w" for="edge" attr.name="weight"'
        ' attr.type="int"><default>4</default></key><graph edgedefault="directed"><node id="b"/><node id="a"/>'
        '<edge source="b" target="a"/><edge source="a" target="a"><data key="w">5</data></edge></graph></graphml>'
    )
    graph = read(tmp_path / "g.graphml")
    assert (graph.nodes, graph.directed, graph.adjacency.tolist()) == (("b", "a"), True, [[0, 4], [0, 5]])


def test_matrices():
    assert Graph.from_matrix(np.array([[0, True], [True, 0]], dtype=bool)).adjacency.dtype == np.int64
    huge = Graph.from_matrix(np.array([[0, 2**63], [2**63, 0]], dtype=np.uint64))
    assert huge.adjacency.dtype == object
    assert not huge.directed
    assert Graph.from_matrix(np.array([[0.0, 2.0**60], [0, 0]])).adjacency.dtype == np.float64
    summed = scipy.sparse.coo_array(([2**62, 2**62], ([0, 0], [1, 1])), shape=(2, 2))
    assert Graph.from_matrix(summed).adjacency.tolist() == [[0, 2**63], [0, 0]]
    mine = np.array([[1]])
    graph = Graph.from_matrix(mine)
    mine[:] = 5
    assert graph.adjacency.tolist() == [[1]]
    with pytest.raises(ValueError, match="read-only"):
        graph.adjacency[0, 0] = 2


def test_features_are_exact():
    graph = builtin("path:2")
    assert graph.features({0: 2**64, 1: -1}).tolist() == [2**64, -1]
    assert graph.features({0: 2**63, 1: -1}).tolist() == [2**63, -1]
    assert graph.features({1: 0.5, 0: 2}).tolist() == [2, 0.5]
    for wrong in ({0: 1}, {0: 1, 1: 2, 2: 3}, {0: 1, 1: [1, 2]}, {0: 1, 1: float("nan")}, {0: 1, 1: "x"}):
        with pytest.raises(ValueError, match=r"features|finite"):
            graph.features(wrong)


@pytest.mark.parametrize(
    ("name", "nodes", "edges", "first"),
    [
        ("karate", 34, 78, 0),
        ("les_miserables", 77, 254, "Napoleon"),
        ("florentine", 15, 20, "Acciaiuoli"),
        ("davis", 32, 89, "Evelyn Jefferson"),
        ("petersen", 10, 15, 0),
        ("cycle:16", 16, 16, 0),
        ("path:3", 3, 2, 0),
        ("ring:5", 5, 5, 0),
        ("complete:4", 4, 6, 0),
        ("star:4", 4, 3, 0),
        ("grid:2x3", 6, 7, (0, 0)),
        ("hypercube:3", 8, 12, (0, 0, 0)),
        ("gnp:9:1", 9, 36, 0),
        ("gnp:9:0", 9, 0, 0),
        ("regular:10:3:1", 10, 15, 0),
        ("regular:10:9", 10, 45, 0),
        ("regular:50:40", 50, 1000, 0),
        ("cycle:1", 1, 1, 0),
        ("ring:2", 2, 1, 0),
        ("complete:1", 1, 0, 0),
        ("star:1", 1, 0, 0),
    ],
)
def test_builtin(name, nodes, edges, first):
    graph = load(name)
    A = graph.adjacency
    assert (graph.name, len(graph.nodes), graph.nodes[0]) == (name, nodes, first)
    assert set(np.unique(A)) <= {0, 1}
    assert graph.directed == name.startswith(("cycle", "path"))
    assert (A if graph.directed else np.triu(A)).sum() == edges
    if not graph.directed:
        assert (A == A.T).all()


def test_directed_families_point_forward():
    assert builtin("cycle:3").adjacency.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert builtin("path:3").adjacency.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert builtin("star:3").adjacency.tolist() == [[0, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert (builtin("regular:7:4:3").adjacency.sum(0) == 4).all()


@pytest.mark.parametrize("name", ["gnp:12:.5", "regular:12:3", "random:12", "orthogonal:12"])
def test_random_families_depend_on_the_seed_alone(name):
    a, b, other = (builtin(f"{name}{seed}").adjacency for seed in ("", ":0", ":1"))
    assert (a == b).all()
    assert (a != other).any()


@pytest.mark.parametrize("seed", range(5))
def test_random_powers_differ(seed):
    A = builtin(f"random:12:{seed}").adjacency
    assert (A < 0).any()
    assert (A > 0).any()
    assert 0.25 < (A != 0).mean() < 0.5
    scaled = A / np.linalg.norm(A, 2)
    powers = [np.linalg.matrix_power(scaled, p) for p in range(12)]
    assert np.linalg.matrix_rank([(p / np.linalg.norm(p)).ravel() for p in powers], tol=1e-9) == 12


def test_orthogonal_is_orthogonal():
    A = builtin("orthogonal:9:4").adjacency
    assert np.abs(A @ A.T - np.eye(9)).max() < 1e-14


def test_normalise():
    star = builtin("star:5")
    assert normalise(star, "none") is star
    row = normalise(star, "row")
    assert row.directed
    assert row.adjacency.tolist() == [[0, 0.25, 0.25, 0.25, 0.25]] + [[1, 0, 0, 0, 0]] * 4
    symmetric = normalise(star, "symmetric")
    assert not symmetric.directed
    assert symmetric.adjacency.tolist() == [[0, 0.5, 0.5, 0.5, 0.5]] + [[0.5, 0, 0, 0, 0]] * 4
    for weight in (1e-200, 1e200):
        pair = Graph.from_edges([(0, 1, weight)])
        assert (normalise(pair, "symmetric").adjacency == [[0, 1], [1, 0]]).all()
    assert (normalise(builtin("petersen"), "symmetric").adjacency == builtin("petersen").adjacency / 3).all()
    lonely = Graph.from_edges([(0, 1)], nodes=range(3))
    for kind in ("row", "symmetric"):
        assert normalise(lonely, kind).adjacency.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    karate = normalise(builtin("karate"), "symmetric").adjacency
    assert np.abs(np.linalg.eigvalsh(karate)).max() == pytest.approx(1, abs=1e-14)


ONE_LINE = re.compile(r"[^\n]+")


def refused(call, *words, error=ValueError):
    with pytest.raises(error) as caught:
        call()
    assert ONE_LINE.fullmatch(str(caught.value))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("carate", ["carate", *NAMES, "a file"]),
        ("", ["karate"]),
        ("karate:3", ["karate"]),
        ("cycle", ["cycle:N"]),
        ("cycle:", ["cycle:N"]),
        ("cycle:0", ["from 1 to"]),
        ("cycle:-3", ["'-3'", "from 1 to"]),
        ("cycle:2.5", ["2.5"]),
        ("cycle:9999999999999", ["from 1 to"]),
        (f"complete:{MAX_NODES + 1}", [str(MAX_NODES)]),
        ("cycle:3:4", ["wrong number of parameters"]),
        ("grid:3", ["grid:RxC"]),
        ("grid:0x3", ["grid:RxC"]),
        ("grid:2x2x2", ["grid:RxC"]),
        ("grid:1000x1000", [str(MAX_NODES)]),
        ("hypercube:14", ["hypercube:D"]),
        ("gnp:5", ["gnp:N:p"]),
        ("gnp:5:1.5", ["from 0 to 1"]),
        ("gnp:5:nan", ["from 0 to 1"]),
        ("gnp:5:x", ["'x'"]),
        ("gnp:5:.5:-1", ["seed"]),
        ("regular:5:3", ["N d even"]),
        ("regular:4:4", ["below N"]),
    ],
)
def test_bad_names_are_refused(name, words):
    refused(lambda: load(name), *words)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("g.txt", "", ["empty", "edge list"]),
        ("g.txt", "# nothing\n", ["empty"]),
        ("g.txt", "0 1 2 3\n", ["line 1"]),
        ("g.txt", "0 1 1\n1 2 x\n", ["line 2", "'x'"]),
        ("g.txt", "0 1 nan\n", ["nan", "finite"]),
        ("g.txt", "0 1 -inf\n", ["finite"]),
        ("g.txt", "0 1 1e1000\n", ["line 1", "1000 digits"]),
        ("g.txt", f"0 1 {10**1000}\n", ["line 1", "1000 digits"]),
        ("g.txt", "0 1 1+2j\n", ["1+2j"]),
        ("g.csv", "a,,2\n", ["line 1"]),
        ("g.npy", b"\x93NUMPY\x01\x00\xff", ["edge list"]),
        ("g.graphml", "junk", [".graphml"]),
        ("g.graphml", "<graphml/>", [".graphml"]),
        ("g.mtx", "junk", [".mtx"]),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 1 1.0\n", ["(2, 3)", "square"]),
        ("g.mtx", "%%MatrixMarket matrix array real general\n2 3\n1\n1\n1\n1\n1\n1\n", ["square"]),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 nan\n", ["finite"]),
        ("g.mtx", "%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 1 1 1\n", ["finite real"]),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n0 0 0\n", ["empty"]),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n20000 20000 0\n", [str(MAX_NODES)]),
        ("g.mtx", "%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1\n", [".mtx"]),
        ("g.npz", "junk", ["zip"]),
        ("g.npz", "", ["zip"]),
    ],
)
def test_bad_files_are_refused(tmp_path, file, content, words):
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(lambda: load(str(path)), str(path), *words)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"a": np.eye(2), "b": np.eye(2)}, "2 arrays"),
        ({"a": np.ones(3)}, "square"),
        ({"a": np.ones((2, 3))}, "square"),
        ({"a": np.array(3)}, "square"),
        ({"a": np.zeros((0, 0))}, "empty"),
        ({"a": np.full((2, 2), np.nan)}, "NaN"),
        ({"a": np.eye(2) * 1j}, "complex"),
        ({"a": np.array([["x"]])}, "dtype"),
        ({"a": np.array([[1, 2**70], [0, 0]], dtype=object)}, "npz"),
    ],
)
def test_bad_npz_are_refused(tmp_path, arrays, word):
    np.savez(tmp_path / "g.npz", **arrays)
    refused(lambda: read(tmp_path / "g.npz"), word)


def test_missing_files_and_folders(tmp_path):
    refused(lambda: load(str(tmp_path / "no")), "no such file", error=FileNotFoundError)
    refused(lambda: load("no.txt"), "no such file", error=FileNotFoundError)
    refused(lambda: read(tmp_path), str(tmp_path))


def test_bad_graphs_are_refused():
    refused(lambda: Graph.from_edges([]), "empty")
    refused(lambda: Graph.from_edges([(1,)]), "(u, v, weight)")
    refused(lambda: Graph.from_edges([(1, 2, 1j)]), "1j")
    refused(lambda: Graph.from_edges([(1, 2, "x")]), "'x'")
    refused(lambda: Graph("g", (0, 1), np.array([[0, 1], [0, 0]]), directed=False), "symmetric")
    refused(lambda: Graph("g", (0, 0), np.eye(2), directed=False), "label")
    refused(lambda: Graph("g", (0,), np.eye(2), directed=False), "label")
    refused(lambda: Graph.from_matrix(np.ones((2, 3))), "square")
    refused(lambda: normalise(builtin("cycle:3"), "symmetric"), "undirected")
    refused(lambda: normalise(Graph.from_edges([(0, 1, -1)]), "symmetric"), "at least 0")
    refused(lambda: normalise(Graph.from_edges([(0, 1, 1), (0, 2, -1)]), "row"), "sum to 0")
    refused(lambda: normalise(Graph.from_edges([(0, 1, 1e308), (0, 2, 1e308)]), "row"), "too large")
    refused(lambda: normalise(Graph.from_edges([(0, 1, 10**400)]), "symmetric"), "too large")
