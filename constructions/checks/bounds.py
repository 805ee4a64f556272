"""Certified lower bounds on heads, to stand beside a check."""

from collections.abc import Sequence
from typing import Any

from sympy import QQ
from sympy.polys.matrices import DomainMatrix

from iha_theory.bounds.certificates import Certificate, bank_refusal
from iha_theory.bounds.exact_rank import bank_rank
from iha_theory.rounding import ceil_sqrt
from synthetic.systems import StateSpace, impulse_response, system


def certified(columns: Sequence[Any]) -> Certificate | None:
    """A certificate of the operator Schmidt rank from below, verified; None if all is 0.

    The columns of one token j are the rows (i, j) of the operator's realignment, which have at most its rank.

    Raises:
        ValueError: the certificate does not prove what it claims.
    """
    certificate = bank_rank(columns).certificate
    if certificate is not None and (reason := bank_refusal(certificate, columns)):
        raise ValueError(f"the lower bound has no certificate: {reason}")
    return certificate


def lower_bound(layer: str, certificate: Certificate | None) -> int:
    """The least heads of position-only attention: r for "mha", ceil(sqrt r) for "iha" (docs/results.md T1, T2)."""
    rank = 1 if certificate is None else certificate.rank
    return {"mha": rank, "iha": ceil_sqrt(rank)}[layer]


def bound_fields(layer: str, certificate: Certificate | None) -> dict[str, Any]:
    """The lower bound as fields of a check's setting."""
    data = None if certificate is None else certificate.to_json()
    return {"lower_bound_heads": lower_bound(layer, certificate), "certificate": data}


def certificate_of(model: StateSpace, tokens: int) -> Certificate | None:
    """A verified certificate of the operator Schmidt rank, from the response to the first token."""
    return certified(responses(impulse_response(rational(model), min(tokens, 2 * model.a.shape[0]))))


def responses(taps: Sequence[DomainMatrix]) -> list[DomainMatrix]:
    """For each output o and input coordinate a the column h_0[o,a], h_1[o,a], ..."""
    rows = [tap.to_list_flat() for tap in taps]
    return [DomainMatrix([[x] for x in entry], (len(rows), 1), QQ) for entry in zip(*rows, strict=True)]


def rational(model: StateSpace) -> StateSpace:
    """The model over the rationals: residues modulo a prime stand for the integers that represent them."""
    if model.a.domain == QQ:
        return model
    parts = (model.a, model.b, model.c, model.feedthrough)
    return system(*(None if m is None else [[int(x) for x in row] for row in m.to_list()] for m in parts))
