"""The options of a run on the command line and in files."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any


def add_options(parser: argparse.ArgumentParser, leave_out: tuple[str, ...] = ()) -> None:
    """Adds an option for every field of TrainConfig, absent from the result if not given."""
    parser.set_defaults(train_options={})
    group = parser.add_argument_group("options of a run")
    for name, kind, default, text in _fields():
        if name in leave_out:
            continue
        flag = f"--{name.replace('_', '-')}"
        shown = text if default is None else f"{text} (default: {default})"
        options: dict[str, Any] = {"action": _Collect, "help": shown, "dest": name, "default": argparse.SUPPRESS}
        if kind is bool:
            group.add_argument(flag, nargs=0, const=True, **options)
            options["help"] = argparse.SUPPRESS
            group.add_argument(f"--no-{flag[2:]}", nargs=0, const=False, **options)
        elif isinstance(kind, tuple):
            group.add_argument(flag, choices=kind, **options)
        else:
            group.add_argument(flag, type=kind, metavar=name.split("_")[-1].upper(), **options)


class _Collect(argparse.Action):
    """Puts an option of a run into the dictionary `train_options`."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        value = self.const if self.nargs == 0 else values
        namespace.train_options = namespace.train_options | {self.dest: value}


def _fields() -> list[tuple[str, Any, Any, str]]:
    """Name, type, default and help text of the options; the types without torch, which takes seconds to import."""
    from synthetic.training.config import TYPES, TrainConfig

    return [
        (f.name, TYPES[f.name][0], f.default, f.metadata["help"])
        for f in dataclasses.fields(TrainConfig)
        if f.name != "task"
    ]


def read_config(file: str | None) -> dict[str, Any]:
    """The options in a JSON file; none without a file.

    Raises:
        ValueError: a file that holds no JSON object.
    """
    if file is None:
        return {}
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object of options")
    return content
