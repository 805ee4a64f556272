"""The ledger: every statement of the paper's theory, and of ours, with a verdict computed when asked.

- `statement`: what a statement, a claim and a verdict are.
- `cases`: what several statements are checked on.
- `attention`, `bank`, `cpm3`, `costs`, `content`: the statements, by subject; the paper's, and what this project adds
  (docs/results.md). A module there holds `STATEMENTS`; making it computes nothing.
- `graph`: the graph of the theory, from what stands beside the code (`iha_theory.blueprint`).
- `page`: a statement as text; the table of docs/ledger.md and the README's digest.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from constructions.ledger.attention import definitions, inclusion, linear, start, strictness
from constructions.ledger.bank import beyond, bounds, narrow, quadric, rank, sharper, structure
from constructions.ledger.bank import paper as bank
from constructions.ledger.content import anywhere, concatenated, limits, parity, relations
from constructions.ledger.content import exact as content
from constructions.ledger.costs import compute, cpm3_parameters, reported
from constructions.ledger.costs import parameters as costs
from constructions.ledger.cpm3 import causal, counting, messages, order, precision, rounded, settled, workspace
from constructions.ledger.statement import Judgement, Statement, Verdict, check, judge, refused

__all__ = ["Judgement", "Statement", "Verdict", "check", "judge", "refused", "select", "statements"]

MODULES = (
    inclusion,
    definitions,
    strictness,
    linear,
    bank,
    rank,
    order,
    workspace,
    causal,
    counting,
    settled,
    messages,
    rounded,
    costs,
    cpm3_parameters,
    compute,
    reported,
    bounds,
    structure,
    narrow,
    sharper,
    quadric,
    beyond,
    start,
    precision,
    concatenated,
    content,
    anywhere,
    limits,
    parity,
    relations,
)


def statements() -> list[Statement]:
    """All statements: E1, E2, ... (the paper's that need a word), P-... (its others), T1, T2, ... (ours)."""
    return sorted((s for module in MODULES for s in module.STATEMENTS), key=_order)


def _order(statement: Statement) -> tuple[str, int, str]:
    number = re.match(r"[A-Z](\d+)", statement.id)
    return statement.id[0], int(number[1]) if number else 0, statement.id


def select(ids: Sequence[str]) -> list[Statement]:
    """The statements with these ids, in the ledger's order; all for none. Case does not matter, T14 is T14a, T14b, ...

    Raises:
        ValueError: an unknown id.
    """
    found = {s.id.lower(): s for s in statements()}
    wanted: set[str] = set()
    for name in ids:
        key = name.lower()
        parts = {key} & set(found) or {other for other in found if re.fullmatch(f"{re.escape(key)}[a-z]", other)}
        if not parts:
            near = get_close_matches(key, found, n=3, cutoff=0.4)
            accepted = [found[n].id for n in near] or ["E1, E2, ...", "T1, T2, ...", "P-..."]
            raise ValueError(f"unknown statement {name!r}: did you mean {', '.join(accepted)}? `claims --list` has all")
        wanted |= parts
    return [s for key, s in found.items() if not wanted or key in wanted]
