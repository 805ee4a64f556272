"""What a task is: its options, its data and right answers, the model around a layer, how that is judged.

A task is one frozen dataclass whose fields are its options. `Task.build` makes the `Problem` of a run; a task that has
nothing to prepare is a problem itself. Ours import no torch before that, so that --help is quick. In a file of yours,
`my_tasks.py`, for `iha-theory train my_tasks:Reverse`:

    @dataclass(frozen=True)
    class Reverse(Task):
        tokens: int = option(8, "tokens N", 1)

        def draw(self, generator, count, split):
            x = generator.standard_normal((count, self.tokens, 1))
            return x, x[:, ::-1]

        def model(self, make):
            return Frame(make(self.tokens, self.tokens, 1, content=1, tokens=self.tokens, pattern="softmax", out=1))

        def loss(self, model, x, y):
            return (model(x) - y).square().mean()

        def measure(self, model, run, validation, test):
            ...

where Frame is a torch module that keeps the layer at `layer`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Shaped

from iha_theory.options import Options
from synthetic.graphs import Graph

if TYPE_CHECKING:
    from sympy.polys.matrices import DomainMatrix
    from torch import nn

Split = Literal["train", "validation", "test"]
SPLITS = get_args(Split)
EXACT_TASKS = "workspace, polynomial and unstructured, the last two with --mode position-only"
"""Those whose `Task.exact` there is, for errors."""
Samples = tuple[Shaped[np.ndarray, "..."], ...]
"""Inputs, and labels if the task has any."""


@dataclass(frozen=True)
class Measured:
    """What a trained model reached.

    Attributes:
        error: relative squared error, or the share of wrong inputs among all that there are; None if the task has none.
        slack: how far the error may fall below the floor by rounding or, where it is estimated from samples, by chance.
        accuracy: share of right labels over all tokens of the test set; None if the task has no labels.
        baseline_accuracy: the same for the commonest label of the validation set.
        baselines: the same for the best guesses from simple features, by name.
        parts: accuracy on parts of the test set, by name.
        flops: of the forward pass of one sample; None if not counted.
    """

    error: float | None = None
    slack: float = 0.0
    accuracy: float | None = None
    baseline_accuracy: float | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    flops: int | None = None


@dataclass(frozen=True)
class Grid:
    """Runs of a sweep: options, and the head counts of each layer."""

    options: Mapping[str, Any]
    heads: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Sweep:
    """A named sweep: what it is, for --help, and its grids.

    Attributes:
        seeds: how many, unless said otherwise.
        presets: other grids by name, for --preset; "cpu" is then the name of this one's.
    """

    summary: str
    grids: tuple[Grid, ...]
    seeds: int = 8
    presets: Mapping[str, "Sweep"] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """What a problem may depend on beside its options.

    Attributes:
        attention: the layer's name.
        capacity: the largest rank of its operators (`iha_theory.capacity`); None for a layer that is not ours.
        parity_bits: the most bits whose parity it computes (`iha_theory.bounds.parity`); None if no bound is known.
        device, dtype: of the run.
    """

    attention: str
    capacity: int | None
    parity_bits: int | None = None
    device: str = "cpu"
    dtype: str = "float32"


class ExactTarget(NamedTuple):
    """A bank of matrices over the rationals, and what it is made of.

    Attributes:
        given: the matrices that the task's options stand for, as numbers without rounding: A of the powers of A, or the
            bank itself.
        bank: T_0, ..., T_{k-1}, over QQ.
        width: of the content, d.
        pattern: of the attention, "linear" or "softmax".
    """

    given: tuple[np.ndarray, ...]
    bank: "tuple[DomainMatrix, ...]"
    width: int
    pattern: str = "linear"


class Size(NamedTuple):
    """How many numbers a run holds at least: what is refused for lack of memory before any is taken.

    Attributes:
        tokens: N.
        sample: of the inputs of a sample.
        fixed: of what is prepared once, and of weights beside the layer's.
        test: of the inputs and labels of a test sample of the longest further length.
        judged: of the hidden states of such a sample.
        at_once: such samples that are judged together, at most.
    """

    tokens: int
    sample: int
    fixed: int
    test: int = 0
    judged: int = 0
    at_once: int = 0


class Problem:
    """A task as a run sees it.

    Attributes:
        floor: the least error that theory allows; None if none is known.
        at_once: samples whose validation loss is taken together, to spare memory; None: all. The loss is then the mean
            of those of the parts.
    """

    floor: float | None = None
    at_once: int | None = None

    def draw(self, generator: np.random.Generator, count: int, split: Split) -> Samples:
        """Samples of a split among `count` fresh ones: arrays of inputs, and of right answers if the loss needs them.

        They must depend on the generator alone. Integers become int64 tensors, all else the run's floats.
        """
        raise NotImplementedError

    def shared(self, train: Samples, validation: Samples, test: Samples) -> int:
        """How many samples are in two of the splits and must not be: the run is then refused."""
        return 0

    def model(self, make: "Callable[..., nn.Module]") -> "nn.Module":
        """The model, with its attention layer, or a ModuleList of several, at `layer`, made by `make` (see
        `LayerOptions.make`) and called as layer(query, key, value), batch first; query and key may have batch 1.

        Weights other than the layer's start as torch makes them from the run's seed, or as a method
        `initialise(generator)` of the model sets them.
        """
        raise NotImplementedError

    def loss(self, *args: Any, **kwargs: Any) -> Any:
        """loss(model, *samples): of a batch, a scalar tensor; the samples are tensors, as `draw` made them."""
        raise NotImplementedError

    def losses(self, *args: Any, **kwargs: Any) -> Any:
        """losses(model, weights, *samples): of each of many runs, (runs,); None if batching `loss` is the quickest way.

        The weights of the model's parameters, by name, and the samples have a leading axis of runs.
        """
        return None

    def measure(self, model: "nn.Module", run: Callable[..., Any], validation: Samples, test: Samples) -> Measured:
        """What a trained model reached; `run` is the model on the run's device in its dtype, without gradients."""
        raise NotImplementedError

    def rate(self, parameter: str, rate: float) -> float:
        """The peak learning rate of a parameter, by its name."""
        return rate


@dataclass(frozen=True)
class Task(Problem, Options):
    """Base of the tasks; fields are options (`iha_theory.options.option`).

    Attributes:
        summary: one line, for --help.
        defaults: of options of the run and of the layer, where they differ; those that a layer lacks do not count.
        learned: the options that say what is learned: pictures never put runs that differ in them together.
        sweeps: the named sweeps of this task.
        inert: options of layers that change nothing in this task's model: they are refused.
        padded: for attentions whose runs with other head counts may train as one program, padded with heads whose
            weights are 0, the most heads that may be. The layer's projected output is the model's; IHA's pseudo-heads
            are more keys too, so its attention must be linear.
    """

    summary: ClassVar[str] = ""
    defaults: ClassVar[Mapping[str, Any]] = {}
    learned: ClassVar[tuple[str, ...]] = ()
    sweeps: ClassVar[Mapping[str, Sweep]] = {}
    inert: ClassVar[tuple[str, ...]] = ()
    padded: ClassVar[Mapping[str, float]] = {}

    @property
    def label(self) -> str:
        """What a table calls the task."""
        return type(self).__name__

    def build(self, setting: Setting) -> Problem:
        """The problem of a run.

        Raises:
            ValueError, OSError: options or files that the task refuses.
        """
        return self

    def exact(self) -> ExactTarget:
        """The target without rounding, for tasks whose target is a linear map over the rationals, and the model linear.

        Raises:
            ValueError: a task, or options of one, for which there is no such thing; or as `build`.
        """
        raise ValueError(f"no run on this task has an exact error: accepted are {EXACT_TASKS}")

    def size(self) -> Size:
        """What the options ask for, from below."""
        return Size(0, 0, 0)

    def content(self) -> Mapping[str, str]:
        """For each option that names a file, a hash of what that held when this was first asked.

        In the identity of a run it stands for the file's name; what the task builds must be of this content.
        """
        return {}

    def given(self) -> Graph | None:
        """The graph that the task is about, as it was read, for tasks with one."""
        return None


def up_to(capacity: int) -> dict[str, Sequence[int]]:
    """1 .. r heads of MHA and 1 .. ceil(sqrt r) + 1 of IHA."""
    return {"mha": range(1, capacity + 1), "iha": range(1, int((capacity - 1) ** 0.5) + 3)}


def split_of(x: Shaped[np.ndarray, "samples N"]) -> Shaped[np.ndarray, " samples"]:
    """0 (train), 1 (validation) or 2 (test) for each sequence of integers, by a hash: in a ratio of 8 to 1 to 1."""
    h = np.zeros(len(x), dtype=np.uint64)
    for column in x.T.astype(np.uint64):
        h = (h ^ column) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
    return np.select([h % np.uint64(10) == 8, h % np.uint64(10) == 9], [1, 2], 0)
