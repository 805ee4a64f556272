"""Checks under the causal mask: filter banks of lower-triangular matrices, and causal CPM-3 (ledger E3)."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from sympy import QQ

from constructions.checks.mutants import Subject, shift_block, swap_blocks
from constructions.checks.operators import exact_gap, float64_gap, operations
from constructions.checks.oracles.workspace import slots_to_the_beginning
from constructions.checks.result import CheckResult, heads_by_claim
from constructions.construction import Construction, count
from constructions.cpm3 import causal
from constructions.cpm3 import workspace as cpm3
from constructions.filter_bank.causal import bank as causal_bank
from constructions.filter_bank.paper import powers
from iha_theory import exact
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.rounding import gamma
from synthetic.tasks.count_pairs import CountPairs, all_sequences

LAYERS = ("mha", "iha")
N_MAX = range(1, 18)
TERMS = (1, 2, 4, 5, 9)
TOKENS = 8
TASK = CountPairs(3, 8, causal=True)

BANK = "the filter bank of a lower-triangular matrix under the causal mask, with as many heads as without it"
COUNTS = "CPM-3 over pairs j1, j2 <= i under the causal mask, for every N <= N_max, with as many heads as without it"


def causalities(layer: str) -> tuple[Causality, ...]:
    """Those that differ for a layer."""
    return ("token", "virtual") if layer == "iha" else ("token",)


def lower_triangular(tokens: int = TOKENS) -> np.ndarray:
    """Random integers on and below the diagonal."""
    return np.tril(np.random.default_rng(tokens).integers(-2, 3, (tokens, tokens)))


def bank_checks(terms: int, exact_only: bool = False) -> Iterator[CheckResult]:
    """[X, A X, ..., A^{k-1} X] for one lower-triangular A, exactly and in float64."""
    a = lower_triangular()
    targets, majorants = (np.stack([np.linalg.matrix_power(m, t) for t in range(terms)]) for m in (a, np.abs(a)))
    for layer in LAYERS:
        for causality in causalities(layer):
            construction = causal_bank(layer, powers(exact.matrix(a, QQ)), terms, 2, causality)
            name = f"causal-bank/N={TOKENS}/k={terms}/{causality}"
            common = {
                "claim": f"{BANK}, {causality} causality",
                "setting": {"tokens": TOKENS, "terms": terms, "causality": causality},
                "claimed_heads": heads_by_claim(layer, terms),
            }
            yield CheckResult.of(
                construction,
                name,
                layer,
                "exact",
                error=exact_gap(construction, [exact.matrix(t, QQ) for t in targets]),
                bound=0.0,
                compared="masked operators over the rationals",
                **common,
            )
            if exact_only:
                continue
            yield CheckResult.of(
                construction,
                name,
                layer,
                "float64",
                error=float64_gap(construction, targets.astype(float), majorants.astype(float)),
                bound=gamma(operations(construction, TOKENS)),
                compared="the torch layer on every basis input, relative to |A|^t",
                **common,
            )


def counts_error(net: cpm3.CountPairsNetwork, seed: int = 0) -> tuple[float, int]:
    """The largest difference of a count for any N <= N_max, and the number of sequences: all of up to 4 tokens."""
    worst, seen = 0.0, 0
    generator = np.random.default_rng(seed)
    for tokens in range(1, net.slots + 1):
        x = np.concatenate(list(all_sequences(3, tokens))) if tokens <= 4 else generator.integers(0, 9, (8, tokens))
        x[0] = 0
        got = net.counts(net.workspaces(torch.from_numpy(x), share_pattern=True)).numpy()
        worst, seen = max(worst, float(np.abs(got - TASK.target(x)).max())), seen + len(x)
    return worst, seen


def _network(construction: Construction) -> cpm3.CountPairsNetwork:
    return cpm3.network(construction, TASK.modulus, TASK.coefficient, flags=True)


def cpm3_checks(n_max: int) -> Iterator[CheckResult]:
    """The causal workspace as an operator, and the counts of every length."""
    for layer in LAYERS:
        for causality in causalities(layer):
            construction = causal.workspace(layer, n_max, causality=causality)
            common = {"bound": 0.0, "claimed_heads": heads_by_claim(layer, n_max)}
            setting = {"n_max": n_max, "causality": causality}
            yield CheckResult.of(
                construction,
                f"causal-workspace/N={n_max}/{causality}",
                layer,
                "exact",
                claim=f"{COUNTS}: the workspace, {causality} causality",
                error=exact_gap(construction, slots_to_the_beginning(n_max)),
                setting=setting,
                compared="masked operators over the rationals",
                **common,
            )
            net = _network(construction)
            error, seen = counts_error(net)
            yield CheckResult(
                id=f"causal-cpm3/N={n_max}/{causality}/{layer}/exact",
                layer=layer,
                tier="exact",
                claim=f"{COUNTS}, {causality} causality",
                heads=construction.heads,
                pseudo_heads=construction.pseudo_heads,
                parameters=count(net.module),
                error=error,
                setting=setting | {"modulus": TASK.modulus, "coefficient": TASK.coefficient, "sequences": seen},
                compared="counts of all sequences of up to 4 tokens and random ones of every length, as integers",
                **common,
            )


def subjects() -> list[Subject]:
    """The exact checks, to be tested by mutants."""
    return [
        make(layer, causality) for layer in LAYERS for causality in causalities(layer) for make in (_bank, _workspace)
    ]


def _bank(layer: str, causality: Causality) -> Subject:
    a, terms = lower_triangular(), 5
    blocks = [exact.matrix(np.linalg.matrix_power(a, t), QQ) for t in range(terms)]
    return _subject(
        f"causal-bank/N={TOKENS}/k={terms}/{causality}/{layer}/exact",
        lambda: causal_bank(layer, powers(exact.matrix(a, QQ)), terms, 2, causality),
        lambda construction: exact_gap(construction, blocks),
        TOKENS,
    )


def _workspace(layer: str, causality: Causality) -> Subject:
    return _subject(
        f"causal-workspace/N=5/{causality}/{layer}/exact",
        lambda: causal.workspace(layer, 5, causality=causality),
        lambda construction: exact_gap(construction, slots_to_the_beginning(5)),
        6,
    )


def _subject(
    check: str, build: Callable[[], Construction], error: Callable[[Construction], float], tokens: int
) -> Subject:
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, tokens, 2)))
    return Subject(
        check,
        build=build,
        error=lambda construction: (error(construction), 0.0),
        outputs=lambda construction: construction(x).detach(),
        layer=lambda construction: construction.layer,
        extra={"two readout blocks swapped": swap_blocks, "a readout block shifted by one": shift_block},
    )
