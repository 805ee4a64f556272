"""Which runs a claim can be made of. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from synthetic.training.config import TrainConfig

LAYERS = ("mha", "iha")
"""Those whose operator is read exactly."""


def refusal(config: TrainConfig) -> str | None:
    """Why no run with these options can be certified; None if it can."""
    if config.attention not in LAYERS:
        return f"attention {config.attention} has no exact operator here: accepted are {', '.join(LAYERS)}"
    if getattr(config.layer, "kv_heads", None) not in (None, config.heads):
        return "iha with fewer base keys and values has no exact operator here: accepted is it without kv_heads"
    try:
        config.problem.exact()
    except (ValueError, OSError) as error:
        return str(error)
    return None


def unfinished(record: Mapping[str, Any]) -> str | None:
    """Why a record is not one of a run that ended with weights; None if it is, also if these are below the floor."""
    ended = record["error"] is not None and record["outcome"] != "diverged"
    return None if ended else f"run {record['id']} {record['outcome']}: accepted are runs that finished or stopped"
