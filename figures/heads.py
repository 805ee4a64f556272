"""Heads against task size: constructions that were checked exactly, on exact lower bounds (docs/results.md T2, T16)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from sympy import QQ

from constructions.cpm3.workspace import shift, workspace
from constructions.heads.exact import ExactTask
from constructions.suite import bank, cpm3
from constructions.suite.content import parity
from figures import style
from figures.style import Picture
from iha_theory import exact
from iha_theory.bounds.certificates import refusal
from iha_theory.bounds.exact_rank import power_rank
from iha_theory.bounds.heads import least_heads
from synthetic.graphs import builtin

GRAPH = "karate"
TERMS = (1, 2, 3, 4, 5, 6, 9, 10, 16, 17, 25, 26, 36, 64)
SIZES: dict[str, Sequence[int]] = {"bank": TERMS, "workspace": TERMS, "parity": parity.BITS}
"""k of the bank, N of the workspace, bits."""
STEPS = {"bank": (37, 50), "workspace": (37, 50), "parity": ()}
"""Where ceil(sqrt) goes up between them: there the bounds only."""
TASKS = {
    "bank": ("Filter bank of the karate club,\n[X, AX, ..., A$^{k-1}$X]", "terms k"),
    "workspace": ("CPM-3 workspace,\nall N cyclic shifts of x", "tokens N"),
    "parity": ("Parity by softmax,\ncontent anywhere", "bits k"),
}
NOTE = (
    "Every dot is a construction whose weights were read out of the torch layer and compared exactly.\n"
    "Lines: no position-only layer has fewer; r is the dimension of the span of the powers or shifts, certified.\n"
    "Parity: no softmax layer with a linear read-out has fewer, whatever it sees (docs/parity.md, Theorem 1)."
)
LAYERS = {"mha": style.MHA, "iha": style.IHA}
LABELS = {"mha": "MHA", "iha": "IHA"}


@dataclass(frozen=True)
class Point:
    """A head count at one size.

    Attributes:
        task: of `TASKS`.
        layer: "mha" or "iha".
        size: k, N or bits.
        heads: H.
        kind: "construction" (the paper's weights, concatenated heads), "projected" (fewer heads and an output
            projection) or "bound" (any weights need so many).
        verdict: "holds" or "fails": the exact check of the construction, or the certificate's of the bound.
    """

    task: str
    layer: str
    size: int
    heads: int
    kind: str
    verdict: str


def steps(checks: Sequence[Mapping[str, Any]] | None = None) -> list[tuple[str, Callable[[], list[Point]]]]:
    """What has to be computed: (label, the points of one step).

    Args:
        checks: the list `checks` of `iha-theory verify --json`, whose exact checks are the constructions; None to
            check them now.

    Raises:
        ValueError: no exact check of the karate club's bank, of the workspace or of parity among them.
    """
    if checks is not None:
        points = [point for check in checks for point in _from_check(check)]
        if not points:
            raise ValueError(
                f"no exact check of {GRAPH}'s filter bank, of the workspace or of parity: run iha-theory verify"
            )
        sizes = {task: sorted({p.size for p in points if p.task == task}) for task in TASKS}
        todo: list[tuple[str, Callable[[], list[Point]]]] = [("checks", lambda: points)]
    else:
        sizes = {task: [*SIZES[task], *STEPS[task]] for task in TASKS}
        todo = [(f"{task}, {size}", partial(_checked, task, size)) for task in TASKS for size in SIZES[task]]
    dependent = [k for k in sizes["bank"] if k not in STEPS["bank"] and _bank_rank(k)[0] < k]
    todo += [(f"{GRAPH}, k = {k}", partial(_projected, k)) for k in dependent]
    return todo + [(f"bounds of {task}", partial(_bounds, task, sorted(sizes[task]))) for task in TASKS if sizes[task]]


def _checked(task: str, size: int) -> list[Point]:
    if task == "parity":
        results = list(parity.checks(size, exact_only=True))
    elif task == "bank":
        results = [bank.bank_exact(layer, builtin(GRAPH), size) for layer in LAYERS]
    else:
        results = [cpm3.workspace_exact(layer, workspace(layer, size)) for layer in LAYERS]
    return [point for result in results for point in _from_check(result.to_json())]


def _from_check(check: Mapping[str, Any]) -> Iterator[Point]:
    places = (
        ("bank", f"bank/{GRAPH}/", "terms"),
        ("workspace", "cpm3-workspace/", "n_max"),
        ("parity", "parity/", "bits"),
    )
    for task, prefix, key in places:
        if check["id"].startswith(prefix) and check["tier"] == "exact":
            size = check["setting"].get(key)
            if type(size) is not int or size < 1:
                raise ValueError(f"check {check['id']}: its setting has {key} {size!r}, an integer from 1 on is needed")
            yield Point(task, check["layer"], size, check["heads"], "construction", check["verdict"])


def _projected(terms: int) -> list[Point]:
    """The least heads where powers are dependent: the first r, and an output projection."""
    task = ExactTask(builtin(GRAPH), terms)
    rows = [task.count(layer) for layer in LAYERS]
    return [
        Point("bank", row.layer, terms, row.built.heads, "projected", _verdict(row.failure is None)) for row in rows
    ]


@cache
def _bank_rank(terms: int) -> tuple[int, bool]:
    """dim span of the karate club's first k powers, and whether its certificate is right."""
    return _power_rank(exact.matrix(builtin(GRAPH).adjacency, QQ), terms)


def _power_rank(a: Any, terms: int) -> tuple[int, bool]:
    found = power_rank(a, terms)
    assert found.certificate is not None
    return found.rank, refusal(found.certificate, a, terms) is None


def _bounds(task: str, sizes: Sequence[int]) -> list[Point]:
    """The lower bounds; the N shifts are the powers of the first, and parity's are proved for all at once."""
    out = []
    for size in sizes:
        if task == "parity":
            rank, proved = size, True  # as many softmax rows as bits: H, and H^2 of IHA with P = H
        else:
            rank, proved = _bank_rank(size) if task == "bank" else _power_rank(shift(size, 1), size)
        least = {layer: least_heads(layer, rank) for layer in LAYERS}  # type: ignore[arg-type]
        out += [Point(task, layer, size, heads, "bound", _verdict(proved)) for layer, heads in least.items()]
    return out


def _verdict(holds: bool) -> str:
    return "holds" if holds else "fails"


def draw(points: Sequence[Point], folder: Path) -> Picture:
    """Writes heads.svg, .png and .csv: dots are constructions, lines are bounds, crosses are what does not hold."""
    tasks = [task for task in TASKS if any(p.task == task for p in points)]
    with style.applied():
        figure = style.Figure(figsize=(style.WIDTH, 4.3))
        for axes, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
            title, label = TASKS[task]
            axes.set_title(title)
            _panel(axes, [p for p in points if p.task == task], label[-1], "k" if task == "parity" else "r")
            axes.set(xlabel=label, ylabel="heads H")
        style.note(figure, NOTE)
        return style.save(figure, folder, "heads", [asdict(p) for p in points])


def _panel(axes: style.Axes, points: Sequence[Point], size: str, least: str) -> None:
    names = {"mha": f"MHA: {size} heads", "iha": f"IHA: $\\lceil\\sqrt{{{size}}}\\rceil$ heads"}
    for layer, look in LAYERS.items():

        def at(kind: str, verdict: str, layer: str = layer) -> list[tuple[int, int]]:
            return [(p.size, p.heads) for p in points if (p.layer, p.kind, p.verdict) == (layer, kind, verdict)]

        if bound := at("bound", "holds"):
            text = f"least for {LABELS[layer]}: " + (least if layer == "mha" else f"$\\lceil\\sqrt{{{least}}}\\rceil$")
            steps = "default" if layer == "mha" else "steps-post"
            axes.plot(*zip(*bound, strict=True), **look.path, drawstyle=steps, label=text)
        if good := at("construction", "holds"):
            axes.plot(*zip(*good, strict=True), **look.points, label=names[layer])
        if fewer := at("projected", "holds"):
            text = f"{LABELS[layer]}, output projection"
            axes.plot(*zip(*fewer, strict=True), **look.points, markerfacecolor="white", label=text)
        wrong = [point for kind in ("construction", "projected", "bound") for point in at(kind, "fails")]
        if wrong:
            text = f"{LABELS[layer]}: CHECK FAILS"
            axes.plot(*zip(*wrong, strict=True), "x", color=look.colour, markersize=8, label=text)
    ticks = [2**e for e in range(max(p.size for p in points).bit_length())]
    style.plain_log(axes, "x", ticks)
    style.plain_log(axes, "y", ticks)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
