"""What `iha-theory verify` runs: named groups of checks, as a list of steps.

- `bank`: the polynomial filter bank on a graph; `every_matrix`: for all matrices at once, at large sizes.
- `cpm3`: CPM-3 for every N_max, by a workspace, by one and by two heads; `packing`: by few large numbers.
- `causal`: CPM-3 by a workspace, and filter banks, under the causal mask.
- `inclusion`: MHA inside IHA, strictly.
- `better`: fewer attention maps by tiles, and two layers of MHA; `fewer_heads`: dependent powers, tolerances.
- `convolution`, `state_space` (models and oracles in `simulation`): with certified lower bounds.
- `content`: parity by softmax with content anywhere, and not one bit more; relations, with content in the keys.
- `mutants`: damage to constructions, to the helpers that build them and to counted heads; each module above says in
  `subjects()` what is damaged.
"""

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from constructions.checks.helpers import damage_helpers
from constructions.checks.mutants import MutantResult, Subject, damage
from constructions.checks.result import CheckResult
from constructions.suite import (
    bank,
    better,
    causal,
    convolution,
    cpm3,
    every_matrix,
    fewer_heads,
    inclusion,
    packing,
    state_space,
)
from constructions.suite.content import parity, relations
from iha_theory.processes import Lost, spread
from synthetic.graphs import Graph, builtin

GROUPS = ("bank", "cpm3", "causal", "inclusion", "strictness", "better", "convolution", "ssm", "parity", "relations")
MODULES = (
    bank,
    every_matrix,
    cpm3,
    packing,
    causal,
    inclusion,
    better,
    fewer_heads,
    convolution,
    state_space,
    parity,
    relations,
)
GRAPHS = ("karate", "les_miserables", "florentine", "davis", "petersen", "cycle:16", "random:20")
TERMS = (1, 2, 4, 5, 9, 16, 17, 25)
N_MAX = range(1, 27)


@dataclass(frozen=True)
class Step:
    """A few checks or mutants that run together, and what to call them in the progress bar."""

    label: str
    run: Callable[[], Iterator[Any]]


def steps(
    groups: Sequence[str] = GROUPS,
    *,
    graphs: Sequence[Graph] | None = None,
    terms: Sequence[int] = TERMS,
    n_max: Sequence[int] | None = None,
    tasks: Sequence[tuple[int, int]] = cpm3.TASKS,
    exact_only: bool = False,
) -> list[Step]:
    """The steps of some groups.

    Args:
        groups: of `GROUPS`.
        graphs: for the bank; None for the built-in ones, together with the checks for all matrices and at large sizes.
        terms: the k of the bank.
        n_max: the N_max of CPM-3; None for `N_MAX`, with longer sequences by two heads, and packed ones.
        tasks: the (M, G) of CPM-3.
        exact_only: leave out the float64 tier.
    """
    out = []
    if "bank" in groups:
        for graph in [builtin(name) for name in GRAPHS] if graphs is None else graphs:
            for k in terms:
                label = f"{graph.name}, k = {k}"
                out.append(Step(label, lambda graph=graph, k=k: bank.graph_checks(graph, k, exact_only)))
        if graphs is None:
            out.append(Step("every matrix", every_matrix.checks))
            out.append(Step("N = 128, k = 64", every_matrix.large_checks))
    if "cpm3" in groups:
        out += [Step(f"CPM-3, N_max = {n}", lambda n=n: cpm3.checks(n, tasks)) for n in n_max or N_MAX]
        if n_max is None:
            more = range(N_MAX.stop, cpm3.TWO_HEADS + 1)
            out.append(Step("CPM-3 by two heads", lambda: (cpm3.few_heads_exact("two-heads", n, tasks) for n in more)))
            out += [
                Step(f"CPM-3 packed, N = {case[0]}", lambda case=case: packing.checks(*case)) for case in packing.CASES
            ]
    if "causal" in groups:
        out += [Step(f"causal bank, k = {k}", lambda k=k: causal.bank_checks(k, exact_only)) for k in causal.TERMS]
        out += [Step(f"causal CPM-3, N_max = {n}", lambda n=n: causal.cpm3_checks(n)) for n in causal.N_MAX]
    if "inclusion" in groups:
        out.append(Step("inclusion", lambda: inclusion.inclusion_checks(exact_only)))
    if "strictness" in groups and not exact_only:
        out.append(Step("strictness", inclusion.strictness_checks))
    if "better" in groups:
        out += [Step(f"tiles, two layers, k = {k}", lambda k=k: better.checks(k, exact_only)) for k in better.TERMS]
        out += [
            Step(f"reduced, {case[0]}", lambda case=case: fewer_heads.checks(*case, exact_only))
            for case in fewer_heads.CASES
        ]
        if not exact_only:
            out.append(Step("heads at a tolerance", fewer_heads.tolerance_checks))
    if "convolution" in groups:
        out += [
            Step(f"convolution, K = {size}", lambda size=size: convolution.checks(size, exact_only))
            for size in convolution.SIZES
        ]
    if "ssm" in groups:
        for n in state_space.ORDERS:
            out.append(Step(f"state space, order {n}", lambda n=n: state_space.checks(n, exact_only)))
            out.append(Step(f"FIR filter, {n} taps", lambda n=n: state_space.fir_checks(n, exact_only)))
        out.append(Step("state space, special", lambda: state_space.special_checks(exact_only)))
    if "parity" in groups:
        out += [Step(f"parity, {n} bits", lambda n=n: parity.checks(n, exact_only)) for n in parity.BITS]
        for rows, layer in product(parity.ROWS, parity.LAYERS):
            few = rows == max(parity.ROWS) and tuple(groups) != ("parity",)  # 1000 take half a minute
            options = (rows, exact_only, parity.FEW if few else parity.WEIGHTS, (layer,))
            out.append(Step(f"parity, {rows} rows, {layer}", lambda options=options: parity.more_checks(*options)))
    if "relations" in groups:
        out += [Step(f"relations, m = {m}", lambda m=m: relations.checks(m, exact_only)) for m in relations.POINTS]
    return out


WORTH_A_PROCESS = 8
"""Pieces of work: a process takes some seconds to start."""
LONG = (
    "helpers",
    "tolerance",
    "N = 128",
    "N_max = 16",
    "K = 7",
    "k = 100",
    "N_max = 10",
    "k = 25",
    "N_max = 15",
    "order 16",
    "9 rows",
    "two heads",
    "packed",
)
"""Parts of the labels of long pieces, which start first."""


def run(made: str, options: Mapping[str, Any], jobs: int, work: Sequence[Step]) -> Iterator[tuple[int, list[Any]]]:
    """The results of each piece of work with its index: in order in this process, as they come from several.

    Args:
        made: "steps" or "mutants", the function that made the work.
        options: its arguments. The steps are closures over exact matrices, which no process can be sent: each makes
            them anew.
        jobs: how many processes, at most; of one thread each.
        work: the steps.

    Raises:
        OSError: a piece whose process was killed, twice.
    """
    jobs = min(jobs, -(-len(work) // WORTH_A_PROCESS))
    if jobs == 1:
        yield from ((i, list(step.run())) for i, step in enumerate(work))
        return
    order = sorted(range(len(work)), key=lambda i: not any(part in work[i].label for part in LONG))
    content = pickle.dumps((made, options))
    for place, found in spread(_piece, [(content, i) for i in order], jobs):
        if isinstance(found, Lost):
            raise OSError(f"{work[order[place]].label}: {found.reason}; --jobs 1 runs in one")
        yield order[place], found


_MADE: dict[bytes, list[Step]] = {}
"""In a process of `run`: the work of its last call, by a digest of what made it."""


def _piece(content: bytes, index: int) -> list[Any]:
    key = hashlib.sha256(content).digest()
    if key not in _MADE:
        made, options = pickle.loads(content)
        _MADE.clear()
        _MADE[key] = globals()[made](**options)
    return list(_MADE[key][index].run())


def subjects() -> list[Subject]:
    """Every check that mutants test."""
    return [subject for module in MODULES for subject in module.subjects()]


def mutants() -> list[Step]:
    """Every subject damaged, then the helpers that build each module's, then the heads that results count."""
    out = [Step(subject.check, lambda subject=subject: damage(subject)) for subject in subjects()]
    for module in MODULES:
        name = module.__name__.rpartition(".")[2]
        out.append(Step(f"helpers of {name}", lambda module=module: damage_helpers(module.subjects)))
    return [*out, Step("claimed heads", miscounted)]


def miscounted() -> Iterator[MutantResult]:
    """Of a result of each family and layer, the same with one head more, which no check may let pass."""
    firsts: dict[tuple[str, str], CheckResult] = {}
    for step in small_steps():
        for result in step.run():
            firsts.setdefault((result.id.partition("/")[0], result.layer), result)
    for result in firsts.values():
        caught = result.holds and not replace(result, heads=result.heads + 1).holds
        yield MutantResult(result.id, "one head more than claimed", changes=True, killed=caught)


def small_steps() -> list[Step]:
    """Of every family of checks something small."""
    return [
        Step("bank", lambda: bank.graph_checks(builtin("petersen"), 2, exact_only=True)),
        Step("every matrix", every_matrix.checks),
        Step("CPM-3", lambda: cpm3.checks(2, ((2, 5),))),
        Step("CPM-3 packed", lambda: packing.checks(4, 4, 2)),
        Step("causal bank", lambda: causal.bank_checks(2, exact_only=True)),
        Step("causal CPM-3", lambda: causal.cpm3_checks(2)),
        Step("inclusion", lambda: inclusion.inclusion_checks(exact_only=True)),
        Step("strictness", inclusion.strictness_checks),
        Step("tiles, two layers", lambda: better.checks(4, exact_only=True)),
        Step("reduced", lambda: fewer_heads.checks("petersen", "none", 9, exact_only=True)),
        Step("tolerance", fewer_heads.tolerance_checks),
        Step("convolution", lambda: convolution.checks(3, exact_only=True)),
        Step("state space", lambda: state_space.checks(4, exact_only=True)),
        Step("FIR filter", lambda: state_space.fir_checks(4, exact_only=True)),
        Step("state space, special", lambda: state_space.special_checks(exact_only=True)),
        Step("parity", lambda: parity.checks(2, exact_only=True)),
        Step("parity, one bit more", lambda: parity.more_checks(1, exact_only=True)),
        Step("relations", lambda: relations.checks(2, exact_only=True)),
    ]
