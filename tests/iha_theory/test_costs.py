"""Formulas against what torch counts, in ordinary layers; the counter; crossovers against plain integers."""

from functools import partial
from itertools import product
from math import ceil, isqrt

import numpy as np
import pytest
import torch
from torch import nn

from constructions.construction import count
from constructions.filter_bank.tiled import tiling
from iha_theory.attention import InterleavedHeadAttention, MultiHeadAttention
from iha_theory.attention.patterns import PATTERNS, attend
from iha_theory.costs import ceil_sqrt, mixing_parameters, pair_count_parameters
from iha_theory.costs.counted import flops, flops_of
from iha_theory.costs.crossovers import bank_crossover, cpm3_crossover, fewer, never_less
from iha_theory.costs.formulas import (
    LAYERS,
    PAPER,
    AttentionSizes,
    bank,
    bank_sizes,
    cost,
    pseudo_heads_of,
    symbolic,
    tiled_pseudo_heads,
)

SELF = [
    *((heads, None, dim, tokens, "global") for heads, dim, tokens in product((1, 2, 3), (1, 4), (1, 5))),
    *product((1, 2, 3), (1, 2, 3), (1, 4), (1, 5), ("global", "per_head")),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_self_attention_has_the_parameters_and_flops_of_the_formulas(pattern):
    for heads, pseudo, dim, tokens, collapse in SELF:
        width = heads * dim
        options = {"pattern": pattern, "device": "meta"}
        if pseudo is None:
            layer = MultiHeadAttention(width, heads, **options)
        else:
            layer = InterleavedHeadAttention(width, heads, num_pseudo_heads=pseudo, collapse=collapse, **options)
        sizes = AttentionSizes(tokens, width, heads, dim, dim, pseudo, out_width=width, collapse=collapse)
        assert sizes.parameters == count(layer)
        assert sizes.attention_maps == layer.attention_maps
        assert sizes.flops == flops(layer, *[(1, tokens, width)] * 3), sizes
        rows = tokens * (pseudo or 1)
        assert sizes.map_flops == flops_of(partial(attend, pattern=pattern, scale=1.0), *[(1, heads, rows, dim)] * 3)


def test_masks_save_no_flops_and_batches_multiply_them():
    shapes = [(1, 6, 8)] * 3
    layer = InterleavedHeadAttention(8, 2, device="meta")
    windowed = InterleavedHeadAttention(8, 2, window=2, device="meta")
    assert flops(layer, *shapes) == flops(layer, *shapes, is_causal=True) == flops(windowed, *shapes, is_causal=True)
    assert flops(layer, *[(3, 6, 8)] * 3) == 3 * flops(layer, *shapes)


def test_unequal_widths():
    layer = MultiHeadAttention(6, 2, kdim=6, vdim=5, head_dim=3, value_head_dim=4, out_dim=7, device="meta")
    sizes = AttentionSizes(9, 6, 2, 3, 4, value_width=5, out_width=7)
    assert sizes.parameters == count(layer) == 2 * 6 * 6 + 5 * 8 + 8 * 7
    assert sizes.flops == flops(layer, (1, 9, 6), (1, 9, 6), (1, 9, 5))


def test_the_counter_on_known_products():
    assert flops_of(torch.matmul, (3, 4), (4, 5)) == 2 * 3 * 4 * 5
    assert flops_of(torch.matmul, (7, 3, 4), (7, 4, 5)) == 7 * 2 * 3 * 4 * 5
    assert flops_of(partial(torch.einsum, "md,mhj->hjd"), (1, 4), (1, 2, 3)) == 2 * 4 * 2 * 3  # a sum of one term
    assert flops_of(lambda x: 0.5 * x.softmax(-1) + 1, (3, 4)) == 0
    assert flops(nn.Linear(4, 5), (2, 3, 4)) == 2 * 6 * 4 * 5


def test_ceil_sqrt_of_integers_and_arrays():
    edges = [m * m + off for m in (1, 2, 3, 1000, 10**6, 2**25) for off in (-1, 0, 1) if m * m + off >= 1]
    for n in [*range(1, 200), *edges]:
        assert (ceil_sqrt(n) - 1) ** 2 < n <= ceil_sqrt(n) ** 2
    for dtype in (np.int64, np.float64):
        roots = ceil_sqrt(np.array(edges, dtype=dtype))
        assert roots.dtype == dtype
        assert roots.tolist() == [ceil_sqrt(n) for n in edges]


def test_tiled_pseudo_heads_are_the_side_of_the_tiling():
    for terms in range(1, 500):
        heads = ceil_sqrt(terms)
        assert tiled_pseudo_heads(terms) == max(t.side for t in tiling(ceil(terms / heads), heads, heads)), terms
    grid = np.arange(1.0, 2000)
    pseudo = pseudo_heads_of("iha-tiled", grid)
    assert pseudo is not None
    assert pseudo.tolist() == [tiled_pseudo_heads(int(k)) for k in grid]


def test_symbols_and_arrays_give_the_integers():
    for layer, (tokens, width, terms) in product(LAYERS, product((1, 3, 6), (1, 2), (1, 2, 5, 16))):
        sizes = bank_sizes(layer, tokens, width, terms)
        values = {"N": tokens, "d": width, "k": terms, "H": sizes[0].heads, "P": sizes[0].pseudo_heads or 1}
        for name in ("parameters", "flops"):
            expected = sum(getattr(size, name) for size in sizes)
            symbol = sum(getattr(size, name) for size in symbolic(layer))
            assert symbol.subs({s: values[s.name] for s in symbol.free_symbols}) == expected
            assert cost(name, layer, tokens, width, np.array([terms], dtype=float)).tolist() == [expected]


def test_the_paper_s_forms_are_these():
    n, d, k, h = 7, 3, 10, 4
    assert cost("parameters", "mha", n, d, k) == 2 * n * (n + d) * k + d * (n + d) * k
    assert cost("parameters", "iha", n, d, k) == 2 * n * (n + d) * h + d * (n + d) * h**2 + 4 * h**3
    assert mixing_parameters(3, 2) == 72
    assert pair_count_parameters(3, 4) == 45
    assert {name: formula(4) for name, formula in PAPER.items()} == {
        "mha attention": 192,
        "mha mlp": 76,
        "iha attention": 132,
        "iha mlp": 64,
    }


def test_other_layers_are_refused():
    with pytest.raises(ValueError, match="accepted are mha, iha"):
        bank("gqa", 3, 1, 2)
    with pytest.raises(ValueError, match="needs a number of pseudo-heads"):
        bank("iha", 3, 1, 2)
    with pytest.raises(ValueError, match="either tokens or terms"):
        bank_crossover("iha", "flops", width=1)


QUANTITIES = [("parameters", False), ("parameters", True), ("flops", False), ("flops", True), ("maps", False)]


@pytest.mark.parametrize("layer", LAYERS[1:])
@pytest.mark.parametrize(("quantity", "mlp"), QUANTITIES)
def test_comparisons_of_arrays_are_those_of_integers(layer, quantity, mlp):
    rng = np.random.default_rng(0)
    squares = [m * m + off for m in (30, 999) for off in (-1, 0, 1)]
    sizes = np.array([*range(1, 120), *squares, *rng.integers(1, 10**6, 60), 10**6], dtype=float)
    expected = [cost(quantity, layer, n, 1, n, mlp) < cost(quantity, "mha", n, 1, n, mlp) for n in map(int, sizes)]
    assert fewer(quantity, layer, sizes, 1, sizes, mlp).tolist() == expected


def test_a_tie_is_not_fewer():
    assert cost("maps", "iha-tiled", 5, 1, 16) == cost("maps", "mha", 5, 1, 16) == 16
    assert fewer("maps", "iha-tiled", 5, 1, np.array([16.0])).tolist() == [False]


def test_cpm3_crossovers():
    found = {
        (layer, q, mlp): cpm3_crossover(layer, q, mlp=mlp)
        for layer in ("iha", "iha-tiled")
        for q in ("parameters", "flops")
        for mlp in (False, True)
    }
    assert all(c.searched == 10**6 for c in found.values())
    assert {key: (c.first, c.run_from, c.run_to) for key, c in found.items()} == {
        ("iha", "parameters", False): (4, 6, 10**6),
        ("iha", "parameters", True): (4, 6, 10**6),
        ("iha", "flops", False): (None, None, None),
        ("iha", "flops", True): (None, None, None),
        ("iha-tiled", "parameters", False): (4, 4, 10**6),
        ("iha-tiled", "parameters", True): (4, 6, 10**6),
        ("iha-tiled", "flops", False): (9, 57, 10**6),
        ("iha-tiled", "flops", True): (9, 59, 10**6),
    }
    assert found["iha", "flops", False].proved
    assert not found["iha-tiled", "flops", False].proved


def test_bank_crossovers_are_a_plain_search():
    limit = 600
    for layer, quantity, tokens in product(LAYERS[1:], ("parameters", "flops"), (2, 8)):
        less = [
            k for k in range(1, limit + 1) if cost(quantity, layer, tokens, 1, k) < cost(quantity, "mha", tokens, 1, k)
        ]
        c = bank_crossover(layer, quantity, width=1, tokens=tokens, limit=limit)
        assert (c.first, c.last) == ((less[0], less[-1]) if less else (None, None))
        if less:
            assert set(range(c.run_from, c.run_to + 1)) <= set(less)
            assert c.run_from - 1 not in less
            assert c.run_to + 1 not in less
    c = bank_crossover("iha", "parameters", width=1, terms=9)
    assert (c.first, c.run_from, c.run_to, c.last) == (3, 3, 10**6, 10**6)
    assert bank_crossover("iha", "parameters", width=1, terms=2).first is None


def test_never_less_is_proved_where_it_is_true_only():
    assert [q for q in ("parameters", "flops", "maps") if never_less(q, "iha")] == ["flops", "maps"]
    for layer in ("iha-tiled", "mha-two-layer"):
        assert not any(never_less(q, layer) for q in ("parameters", "flops", "maps"))
    for n, d, k in product((1, 2, 9, 1000), (1, 3, 50), range(1, 60)):
        assert cost("flops", "iha", n, d, k) > cost("flops", "mha", n, d, k)


def test_attention_maps_are_at_least_the_terms():
    terms = np.arange(1, 10**5)
    for layer in ("iha", "iha-tiled"):
        assert (cost("maps", layer, 1, 1, terms) >= terms).all()
    assert cost("maps", "iha", 1, 1, 100) == isqrt(100) ** 3
    assert [cost("maps", "iha-tiled", 1, 1, k) for k in (16, 36, 64, 100)] == [16, 54, 128, 160]
