"""The polynomial filter bank: the paper's heads make it (Sec. 3.1, 4.2, App. B.2).

All is exact, over the rationals. A case's matrix is named: see `constructions.ledger.cases`.
"""

from collections.abc import Sequence
from dataclasses import replace

from sympy.polys.matrices import DomainMatrix

from constructions.checks.operators import exact_gap
from constructions.checks.result import least_root
from constructions.construction import Construction, blocks
from constructions.filter_bank.paper import iha_weights, mha_weights, powers, transpose
from constructions.ledger.cases import RANDOM, WIDTH, matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory.operators.weights import PositionWeights, to_layer
from synthetic.tasks.filter_bank import power_blocks

# P-bank-mha, P-bank-iha


def mha_makes_bank(graph: str, terms: int, *, first: int = 0, transposed: bool = False) -> Finding:
    """MHA with queries A^{h-1}, keys I and values X in head h against [X, .., A^{k-1} X].

    first: the power of the first head. transposed: queries (A^T)^{h-1}.
    """
    a = matrix(graph)
    power = powers(a.transpose() if transposed else a)
    weights = replace(mha_weights(power, terms, WIDTH), query=tuple(power(h + first) for h in range(terms)))
    layer, error = _concatenated(weights, list(power_blocks(a, terms)))
    what = f"{graph}, k = {terms}: {layer.heads} MHA heads, exact error {error:g} over the rationals"
    return Finding(error == 0 and layer.heads == terms, what, {"heads": layer.heads, "error": error})


def iha_makes_bank(graph: str, terms: int, *, keys_transposed: bool = True, stride: int = 0, fewer: int = 0) -> Finding:
    """IHA with H = P = ceil(sqrt k) against its H^2 blocks [X, .., A^{H^2-1} X], of which those from k on are padding.

    keys_transposed: base key m is (A^m)^T, otherwise A^m. stride: base query m is A^{m (H + stride)}. fewer: heads less
    than ceil(sqrt k).
    """
    a, heads = matrix(graph), max(1, least_root(terms) - fewer)
    power = powers(a)
    weights = iha_weights(power, heads**2, WIDTH)
    keys = weights.key if keys_transposed else tuple(transpose(k) for k in weights.key)
    queries = tuple(power(m * (heads + stride)) for m in range(heads))
    layer, error = _concatenated(replace(weights, query=queries, key=keys), list(power_blocks(a, heads**2)))
    what = (
        f"{graph}, k = {terms}: {layer.heads} IHA heads, {layer.pseudo_heads} pseudo-heads, {heads**2} blocks "
        f"A^0 X to A^{heads**2 - 1} X with exact error {error:g}; {heads**2 - terms} of them are padding"
    )
    enough = heads**2 >= terms and layer.heads == layer.pseudo_heads == heads
    return Finding(error == 0 and enough, what, {"heads": layer.heads, "blocks": heads**2, "error": error})


def _concatenated(weights: PositionWeights, powered: Sequence[DomainMatrix]) -> tuple[Construction, float]:
    """The torch layer, and its exact error against blocks side by side."""
    readout = blocks("A^{} X", len(powered), WIDTH)
    layer = Construction("ledger", "App. B.2", to_layer(weights), readout, WIDTH)
    return layer, exact_gap(layer, powered)


GRAPHS = ("path:1", "cycle:2", "path:3", "random:3", "star:4", "random:4:1", "complete:5", "random:6", "petersen")

STATEMENTS = (
    Statement(
        id="P-bank-mha",
        source="Sec. 3.1, App. B.2",
        place=Place("exact", ("bank-mha",), "constructions.filter_bank.paper"),
        claim=Claim(
            text="MHA with k heads of linear attention represents [X, AX, ..., A^(k-1) X], whatever A",
            test=mha_makes_bank,
            cases={"graph": GRAPHS, "terms": (1, 2, 3, 4, 5, 9, 10)},
            mutants={"head h has A^h": {"first": 1}, "queries transposed": {"transposed": True}},
            wider={"graph": RANDOM, "terms": range(1, 13)},
        ),
        note="A need not have full rank, and k may exceed N. For every matrix at once: `iha-theory verify`.",
    ),
    Statement(
        id="P-bank-iha",
        source="Sec. 4.2, App. B.2",
        place=Place("exact", ("bank-iha",), "constructions.filter_bank.paper"),
        claim=Claim(
            text="IHA with H = P = ceil(sqrt k) represents [X, AX, ..., A^(k-1) X]; its H^2 blocks are the powers, and "
            "those from k on are padding",
            test=iha_makes_bank,
            cases={"graph": GRAPHS, "terms": (1, 2, 3, 4, 5, 9, 10)},
            mutants={
                "keys not transposed": {"keys_transposed": False},
                "queries A^(m(H-1))": {"stride": -1},
                "a head less": {"fewer": 1},
            },
            wider={"graph": RANDOM, "terms": range(1, 13)},
        ),
        note="That ceil(sqrt k) is the least where the powers are independent: T2.",
    ),
)
