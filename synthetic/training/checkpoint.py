"""Checkpoints: everything that the rest of a training run depends on, so that continuing is the same to the bit.

One safetensors file: the tensors, and the rest as JSON in its metadata.
"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialised
from torch import Tensor

from iha_theory.places import replace
from synthetic.tasks.task import Measured

if TYPE_CHECKING:
    from synthetic.training.program import Program

SCHEMA = "iha-theory/checkpoint/1"


def save(program: "Program", file: Path) -> None:
    """Writes the program's state; the file is whole at every moment."""
    tensors: dict[str, Tensor] = {f"stack/{name}": p.detach() for name, p in program.stack.items()}
    tensors |= {f"best/{name}": p for name, p in program.best.items()}
    for name, moments in program.moments().items():
        tensors |= {f"moments/{key}/{name}": value for key, value in moments.items()}
    runs: list[dict[str, Any]] = []
    for index, run in enumerate(program.runs):
        for name, p in (run.weights or {}).items():
            tensors[f"ended/{index}/{name}"] = p
        tensors[f"losses/{index}"] = torch.tensor(run.losses, dtype=torch.float64)
        entry = {name: getattr(run, name) for name in ("validations", "outcome", "reason", "wall_s")}
        stream = program.data[index].train.state()
        runs.append(entry | {"measured": dataclasses.asdict(run.measured), "stream": stream})
    content = {
        "schema": SCHEMA,
        "configs": [run.config.to_json() for run in program.runs],
        "step": program.step,
        "seconds": program.seconds,
        "alive": program.alive,
        "runs": runs,
    }
    copies = {name: tensor.cpu().clone().contiguous() for name, tensor in tensors.items()}
    replace(file, serialised(copies, {"state": json.dumps(content)}))


def load(program: "Program", file: Path) -> None:
    """Puts a fresh program where the saved one stood.

    Raises:
        ValueError: a file that is no checkpoint, or one of other runs.
    """
    tensors: dict[str, Tensor] = {}
    try:
        with safe_open(file, framework="pt") as content:
            state = json.loads((content.metadata() or {})["state"])
            for name in content.keys():  # noqa: SIM118 (no mapping)
                tensors[name] = content.get_tensor(name).clone().to(program.device)
    except (SafetensorError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} is not a checkpoint") from error
    if state.get("schema") != SCHEMA or state["configs"] != [run.config.to_json() for run in program.runs]:
        raise ValueError(f"{file} is a checkpoint of other runs")
    program.step, program.seconds, program.alive = state["step"], state["seconds"], state["alive"]

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    program.restore(part("stack/"), {key: part(f"moments/{key}/") for key in ("step", "exp_avg", "exp_avg_sq")})
    program.best = part("best/")
    for index, (run, saved) in enumerate(zip(program.runs, state["runs"], strict=True)):
        program.data[index].train.restore(saved["stream"])
        run.losses = tensors[f"losses/{index}"].tolist()
        run.outcome, run.reason, run.wall_s = (saved[name] for name in ("outcome", "reason", "wall_s"))
        run.validations = [(step, value) for step, value in saved["validations"]]
        run.measured = Measured(**saved["measured"])
        weights = part(f"ended/{index}/")
        run.weights = {name: t.to(torch.device("cpu")) for name, t in weights.items()} or None
