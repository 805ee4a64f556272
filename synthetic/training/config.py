"""What a training run is: a task and a layer, each with its own options, and the options of training."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from iha_theory.attention import KINDS, LayerOptions
from iha_theory.memory import largest_that_fits, machine_memory, too_large
from iha_theory.options import Options, option
from synthetic.tasks import TASKS, find
from synthetic.tasks.task import Problem, Setting, Task
from synthetic.training.own import OwnLayer

INERT = ("device", "checkpoint_every")
"""Options that change nothing of what is trained, but by rounding."""


@dataclass(frozen=True)
class TrainConfig(Options):
    """A run; it depends on nothing else. Build it with `for_task`, which fills in the defaults of the task.

    Attributes:
        task: a name in `synthetic.tasks.TASKS`, or the path MODULE:CLASS of the user's.
        attention: a name in `iha_theory.attention.KINDS`, or the path of the user's.
        problem: the task with its options.
        layer: the layer's options.

    The others are the options of training; the help texts say what each one means.

    Raises:
        ValueError: a value of another type or outside its range; the message names the option and what is accepted.
    """

    task: str
    attention: str
    problem: Task
    layer: LayerOptions | OwnLayer
    steps: int = option(1500, "optimiser steps", 1)
    batch: int = option(32, "samples a step", 1)
    lr: float = option(0.03, "peak learning rate of AdamW", 0)
    warmup: int = option(50, "steps of linear warm-up", 0)
    schedule: Literal["cosine", "constant"] = option("cosine", "rate after the warm-up: cosine falls to 0")
    beta1: float = option(0.9, "AdamW: decay of the mean gradient", 0, 1, below=True)
    beta2: float = option(0.99, "AdamW: decay of the squared gradient", 0, 1, below=True)
    weight_decay: float = option(0.0, "AdamW: weight decay", 0)
    train_size: int | None = option(None, "samples of a finite training set (default: fresh data)", 1)
    eval_size: int = option(1024, "samples of the validation and the test set", 1)
    eval_every: int = option(250, "steps between evaluations on the validation set", 1)
    patience: int | None = option(
        None, "stop after so many evaluations without a better validation loss, and keep the best weights", 1
    )
    checkpoint_every: int = option(500, "steps between checkpoints, where a place for them is given", 1)
    dtype: Literal["float32", "float64"] = option("float32", "of parameters and data")
    amp: bool = option(False, "bfloat16 autocast in the forward pass")
    device: str = option("cpu", "cpu, cuda or cuda:I")
    seed: int = option(0, "of data and initial weights", 0)

    @property
    def heads(self) -> int:
        """H."""
        return self.layer.heads

    @property
    def pseudo(self) -> int | None:
        """P of IHA, None for other layers."""
        return getattr(self.layer, "pseudo", None)

    @property
    def capacity(self) -> int | None:
        """The largest rank of the layer's position-only operators; None for a layer that is not ours."""
        from iha_theory.capacity import capacity_bound

        if isinstance(self.layer, OwnLayer):
            return None
        return capacity_bound(self.attention, self.heads, **self.layer.bound())  # type: ignore[arg-type]

    @property
    def parity_bits(self) -> int | None:
        """The most bits whose parity the layer computes at a query token; None if no bound is known."""
        from iha_theory.bounds.parity import parity_bits

        if isinstance(self.layer, OwnLayer):
            return None
        window = getattr(self.layer, "key_window", None)
        return parity_bits(self.attention, self.heads, self.pseudo, key_window=window)  # type: ignore[arg-type]

    @property
    def identity(self) -> str:
        """The run's name: sixteen hexadecimal digits for all the options, where a file counts by what it holds."""
        return identity(self.to_json(), self.problem.content())

    def bytes(self) -> int:
        """The memory that the run takes, from below."""
        from synthetic.training.data import BLOCK

        size, width = self.problem.size(), 8 if self.dtype == "float32" else 16  # with gradients
        data = size.sample * (BLOCK + 2 * self.eval_size + (self.train_size or 0) + self.batch)
        samples = max(BLOCK, self.eval_size, self.train_size or 0, self.batch)  # labels or a permutation, if no inputs
        tested = 8 * size.test * self.eval_size + width // 2 * size.judged * min(size.at_once, self.eval_size)
        return 8 * max(data, samples) + width * (size.fixed + self.layer.numbers(size.tokens)) + tested

    def require_room(self) -> None:
        """Refuses sizes that this machine's memory cannot hold.

        Raises:
            ValueError: the option to blame, with the largest value that fits; or as the task's graph.
        """
        if (need := self.bytes()) <= machine_memory():
            return
        found = []
        for part in (self.problem, self.layer, self):
            for own in part.described():
                value: Any = getattr(part, own.name)
                if own.kind is tuple and value and self._bytes_with(own.name, ()) <= machine_memory():
                    most = largest_that_fits(max(value), lambda v, name=own.name: self._bytes_with(name, (v,)))
                    raise ValueError(too_large(own.name, max(value), need, most))
                if own.kind is int and value is not None and own.name != "seed":
                    most = largest_that_fits(value, lambda v, name=own.name: self._bytes_with(name, v))
                    found.append((most / max(value, 1), own.name, value, most))
        alone = min((entry for entry in found if entry[3]), default=None)  # the one farthest from fitting
        _, name, value, most = alone or min(found, key=lambda entry: self._bytes_with(entry[1], 1))
        raise ValueError(too_large(name, value, need, most))

    def _bytes_with(self, name: str, value: Any) -> int:
        try:
            return self.but(**{name: value}).bytes() if value != 0 else 0
        except ValueError:  # a value that goes with no others here
            return 0

    def build(self) -> Problem:
        """The task as this run sees it.

        Raises:
            ValueError, OSError: what the task refuses.
        """
        return self.problem.build(Setting(self.attention, self.capacity, self.parity_bits, self.device, self.dtype))

    def to_json(self) -> dict[str, Any]:
        """The options as JSON values, as records have them (`Options.written`)."""
        names = {"task": self.task, "attention": self.attention}
        return names | self.problem.written() | self.layer.written() | self.written()

    def whole(self) -> dict[str, Any]:
        """All options as JSON values."""
        return self.to_json() | self.problem.values() | self.layer.values() | self.values()

    def but(self, **options: Any) -> "TrainConfig":
        """The same run with other options, of the task, the layer or training; another layer keeps those it has."""
        gone = {"task", *self.layer.names()} - set(layer_kind(options.get("attention", self.attention)).names())
        kept = {n: v for n, v in self.to_json().items() if n not in gone}
        return self._for_task(self.task, kept | options, find(self.task).inert)

    @classmethod
    def for_task(cls, task: str, options: Mapping[str, Any] | None = None) -> "TrainConfig":
        """The task's defaults, changed by the options given: of the task, of the layer (`attention`), of training.

        Raises:
            ValueError: an unknown task, layer or option, an option of another task or layer, or that changes nothing on
                this one; or as the class.
        """
        return cls._for_task(task, options or {})

    @classmethod
    def _for_task(cls, task: str, options: Mapping[str, Any], accepted: Collection[str] = ()) -> "TrainConfig":
        """As `for_task`; `accepted` are options that older runs have, though they change nothing."""
        given = dict(options)
        attention = given.pop("attention", "iha")
        kind, layer = find(task), layer_kind(attention)
        for name in given:
            if name not in accepted and (refusal := refused(name, task, attention)):
                raise ValueError(refusal)
        own = {n: v for n, v in kind.defaults.items() if n in (*layer.names(), *cls.names())} | given
        parts = [{n: own[n] for n in part.names() if n in own} for part in (kind, layer, cls)]
        path = {"path": attention} if layer is OwnLayer else {}
        return cls.of(
            parts[2], task=task, attention=attention, problem=kind.of(parts[0]), layer=layer.of(parts[1], **path)
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any], **changed: Any) -> "TrainConfig":
        """The run of a record. Older records list the options of all tasks: those of others are left out.

        Raises:
            ValueError: as `for_task`.
        """
        if missing := [name for name in ("task", "attention") if not isinstance(content.get(name), str)]:
            raise ValueError(f"config has no {missing[0]}")
        task, own = content["task"], _parts(content["task"], content["attention"])
        accepted = {"attention"}.union(*(part.names() for part in own.values()))
        foreign = {name for part in (*TASKS.values(), *KINDS.values()) for name in part.names()} - accepted
        options = {n: v for n, v in content.items() if n != "task" and n not in foreign}
        return cls._for_task(task, options | changed, find(task).inert)


def identity(options: Mapping[str, Any], content: Mapping[str, str]) -> str:
    """A run's name, from its options as records have them and the hashes of the files that these name."""
    return hashlib.sha256(json.dumps({**options, **content}, sort_keys=True).encode()).hexdigest()[:16]


def layer_kind(attention: Any) -> type[LayerOptions] | type[OwnLayer]:
    """The options of a layer, by its name or by the path of the user's."""
    if attention in KINDS:
        return KINDS[attention]
    if not isinstance(attention, str) or ":" not in attention:
        accepted = ", ".join(KINDS)
        raise ValueError(f"unknown attention {attention!r}: accepted are {accepted}, and MODULE:CLASS of your own")
    return OwnLayer


def refused(name: str, task: str, attention: str) -> str | None:
    """Why a run has no such option, with those that there are; None if it has."""
    own = _parts(task, attention)
    if name in find(task).inert:
        return f"{name} changes nothing on {task}, where other options set it: leave it out"
    if any(name in part.names() for part in own.values()):
        return None
    for subject, others in ((task, TASKS), (attention, KINDS)):
        owners = [other for other, kind in others.items() if name in kind.names()]
        if owners:
            accepted = ", ".join(own[subject].names())
            return f"{name} is an option of {', '.join(owners)}; {subject} has {accepted}"
    return f"unknown option {name!r}: accepted are {', '.join(n for part in own.values() for n in part.names())}"


def _parts(task: str, attention: str) -> dict[str, type[Options]]:
    """Whose options a run has: the task's, the layer's and those of training.

    Raises:
        ValueError: an option that two of them have.
    """
    parts: dict[str, type[Options]] = {task: find(task), attention: layer_kind(attention), "training": TrainConfig}
    names = [name for part in parts.values() for name in part.names()] + ["task", "attention"]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{task} has an option {twice[0]}, which is one of the layer or of training: call it otherwise"
        )
    return parts
