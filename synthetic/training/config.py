"""What a training run is: one frozen dataclass holds every option."""

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Task = Literal["polynomial", "workspace", "unstructured", "cpm3"]
TASKS: tuple[Task, ...] = get_args(Task)


def _option(default: Any, text: str, least: int | None = None, most: int | float = math.inf) -> Any:
    return field(default=default, metadata={"help": text, "least": least, "most": most})


@dataclass(frozen=True)
class TrainConfig:
    """Every option of a run; a run depends on nothing else. The help texts say what each one means.

    Build it with `for_task`, which fills in the defaults of the task. N is the number of tokens (of nodes, for
    `polynomial`), d the content's width, k the number of blocks.

    Raises:
        ValueError: a value of another type or outside its range; the message names the option and what is accepted.
    """

    task: Task
    attention: Literal["mha", "iha"] = _option("iha", "kind of layer")
    heads: int = _option(3, "heads H", 1)
    pseudo_heads: int | None = _option(None, "pseudo-heads P of IHA (default: as many as heads)", 1)
    head_dim: int | None = _option(None, "width of queries and keys (default: N; 0: input width / heads)", 0)
    graph: str = _option("orthogonal:16", "polynomial: built-in graph, family or file, as for heads")
    normalise: Literal["none", "row", "symmetric"] = _option("none", "polynomial: normalisation of the graph")
    unit_norm: bool = _option(False, "polynomial: scale each power to norm 1")
    terms: int = _option(9, "polynomial, unstructured: blocks k", 1)
    tokens: int = _option(16, "tokens N of the other tasks", 1)
    width: int = _option(1, "content width d", 1)
    mode: Literal["position-only", "content"] = _option("position-only", "whether queries see content")
    modulus: int = _option(3, "cpm3: M", 1)
    coefficient: int = _option(8, "cpm3: G")
    embedding: Literal["scalar", "one-hot"] = _option("scalar", "cpm3: form of a token")
    hidden: int = _option(256, "cpm3: width of the MLP", 1)
    layers: int = _option(2, "cpm3: hidden layers of the MLP", 1)
    activation: Literal["relu", "sin"] = _option("relu", "cpm3: activation of the MLP")
    skip: bool = _option(False, "cpm3: the MLP sees the position's own token beside the attention's output")
    init: Literal["random", "construction", "random-keys", "identity", "mha"] = _option(
        "random", "initial mixing of IHA"
    )
    circulant: bool = _option(
        False, "initial query and key projections are circulant on positions, and so alike for all of them"
    )
    gain: float = _option(1.0, "factor on the initial orthogonal query and key projections", 0)
    noise: float = _option(0.1, "standard deviation of noise on the initial mixing", 0)
    steps: int = _option(1500, "optimiser steps", 1)
    batch: int = _option(32, "samples a step", 1)
    lr: float = _option(0.03, "peak learning rate of AdamW", 0)
    mlp_lr: float | None = _option(None, "cpm3: peak learning rate of the MLP (default: lr)", 0)
    warmup: int = _option(50, "steps of linear warm-up", 0)
    schedule: Literal["cosine", "constant"] = _option("cosine", "rate after the warm-up: cosine falls to 0")
    beta1: float = _option(0.9, "AdamW: decay of the mean gradient", 0, 1)
    beta2: float = _option(0.99, "AdamW: decay of the squared gradient", 0, 1)
    weight_decay: float = _option(0.0, "AdamW: weight decay", 0)
    train_size: int | None = _option(None, "samples of a finite training set (default: fresh data)", 1)
    eval_size: int = _option(1024, "samples of the validation and the test set", 1)
    eval_every: int = _option(250, "steps between evaluations on the validation set", 1)
    patience: int | None = _option(
        None, "stop after so many evaluations without a better validation loss, and keep the best weights", 1
    )
    checkpoint_every: int = _option(500, "steps between checkpoints, where a place for them is given", 1)
    dtype: Literal["float32", "float64"] = _option("float32", "of parameters and data")
    amp: bool = _option(False, "bfloat16 autocast in the forward pass")
    device: str = _option("cpu", "cpu, cuda or cuda:I")
    seed: int = _option(0, "of data and initial weights", 0)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            object.__setattr__(self, name, _checked(name, value))
        for name in ("beta1", "beta2"):
            if getattr(self, name) == 1:
                raise ValueError(f"{name} must be below 1")
        if self.attention == "mha" and self.pseudo_heads is not None:
            raise ValueError("pseudo_heads is an option of iha")
        if self.mode == "content" and self.task == "workspace":
            raise ValueError("mode content is for the linear pattern and for cpm3: workspace is position-only")
        if self.width != 1 and self.task == "cpm3":
            raise ValueError("width is the content's width of the banks: cpm3 has an embedding")
        if self.circulant and self.head_dim is not None:
            raise ValueError("circulant projections are square on positions: leave head_dim out")

    @property
    def label(self) -> str:
        """What a table calls the run's task."""
        if self.task == "polynomial":
            return f"{self.graph} k={self.terms}"
        return f"N={self.tokens}" + (f" k={self.terms}" if self.task == "unstructured" else "")

    @property
    def pseudo(self) -> int | None:
        """P of IHA, None for MHA."""
        return None if self.attention == "mha" else self.pseudo_heads or self.heads

    @property
    def identity(self) -> str:
        """The run's name: sixteen hexadecimal digits for all the options, and for what is in a graph's file."""
        found = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode())
        if self.task == "polynomial" and Path(self.graph).is_file():
            found.update(Path(self.graph).read_bytes())
        return found.hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """All options as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def for_task(cls, task: str, options: Mapping[str, Any] | None = None) -> "TrainConfig":
        """The task's defaults, changed by the options given.

        Raises:
            ValueError: an unknown task or option, or as the class.
        """
        if task not in TASKS:
            raise ValueError(f"unknown task {task!r}: accepted are {', '.join(TASKS)}")
        options = {} if options is None else dict(options)
        accepted = [f.name for f in dataclasses.fields(cls)]
        for name in options:
            if name not in accepted or name == "task":
                raise ValueError(f"unknown option {name!r}: accepted are {', '.join(accepted[1:])}")
        merged = DEFAULTS[task] | options
        return cls(task=task, **{name: _checked(name, value) for name, value in merged.items()})


DEFAULTS: dict[str, dict[str, Any]] = {
    "polynomial": {},
    "unstructured": {"heads": 5},
    "workspace": {"heads": 4},
    "cpm3": {
        "tokens": 9,
        "hidden": 64,
        "activation": "sin",
        "init": "construction",
        "circulant": True,
        "gain": 2.0,
        "steps": 4000,
        "lr": 0.003,
        "mlp_lr": 0.02,
        "warmup": 100,
    },
}
"""What differs from the fields' own defaults, for each task."""


def field_types() -> dict[str, tuple[Any, bool]]:
    """For each option its type (int, float, bool, str or a tuple of accepted strings), and whether None is accepted."""
    found = {}
    for name, hint in get_type_hints(TrainConfig).items():
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kind = next(option for option in options if option is not type(None))
        found[name] = (get_args(kind) if get_origin(kind) is Literal else kind, len(options) > 1)
    return found


def _checked(name: str, value: Any) -> Any:
    """The value in the option's type, within its range."""
    kind, optional = TYPES[name]
    if value is None and optional:
        return None
    if isinstance(kind, tuple):
        if value not in kind:
            raise ValueError(f"{name} must be one of {', '.join(kind)}, got {value!r}")
        return value
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise ValueError(f"{name} must be {NOUNS[kind]}, got {value!r}")
    metadata = TrainConfig.__dataclass_fields__[name].metadata
    least, most = metadata.get("least"), metadata.get("most", math.inf)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    if least is not None and not least <= value <= most:
        accepted = f"at least {least}" + (f" and at most {most}" if most < math.inf else "")
        raise ValueError(f"{name} must be {accepted}, got {value!r}")
    return value


TYPES = field_types()
NOUNS: dict[Any, str] = {int: "an integer", float: "a number", bool: "true or false", str: "a text"}
