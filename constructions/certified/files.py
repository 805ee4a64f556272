"""A claim's file with the weights beside it: what is wrong with it, if anything is."""

import json
from pathlib import Path
from typing import Any

from constructions.certified.check import refusal


def verdict(file: Path) -> str | None:
    """Why a claim's file does not hold; None if it is true of the weights beside it.

    `iha-theory train --certify` finds this by its entry point: what trains imports nothing that checks.
    """
    return checked(file)[1]


def checked(file: Path) -> tuple[dict[str, Any], str | None]:
    """A claim as its file has it, empty where that holds none, and `verdict`'s answer."""
    try:
        claim = _read(file)
    except (ValueError, OSError, RecursionError) as error:
        return {}, f"it is no claim: {' '.join(str(error).split())}"
    try:
        if reason := _misnamed(file, claim):
            return claim, reason
        return claim, refusal(claim, _weights(file).read_bytes())
    except OSError as error:
        return claim, f"the weights cannot be read: {error}"


def _read(file: Path) -> dict[str, Any]:
    """A claim's file, as it is.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds no JSON object.
    """
    if not file.is_file():
        raise ValueError("it is not a file")
    content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_no_constant)
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    return content


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _weights(file: Path) -> Path:
    """The file of the weights: in `weights`, beside the folder of the claim."""
    return file.parent.parent / "weights" / f"{file.stem}.safetensors"


def _misnamed(file: Path, claim: dict[str, Any]) -> str | None:
    """Why a claim is not about the run that its name says: the hash of its options; None if it is."""
    from synthetic.training.config import TrainConfig

    if not isinstance(claim.get("config"), dict):
        return "it is no claim: it has no config, the options of a run"
    try:
        run = TrainConfig.from_json(claim["config"]).identity
    except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
        return f"its options are none of a run: {' '.join(str(error).split())}"
    if not run == claim.get("run") == file.stem or claim.get("weights") != f"weights/{run}.safetensors":
        return f"its options are those of run {run}, and its file and its weights are to be named so"
    return None if _weights(file).is_file() else f"there are no weights {_weights(file)}"
