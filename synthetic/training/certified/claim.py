"""What is claimed of a finished run, with all that is needed to check it: `certified/ID.json` in a folder of runs.

A layer whose queries and keys see positions only is one linear map of its content. Its weights are float32 or float64,
so rational numbers, and with linear attention so are the map and its relative squared error against the task's bank
(docs/bounds.md, Theorem 3): no rounding anywhere. Softmax attention has exponentials of rational numbers in it, and its
error is between two decimals of 30 digits, rigorously. What float32 makes of the same weights when it runs them is
another matter, and not claimed.
"""

import hashlib
import json
import platform
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
from sympy.polys.matrices import DomainMatrix

from iha_theory import __version__
from iha_theory.exact import zeros
from iha_theory.operators.exact import columns
from iha_theory.operators.weights import read
from iha_theory.places import replace
from synthetic.tasks.task import ExactTarget
from synthetic.training import model
from synthetic.training.certified import softmax
from synthetic.training.certified.accepted import refusal, unfinished
from synthetic.training.certified.spectrum import outward, quotient, shares, square, written
from synthetic.training.config import TrainConfig

SCHEMA = "iha-theory/certified-run/1"
FOLDER = "certified"


def certify(folder: Path, record: Mapping[str, Any]) -> dict[str, Any]:
    """The claim about a record of a folder, from the weights beside it.

    Fields: schema; run, config (every option of the run); weights (their file, from the folder) and sha256; matrices
    (A, or the bank, as numbers without rounding); capacity R; error: p/q, or of softmax two decimals around it; tail:
    decimals around s_i^2 / sum s^2, i > R, the singular values of the bank; floor: around their sum; excess: around
    error - floor; ratio: around error / floor, null where the floor may be 0; versions.

    Raises:
        ValueError: as `unfinished` or `refusal` says, or as `model.load_model`; numbers too long for a claim.
    """
    if reason := unfinished(record):
        raise ValueError(reason)
    config = TrainConfig.from_json(record["config"])
    if reason := refusal(config):
        raise ValueError(reason)
    layer = model.load_model(folder, record).get_submodule("layer")
    file = weights_file(folder, record["id"])
    target, capacity = config.problem.exact(), config.capacity
    assert capacity is not None
    weights = read(layer, 0, value_width=target.width)
    if target.pattern == "softmax":
        own = outward(*softmax.relative_error(weights, target))
        error = Fraction(own[0]), Fraction(own[1])
    else:
        error = (relative_error(columns(weights), target),) * 2
        own = quotient(error[0])
    tail = [outward(*share) for share in shares(target.bank)[capacity:]]
    floor = [sum(map(Fraction, ends), Fraction(0)) for ends in zip(*tail, strict=True)] or [Fraction(0), Fraction(0)]
    ratio = outward(error[0] / floor[1], error[1] / floor[0]) if floor[0] else None
    return {
        "schema": SCHEMA,
        "run": record["id"],
        "config": record["config"],
        "weights": file.relative_to(folder).as_posix(),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "matrices": [written(m) for m in target.given],
        "capacity": capacity,
        "error": own,
        "tail": tail,
        "floor": outward(*floor),
        "excess": outward(error[0] - floor[1], error[1] - floor[0]),
        "ratio": ratio,
        "versions": {
            "iha_theory": __version__,
            "python-flint": flint.__version__,
            "python": platform.python_version(),
        },
    }


def relative_error(got: Any, target: ExactTarget) -> Fraction:
    """sum |M[c][a] - 1[c = t d + a] T_t|_F^2 / (d sum |T_t|_F^2).

    Args:
        got: M, as `iha_theory.operators.exact.columns`.
        target: T and d.
    """
    width = target.width
    gaps: list[DomainMatrix] = []
    for c, column in enumerate(got):
        for a, found in enumerate(column):
            block = target.bank[c // width] if c % width == a else None
            found = zeros(target.bank[0].shape, target.bank[0].domain) if found is None else found
            gaps.append(found if block is None else found - block)
    return square(gaps) / (width * square(target.bank))


def digest(claim: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a claim that say what is claimed."""
    return {name: claim.get(name) for name in ("run", "sha256", "capacity", "error", "floor", "excess", "ratio")}


def describe(claim: Mapping[str, Any]) -> str:
    """A claim in one line, rounded."""
    floor = float(Fraction(claim["floor"][0]))
    error = float(Fraction(claim["excess"][0]) + Fraction(claim["floor"][1]))
    if below(claim):
        return f"error {error:.17g} is BELOW the floor {floor:.17g} that theory proves"
    if claim["ratio"] is None:
        return f"error {error:.5g}, and the floor is {'0' if claim['floor'][1] == '0' else 'not told from 0'}"
    return f"error {error:.5g}, floor {floor:.5g}, {float(claim['ratio'][0]):.9g} times as much"


def below(claim: Mapping[str, Any]) -> bool:
    """Whether a run is below its floor, which must not be: a counterexample to a theorem, or a bug here."""
    return Fraction(claim["excess"][1]) < 0


def weights_file(folder: Path, identity: str) -> Path:
    """Where a run's weights are."""
    return folder / "weights" / f"{identity}.safetensors"


def claim_file(folder: Path, identity: str) -> Path:
    """Where the claim about a run is."""
    return folder / FOLDER / f"{identity}.json"


def write(folder: Path, claim: Mapping[str, Any]) -> Path:
    """Writes a claim; the file is whole at every moment.

    Raises:
        OSError: it cannot be written.
    """
    file = claim_file(folder, claim["run"])
    replace(file, (json.dumps(claim, indent=1, allow_nan=False) + "\n").encode())
    return file
