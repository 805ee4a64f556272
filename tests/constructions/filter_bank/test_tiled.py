"""Tiled IHA: the tilings themselves, the bank and the workspace for every size, costs, products, mutants."""

from math import isqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.operators import exact_gap, exact_operator_gap
from constructions.checks.oracles.convolution import exact_target
from constructions.construction import Construction, blocks
from constructions.cpm3.workspace import network, shift, workspace
from constructions.filter_bank import tiled
from constructions.filter_bank.layers import bank
from constructions.filter_bank.paper import powers
from constructions.ledger.bank.sharper import joined
from constructions.suite import better
from iha_theory import exact
from iha_theory.operators.weights import to_layer
from iha_theory.rounding import ceil_sqrt
from synthetic.tasks.count_pairs import CountPairs
from synthetic.tasks.filter_bank import power_blocks

TILINGS = {9: (3, 2), 16: (4, 2), 25: (5, 3), 36: (6, 3), 49: (7, 3), 64: (8, 4), 100: (10, 4)}
"""k: H and P."""


def tiles_of(terms, projected=False):
    heads = ceil_sqrt(terms)
    return heads, tiled.tiling(-(-terms // heads), heads, heads, projected)


def side(tiles):
    return max(tile.side for tile in tiles)


def test_tilings_cover_every_block_once():
    for terms in range(1, 500):
        heads, tiles = tiles_of(terms)
        assert len(tiles) <= heads
        assert (tiled.coverage(tiles, heads).flatten()[:terms] == 1).all()


def test_the_least_pseudo_heads():
    """T1: H P^2 >= k. With an output projection ceil(sqrt H) always; without it too, or one more (then T6's)."""
    for terms in range(1, 500):
        heads, tiles = tiles_of(terms)
        _, projected = tiles_of(terms, projected=True)
        assert heads * side(projected) ** 2 >= terms
        assert side(projected) <= ceil_sqrt(heads)
        s = isqrt(heads)
        extra = s * s + s < heads < (s + 1) ** 2 and heads not in tiled.OVERLAPPING
        assert side(projected) <= side(tiles) <= ceil_sqrt(heads) + extra
        if terms == heads**2:
            assert side(projected) == ceil_sqrt(heads)
            assert side(tiles) == ceil_sqrt(heads) + extra


def test_overlapping_tiles_are_exact_and_better_than_rectangles():
    for heads, tiles in tiled.OVERLAPPING.items():
        assert len(tiles) == heads
        assert np.array_equal(tiled.coverage(tiles, heads), np.ones((heads, heads)))
        rectangles = next(p for p in range(1, heads + 1) if (-(-heads // p)) ** 2 <= heads)
        assert side(tiles) == ceil_sqrt(heads) == rectangles - 1
        assert tiled.coverage(tiles, heads, absolute=True).max() == 3


def test_cyclic_tiles_cover_once_or_twice():
    for heads in range(1, 200):
        tiles = tiled.cyclic(heads)
        assert len(tiles) == heads
        assert set(tiled.coverage(tiles, heads).flatten()) <= {1, 2}


IMPOSSIBLE = {8, 14, 15, 23, 24, 33, 34, 35, 46, 47, 48, 61, 62, 63}
"""Up to H = 64; written out from s > 2 m, and s = 2 m for m = 2, 3. H = 3 (m = 1) and 60 (m = 4) are not."""


def test_impossible_tilings_are_refused_at_once():
    for heads in range(1, 65):
        least = ceil_sqrt(heads)
        assert tiled.impossible(heads) == (heads in IMPOSSIBLE)
        if heads in IMPOSSIBLE:
            with pytest.raises(ValueError, match=f"there are no H = {heads} tiles with P = {least} "):
                tiled.tiling(heads, heads, heads, pseudo_heads=least)
            assert side(tiled.tiling(heads, heads, heads, pseudo_heads=least + 1)) == least + 1
            assert side(tiled.tiling(heads, heads, heads, projected=True, pseudo_heads=least)) == least
    with pytest.raises(ValueError, match=r"no H = 13 tiles .* are known: P = 5 is enough"):
        tiled.tiling(13, 13, 13, pseudo_heads=4)
    with pytest.raises(ValueError, match="there are no H = 9 tiles with P = 2 "):
        tiled.tiling(9, 9, 9, projected=True, pseudo_heads=2)


def test_a_tile_of_three_heads_has_the_cycle_of_the_proof():
    """v -> 1 / (1 - v): the products in the tiles of H = 3 that are not 1."""
    crossed = {r * w for tile in tiled.OVERLAPPING[3] for _, r in tile.rows for _, w in tile.columns} - {1}
    assert crossed == {1 / (1 - v) for v in crossed} == {-1, 2, 0.5}


# Found by an exhaustive search: eight tiles of side 3 that cover the 8 x 8 grid, by the tiles of each row and column.
ROWS = ("012", "013", "024", "135", "246", "357", "467", "567")
COLUMNS = ("036", "045", "056", "127", "145", "147", "236", "237")


def test_a_cover_for_eight_heads_has_no_coefficients():
    """Every cell is in one tile or two; the single cells force all products to 1, so the others have c = 2."""
    count = np.array([[len(set(row) & set(column)) for column in COLUMNS] for row in ROWS])
    assert set(count.flatten()) == {1, 2}
    for tile in "01234567":
        rows, columns = ([i for i, x in enumerate(sets) if tile in x] for sets in (ROWS, COLUMNS))
        assert (len(rows), len(columns)) == (3, 3)
        assert joined(count[np.ix_(rows, columns)] > 1).all()


def test_attention_cost():
    """Below 2.5 k N^2, where the paper's P = H takes H k."""
    for terms, (heads, pseudo) in TILINGS.items():
        construction = bank("iha-tiled", powers(torch.eye(2, dtype=torch.float64)), terms, 1)
        assert (construction.heads, construction.pseudo_heads) == (heads, pseudo)
        maps = construction.layer.attention_maps
        assert maps == heads * pseudo**2
        assert terms <= maps < 2.5 * terms
        assert maps < heads**3


@settings(max_examples=30, deadline=None)
@given(terms=st.integers(1, 20), size=st.integers(1, 4), width=st.integers(1, 2), seed=st.integers(0, 2**16))
def test_bank_is_exact_for_any_matrix(terms, size, width, seed):
    a = exact.matrix(np.random.default_rng(seed).integers(-2, 3, (size, size)), QQ)
    construction = bank("iha-tiled", powers(a), terms, width)
    assert construction.heads == ceil_sqrt(terms)
    assert exact_gap(construction, list(power_blocks(a, terms))) == 0
    wrong = [*list(power_blocks(a, terms))[:-1], exact.identity(size, QQ) * QQ(7, 2)]
    assert exact_gap(construction, wrong) > 0


@pytest.mark.parametrize("tokens", [1, 2, 3, 5, 7, 8, 9, 10, 13, 20, 26, 37, 43])
def test_workspace_is_exact(tokens):
    construction = workspace("iha-tiled", tokens, width=2)
    assert construction.heads == ceil_sqrt(tokens)
    assert exact_gap(construction, [shift(tokens, t) for t in range(tokens)]) == 0


@pytest.mark.parametrize(("tokens", "modulus", "coefficient"), [(7, 3, 8), (9, 5, 11), (13, 7, 15), (25, 4, -9)])
def test_counts_of_the_whole_network(tokens, modulus, coefficient):
    """The MLP on the tiled workspace counts as the task says, with flags and padding as well."""
    generator = np.random.default_rng(tokens)
    x = generator.integers(0, 50, (20, tokens))
    expected = torch.from_numpy(CountPairs(modulus, coefficient).target(x))
    assert torch.equal(network(workspace("iha-tiled", tokens), modulus, coefficient)(torch.from_numpy(x)), expected)
    present = torch.ones(20, tokens)
    present[:, 2] = 0
    flagged = network(workspace("iha-tiled", tokens, width=2), modulus, coefficient, flags=True)
    kept = [t for t in range(tokens) if t != 2]
    shorter = torch.from_numpy(CountPairs(modulus, coefficient).target(x[:, kept]))
    assert torch.equal(flagged(torch.from_numpy(x), present)[:, kept], shorter)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 2), (2, 3), (3, 3), (5, 4), (8, 8)])
def test_any_bank_of_products(a, b):
    generator = torch.Generator().manual_seed(a + b)
    tokens, width, outputs = 3, 2, 2

    def integers(*shape):
        return torch.randint(-3, 4, shape, generator=generator).double()

    queries, keys, contents = integers(a, tokens, 5), integers(b, tokens, 5), integers(a, b, width, outputs)
    weights = tiled.products(queries, keys, contents)
    heads = max(a, b)
    assert weights.num_heads == heads
    assert weights.mixing.alpha_q.shape[2] <= ceil_sqrt(heads)
    array = torch.einsum("aix,bjx,abco->iojc", queries, keys, contents).numpy()
    readout = blocks("{}", outputs)
    construction = Construction("products", "", to_layer(weights), readout, width)
    assert exact_operator_gap(construction, exact_target(array)) == 0


def test_exact_only():
    assert {result.tier for result in better.checks(4, exact_only=True)} == {"exact"}


def test_refusals():
    for build in (
        lambda: bank("iha-tiled", powers(torch.eye(2, dtype=torch.float64)), 0, 1),
        lambda: bank("iha-tiled", powers(torch.eye(2, dtype=torch.float64)), 1, 0),
        lambda: workspace("iha-tiled", 0),
        lambda: workspace("iha-tiled", 1, 0),
    ):
        with pytest.raises(ValueError, match="at least 1"):
            build()
