"""The table of docs/attentions.md against the bounds and the costs in the code, row by row."""

import re
from pathlib import Path

import pytest

from iha_theory.attention import KINDS
from iha_theory.bounds.parity import UNBOUNDED, parity_bits
from iha_theory.capacity import capacity_bound
from iha_theory.costs.layers import Sizes, flops, parameters

PAGE = Path(__file__).parents[3] / "docs" / "attentions.md"
ROWS = {
    cells[0]: cells[1:]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and (cells := [cell.strip() for cell in line.strip("| ").split("|")])[0] in KINDS
}
SIZES = Sizes(64, 64, 4, 16, 16, pseudo_heads=4, kv_heads=2, latent=64, composition=(2, 16), windows=(6, 11), group=4)
LETTERS = {"H": 4, "P": 4, "d_v": 16, "R_V": 2, "c_k": 11, "min": min}
OWN = {
    "iha": {"pseudo_heads": 4, "collapse": "global"},
    "simplicial": {"value_dim": 16},
    "strassen": {"value_dim": 16},
    "gated": {"value_dim": 16},
    "tensor-product": {"value_rank": 2},
}


def value(formula):
    """Of a formula as the page writes it, "H P^2"."""
    return eval(re.sub(r"(?<=\w) (?=\w)", "*", formula).replace("^", "**"), {}, LETTERS)


def test_every_kind_has_a_row():
    assert list(ROWS) == list(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_row_is_what_the_code_says(kind):
    rank, of_four, bits, bits_of_four, size, spent, source = ROWS[kind]
    assert value(rank) == int(of_four) == capacity_bound(kind, 4, **OWN.get(kind, {}))
    pattern = "linear" if kind == "gated-linear" else "softmax"
    found = parity_bits(kind, 4, 4 if kind == "iha" else None, pattern, 11 if kind == "multi-token" else None)
    if found is None:
        assert kind in UNBOUNDED
        assert bits == bits_of_four == "any"
    else:
        assert value(bits) == int(bits_of_four) == found
    assert size == f"{parameters(kind, SIZES) / parameters('mha', SIZES):.2f}"
    assert spent == f"{flops(kind, SIZES) / flops('mha', SIZES):.2f}"
    assert re.fullmatch(r"\d{4}\.\d{5}", source)


def test_more_than_its_heads():
    """What the page says below the table."""
    maps = {kind for kind, row in ROWS.items() if int(row[1]) > 4}
    bits = {kind for kind, row in ROWS.items() if row[3] == "any" or int(row[3]) > 4}
    assert maps == {"iha", "two-layer", "simplicial", "strassen", "gated", "tensor-product"}
    assert bits == {*UNBOUNDED, "iha", "differential", "simplicial", "strassen", "multi-token"}
    assert maps & bits == {"iha", "two-layer", "simplicial", "strassen"}
