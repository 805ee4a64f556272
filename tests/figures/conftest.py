"""Records of runs that were never made, in files as training writes them."""

import json

import matplotlib
import pytest

from figures import style
from synthetic.training.config import TrainConfig
from synthetic.training.records import LATER, SCHEMA


@pytest.fixture
def record():
    """Makes a record: options of the run, then what came out."""

    def make(task="polynomial", error=0.5, floor=0.4, accuracy=None, outcome="finished", more=None, **options):
        config = TrainConfig.for_task(task, options)
        if accuracy is not None:
            error = floor = None
        return {
            "schema": SCHEMA,
            "id": config.identity,
            **{name: getattr(config, name) for name in ("task", "attention", "heads", "seed", "device")},
            "pseudo_heads": config.pseudo,
            "config": config.to_json(),
            "outcome": outcome,
            "reason": None,
            "error": error,
            "floor": floor,
            "accuracy": accuracy,
            "baseline_accuracy": None if accuracy is None else 0.3,
            "steps": config.steps,
            "wall_s": 1.0,
            "together": 1,
            "versions": {},
            "data_hash": None,
            **{name: value for name, value in LATER.items() if name != "content"},
            **(more or {}),
        }

    return make


@pytest.fixture
def write(tmp_path):
    """Writes records to a folder of runs, a line each; returns the folder above it."""

    def put(records, name="p"):
        file = tmp_path / "runs" / name / "runs.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        return tmp_path / "runs"

    return put


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, in order."""
    figures, save = [], style.save

    def keep(figure, *args, **options):
        figures.append(figure)
        return save(figure, *args, **options)

    monkeypatch.setattr(style, "save", keep)
    yield figures
    assert matplotlib.rcParams["svg.hashsalt"] is None  # the style does not leak
