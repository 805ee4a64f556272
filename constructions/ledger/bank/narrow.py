"""Sharper forms of T1, T2, T7: narrow content, output width, depth. T19a, T19b, T19f.

Proofs: docs/bounds.md, Theorems 1 and 2 (Depth: also `constructions.filter_bank.deep`).
"""

from typing import Any

import torch
from torch import Tensor, nn

from constructions.checks.operators import exact_gap
from constructions.checks.result import least_root
from constructions.filter_bank import deep, reduced
from constructions.filter_bank.paper import powers
from constructions.ledger.bank.bounds import measured
from constructions.ledger.cases import FIELD, matrix, random_matrix
from constructions.ledger.statement import Claim, Finding, Place, Statement
from iha_theory import blueprint, exact
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.bounds.exact_rank import output_width
from iha_theory.capacity import generic, measure
from synthetic.tasks.filter_bank import power_blocks

# T19a


def narrow_capacity(layer: str, heads: int, width: int, value_dim: int, *, values: int = 1, more: int = 0) -> Finding:
    """Measured ranks on narrow content against min(H^2, H P^2 or H P, H d d_v). values: exponent of d_v."""
    found = list(measured(layer, heads, width=width, value_dim=value_dim))
    claimed = []
    for row in found:
        folded = heads if row.pseudo_heads is None else row.pseudo_heads ** (2 if row.collapse == "global" else 1)
        claimed.append(min(heads**2, heads * folded, heads * width * value_dim**values) + more)
    ranks = [row.rank for row in found]
    what = f"{layer}, H = {heads}, d = {width}, d_v = {value_dim}: ranks {ranks} measured, {claimed} claimed"
    return Finding(ranks == claimed and all(row.clear for row in found), what, {"ranks": ranks, "claimed": claimed})


# T19b

TERMS = 4


def as_wide(graph: str, width: int, *, more: int = 0) -> Finding:
    """MHA with r heads of width d makes the bank, and H d_v = r d is the bound. more: added to the bound."""
    a = matrix(graph)
    layer = reduced.bank("mha", reduced.reduce(a, TERMS), width)
    blocks = list(power_blocks(a, TERMS))
    least, has = output_width(blocks, width) + more, layer.heads * layer.layer.value_head_dim
    error = exact_gap(layer, blocks)
    what = f"{graph}, k = {TERMS}, d = {width}: H d_v = {has}, at least {least}; exact error {error:g}"
    return Finding(error == 0 and has == least, what, {"least": least, "has": has})


def narrower_fill_less(graph: str, width: int, kind: str, *, more: int = 0) -> Finding:
    """Outputs at each token over random contents: the bank's fill as many dimensions as the bound says; those of a
    softmax layer with content anywhere and H d_v one less, fewer. more: heads (of width 1) added.
    """
    bank = torch.stack([exact.to_float64(m) for m in power_blocks(matrix(graph), TERMS)])
    least, tokens = output_width(list(power_blocks(matrix(graph), TERMS)), width), bank.shape[1]
    x = torch.randn(4 * TERMS * width, tokens, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.einsum("tij,bja->bita", bank, x).flatten(2)
    sizes: dict[str, Any] = {"head_dim": 3, "value_head_dim": 1, "out_dim": TERMS * width, "bias": True}
    layer = (MultiHeadAttention if kind == "mha" else InterleavedHeadAttention)(width, least - 1 + more, **sizes)
    with torch.no_grad():
        out = generic(lambda: layer)(x, x, x)
    filled = [max(_dimension(y[:, i]) for i in range(tokens)) for y in (target, out)]
    what = f"{graph}, k = {TERMS}, d = {width}: the bank fills {filled[0]} dimensions at a token, {kind} {filled[1]}"
    return Finding(filled[0] == least and filled[1] < least, what, {"least": least, "filled": filled})


def _dimension(outputs: Tensor) -> int:
    """Of the affine space that they span."""
    return int(torch.linalg.matrix_rank(outputs - outputs.mean(0), rtol=1e-9))


# T19f


def layers_make_bank(layer: str, depth: int, terms: int, *, step: int = 0, fewer: int = 0) -> Finding:
    """L torch layers against the powers of a random matrix, modulo a prime. step: exponents A^(step) beyond the right
    ones for what follows the first layer. fewer: heads claimed less.
    """
    a = random_matrix(2, terms)
    power = powers(a)
    layers = deep.bank(layer, power, terms, depth)
    claimed = least_root(terms, depth * (1 if layer == "mha" else 2)) - fewer
    if step:
        layers[1:] = deep.bank(layer, lambda i: power(i + step * (i > 0)), terms, depth)[1:]
    found = [column[0] for column in deep.columns(layers, 1, FIELD)][:terms]
    wrong = sum(m != t for m, t in zip(found, power_blocks(a, terms), strict=True))
    heads = layers[0].num_heads
    what = f"k = {terms}: {depth} layers of {heads} {layer.upper()} heads, {wrong} wrong blocks modulo a prime"
    return Finding(wrong == 0 and heads == claimed, what, {"heads": heads, "wrong": wrong})


class _Stack(nn.Module):
    """Position-only layers, one behind the other."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        for layer in self.layers:
            value = layer(query, key, value)
        return value


@blueprint.theorem(
    "depth",
    "L position-only layers have rank at most H^L (MHA), H^(2L) (IHA): ranks multiply",
    uses=("capacity",),
    check="numerical",
    proof="docs/bounds.md, Theorem 2, Depth",
)
def fewer_layers_cannot(layer: str, depth: int, terms: int, *, more: int = 0) -> Finding:
    """The measured rank of L generic softmax layers with a head less each. more: heads added."""
    exponent = depth * (1 if layer == "mha" else 2)
    heads = least_root(terms, exponent) - 1 + more
    kind = MultiHeadAttention if layer == "mha" else InterleavedHeadAttention
    sizes: dict[str, Any] = {"vdim": 5, "head_dim": 4, "value_head_dim": 5, "out_dim": 5}
    found = measure(generic(lambda: _Stack([kind(24, heads, **sizes) for _ in range(depth)])), 24, tokens=20, width=5)
    what = f"k = {terms}: {depth} layers of {heads} {layer.upper()} heads have rank {found.rank}"
    return Finding(found.clear and found.rank == heads**exponent < terms, what, {"heads": heads, "rank": found.rank})


STATEMENTS = (
    Statement(
        id="T19a",
        source="docs/bounds.md, Theorem 1",
        place=Place("numerical", ("capacity",), "docs/bounds.md, Theorem 1"),
        claim=Claim(
            text="on content of width d and with values of width d_v the capacity is min(H^2, H P^2, H d d_v) for IHA, "
            "min(H^2, H d d_v) for two layers: H = P = 4, d = d_v = 1 has 4",
            test=narrow_capacity,
            cases={
                "layer": ("iha, P = 2", "iha, P = 4", "two-layer"),
                "heads": (4,),
                "width": (1, 2),
                "value_dim": (1, 2),
            },
            mutants={"d_v left out": {"values": 0}, "one more": {"more": 1}},
            wider={"layer": ("iha, P = 2", "two-layer"), "heads": (2, 3), "width": (1, 2), "value_dim": (1, 2)},
        ),
        note="Measured at random parameters; both collapses and patterns. That none exceeds it: iha_theory.capacity.",
    ),
    Statement(
        id="T19b",
        source="docs/bounds.md, Theorem 2",
        place=Place(
            "numerical",
            ("output-width", "bank-reduced"),
            "docs/bounds.md, Theorem 2, Heads are saved, output width is not",
        ),
        claim=Claim(
            text="a layer for the bank, whatever it is, has total value width H d_v >= d max_i dim span_t{e_i^T A^t}: "
            "IHA saves heads, not width; MHA with r heads has no more",
            test=as_wide,
            cases={"graph": ("path:2", "complete:3", "path:4", "petersen"), "width": (1, 2)},
            mutants={"one more": {"more": 1}, "one less": {"more": -1}},
        ),
        needed=True,
        least=Claim(
            text="with a number less the outputs at a token fill fewer dimensions than the bank's: softmax, content in "
            "queries, keys and values",
            test=narrower_fill_less,
            cases={"graph": ("path:2", "cycle:5", "petersen"), "width": (1, 2), "kind": ("mha", "iha")},
            mutants={"one head more": {"more": 1}},
        ),
        note="The graphs here have a node i for which the dimension is r.",
    ),
    Statement(
        id="T19f",
        source="docs/bounds.md, Theorem 2, Depth",
        place=Place("numerical", ("bank-deep", "depth")),
        claim=Claim(
            text="L layers with ceil(k^(1/L)) MHA heads or ceil(k^(1/(2L))) IHA heads each make the bank: k = 16 by "
            "two layers of two IHA heads",
            test=layers_make_bank,
            cases={"layer": ("mha", "iha"), "depth": (1, 2, 3), "terms": (1, 4, 9, 16)},
            given=lambda layer, depth, terms: layer == "mha" or depth < 3,
            mutants={"powers of later layers shifted": {"step": 1}, "a head less": {"fewer": 1}},
        ),
        needed=True,
        least=Claim(
            text="with a head less in each the composition's rank is (H - 1)^L or (H - 1)^(2L), below k",
            test=fewer_layers_cannot,
            cases={"layer": ("mha", "iha"), "depth": (2, 3), "terms": (9, 16, 17)},
            given=lambda layer, depth, terms: layer == "mha" or depth < 3,
            mutants={"one head more": {"more": 1}},
        ),
        note="The rank of random softmax layers is measured; that none exceeds it: ranks multiply at most.",
    ),
)
