"""Matrix Market and .npz: every number as it is written, and sizes before memory."""

import io
import re
import zipfile
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse

from synthetic.graphs import read

HEAD = "%%MatrixMarket matrix coordinate"


@pytest.fixture
def given(tmp_path):
    def write(text):
        (tmp_path / "g.mtx").write_bytes(text.encode())
        return read(tmp_path / "g.mtx")

    return write


@pytest.fixture
def saved(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "g.npz", **arrays)
        return read(tmp_path / "g.npz")

    return write


def refused(call, *words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are below)
        call()
    assert re.fullmatch(r"cannot read \S+ as \.(mtx|npz): [^\n]+", str(caught.value))
    for word in words:
        assert word in str(caught.value)


def test_big_integers_beside_a_fraction(given):  # case 32
    graph = given(f"{HEAD} real general\n% c\n3 3 3\n1 1 9007199254740993\n2 2 9007199254740992\n3 3 0.5\n")
    assert graph.adjacency.diagonal().tolist() == [2**53 + 1, 2**53, Fraction(1, 2)]
    assert graph.adjacency.dtype == object


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (f"{HEAD} integer symmetric\n2 2 2\n1 1 3\n2 1 -7\n", [[3, -7], [-7, 0]]),
        (f"{HEAD} real skew-symmetric\n\n2 2 1\r\n2 1 0.25\r\n", [[0, Fraction(-1, 4)], [Fraction(1, 4), 0]]),
        (f"{HEAD} pattern general\n2 2 2\n1 2\n1 2\n", [[0, 2], [0, 0]]),
        (f"{HEAD.lower()} REAL general\n2 2 1\n1 2 1E2\n", [[0, 100], [0, 0]]),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n0.5\n", [[1, 3], [2, Fraction(1, 2)]]),
        ("%%MatrixMarket matrix array integer symmetric\n2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
        ("%%MatrixMarket matrix array integer skew-symmetric\n2 2\n5\n", [[0, -5], [5, 0]]),
    ],
)
def test_layouts(given, text, rows):
    assert given(text).adjacency.tolist() == rows


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{HEAD} real general\n2 2 1\n1 1 1\n2 2 1\n", ["2 entries", "says 1"]),
        (f"{HEAD} real general\n2 2 2\n1 1 1\n", ["1 entries"]),
        (f"{HEAD} real general\n2 2 1\n3 1 1\n", ["line 3", "(3, 1)"]),
        (f"{HEAD} real general\n2 2 1\n0 1 1\n", ["line 3"]),
        (f"{HEAD} real general\n2 2 1\n1 1\n", ["line 3", "row column value"]),
        (f"{HEAD} real general\n2 2 1\n1 1 0,5\n", ["line 3", "decimal point"]),
        (f"{HEAD} integer general\n2 2 1\n1 1 0.5\n", ["line 3", "integers"]),
        (f"{HEAD} integer general\n2 2 1\n1 1 4/2\n", ["line 3", "integers"]),
        (f"{HEAD} unsigned-integer general\n2 2 1\n1 1 -4\n", ["line 3", "unsigned-integers"]),
        (f"{HEAD} real general\n\u0662 \u0662 0\n", ["line 2", "size"]),
        (f"{HEAD} real symmetric\n2 2 1\n1 2 1\n", ["line 3", "symmetric"]),
        (f"{HEAD} real skew-symmetric\n2 2 1\n1 1 1\n", ["line 3", "skew"]),
        (f"{HEAD} real\n2 2 0\n", ["line 1"]),
        (f"{HEAD} real hermitian\n2 2 0\n", ["'hermitian'"]),
        (f"{HEAD} real general\n2 2\n", ["line 2", "entries"]),
        (f"{HEAD} real general\n99999999999 99999999999 1\n", ["limited"]),
        (f"{HEAD} real general\n{'9' * 5000} 1 1\n", ["line 2"]),
        (f"{HEAD} real general\n", ["size"]),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", ["fewer"]),
        ("%%MatrixMarket matrix array real general\n1 1\n1\n2\n", ["line 4", "more"]),
        ("%%MatrixMarket matrix array pattern general\n1 1\n1\n", ["pattern"]),
        ("0 1\n", ["line 1", "%%MatrixMarket"]),
    ],
)
def test_what_is_refused(given, text, words):
    refused(lambda: given(text), *words)


def test_npz_keeps_the_kind(saved):
    assert saved(a=np.array([[0, 2**64 - 1], [0, 0]], dtype=np.uint64)).adjacency[0, 1] == 2**64 - 1
    assert saved(a=np.array([[0, 2**62], [0, 0]])).adjacency.dtype == np.int64
    assert saved(a=np.array([[0, 0.1], [0, 0]])).adjacency.dtype == np.float64
    assert saved(a=np.array([[0, 0.1], [0, 0]], dtype=np.float32)).adjacency[0, 1] == float(np.float32(0.1))
    refused(lambda: saved(a=np.array([[0, np.longdouble(1) / 3], [0, 0]])), "float64 cannot hold")
    refused(lambda: saved(a=np.array([[0, Fraction(1, 3)], [0, 0]])), "npz")


def test_damaged_sparse_matrices_are_refused(saved):
    whole = {"indptr": [0, 1, 1], "indices": [1], "data": [1], "shape": [2, 2], "format": b"csr"}
    assert saved(**whole).adjacency.tolist() == [[0, 1], [0, 0]]
    for damage in (
        {"indices": [5]},
        {"indptr": [0, 9, 1]},
        {"shape": [2, 3]},
        {"shape": [10**6] * 2},
        {"format": b"x"},
    ):
        refused(lambda damage=damage: saved(**(whole | damage)))


def test_sizes_are_refused_before_memory_is_taken(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue())
    refused(lambda: read(tmp_path / "g.npz"), "1000000 nodes")
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        archive.writestr("word/document.xml", "<a/>")
    refused(lambda: read(tmp_path / "g.npz"), "word/document.xml")


@pytest.mark.parametrize("form", ["dia", "bsr", "csc", "coo"])
def test_every_sparse_format_is_read(tmp_path, form):
    matrix = np.diag([1, 2, 3], 1)
    scipy.sparse.save_npz(tmp_path / "g.npz", scipy.sparse.coo_array(matrix).asformat(form))
    assert read(tmp_path / "g.npz").adjacency.tolist() == matrix.tolist()


def test_repeated_entries_of_a_sparse_matrix_are_exact(tmp_path):
    twice = scipy.sparse.coo_array(([2**62, 2**62], ([0, 0], [1, 1])), shape=(2, 2))
    scipy.sparse.save_npz(tmp_path / "g.npz", twice)
    assert read(tmp_path / "g.npz").adjacency[0, 1] == 2**63
