"""Explicit weights in real layers, and the statements that they prove.

- `construction`: what a construction is: a torch layer, and where each thing is in its output.
- `filter_bank`: [X, A X, ..., A^{k-1} X]. `cpm3`: counting pairs modulo M. `targets`: convolutions, state-space models,
  MHA inside IHA, content in the queries.
- `checks`: a construction against an independent answer; mutants; `oracles`, the answers.
- `suite`: the checks that `iha-theory verify` runs. `ledger`: every statement, with a verdict computed when asked.
- `heads`: heads and costs for a given graph, and files of weights. `learned`: what trained layers are.

`bank`, `workspace`, `network`, `confusion`, `convolution`, `state_space`, `fir` and `Construction` can be imported from
here; they are loaded when they are used. May import `synthetic` and `iha_theory`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constructions.construction import Construction
    from constructions.cpm3.injective import confusion
    from constructions.cpm3.workspace import network, workspace
    from constructions.filter_bank.layers import bank
    from constructions.targets.convolution import convolution
    from constructions.targets.state_space import fir, state_space

_PLACE = {
    "Construction": "constructions.construction",
    "bank": "constructions.filter_bank.layers",
    "confusion": "constructions.cpm3.injective",
    "convolution": "constructions.targets.convolution",
    "fir": "constructions.targets.state_space",
    "network": "constructions.cpm3.workspace",
    "state_space": "constructions.targets.state_space",
    "workspace": "constructions.cpm3.workspace",
}

__all__ = ["Construction", "bank", "confusion", "convolution", "fir", "network", "state_space", "workspace"]


def __getattr__(name: str) -> Any:
    if name not in _PLACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
