"""Statements on constructions under the causal mask (ledger E3); the proofs stand in `constructions.cpm3.causal`."""

from functools import cache, partial

import numpy as np
import torch
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.cpm3 import causal
from constructions.cpm3 import workspace as cpm3
from constructions.filter_bank import layers as filter_bank
from constructions.filter_bank.causal import Row
from constructions.filter_bank.paper import powers
from constructions.ledger.cases import LAYERS, sequences
from constructions.ledger.cpm3.workspace import ANY_TASK, EVERY_N_MAX, every_length
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory import exact
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.operators.weights import with_positions
from synthetic.tasks.count_pairs import CountPairs


@torch.no_grad()
def cyclic_under_mask(n_max: int, modulus: int, layer: str, *, more: int = 0) -> Finding:
    """E3-cpm3 as printed: the workspace of cyclic shifts under the causal mask. more: as in `suffices`."""
    construction = cpm3.workspace(layer, n_max)
    x = sequences(modulus, n_max)
    content = with_positions(torch.from_numpy(x).double().unsqueeze(-1))
    rows = construction.layer(content, content, content, is_causal=True)
    counts = cpm3.network(construction, modulus, 8 + more).mlp(rows).numpy()
    expected = CountPairs(modulus, 8, causal=True).target(x)
    wrong = np.flatnonzero((counts != expected).any(axis=1))
    what = f"N_max = {n_max}, {layer}, M = {modulus}, G = 8: {len(wrong)} of {len(x)} sequences are counted wrong"
    if len(wrong):
        i = wrong[0]
        what += f"; {x[i].tolist()} gives {[round(c, 3) for c in counts[i].tolist()]}, not {expected[i].tolist()}"
    return Finding(not len(wrong), what, {"wrong": len(wrong)})


def matrix(tokens: int, code: int) -> np.ndarray:
    """The 0/1 matrix whose entries, row by row, are the bits of a number."""
    return np.array([code >> bit & 1 for bit in range(tokens * tokens)]).reshape(tokens, tokens)


def triangular(causality: str, layer: str, tokens: int, terms: int, code: int, row: str = "first") -> bool:
    """Whether A is lower-triangular, strictly so where the query row misses pseudo-keys of its own token; or k = 1."""
    strict = causality == "virtual" and layer == "iha" and row == "first"
    return terms == 1 or not np.triu(matrix(tokens, code), 0 if strict else 1).any()


@cache
@torch.no_grad()
def _bank_error(
    causality: Causality, layer: str, tokens: int, terms: int, code: int, row: Row, step: int
) -> tuple[float, str]:
    """Of a bank under the causal mask, exactly, and the first entry that is wrong.

    NaN if running the torch layer says another thing.
    """
    a = matrix(tokens, code)
    masked = causal.under_mask(filter_bank.bank(layer, powers(exact.matrix(a, QQ)), terms, 1), causality, row)
    bank = [np.linalg.matrix_power(a, t * step) for t in range(terms)]
    error = exact_gap(masked, [exact.matrix(t, QQ) for t in bank])
    run = masked(torch.eye(tokens, dtype=torch.float64).unsqueeze(-1)).permute(2, 1, 0).numpy()  # (k, N, N)
    wrong = np.argwhere(run != np.stack(bank)).tolist()
    entry = (
        "; row {1} of A^{0} X is wrong in token {2}".format(wrong[0][0], *(i + 1 for i in wrong[0][1:]))
        if wrong
        else ""
    )
    return error if (error == 0) == (not wrong) else np.nan, entry


def bank_under_mask(causality: Causality, layer: str, tokens: int, terms: int, code: int, *, step: int = 1) -> Finding:
    """E3 as printed. step: compare with the powers A^{step t}."""
    error, entry = _bank_error(causality, layer, tokens, terms, code, "first", step)
    a = matrix(tokens, code).tolist()
    return Finding(
        error == 0,
        f"A = {a}, k = {terms}, {layer}, {causality} causality: under the mask [X, .., A^(k-1) X] is off by {error:g}"
        + entry,
        {"matrix": a, "error": error},
    )


def masked_where_triangular(
    causality: Causality, layer: str, row: Row, tokens: int, terms: int, code: int, *, transposed: bool = False
) -> Finding:
    """E3 repaired: exact if and only if `triangular`. transposed: asks it of A^T."""
    error, entry = _bank_error(causality, layer, tokens, terms, code, row, 1)
    a = matrix(tokens, code)
    asked = int(sum(int(v) << bit for bit, v in enumerate(a.T.ravel()))) if transposed else code
    allowed = triangular(causality, layer, tokens, terms, asked, row)
    return Finding(
        (error == 0) == allowed,
        f"A = {a.tolist()}, k = {terms}, {layer}, {causality} causality, {row} query row: A is "
        f"{'' if allowed else 'not '}triangular as required, and the bank under the mask is off by {error:g}{entry}",
        {"matrix": a.tolist(), "error": error, "allowed": allowed},
    )


def _matrices(tokens: int, code: int, causality: str, layer: str, row: str = "first", **_: object) -> bool:
    """The matrices of a size; for MHA, which has one query row and no virtual order, once."""
    return code < 2 ** (tokens * tokens) and (layer == "iha" or (causality == "token" and row == "first"))


MASKED = {"causality": ("token", "virtual"), "layer": LAYERS}
SMALL = {"tokens": (1, 2), "terms": (1, 2, 5), "code": range(16)}
LARGER = {"tokens": (3,), "terms": range(1, 11), "code": range(2**9)}

STATEMENTS = (
    Statement(
        id="E3",
        source="Sec. 3.1, App. B.2",
        place=Place("exact", ("bank-causal",), "constructions.filter_bank.causal"),
        claim=Claim(
            text="the filter-bank constructions are right under the causal mask, which the paper leaves implicit",
            test=bank_under_mask,
            cases=SMALL | MASKED,
            given=_matrices,
            mutants={"powers A^(2t)": {"step": 2}},
        ),
        assumption=Assumption(
            "k = 1, or A is lower-triangular: no edge goes to a later token; strictly so, without self-loops, for IHA "
            "in the paper's virtual order",
            triangular,
        ),
        repaired=Claim(
            text="under the causal mask the bank is right if and only if k = 1 or A is lower-triangular; strictly "
            "lower for IHA in the virtual order that reads query row j = 1",
            test=masked_where_triangular,
            cases=SMALL | MASKED | {"row": ("first", "last")},
            given=_matrices,
            mutants={"A upper-triangular": {"transposed": True}},
            wider=MASKED | {"row": ("first", "last")} | LARGER,
        ),
        note="In token order A must be lower-triangular; in the virtual order with query row j = 1 strictly so, "
        "since that row misses pseudo-keys of its own token; with row j = P it need not be. For another A no "
        "causal layer of any kind has the bank: row i of A X would depend on a later token. All 0/1 matrices "
        "with N <= 2 are tried. Proof: constructions.cpm3.causal.",
    ),
    Statement(
        id="E3-cpm3",
        source="Sec. 3.1, App. B.3",
        place=Place("exact", ("cpm3-causal",), "constructions.cpm3.causal"),
        claim=Claim(
            text="under the causal mask, which the paper leaves implicit, the CPM-3 constructions count the pairs with "
            "j1, j2 <= i",
            test=cyclic_under_mask,
            cases={"n_max": range(1, 7), "modulus": (1, 3), "layer": LAYERS},
            mutants={"G + 2 in the MLP": {"more": 2}},
        ),
        repaired=Claim(
            text="with a token of content 0 in front, at which the shift stops, and presence flags, N_max heads of "
            "MHA and ceil(sqrt N_max) of IHA under the mask count the pairs with j1, j2 <= i, for every N <= "
            "N_max",
            test=partial(every_length, is_causal=True),
            cases=EVERY_N_MAX | {"causality": ("token", "virtual")},
            mutants={
                "G + 1 in the MLP": {"more": 1},
                "no factor H": {"factor": 1},
                "a cyclic shift": {"bos": False},
            },
            wider=EVERY_N_MAX | {"causality": ("token", "virtual")} | ANY_TASK,
        ),
        note="Hard attention cannot leave a row empty, so without such a token a row that has no match shows a mean "
        "of what it sees. The repair is right padded anywhere, with 0 a legal token, in token and in virtual "
        "order. Proof: constructions.cpm3.causal.",
    ),
)
