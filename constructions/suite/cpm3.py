"""Checks of CPM-3: the workspace as an operator, and the network's counts against the task's definition."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from constructions.checks.mutants import Subject, in_place, shift_block, swap_blocks
from constructions.checks.operators import exact_gap
from constructions.checks.oracles.workspace import slots
from constructions.checks.result import CheckResult, heads_by_claim
from constructions.construction import Construction, count
from constructions.cpm3.two_heads import one_head, two_heads
from constructions.cpm3.workspace import CountPairsNetwork, network, workspace
from constructions.filter_bank.layers import PAPER
from iha_theory import exact
from iha_theory.attention.base import AttentionLayer
from synthetic.tasks.count_pairs import CountPairs, all_sequences

EXHAUSTIVE = 20_000
"""All M^N sequences are run where there are at most this many."""
SAMPLES = 200
FEW = 5
"""Sequences for one and two heads, each in plain self-attention."""
TWO_HEADS = 64
"""Most tokens of the two heads that `verify` runs."""

TASKS = ((1, 3), (2, 5), (3, 7), (3, 8), (4, -9), (5, 11), (7, 2**62 + 1))
"""(M, G). M = 1 counts all pairs; M divides G - 1 in (2, 5) and (3, 7) only, where order does not matter (ledger
E1)."""

CLAIMS = {
    "mha": "CPM-3 by MHA with N_max heads of hard attention, then an MLP",
    "iha": "CPM-3 by IHA with ceil(sqrt N_max) heads of hard attention, then an MLP",
    "one-head": "CPM-3 by MHA with one head of linear attention on [x, I], content in its keys, then an MLP",
    "two-heads": "CPM-3 by MHA with two heads of linear attention on [x, I], content in the keys of one, then an MLP",
}

FEW_HEADS = {"one-head": one_head, "two-heads": two_heads}
"""With content in the keys."""


def workspace_exact(layer: str, construction: Construction) -> CheckResult:
    """The workspace's operator over the rationals: block t, row n picks token n + t mod N."""
    tokens = len(construction.readout)
    return CheckResult.of(
        construction,
        f"cpm3-workspace/N={tokens}",
        layer,
        "exact",
        claim=f"{CLAIMS[layer]}: the workspace holds every token at every position",
        error=exact_gap(construction, slots(tokens)),
        bound=0.0,
        setting={"n_max": tokens},
        compared="operators over the rationals",
        claimed_heads=heads_by_claim(layer, tokens),
    )


def counts_errors(
    nets: Sequence[CountPairsNetwork], tasks: Sequence[CountPairs], tokens: int, seed: int = 0
) -> tuple[list[float], int]:
    """For each network the largest difference between its counts and its task's; and the number of sequences compared.

    The networks have one attention, which runs once, and the tasks one modulus. All M^N sequences where there are at
    most `EXHAUSTIVE`; otherwise random ones, with all-equal and increasing ones. A few run as plain self-attention, the
    rest with a shared pattern.
    """
    x = _sequences(tasks[0].modulus, tokens, seed)
    inputs = torch.from_numpy(x)
    shared, plain = nets[0].workspaces(inputs, share_pattern=True), nets[0].workspaces(inputs[:4])
    errors = []
    for net, task in zip(nets, tasks, strict=True):
        targets = torch.from_numpy(task.target(x))
        counts, first = net.counts(shared), net.counts(plain)
        if counts.shape != targets.shape or counts.numel() == 0:
            raise ValueError(f"cannot compare counts of shapes {tuple(counts.shape)} and {tuple(targets.shape)}")
        errors.append(float(max((counts - targets).abs().max(), (first - targets[:4]).abs().max())))
    return errors, len(x)


def counts_exact(
    layer: str, attention: Construction, modulus: int, coefficients: Sequence[int]
) -> Iterator[CheckResult]:
    """The network's output as integers, against the histogram count: a check for each G."""
    tokens = len(attention.readout)
    nets = [network(attention, modulus, g) for g in coefficients]
    errors, seen = counts_errors(nets, [CountPairs(modulus, g) for g in coefficients], tokens)
    for coefficient, net, error in zip(coefficients, nets, errors, strict=True):
        yield CheckResult(
            id=f"cpm3/N={tokens}/M={modulus}/G={coefficient}/{layer}/exact",
            claim=CLAIMS[layer],
            layer=layer,
            heads=net.attention.heads,
            pseudo_heads=net.attention.pseudo_heads,
            parameters=count(net.module),
            tier="exact",
            error=error,
            bound=0.0,
            setting={"n_max": tokens, "modulus": modulus, "coefficient": coefficient, "sequences": seen},
            compared=f"counts of {'all' if seen == modulus**tokens else 'random'} sequences, as integers",
            claimed_heads=heads_by_claim(layer, tokens),
        )


def few_heads_exact(name: str, tokens: int, tasks: Sequence[tuple[int, int]]) -> CheckResult:
    """The counts of "one-head" or "two-heads" as integers, for all tasks: zeros, equal, increasing, two random ones."""
    nets = [FEW_HEADS[name](tokens, m, g) for m, g in tasks]
    return CheckResult(
        id=f"cpm3-{name}/N={tokens}/mha/exact",
        claim=CLAIMS[name],
        layer="mha",
        heads=nets[0].attention.heads,
        pseudo_heads=1,
        parameters=count(nets[0].module),
        tier="exact",
        error=max(map(few_heads_error, nets, tasks)),
        bound=0.0,
        setting={"n_max": tokens, "tasks": list(tasks)},
        compared=f"counts of {FEW} sequences for each (M, G), as integers",
        claimed_heads=1 + (name == "two-heads"),
    )


def few_heads_error(net: CountPairsNetwork, task: tuple[int, int]) -> float:
    """The largest difference between the network's counts and the task's."""
    x = _sequences(task[0], net.slots, 0, FEW, FEW)
    return float((net(torch.from_numpy(x)) - torch.from_numpy(CountPairs(*task).target(x))).abs().max())


def _sequences(modulus: int, tokens: int, seed: int, most: int = EXHAUSTIVE, samples: int = SAMPLES) -> np.ndarray:
    if modulus**tokens <= most:
        return np.concatenate(list(all_sequences(modulus, tokens)))
    high = min(4 * modulus, (exact.LARGEST_INTEGER - 1) // (modulus + tokens + 2))  # what the network takes
    if high < 1:
        raise ValueError(f"the modulus M must be below 2^53 for a network in float64, got {modulus}")
    x = np.random.default_rng(seed).integers(0, high, (samples, tokens))
    x[0], x[1], x[2] = 0, min(modulus, high) - 1, np.arange(tokens) % high
    return x


def checks(tokens: int, tasks: Sequence[tuple[int, int]]) -> Iterator[CheckResult]:
    """Workspace and counts for one N_max, by both layers; and one and two heads."""
    for layer in PAPER:
        construction = workspace(layer, tokens)
        yield workspace_exact(layer, construction)
        for modulus in dict.fromkeys(m for m, _ in tasks):
            yield from counts_exact(layer, construction, modulus, [g for m, g in tasks if m == modulus])
    if tokens <= TWO_HEADS:
        yield from (few_heads_exact(name, tokens, tasks) for name in FEW_HEADS)


def subjects() -> list[Subject]:
    """The checks of CPM-3, to be tested by mutants."""
    cases = ((5, 3, 8), (9, 5, 11))
    return [s for case in cases for layer in PAPER for s in _subjects(*case, layer)] + [
        _few_heads(name, 5, 5, 11) for name in FEW_HEADS
    ]


def _few_heads(name: str, tokens: int, modulus: int, coefficient: int) -> Subject:
    """With damages that only this construction has."""
    sequences = torch.from_numpy(np.random.default_rng(1).integers(0, modulus, (FEW, tokens)))
    rest = range(tokens + 1, 2 * tokens)

    def own_of_the_next(net: CountPairsNetwork) -> None:
        rows = net.attention.layer.q_proj.weight[-tokens:]  # of the head that marks or writes the own token
        rows.copy_(rows.roll(1, 0))

    own: dict[str, Any] = {
        "one-head": {"no mark": in_place(lambda net: net.attention.layer.k_proj.weight[:, 1:].zero_())},
        "two-heads": {
            "slot 0 for the own token": in_place(
                lambda net: net.mlp.pairs.weight.copy_(net.mlp.pairs.weight[:, [tokens, *range(1, tokens), 0, *rest]])
            )
        },
    }
    return Subject(
        f"cpm3-{name}/N={tokens}/mha/exact",
        build=lambda: FEW_HEADS[name](tokens, modulus, coefficient),
        error=lambda net: (few_heads_error(net, (modulus, coefficient)), 0.0),
        outputs=lambda net: net(sequences).double(),
        layer=lambda net: net.attention.layer,
        extra={
            "two tokens written to one place": in_place(
                lambda net: net.attention.layer.v_proj.weight[0].copy_(net.attention.layer.v_proj.weight[1])
            ),
            "no content in the keys": in_place(lambda net: net.attention.layer.k_proj.weight[:tokens, 0].zero_()),
            "own token of the next": in_place(own_of_the_next),
            **own[name],
        },
    )


def _subjects(tokens: int, modulus: int, coefficient: int, layer: str) -> list[Subject]:
    generator = np.random.default_rng(1)
    x = torch.from_numpy(generator.standard_normal((2, tokens, 1)))
    sequences = torch.from_numpy(generator.integers(0, modulus, (50, tokens)))
    blocks = slots(tokens)
    task = CountPairs(modulus, coefficient)

    def one_shift_wrong(subject_layer: AttentionLayer) -> None:
        block = subject_layer.q_proj.weight[tokens : 2 * tokens, -tokens:]  # the second base query
        block.copy_(block.roll(1, 0))

    def g_shifted(net: CountPairsNetwork) -> None:
        rows = net.mlp.pairs.weight.view(tokens, tokens, -1)
        for s, block in enumerate(net.attention.readout):
            rows[s, :, block.start] += 1

    def swapped(net: CountPairsNetwork) -> None:
        first, second = (net.attention.readout[i].start for i in (0, 1))
        weight = net.mlp.pairs.weight
        weight[:, [first, second]] = weight[:, [second, first]]

    return [
        Subject(
            f"cpm3-workspace/N={tokens}/{layer}/exact",
            build=lambda: workspace(layer, tokens),
            error=lambda construction: (exact_gap(construction, blocks), 0.0),
            outputs=lambda construction: construction(x).detach(),
            layer=lambda construction: construction.layer,
            extra={
                "one wrong power": in_place(lambda construction: one_shift_wrong(construction.layer)),
                "two readout blocks swapped": swap_blocks,
                "a readout block shifted by one": shift_block,
            },
        ),
        Subject(
            f"cpm3/N={tokens}/M={modulus}/G={coefficient}/{layer}/exact",
            build=lambda: network(workspace(layer, tokens), modulus, coefficient),
            error=lambda net: (counts_errors([net], [task], tokens)[0][0], 0.0),
            outputs=lambda net: net(sequences).double(),
            layer=lambda net: net.attention.layer,
            extra={
                "one wrong power": in_place(lambda net: one_shift_wrong(net.attention.layer)),
                "two readout blocks swapped": in_place(swapped),
                "G shifted by 1 in the weights only": in_place(g_shifted),
                "noise of 1e-3 in the MLP": in_place(lambda net: net.mlp.pairs.weight.add_(1e-3)),
            },
        ),
    ]
