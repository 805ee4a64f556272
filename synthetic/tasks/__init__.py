"""The tasks: inputs, right answers, and the model around a layer; no optimiser, no training.

- `task`: what a task is. `polynomial`, `workspace`, `unstructured`, `cpm3`, `boolean` (parity and endpoint
  selection): the tasks: options, defaults, sweeps. `bank`: what the first three share. `bank_problem`, `cpm3_problem`,
  `boolean_problem`: their halves in torch.
- `reasoning`: tasks of the literature on what attention can compose, in one transformer around any layer.
- `filter_bank`, `count_pairs`: the right answers, in integers or float64, sharing no code with what they judge.

To add a task: a file here and an entry in `TASKS`; or a class of your own by its path (see `task`).
"""

from collections.abc import Iterator, Mapping
from importlib import import_module

from iha_theory.options import load
from synthetic.tasks.task import Task

_PLACES = {
    "polynomial": "polynomial.Polynomial",
    "unstructured": "unstructured.Unstructured",
    "workspace": "workspace.Workspace",
    "cpm3": "cpm3.CPM3",
    "parity": "boolean.Parity",
    "esp": "boolean.EndpointSelection",
    "relations": "reasoning.relations.Relations",
    "quotient": "reasoning.quotient.Quotient",
    "match3": "reasoning.match3.Match3",
    "composition": "reasoning.composition.Composition",
    "retrieval": "reasoning.retrieval.Retrieval",
    "hops": "reasoning.hops.Hops",
}


class _Tasks(Mapping[str, type[Task]]):
    def __getitem__(self, name: str) -> type[Task]:
        module, _, own = _PLACES[name].rpartition(".")
        return getattr(import_module(f"synthetic.tasks.{module}"), own)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


TASKS: Mapping[str, type[Task]] = _Tasks()
"""The tasks by name; each is loaded when it is used."""


def find(name: str) -> type[Task]:
    """A task by its name, or by the path MODULE:CLASS of one of the user's.

    Raises:
        ValueError: none of that name, or a path to something else.
    """
    if name in TASKS:
        return TASKS[name]
    if ":" not in name:
        raise ValueError(f"unknown task {name!r}: accepted are {', '.join(TASKS)}, and MODULE:CLASS of your own")
    found = load(name, "a task of your own")
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise ValueError(f"{name} is no task: a subclass of synthetic.tasks.task.Task is needed")
    return found
