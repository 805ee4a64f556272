"""Runs that train together, as one batched program.

Their parameters are stacked on a leading axis, so that one forward and backward pass (`torch.func.vmap`, or the task's
own batched losses) and one fused AdamW step serve all. Runs of the banks may differ in their heads too (`Task.padded`):
the smaller ones are padded with heads, and in linear IHA with pseudo-heads, whose weights are 0. Such a head gets
gradients of exactly 0, since each of its parts of the output is a product in which two factors or more are 0, and so
stays 0. Nothing mixes runs: each has its own data, and a run among others is the same run alone up to rounding. A run
that diverges, or stops early, leaves the program; the others go on.
"""

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from synthetic.tasks import TASKS
from synthetic.tasks.task import Measured, Samples
from synthetic.training import data, model
from synthetic.training.config import TrainConfig
from synthetic.training.optimiser import AdamW, Moments, rate_factor
from synthetic.training.own import OwnLayer

DIVERGED = 1e3
"""A run has diverged if its loss is NaN, infinite, or this many times the first one."""


@dataclass
class Run:
    """One run: what became of it. `weights` and `measured` are None until it ends."""

    config: TrainConfig
    digest: str
    floor: float | None
    losses: list[float] = field(default_factory=list, repr=False)
    validations: list[tuple[int, float]] = field(default_factory=list)
    outcome: str | None = None
    reason: str | None = None
    measured: Measured = field(default_factory=Measured)
    weights: dict[str, Tensor] | None = field(default=None, repr=False)
    wall_s: float = 0.0


class Program:
    """Runs that train together (`joint` is the same for all), from step 0 or from a checkpoint.

    Args:
        configs: the runs.

    Raises:
        ValueError: runs that differ in more than `joint` allows; a device that is not there; what the task, the layer
            or the split into training and held-out data refuses.
    """

    def __init__(self, configs: Sequence[TrainConfig]) -> None:
        if len({joint(config) for config in configs}) != 1:
            raise ValueError("runs that train together may differ in their seed, and some in their heads")
        self.config = max(configs, key=lambda config: config.heads)
        self.device = find_device(self.config.device)
        kinds = {replace(config, seed=0) for config in configs}
        for kind in kinds:
            kind.require_room()
        self._problems = {kind: kind.build() for kind in kinds}
        own = [self._problems[replace(config, seed=0)] for config in configs]
        self.problem = self._problems[replace(self.config, seed=0)]
        self.data = [data.load(problem, config) for problem, config in zip(own, configs, strict=True)]
        self.runs = [
            Run(config, data.digest, problem.floor)
            for config, data, problem in zip(configs, self.data, own, strict=True)
        ]
        self._models = {kind: model.build(kind, self._problems[kind]).requires_grad_(False) for kind in kinds}
        self.model = self._models[replace(self.config, seed=0)]
        self.stack = {
            name: torch.zeros(len(configs), *p.shape, dtype=p.dtype, device=p.device)
            for name, p in self.model.named_parameters()
        }
        for index, (config, problem, data_) in enumerate(zip(configs, own, self.data, strict=True)):
            small = self._models[replace(config, seed=0)]
            model.initialise(small, config, problem, data_.initial)
            for name, p in small.named_parameters():
                self.stack[name][index][self._places(config, p.shape, name)] = p.detach()
        self.step, self.seconds = 0, 0.0
        self.alive = list(range(len(configs)))
        self.best = {name: p.clone() for name, p in self.stack.items()} if self.config.patience else {}
        self.optimiser = self._optimiser(None)

    def _places(self, config: TrainConfig, shape: torch.Size, name: str) -> tuple[Tensor, ...]:
        """Where a run's parameter stands in its padded form: the first heads, and the first coordinates of each.

        An axis that is longer there is one of heads, or of heads and their coordinates.
        """
        found = []
        for axis, (own, whole) in enumerate(zip(shape, self.model.get_parameter(name).shape, strict=True)):
            heads, most = (config.heads, self.config.heads) if own < whole else (1, 1)
            at = torch.arange(heads)[:, None] * (whole // most) + torch.arange(own // heads)
            found.append(at.view([-1 if i == axis else 1 for i in range(len(shape))]))
        return tuple(found)

    def _optimiser(self, moments: Moments | None) -> AdamW:
        """AdamW on the stacked parameters, with the moments given."""
        config = self.config
        rates = {}
        for name, parameter in self.stack.items():
            parameter.requires_grad_(True)
            rates[name] = self.problem.rate(name, config.lr)
        return AdamW(self.stack, rates, (config.beta1, config.beta2), config.weight_decay, moments)

    def restore(self, stack: dict[str, Tensor], moments: dict[str, dict[str, Tensor]]) -> None:
        """Puts saved parameters and moments (by kind, then by parameter) in place of the present ones."""
        self.stack = stack
        saved = moments["step"]
        self.optimiser = self._optimiser({name: {kind: moments[kind][name] for kind in moments} for name in saved})

    def moments(self) -> Moments:
        """The optimiser's state of each parameter."""
        return self.optimiser.moments

    def _losses(self, samples: Sequence[Tensor], stack: dict[str, Tensor]) -> Tensor:
        """The loss of each run, from samples with a leading axis of runs."""

        def loss(parameters: dict[str, Tensor], own: Sequence[Tensor]) -> Tensor:
            return self.problem.loss(lambda x: functional_call(self.model, parameters, (x,)), *own)

        amp = torch.autocast(self.device.type, torch.bfloat16) if self.config.amp else contextlib.nullcontext()
        with amp:
            if (found := self.problem.losses(self.model, stack, *samples)) is not None:
                return found
            if len(samples[0]) == 1:  # the same without vmap's overhead
                return loss({name: p[0] for name, p in stack.items()}, [array[0] for array in samples])[None]
            with sdpa_kernel(SDPBackend.MATH) if self.device.type == "cpu" else contextlib.nullcontext():
                return vmap(loss)(stack, tuple(samples))  # the CPU's fused kernel of attention cannot be batched

    def _tensors(self, samples: Sequence[Samples], steps: int) -> list[Tensor]:
        """Samples of each run as tensors (steps, runs, batch, ...): integers, or floats of the run's dtype."""
        tensors = []
        for arrays in zip(*samples, strict=True):
            dtype = torch.int64 if arrays[0].dtype.kind in "iu" else getattr(torch, self.config.dtype)
            own = [torch.from_numpy(array).to(dtype).unflatten(0, (steps, -1)) for array in arrays]
            tensors.append(torch.stack(own, dim=1).to(self.device))
        return tensors

    def advance(self, until: int) -> None:
        """Trains to a step, with all data for it in memory; runs that diverge on the way leave the program."""
        self.model.train()
        started = time.perf_counter()
        steps = until - self.step
        samples = [self.data[i].train.take(steps * self.config.batch) for i in self.alive]
        tensors = self._tensors(samples, steps)
        losses = []
        for i in range(steps):
            each = self._losses([array[i] for array in tensors], self.stack)
            each.sum().backward()
            self.optimiser.step(rate_factor(self.config, self.step + i))
            losses.append(each.detach())
        self.step = until
        table = torch.stack(losses).double().cpu().numpy()
        self.seconds += time.perf_counter() - started
        for column, index in enumerate(list(self.alive)):
            run = self.runs[index]
            first = run.losses[0] if run.losses else table[0, column]
            bad = ~(table[:, column] <= DIVERGED * first)
            kept = int(bad.argmax()) if bad.any() else steps
            run.losses.extend(table[:kept, column].tolist())
            if bad.any():
                value = table[kept, column]
                self._end(
                    index, "diverged", f"loss {value:.3g} at step {until - steps + kept}, {first:.3g} at the start"
                )

    def evaluate(self) -> None:
        """The validation loss of each run; with a patience, runs that no longer improve leave the program."""
        self.model.eval()
        with torch.no_grad():
            samples = [array[0] for array in self._tensors([self.data[i].validation for i in self.alive], 1)]
            size = self.config.eval_size
            parts = range(0, size, self.problem.at_once or size)
            whole = torch.zeros(len(self.alive), dtype=torch.float64)
            for first in parts:
                part = [array[:, first : first + parts.step] for array in samples]
                whole += self._losses(part, self.stack).double().cpu() * (part[0].shape[1] / size)
            losses = whole.tolist()
        patience = self.config.patience
        for row, (index, loss) in enumerate(zip(list(self.alive), losses, strict=True)):
            history = self.runs[index].validations
            best = min((value for _, value in history), default=math.inf)
            history.append((self.step, loss))
            if patience is None:
                continue
            if loss < best:
                for name, p in self.stack.items():
                    self.best[name][index] = p.detach()[row]
            since = len(history) - 1 - min(range(len(history)), key=lambda i: history[i][1])
            if since >= patience:
                self._end(index, "stopped", f"no better validation loss in {patience} evaluations", drop=False)
        self._drop()

    def finish(self) -> None:
        """Ends the runs that are left."""
        for index in list(self.alive):
            self._end(index, "finished", None, drop=False)
        self._drop()

    def _end(self, index: int, outcome: str, reason: str | None, drop: bool = True) -> None:
        run, row = self.runs[index], self.alive.index(index)
        validation = run.validations[-1][1] if run.validations else 0.0
        if outcome != "diverged" and run.losses and not validation <= DIVERGED * run.losses[0]:  # by its last step
            outcome, reason = "diverged", f"validation loss {validation:.3g}, {run.losses[0]:.3g} at the start"
        run.outcome, run.reason, run.wall_s = outcome, reason, self.seconds
        keep = self.best if self.best and outcome != "diverged" else None
        run.weights = {}
        for name, p in self._models[replace(run.config, seed=0)].named_parameters():
            whole = keep[name][index] if keep else self.stack[name].detach()[row]
            run.weights[name] = whole[self._places(run.config, p.shape, name)].cpu()
        if outcome != "diverged":
            run.measured = self._measure(run, self.data[index])
            error, floor = run.measured.error, run.floor
            if error is not None and floor is not None and error < floor - run.measured.slack:
                run.outcome, run.reason = (
                    "failed",
                    f"error {error:.9g} is below the floor {floor:.9g} that theory proves",
                )
        if drop:
            self._drop()

    def _drop(self) -> None:
        """Takes ended runs out of the stack."""
        rows = [row for row, index in enumerate(self.alive) if self.runs[index].outcome is None]
        if len(rows) == len(self.alive):
            return
        moments = self.moments()
        self.alive = [self.alive[row] for row in rows]
        self.stack = {name: p.detach()[rows].clone() for name, p in self.stack.items()}
        kept = {
            name: {key: value if key == "step" else value[rows].clone() for key, value in state.items()}
            for name, state in moments.items()
        }
        self.optimiser = self._optimiser(kept)

    def _measure(self, run: Run, own: data.Data) -> Measured:
        assert run.weights is not None
        kind = replace(run.config, seed=0)
        own_model = self._models[kind].eval()
        own_model.load_state_dict(run.weights, strict=False)  # buffers stay

        @torch.no_grad()
        def outputs(x: Tensor) -> Tensor:
            dtype = getattr(torch, run.config.dtype) if x.is_floating_point() else x.dtype
            return own_model(x.to(self.device, dtype))

        return self._problems[kind].measure(own_model, outputs, own.validation, own.test)


def joint(config: TrainConfig) -> TrainConfig:
    """What runs that train together share: everything but the seed and, where the task allows it, the heads.

    What is the user's trains alone, since not all of torch can be batched.
    """
    if isinstance(config.layer, OwnLayer) or config.task not in TASKS:
        return config
    most = config.problem.padded.get(config.attention, 0)
    padded = config.heads <= most and config.layer.head_dim != 0 and getattr(config.layer, "kv_heads", None) is None
    return replace(config, seed=0, layer=replace(config.layer, heads=1) if padded else config.layer)


def find_device(name: str) -> torch.device:
    """The device of that name.

    Raises:
        ValueError: an unknown name, or a CUDA device where there is none.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise ValueError(f"unknown device {name!r}: accepted are cpu, cuda and cuda:I")
    if device.type == "cuda" and not (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()):
        raise ValueError(f"no device {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device
