"""The options of a run on the command line and in files."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from iha_theory.attention import KINDS
from iha_theory.options import Options
from synthetic.tasks import TASKS, find
from synthetic.training.config import TrainConfig, layer_kind, refused

ATTENTION = "kind of layer: " + ", ".join(KINDS) + ", or MODULE:CLASS of your own"


def offer(parser: Any, words: Sequence[str], task: str | None, layers: Sequence[str], leave_out: Sequence[str]) -> None:
    """Adds the options of a task, of layers and of training, absent from the result if not given.

    Raises:
        ValueError: an unknown task or layer; among the words an option that neither they nor the parser has.
    """
    parts: list[tuple[str, type[Options]]] = [(f"options of {name}", layer_kind(name)) for name in layers]
    if task is not None:
        parts.insert(0, (f"options of {task}", find(task)))
    known = set(leave_out) if task is None else {*leave_out, *find(task).inert}
    for title, part in [*parts, ("options of training", TrainConfig)]:
        group = parser.add_argument_group(title)
        for own in part.described():
            if own.name not in known:
                _add(group, own, _default(part, own, None if task is None else find(task)))
        known |= set(part.names())
    accepted = parser._option_string_actions
    for word in words:
        flag = word.partition("=")[0]
        if task is not None and flag.startswith("--") and flag != "--" and flag not in accepted:
            name = flag[2:].replace("-", "_")
            reasons = [refused(name, task, layer) for layer in layers]
            raise ValueError(f"unrecognized {flag}: {reasons[0]}")


def _default(part: type[Options], own: Any, task: Any) -> Any:
    return own.default if task is None or part is task else task.defaults.get(own.name, own.default)


def _add(group: Any, own: Any, default: Any) -> None:
    flag = f"--{own.name.replace('_', '-')}"
    said = own.help.partition(" (default: ")[0]  # what None stands for; a task may have another default
    shown = own.help if default in (None, ()) else f"{said} (default: {default})"
    options: dict[str, Any] = {"action": _Collect, "help": shown, "dest": own.name, "default": argparse.SUPPRESS}
    if own.kind is bool:
        group.add_argument(flag, nargs=0, const=True, **options)
        options["help"] = argparse.SUPPRESS
        group.add_argument(f"--no-{flag[2:]}", nargs=0, const=False, **options)
    elif isinstance(own.kind, tuple):
        group.add_argument(flag, choices=own.kind, **options)
    elif own.kind is tuple:
        group.add_argument(flag, type=int, nargs="+", metavar=own.name.split("_")[-1].upper().rstrip("S"), **options)
    else:
        group.add_argument(flag, type=own.kind, metavar=own.name.split("_")[-1].upper(), **options)


class _Collect(argparse.Action):
    """Puts an option of a run into the dictionary `train_options`."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        value = self.const if self.nargs == 0 else values
        namespace.train_options = namespace.train_options | {self.dest: value}


def add_run(
    parser: Any, offered: Callable[[str | None, str | None], tuple[str | None, Sequence[str]]], *out: str
) -> None:
    """Makes a parser offer the options of the run that its words name.

    Args:
        parser: of the command.
        offered: from the first word and the layer given, the task and the layers whose options are offered.
        out: options of a run that are not.
    """
    parser.add_argument("--attention", metavar="NAME", action=_Collect, default=argparse.SUPPRESS, help=ATTENTION)
    parser.add_argument("--config", metavar="FILE", help="options as a JSON object; options given here come on top")
    parser.set_defaults(train_options={})

    def prepare(words: list[str]) -> None:
        first, typed = _typed(words)
        attention = typed.get("--attention") or read_config(typed.get("--config")).get("attention")
        offer(parser, words, *offered(first, attention), out)

    parser.prepare = prepare


def _typed(words: Sequence[str]) -> tuple[str | None, dict[str, str]]:
    """The first word that is neither an option nor an option's value, and the options with their values."""
    parts = (*TASKS.values(), *KINDS.values(), TrainConfig)
    switches = {f"--{own.name.replace('_', '-')}" for part in parts for own in part.described() if own.kind is bool}
    switches |= {f"--no-{flag[2:]}" for flag in switches} | {"--resume", "--help", "-h"}
    first, found, rest = None, {}, list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            first = first or word
        elif "=" in word:
            flag, _, found[flag] = word.partition("=")
        elif word not in switches and rest:
            found[word] = rest.pop(0)
    return first, found


def read_config(file: str | None) -> dict[str, Any]:
    """The options in a JSON file; none without a file.

    Raises:
        ValueError: a file that holds no JSON object.
    """
    if file is None:
        return {}
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file} must hold a JSON object of options")
    return content
