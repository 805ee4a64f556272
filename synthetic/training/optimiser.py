"""AdamW on named tensors, by torch's fused kernel, without `torch.optim.Optimizer`; its learning rate.

To build one of torch's optimisers imports its compiler (torch._dynamo) and sympy: four seconds of CPU time, more than
all the rest of a short run's start. The update itself is the same function of torch, bit for bit.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from synthetic.training.config import TrainConfig

Moments = dict[str, dict[str, Tensor]]
"""Of each parameter that has been updated: `step`, `exp_avg` and `exp_avg_sq`."""


class AdamW:
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101), eps = 1e-8.

    Args:
        parameters: leaves that require gradients, by name.
        rates: the peak learning rate of each.
        betas: decay of the mean gradient and of the squared one.
        weight_decay: decoupled from the gradient.
        moments: of an earlier optimiser, to go on with.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        rates: Mapping[str, float],
        betas: tuple[float, float],
        weight_decay: float,
        moments: Moments | None = None,
    ) -> None:
        self.parameters, self._rates = dict(parameters), rates
        self._betas, self._weight_decay = betas, weight_decay
        self.moments: Moments = {name: dict(own) for name, own in (moments or {}).items()}

    def step(self, factor: float) -> None:
        """Updates every parameter that has a gradient, at `factor` times its peak rate, and drops the gradients."""
        for rate in dict.fromkeys(self._rates.values()):
            names = [n for n, p in self.parameters.items() if self._rates[n] == rate and p.grad is not None]
            for name in names:
                if name not in self.moments:
                    self.moments[name] = _fresh(self.parameters[name])
            step, mean, square = ([self.moments[n][kind] for n in names] for kind in ("step", "exp_avg", "exp_avg_sq"))
            with torch.no_grad():
                adamw(
                    [self.parameters[n] for n in names],
                    [g for n in names if (g := self.parameters[n].grad) is not None],
                    mean,
                    square,
                    [],
                    step,
                    fused=True,
                    amsgrad=False,
                    beta1=self._betas[0],
                    beta2=self._betas[1],
                    lr=rate * factor,
                    weight_decay=self._weight_decay,
                    eps=1e-8,
                    maximize=False,
                )
        for parameter in self.parameters.values():
            parameter.grad = None


def _fresh(parameter: Tensor) -> dict[str, Tensor]:
    zero = torch.zeros_like(parameter, memory_format=torch.preserve_format).detach()
    return {"step": torch.zeros((), device=parameter.device), "exp_avg": zero, "exp_avg_sq": zero.clone()}


def rate_factor(config: TrainConfig, step: int) -> float:
    """The factor on the peak rate at step 0 .. steps - 1, in (0, 1].

    min(1, (step + 1) / warmup) for the warm-up, times (1 + cos(pi step / steps)) / 2 for the cosine schedule. It is
    positive for every warmup, one longer than the run included.
    """
    factor = min(1.0, (step + 1) / max(1, config.warmup))
    if config.schedule == "cosine":
        factor *= (1 + math.cos(math.pi * step / config.steps)) / 2
    return factor
