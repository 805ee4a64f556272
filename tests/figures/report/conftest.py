"""A small report: some statements, one number of heads, one graph, one page of docs/ with its proofs."""

import shutil
from pathlib import Path

import networkx as nx
import pytest

from constructions.ledger import graph
from figures.report import page, pictures, work

ROOT = Path(__file__).parents[3]
WANTED = work.Wanted(
    statements=("E1", "E13", "P-mixing-parameters", "T15"),
    heads=(1, 2),
    graphs=("petersen",),
    terms=3,
    tolerances=(0.0,),
    picture=False,
)


NAMES = ("E1", "E13", "P-mixing-parameters", "T15", "strong-form", "family-not-empty")


@pytest.fixture(scope="package")
def theory():
    return graph.theory()


@pytest.fixture(scope="package")
def nodes(theory):
    """Some of the theory, with all that it rests on."""
    whole = graph.digraph(theory)
    kept = set(NAMES).union(*(nx.descendants(whole, name) for name in NAMES))
    return {name: node for name, node in theory.items() if name in kept}


@pytest.fixture(scope="package")
def found():
    return work.gather(WANTED, jobs=1)


@pytest.fixture(scope="package")
def root(tmp_path_factory):
    """A checkout with little in docs/: some pictures, and a page up to its first theorem."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / "docs" / "parity").mkdir(parents=True)
    page = (ROOT / "docs" / "cpm3.md").read_text(encoding="utf-8")
    (folder / "docs" / "cpm3.md").write_text(page[: page.index("*Proof.*")], encoding="utf-8")
    for name in ("heads.svg", "heads.csv", "parity/floors.svg", "parity/floors-summary.csv"):
        shutil.copy(ROOT / "docs" / name, folder / "docs" / name)
    return folder


@pytest.fixture(scope="package")
def text(found, nodes, root):
    shown = pictures.gather(root / "docs", [], [], root)
    runs = [{"task": "relations", "layer": "IHA", "heads": 2, "runs": 3, "median accuracy": "0.9"}]
    return page.render(found, nodes, shown, runs, root, "3 records")
