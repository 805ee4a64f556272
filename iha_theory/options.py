"""Options as frozen dataclasses, each field with a help text and a range; imports no torch.

    @dataclass(frozen=True)
    class Mine(Options):
        tokens: int = option(16, "tokens N", 1)

Types are int, float, bool, str and Literal of strings, each with `| None` where None is accepted, and
`tuple[int, ...]`.
"""

import contextlib
import dataclasses
import functools
import importlib
import math
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

Own = TypeVar("Own", bound="Options")
NOUNS: dict[Any, str] = {int: "an integer", float: "a number", bool: "true or false", str: "a text", tuple: "integers"}


def option(
    default: Any,
    text: str,
    least: int | float | None = None,
    most: int | float = math.inf,
    *,
    below: bool = False,
    late: bool = False,
) -> Any:
    """A field of `Options`.

    Args:
        default: its value if none is given.
        text: what it means, for --help.
        least: the least number accepted.
        most: the largest one.
        below: whether `most` itself is refused.
        late: left out of `written` where it has its default: an option younger than records, whose ids stay.
    """
    metadata = {"help": text, "least": least, "most": most, "below": below, "late": late}
    return dataclasses.field(default=default, metadata=metadata, kw_only=True)


class Described(NamedTuple):
    """An option as --help needs it: kind is int, float, bool, str, the class tuple for integers, or the texts accepted.

    Those are a tuple of them.
    """

    name: str
    kind: Any
    optional: bool
    default: Any
    help: str


@dataclass(frozen=True)
class Options:
    """Base of the options of anything; what is given is checked.

    Raises:
        ValueError: a value of another type or outside its range; the message names the option and what is accepted.
    """

    def __post_init__(self) -> None:
        for described in self.described():
            value = self._checked(described.name, getattr(self, described.name))
            object.__setattr__(self, described.name, value)

    @classmethod
    def described(cls) -> tuple[Described, ...]:
        """The options, in the order of the fields; fields that are not made by `option` are none."""
        return _described(cls)

    @classmethod
    def names(cls) -> list[str]:
        """Their names."""
        return [described.name for described in cls.described()]

    @classmethod
    def of(cls: type[Own], values: Mapping[str, Any], **fixed: Any) -> Own:
        """From values that may be of any type; `fixed` are the fields that are no options."""
        return cls(**fixed, **{name: cls._checked(name, value) for name, value in values.items()})

    def values(self) -> dict[str, Any]:
        """The options as JSON values."""
        found = {name: getattr(self, name) for name in self.names()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    def written(self) -> dict[str, Any]:
        """The options as JSON values, as records have them: without the late ones that have their defaults."""
        late = [own for own in self.described() if self.__dataclass_fields__[own.name].metadata["late"]]
        left_out = {own.name for own in late if getattr(self, own.name) == own.default}
        return {name: value for name, value in self.values().items() if name not in left_out}

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        """The value in the option's type, within its range."""
        described = next(own for own in cls.described() if own.name == name)
        kind = described.kind
        if value is None and described.optional:
            return None
        if isinstance(kind, tuple):
            if value not in kind:
                raise ValueError(f"{name} must be one of {', '.join(kind)}, got {value!r}")
            return value
        if kind is float and type(value) is int:
            value = float(value)
        if kind is tuple and isinstance(value, list):
            value = tuple(value)
        numbers: Any = value if kind is tuple else (value,)
        if type(value) is not kind or (kind is tuple and any(type(number) is not int for number in numbers)):
            raise ValueError(f"{name} must be {NOUNS[kind]}, got {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} must be finite, got {value!r}")
        least, most, below = (cls.__dataclass_fields__[name].metadata[key] for key in ("least", "most", "below"))
        if least is not None and not all(least <= number <= most for number in numbers):
            accepted = f"at least {least}" + (f" and at most {most}" if most < math.inf else "")
            raise ValueError(f"{name} must be {accepted}, got {value!r}")
        if below and value == most:
            raise ValueError(f"{name} must be below {most}")
        return value


@functools.cache
def _described(cls: type[Options]) -> tuple[Described, ...]:
    hints, found = get_type_hints(cls), []
    for own in dataclasses.fields(cls):
        if "help" not in own.metadata:
            continue
        hint = hints[own.name]
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        kind = next(part for part in parts if part is not type(None))
        kind = {Literal: get_args(kind), tuple: tuple}.get(get_origin(kind), kind)
        found.append(Described(own.name, kind, len(parts) > 1, own.default, own.metadata["help"]))
    return tuple(found)


@contextlib.contextmanager
def users_code(what: str) -> Iterator[None]:
    """Whatever the user's code in the block raises, or exits with, becomes a ValueError "what: ...", but not Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(f"{what}: {kind}{error}") from error


def load(path: str, what: str) -> Any:
    """What MODULE:NAME names; modules are looked up from the current directory too.

    Args:
        path: MODULE:NAME.
        what: what the path is for, to say in errors.

    Raises:
        ValueError: another form, or a module that cannot be imported or has no such name.
    """
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ValueError(f"{what} takes MODULE:NAME, such as torch.nn:MultiheadAttention, got {path!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    with users_code(f"cannot load {path}"):
        return getattr(importlib.import_module(module), name)
