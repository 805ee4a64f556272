"""Statements on CPM-3 by a workspace: E7, E9, what the constructions count. Proofs: constructions.cpm3.workspace."""

from functools import cache, partial
from typing import Any

import numpy as np
import torch
from sympy import QQ

from constructions.checks.operators import exact_gap
from constructions.checks.result import least_root
from constructions.construction import Construction
from constructions.cpm3 import causal
from constructions.cpm3 import workspace as cpm3
from constructions.ledger.cases import LAYERS, N_MAX, sequences
from constructions.ledger.statement import Assumption, Claim, Finding, Place, Statement
from iha_theory import exact
from iha_theory.attention.mixing.interleaved import Causality
from iha_theory.operators.weights import to_layer, with_positions
from synthetic.tasks.count_pairs import CountPairs


@cache
def _workspace(layer: str, n_max: int, width: int, factor: int | None, step: int) -> Construction:
    """The workspace of the shift by `step`, with another factor of IHA's values if one is given."""

    options = {} if factor is None or layer == "mha" else {"factor": factor}
    weights = cpm3.workspace_weights(layer, lambda t: cpm3.shift(n_max, step * t), n_max, width, **options)
    return Construction("", "", to_layer(weights), cpm3.workspace(layer, n_max, width).readout, width)


def direction(layer: str, tokens: int, *, step: int) -> Finding:
    """E7: the workspace of the tokens 1 .. N with (P X)_n = X_{n + step}. Row n should be n, n + 1, ..., n - 1."""
    x = torch.arange(1, tokens + 1, dtype=torch.float64)
    rows = _workspace(layer, tokens, 1, None, step)(x[None, :, None])[0]
    wanted = [[(n + t) % tokens + 1 for t in range(tokens)] for n in range(tokens)]
    first = ", ".join(f"{v:g}" for v in rows[0].tolist())
    same = rows.tolist() == wanted
    printed = "" if same else f", and not {', '.join(map(str, wanted[0]))}"
    return Finding(same, f"N = {tokens}, {layer}: the workspace row of token 1 is {first}{printed}", {"row": first})


@cache
def _workspace_error(layer: str, n_max: int, factor: int | None) -> float:
    shifts = [
        exact.matrix([[int(j == (n + t) % n_max) for j in range(n_max)] for n in range(n_max)], QQ)
        for t in range(n_max)
    ]
    return exact_gap(_workspace(layer, n_max, 1, factor, 1), shifts)


@torch.no_grad()
def _ties(construction: Construction, tokens: int) -> list[int]:
    """The numbers of keys that the live query rows of IHA, row 0 of each token and head, tie over."""
    layer, inputs = construction.layer, with_positions(torch.zeros(1, tokens, construction.width, dtype=torch.float64))
    q, k = (p(inputs)[0].unflatten(-1, (layer.num_heads, -1)) for p in (layer.q_proj, layer.k_proj))
    live = torch.einsum("nmd,mh->hnd", q, layer.get_parameter("alpha_q")[:, :, 0])
    keys = torch.einsum("nmd,mhj->hnjd", k, layer.get_parameter("alpha_k")).flatten(1, 2)
    scores = live @ keys.transpose(1, 2)
    return sorted(set((scores == scores.amax(-1, keepdim=True)).sum(-1).flatten().tolist()))


def suffices(
    n_max: int, modulus: int, coefficient: int, *, layer: str, factor: int | None = None, more: int = 0
) -> Finding:
    """P-cpm3-mha, P-cpm3-iha. factor: of IHA's values, in place of H. more: added to G in the network only."""
    construction = _workspace(layer, n_max, 1, factor, 1)
    heads = n_max if layer == "mha" else least_root(n_max)
    x = sequences(modulus, n_max)
    net = cpm3.network(construction, modulus, coefficient + more)
    with torch.no_grad():
        counts = net.mlp(net.workspaces(torch.from_numpy(x), share_pattern=True)).numpy()
    wrong = int((counts != CountPairs(modulus, coefficient).target(x)).any(axis=1).sum())
    values: dict[str, Any] = {"heads": construction.heads, "wrong": wrong, "sequences": len(x)}
    says = f"N_max = {n_max}, M = {modulus}, G = {coefficient}: {construction.heads} heads"
    tied = [1] if layer == "mha" else _ties(construction, n_max)
    if layer == "iha":
        says += f", a live row ties over {', '.join(map(str, tied))} keys"
        values["ties"] = tied
    error = _workspace_error(layer, n_max, factor)
    holds = construction.heads == heads and error == 0 and not wrong and tied == [1 if layer == "mha" else heads]
    return Finding(holds, f"{says}; the workspace is off by {error:g}, {wrong} of {len(x)} counts are wrong", values)


@cache
def _network(
    layer: str,
    n_max: int,
    task: CountPairs,
    flags: bool,
    causality: Causality,
    factor: int | None,
    more: int,
    bos: bool,
) -> cpm3.CountPairsNetwork:
    width = 1 + flags
    if not task.causal:
        attention = _workspace(layer, n_max, width, factor, 1)
    else:
        power = partial(causal.clamped_shift if bos else lambda size, t: cpm3.shift(size, -t), n_max + 1)
        options = {} if factor is None or layer == "mha" else {"factor": factor}
        weights = cpm3.workspace_weights(layer, power, n_max, width, **options)
        readout = causal.workspace(layer, n_max, width).readout
        attention = causal.under_mask(Construction("", "", to_layer(weights), readout, width), causality, "last")
    return cpm3.network(attention, task.modulus, task.coefficient + more, flags=flags)


def every_length(
    layer: str,
    n_max: int,
    tokens: int | None = None,
    causality: Causality = "token",
    modulus: int = 3,
    coefficient: int = 8,
    *,
    is_causal: bool = False,
    flags: bool = True,
    factor: int | None = None,
    more: int = 0,
    bos: bool = True,
) -> Finding:
    """E9 and E3-cpm3: N tokens in N_max slots, padded with zeros at the end, in front, and in between.

    tokens: N; None for every N <= N_max. flags: carry them. factor, more: as in `suffices`. bos: stop the causal shift
    at BOS; else it is cyclic.
    """
    task = CountPairs(modulus, coefficient, causal=is_causal)
    net = _network(layer, n_max, task, flags, causality, factor, more, bos)
    generator = np.random.default_rng(n_max)
    slots = np.arange(n_max)
    present, padded, expected = [], [], []
    for n in range(1, n_max + 1) if tokens is None else (tokens,):
        x = generator.integers(0, 2 * modulus, (3, n))
        x[0, 0] = 0  # a legal token, and the padding's value
        expected += task.target(x).tolist()
        present += [slots < n, slots >= n_max - n, generator.permutation(n_max) < n]
        for row, at in zip(x, present[-3:], strict=True):
            padded.append(np.zeros(n_max, dtype=np.int64))
            padded[-1][at] = row
    given = torch.from_numpy(np.stack(padded)), torch.from_numpy(np.stack(present)) if flags else None
    with torch.no_grad():
        counts = net.mlp(net.workspaces(*given, share_pattern=True)).numpy()
    got = [row[at].tolist() for row, at in zip(counts, present, strict=True)]
    wrong = [i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
    shown = wrong[0] if wrong else -1
    shown_counts = ", ".join(f"{c:g}" for c in got[shown])
    right = f", not {', '.join(map(str, expected[shown]))}" if wrong else ", as it should"
    return Finding(
        not wrong,
        f"N_max = {n_max}, N = {len(got[shown])}, {layer} with {net.attention.heads} heads, M = {modulus}, "
        f"G = {coefficient}: {padded[shown].tolist()} has counts {shown_counts}{right}; "
        f"{len(wrong)} of {len(got)} wrong",
        {"heads": net.attention.heads, "wrong": len(wrong), "sequences": len(got)},
    )


def _fits(n_max: int, tokens: int, **_: object) -> bool:
    return tokens <= n_max


EVERY_N_MAX = {"n_max": N_MAX, "layer": LAYERS}
ANY_TASK = {"modulus": range(1, 8), "coefficient": (*range(-9, 40), 2**62 + 1)}

STATEMENTS = (
    Statement(
        id="E7",
        source="App. B.3",
        place=Place("exact", ("workspace",), "constructions.cpm3.workspace"),
        claim=Claim(
            text="for N = 4 and the printed P, (P X)_n = X_(n-1), the workspace row of token 1 reads 1, 2, 3, 4",
            test=partial(direction, step=-1),
            cases={"tokens": (4,), "layer": LAYERS},
            mends={"the other direction": {"step": 1}},
        ),
        repaired=Claim(
            text="with (P X)_n = X_(n+1) the workspace row of token n reads n, n + 1, ..., N, 1, ..., n - 1",
            test=partial(direction, step=1),
            cases={"tokens": N_MAX, "layer": LAYERS},
            mutants={"the printed direction": {"step": -1}, "steps of two": {"step": 2}},
        ),
        note="The counts do not notice, since they do not depend on the order of the tokens (T8).",
    ),
    *(
        Statement(
            id=f"P-cpm3-{layer}",
            source="Sec. 4.3, App. B.3",
            place=Place("exact", ("cpm3-network",), "constructions.cpm3.workspace"),
            claim=Claim(
                text=text,
                test=partial(suffices, layer=layer),
                cases={"n_max": N_MAX, "modulus": (1, 2, 5), "coefficient": (11, 2**62 + 1)},
                mutants={"G + 1 in the MLP": {"more": 1}} | mutants,
                wider={"n_max": N_MAX, **ANY_TASK},
            ),
            note="The workspace is compared as an operator, the counts on all sequences or on random ones. "
            "For fewer tokens: E9.",
        )
        for layer, text, mutants in (
            ("mha", "MHA with N_max heads of hard attention, and an MLP, solve CPM-3 on N_max tokens", {}),
            (
                "iha",
                "IHA with H = P = ceil(sqrt N_max) heads of hard attention, and an MLP, solve CPM-3 on N_max tokens; "
                "each live query row ties over H keys, so that the values carry a factor H",
                {"no factor H": {"factor": 1}},
            ),
        )
    ),
    Statement(
        id="E9",
        source="Sec. 4.3, App. B.3",
        place=Place("exact", ("cpm3-network",), "constructions.cpm3.workspace"),
        claim=Claim(
            text="the CPM-3 constructions count right for every N <= N_max, with zeros in the slots that hold no token",
            test=partial(every_length, flags=False),
            cases={"n_max": range(1, 10), "tokens": range(1, 10), "modulus": (1, 3), "layer": LAYERS},
            given=_fits,
            mutants={"G + 1 in the MLP": {"more": 1}},
        ),
        assumption=Assumption("N = N_max", lambda n_max, tokens, **_: tokens == n_max),
        repaired=Claim(
            text="with a presence flag beside the value, N_max heads of MHA and ceil(sqrt N_max) of IHA count right "
            "for every N <= N_max, padded anywhere, with 0 a legal token",
            test=every_length,
            cases=EVERY_N_MAX,
            mutants={"G + 1 in the MLP": {"more": 1}, "no flags": {"flags": False}, "no factor H": {"factor": 1}},
            wider=EVERY_N_MAX | ANY_TASK,
        ),
        note="Padding with 0 counts as tokens of value 0. The attention is exact for every content (P-cpm3-mha, -iha).",
    ),
)
