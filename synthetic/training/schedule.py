"""The learning rate of a step."""

import math

from synthetic.training.config import TrainConfig


def rate_factor(config: TrainConfig, step: int) -> float:
    """The factor on the peak rate at step 0 .. steps - 1, in (0, 1].

    min(1, (step + 1) / warmup) for the warm-up, times (1 + cos(pi step / steps)) / 2 for the cosine schedule. It is
    positive for every warmup, one longer than the run included.
    """
    factor = min(1.0, (step + 1) / max(1, config.warmup))
    if config.schedule == "cosine":
        factor *= (1 + math.cos(math.pi * step / config.steps)) / 2
    return factor
