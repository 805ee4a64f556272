"""The grids that the sweeps of the reasoning tasks share: one protocol for every attention. Imports no torch.

What is compared stays the same but for one thing: MHA with as many heads as the others ("equal heads"), with more heads
of the same width in all ("equal parameters"), wider, so that it spends the FLOPs of IHA with P = H, and trained longer,
for the time that IHA with P = H takes. Parameters, FLOPs and time are in the records.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from synthetic.tasks.task import Grid, Sweep

WIDTH = 64
HEADS = 4
OTHERS = ("simplicial", "strassen", "talking-heads", "gated")
QUICK = ("talking-heads", "gated")
"""Without those whose time grows with N^3."""
REMAINING = (
    *("mqa", "gqa", "mla", "tensor-product", "composable", "multi-token"),
    *("gated-headwise", "gated-linear", "forgetting"),
)
"""The layers that the cpu presets leave out, of one layer each."""
TRIED = (0.001, 0.01)
"""Rates on both sides of that of the cpu presets, .003."""
RATES = (0.001, 0.0001)
"""The paper's (App. D)."""
PAPER: dict[str, Any] = {
    "width": 128,
    "mlp": 512,
    "batch": 32,
    "train_size": 40000,
    "eval_size": 5000,
    "eval_every": 1250,
    "patience": 10,
    "steps": 125000,
}
"""App. D: 40,000 and 5,000 samples, patience of 10 epochs. Width, batch and the most steps (100 epochs) are ours."""
STRASSEN: dict[str, Any] = {"norm": "none", "train_size": 40000, "eval_size": 5000, "batch": 2500, "lr": 0.001}
"""arXiv 2501.19215: AdamW at a constant rate, no LayerNorm, batches of 2500; 50,000 examples in all."""


def equal_heads(common: Mapping[str, Any], others: Iterable[str] = OTHERS) -> tuple[Grid, ...]:
    """Grids of layers with 4 heads: MHA, IHA with P = 2 and 4, Differential, and others.

    Args:
        common: options of every run, if they differ from the task's.
        others: layers without options of their own.
    """
    own = dict(common)
    return (
        Grid(own, dict.fromkeys(("mha", *others), (HEADS,))),
        *(Grid(own | {"pseudo_heads": pseudo}, {"iha": (HEADS,)}) for pseudo in (2, 4)),
        Grid(own | {"head_dim": own.get("width", WIDTH) // (2 * HEADS)}, {"differential": (HEADS,)}),  # two maps a head
    )


def cpu(common: Mapping[str, Any], *, more: int, wide: int, longer: int) -> tuple[Grid, ...]:
    """Grids of the cpu presets: layers with 4 heads, and MHA at equal parameters, FLOPs and time.

    Args:
        common: as in `equal_heads`.
        more: heads of MHA with the same parameters.
        wide: width of MHA with the FLOPs of IHA with P = H.
        longer: steps of MHA in the time of IHA with P = H.
    """
    own = dict(common)
    return (
        *equal_heads(own),
        Grid(own, {"mha": (more,)}),
        Grid(own | {"width": wide, "mlp": 4 * wide}, {"mha": (HEADS,)}),
        Grid(own | {"steps": longer}, {"mha": (HEADS,)}),
    )


def others(common: Mapping[str, Any]) -> Sweep:
    """The preset "others": the attentions that "cpu" leaves out, with 4 heads, on the same data.

    Args:
        common: as in `equal_heads`.
    """
    grids = (Grid(dict(common), dict.fromkeys(REMAINING, (HEADS,))),)
    return Sweep("nine attentions that the preset cpu leaves out", grids, seeds=3)


def tuned(common: Mapping[str, Any], heads: Iterable[int] = (HEADS,)) -> Sweep:
    """The preset "tuned": what the rate and the start do to MHA and to IHA with P = 2 and 4.

    At a third and three times the rate of "cpu"; and at that rate, IHA that starts as exactly MHA (T11).

    Args:
        common: as in `equal_heads`.
        heads: of MHA.
    """

    def interleaved(own: Mapping[str, Any]) -> tuple[Grid, ...]:
        return tuple(Grid(dict(own) | {"pseudo_heads": pseudo}, {"iha": (HEADS,)}) for pseudo in (2, 4))

    grids = [
        grid
        for rate in TRIED
        for own in (dict(common) | {"lr": rate},)
        for grid in (Grid(own, {"mha": tuple(heads)}), *interleaved(own))
    ]
    tried = " and ".join(f"{rate:g}" for rate in TRIED)
    summary = f"MHA and IHA at rates of {tried}, and IHA that starts as MHA"
    return Sweep(summary, (*grids, *interleaved(dict(common) | {"init": "mha"})), seeds=3)


def paper(common: Mapping[str, Any], rates: Iterable[float] = RATES) -> tuple[Grid, ...]:
    """Grids of the paper's protocol: H = 8, P = 8, both rates; MHA with biases, IHA without (App. D)."""
    own = PAPER | dict(common)
    return tuple(
        grid
        for rate in rates
        for grid in (
            Grid(own | {"lr": rate, "bias": True}, {"mha": (8,), "simplicial": (8,)}),
            Grid(own | {"lr": rate, "pseudo_heads": 8}, {"iha": (8,)}),
        )
    )


def strassen(common: Mapping[str, Any], heads: int) -> tuple[Grid, ...]:
    """Grids of arXiv 2501.19215's protocol: standard attention in one layer and in two, and the others in one."""
    own = STRASSEN | dict(common)
    return (
        Grid(own, dict.fromkeys(("mha", "simplicial", "strassen"), (heads,))),
        Grid(own | {"pseudo_heads": 4}, {"iha": (heads,)}),
        Grid(own | {"layers": 2}, {"mha": (heads,)}),
    )
