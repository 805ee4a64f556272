"""Constructions under the causal mask: filter banks of lower-triangular matrices, and causal CPM-3 (ledger E3)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sympy import QQ

from constructions.checks.operators import exact_gap, float64_gap, operations
from constructions.cpm3 import causal
from constructions.cpm3 import workspace as cpm3
from constructions.filter_bank import causal as causal_bank
from constructions.filter_bank import layers as filter_bank
from constructions.filter_bank.paper import powers
from iha_theory import exact
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import read
from iha_theory.rounding import ceil_sqrt, gamma
from synthetic.tasks.count_pairs import CountPairs, all_sequences

LAYERS = ("mha", "iha")
CAUSALITIES = ("token", "virtual")


def integer_powers(a, terms):
    """A^0 .. A^{k-1} by Python's integers."""
    out = [np.eye(len(a), dtype=object)]
    for _ in range(terms - 1):
        out.append(out[-1].dot(np.array(a, dtype=object)))
    return out


def exact_blocks(arrays):
    return [exact.matrix(np.array(a), QQ) for a in arrays]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(LAYERS), st.sampled_from(CAUSALITIES), st.integers(1, 5), st.integers(1, 10), st.data())
def test_banks_of_lower_triangular_matrices(layer, causality, tokens, terms, data):
    entries = data.draw(st.lists(st.integers(-3, 3), min_size=tokens**2, max_size=tokens**2))
    a = np.tril(np.array(entries).reshape(tokens, tokens))
    construction = causal_bank.bank(layer, powers(exact.matrix(a, QQ)), terms, 2, causality)
    assert construction.heads == (terms if layer == "mha" else ceil_sqrt(terms))
    bank = integer_powers(a, terms)
    assert exact_gap(construction, exact_blocks(bank)) == 0
    x = torch.from_numpy(np.random.default_rng(0).integers(-3, 4, (1, tokens, 2)).astype(np.float64))
    assert np.array_equal(
        construction(x)[0].detach().numpy(), np.hstack([t.astype(float) @ x[0].numpy() for t in bank])
    )


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("causality", CAUSALITIES)
@pytest.mark.parametrize(("tokens", "terms"), [(1, 2), (6, 5), (12, 9), (20, 16)])
def test_banks_in_float64(layer, causality, tokens, terms):
    a = np.tril(np.random.default_rng(tokens).standard_normal((tokens, tokens))) / tokens
    construction = causal_bank.bank(layer, powers(torch.from_numpy(a)), terms, 2, causality)
    targets, majorants = (np.stack([np.linalg.matrix_power(m, t) for t in range(terms)]) for m in (a, np.abs(a)))
    bound = gamma(operations(construction, tokens) + 2 * terms * tokens)
    assert float64_gap(construction, targets, majorants) <= bound < 1e-10


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("causality", CAUSALITIES)
@pytest.mark.parametrize("row", ["first", "last"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_which_matrices_have_a_causal_bank(layer, causality, row, tokens):
    """All 0/1 matrices: the mask leaves the bank alone exactly where the module says."""
    for code in range(2 ** (tokens * tokens)):
        a = np.array([code >> bit & 1 for bit in range(tokens * tokens)]).reshape(tokens, tokens)
        strict = layer == "iha" and causality == "virtual" and row == "first"
        for terms in (1, 2, 3, 5):
            masked = causal_bank.under_mask(
                filter_bank.bank(layer, powers(exact.matrix(a, QQ)), terms, 1), causality, row
            )
            fits = terms == 1 or not np.triu(a, 0 if strict else 1).any()
            bank = integer_powers(a, terms)
            assert (exact_gap(masked, exact_blocks(bank)) == 0) == fits
            kept = [np.tril(t, -1 if strict and i % masked.heads else 0) for i, t in enumerate(bank)]
            assert exact_gap(masked, exact_blocks(kept)) == 0


def test_the_smallest_bank_that_is_not_causal():
    with pytest.raises(ValueError, match=r"A\[0, 1\] is not 0: token 0 would need token 1"):
        causal_bank.bank("iha", powers(torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)), 2, 1)
    with pytest.raises(ValueError, match=r"A\[0, 2\]"):
        causal_bank.bank("mha", powers(exact.matrix([[0, 0, 1], [0, 0, 1], [0, 0, 0]], QQ)), 2, 1)
    one_block = causal_bank.bank("iha", powers(torch.ones(2, 2, dtype=torch.float64)), 1, 1)
    assert exact_gap(one_block, exact_blocks([np.eye(2, dtype=int)])) == 0


def test_the_last_query_row_sees_the_own_token_in_the_virtual_order():
    """N = 1, A = 1, k = 2: read in the first row, block 1 is 0; in the last it is X."""
    built = filter_bank.bank("iha", powers(torch.ones(1, 1, dtype=torch.float64)), 2, 1)
    x = torch.full((1, 1, 1), 5.0, dtype=torch.float64)
    for row, expected in (("first", [5.0, 0.0]), ("last", [5.0, 5.0])):
        assert causal_bank.under_mask(built, "virtual", row)(x).flatten().tolist() == expected
        assert causal_bank.under_mask(built, "token", row)(x).flatten().tolist() == [5.0, 5.0]
    assert built(x).flatten().tolist() == [5.0, 5.0]
    assert not built.is_causal


def test_edges_to_earlier_tokens():
    """The path 2 -> 1 -> 0: A X moves x_0 to token 1 and x_1 to token 2."""
    a = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=torch.float64)
    x = torch.tensor([[[2.0], [3.0], [5.0]]], dtype=torch.float64)
    for layer in LAYERS:
        assert causal_bank.bank(layer, powers(a), 4, 1)(x)[0].tolist() == [[2, 0, 0, 0], [3, 2, 0, 0], [5, 3, 2, 0]]


def stop_at_bos(n_max, t):
    """The map of slot t by definition, over the rationals."""
    return exact.matrix([[int(j == max(n - t, 0)) for j in range(n_max + 1)] for n in range(n_max + 1)], QQ)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("n_max", range(1, 18))
def test_causal_counts_of_every_length(layer, n_max):
    """Every N <= N_max; the attention for every content, the counts on random and, up to 3 tokens, all sequences."""
    generator = np.random.default_rng(n_max)
    for causality in CAUSALITIES:
        construction = causal.workspace(layer, n_max, causality=causality)
        assert construction.heads == (n_max if layer == "mha" else ceil_sqrt(n_max))
        assert exact_gap(construction, [stop_at_bos(n_max, t) for t in range(n_max)]) == 0
        net, task = cpm3.network(construction, 3, 8, flags=True), CountPairs(3, 8, causal=True)
        for tokens in range(1, n_max + 1):
            x = np.concatenate((generator.integers(0, 7, (5, tokens)), np.zeros((1, tokens), dtype=np.int64)))
            if tokens <= 3:
                x = np.concatenate((x, *all_sequences(3, tokens)))
            expected = task.target(x)
            assert np.array_equal(net(torch.from_numpy(x)).numpy(), expected)
            present = np.zeros((len(x), n_max), dtype=bool)
            for row in present:
                row[generator.permutation(n_max)[:tokens]] = True
            padded = generator.integers(0, 9, present.shape)
            padded[present] = x.ravel()
            shared = net.workspaces(torch.from_numpy(padded), torch.from_numpy(present), share_pattern=True)
            counts = net.counts(shared).numpy()
            assert np.array_equal(counts[present], expected.ravel())
            assert not counts[~present].any()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("n_max", [1, 2, 3, 4])
def test_every_sequence_with_every_padding(layer, n_max):
    net = cpm3.network(causal.workspace(layer, n_max), 3, 7, flags=True)
    x = np.concatenate(list(all_sequences(3, n_max)))
    for present in np.concatenate(list(all_sequences(2, n_max))).astype(bool):
        mask = torch.from_numpy(np.broadcast_to(present, x.shape).copy())
        counts = net.counts(net.workspaces(torch.from_numpy(x), mask, share_pattern=True)).numpy()
        assert not counts[:, ~present].any()
        if present.any():
            assert np.array_equal(counts[:, present], CountPairs(3, 7, causal=True).target(x[:, present]))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("x", "modulus", "coefficient", "counts"),  # case 7, with j1, j2 <= i
    [
        ([200, 100], 7, 3, [0, 0]),
        ([1, 4, 2], 5, -1, [0, 0, 2]),
        ([3, 1], 7, 2**62, [0, 1]),
        ([5, 6, 0], 1, 9, [1, 4, 9]),
        ([0, 1, 2], 3, 2, [1, 1, 3]),
        ([0, 0, 0], 6, 1, [1, 4, 9]),
        ([2], 6, 1, [1]),
    ],
)
def test_counts_by_hand(layer, x, modulus, coefficient, counts):
    assert CountPairs(modulus, coefficient, causal=True).target(np.array(x)).tolist() == counts
    for n_max in (len(x), len(x) + 2):
        net = cpm3.network(causal.workspace(layer, n_max), modulus, coefficient, flags=True)
        assert net(torch.tensor([x])).tolist() == [counts]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("causality", CAUSALITIES)
def test_later_tokens_are_not_seen(layer, causality):
    net = cpm3.network(causal.workspace(layer, 6, causality=causality), 5, 11, flags=True)
    x = torch.tensor([[3, 0, 4, 1, 0, 2]])
    changed = x.clone()
    changed[0, 4:] += 1
    assert torch.equal(net.workspaces(x)[:, :4], net.workspaces(changed)[:, :4])
    assert net(x[:, :4]).tolist() == net(x)[:, :4].tolist()


def test_the_workspace_is_the_nilpotent_shift():
    out = causal.workspace("iha", 3, width=1)(torch.tensor([[[0.0], [1.0], [2.0], [3.0]]], dtype=torch.float64))
    assert out[0].tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]]


@pytest.mark.parametrize("damage", ["no factor H", "cyclic shift", "no mask", "BOS counts"])
def test_what_is_refused_of_a_damaged_workspace(damage):
    n_max, width = 5, 2
    construction = causal.workspace("iha", n_max)
    blocks = [stop_at_bos(n_max, t) for t in range(n_max)]
    if damage == "no mask":
        with torch.no_grad():
            construction.layer.q_proj.weight.zero_()  # a row that ties over all it sees
    elif damage == "no factor H":
        with torch.no_grad():
            construction.layer.v_proj.weight /= construction.heads
    elif damage == "cyclic shift":
        weights = cpm3.workspace_weights("iha", lambda t: cpm3.shift(n_max + 1, -t), n_max, width)
        construction = causal_bank.under_mask(
            type(construction)("", "", causal.to_layer(weights), construction.readout, width), "token", "last"
        )
    else:
        blocks = [exact.matrix(np.eye(n_max + 1, k=-t, dtype=int), QQ) for t in range(n_max)]  # L^t: BOS's row is 0
    assert exact_gap(construction, blocks) > 0


def test_bad_arguments():
    with pytest.raises(ValueError, match="unknown layer"):
        causal.workspace("gqa", 2)
    with pytest.raises(ValueError, match="at least 1"):
        causal.workspace("iha", 0)
    with pytest.raises(ValueError, match="causal workspace needs flags"):
        cpm3.network(causal.workspace("iha", 2, width=1), 3, 7)
    net = cpm3.network(causal.workspace("iha", 2), 3, 7, flags=True)
    with pytest.raises(ValueError, match="3 tokens: accepted are 1 to 2"):
        net(torch.ones(1, 3, dtype=torch.int64))
    layer = causal.workspace("iha", 2).layer
    with pytest.raises(ValueError, match="needs the rationals"):
        next(columns(read(layer, 2, exact.gf(7)), "token"))
    layer.pattern = "softmax"
    with pytest.raises(ValueError, match="no exact operator"):
        next(columns(read(layer, 2), "token"))
