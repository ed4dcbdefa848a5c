"""Options: the fields of a config dataclass, and the text that sets them.

`H=1:31:5` is a range that includes its end, `d=7,10,13` a list, and both make a grid.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import sys
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from types import UnionType
from typing import Any, TypeVar

from membench.errors import UsageError, in_words, unknown

C = TypeVar("C")
AUTO = "auto"  # the text for "let the config work it out", where a field allows it
MAX_GRID = 100_000  # more trials than anybody means to start by one command
MAX_TEXT = 64  # characters of a text option: it names something, and must not hold facts
MAX_INTEGER = 2**53  # of a number option, up to which JSON readers agree
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def option(
    default: Any = MISSING,
    *,
    help: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    later: bool = False,
) -> Any:
    """A field of a config dataclass. A default of None means that `__post_init__` works the value out.

    `later` is for an option that was added when records existed, with a default that leaves everything as it was: at
    that default it is no part of a trial's identity, so that those records are still found.
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": tuple(choices), "later": later}
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Option:
    """One field of a config, as the command line sees it."""

    name: str
    kind: type
    default: Any
    help: str
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    later: bool = False

    @property
    def automatic(self) -> bool:
        return self.default is None

    def valid(self) -> str:
        """What would be valid, in words."""
        if self.choices:
            text = "one of " + ", ".join(self.choices)
        elif self.kind is bool:
            text = "true or false"
        else:
            text = {int: "a whole number", float: "a number"}.get(self.kind, f"a text of at most {MAX_TEXT} characters")
            if self.minimum is not None and self.maximum is not None:
                text += f" from {self.minimum:g} to {self.maximum:g}"
            elif self.minimum is not None:
                text += f" of at least {self.minimum:g}"
            elif self.maximum is not None:
                text += f" of at most {self.maximum:g}"
        return text + (f", or {AUTO}" if self.automatic else "")

    def parse(self, text: str) -> Any:
        """One value; ValueError when the text is not one."""
        if self.automatic and text == AUTO:
            return None
        value: Any = text
        if self.kind is bool:
            if text.lower() not in _TRUE | _FALSE:
                raise ValueError(text)
            value = text.lower() in _TRUE
        elif self.kind in (int, float):
            value = self.kind(text)
        if not self.allows(value):
            raise ValueError(text)
        return value

    def allows(self, value: Any) -> bool:
        if value is None:
            return self.automatic
        if self.choices:
            return value in self.choices
        if self.kind is float and type(value) is int and abs(value) <= MAX_INTEGER:
            value = float(value)
        if type(value) is not self.kind:
            return False
        if isinstance(value, str):
            return len(value) <= MAX_TEXT
        if not isinstance(value, (int, float)):
            return False
        low = -math.inf if self.minimum is None else self.minimum
        high = math.inf if self.maximum is None else self.maximum
        largest = MAX_INTEGER if self.kind is int else sys.float_info.max
        return self.kind is bool or bool(low <= value <= high and abs(value) <= largest)


def options_of(config: type) -> Mapping[str, Option]:
    """The options of a config dataclass, in the order of its fields."""
    return _options_of(config)


@functools.cache
def _options_of(config: Any) -> Mapping[str, Option]:
    hints = typing.get_type_hints(config)
    return {field.name: _option_of(field, hints[field.name]) for field in dataclasses.fields(config)}


def _option_of(field: dataclasses.Field[Any], hint: Any) -> Option:
    if isinstance(hint, UnionType):  # "int | None" is an int that may be left to the config
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint not in (int, float, bool, str):
        raise TypeError(f"option '{field.name}' has type {hint}; options are int, float, bool or str")
    meta = field.metadata
    return Option(
        name=field.name,
        kind=hint,
        default=field.default,
        help=meta.get("help", ""),
        minimum=meta.get("minimum"),
        maximum=meta.get("maximum"),
        choices=meta.get("choices", ()),
        later=meta.get("later", False),
    )


def assignments(texts: Iterable[str]) -> dict[str, str]:
    """["H=1:31:5", "d=10"] as a mapping. The same option twice is a mistake, not an override."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise UsageError(f"'{text}' is not of the form NAME=VALUE, such as H=8, H=1:31:5 or d=7,10,13")
        if name.strip() in found:
            raise UsageError(f"option '{name.strip()}' is given twice; a list is written {name.strip()}=7,10,13")
        found[name.strip()] = value.strip()
    return found


class _EmptyRange(ValueError):
    """A range whose end comes before its start."""


def expand(config: type[C], given: Mapping[str, str], owner: str, listing: str) -> list[C]:
    """The grid of configs that the given texts describe; every mistake in them is reported at once."""
    known = options_of(config)
    mistakes: list[str] = []
    axes: dict[str, list[Any]] = {}
    for name, text in given.items():
        if name not in known:
            mistakes.append(str(unknown(f"option of {owner}", name, known, listing)))
            continue
        try:
            axes[name] = _values(known[name], text)
        except _EmptyRange as error:
            mistakes.append(
                f"{owner}: {name}={text}: {error} is empty; a range is START:END or START:END:STEP, with START <= END"
            )
        except ValueError as error:
            mistakes.append(f"{owner}: {name}={error}: {known[name].valid()} is needed")
    required = [name for name, one in known.items() if one.default is MISSING and name not in given]
    mistakes += [f"{owner}: option '{name}' has no default; set it with {name}=VALUE" for name in required]
    size = math.prod(len(values) for values in axes.values())
    if size > MAX_GRID:
        mistakes.append(f"{owner}: the grid has {size:,} points; at most {MAX_GRID:,} are taken at once")
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return _product(config, axes, owner)


def _product(config: type[C], axes: Mapping[str, list[Any]], owner: str) -> list[C]:
    made: list[C] = []
    mistakes: dict[str, None] = {}  # an ordered set: one bad value can spoil many grid points
    for values in itertools.product(*axes.values()):
        try:
            made.append(config(**dict(zip(axes, values, strict=True))))
        except ValueError as error:
            mistakes[f"{owner}: {error}"] = None
        except (Exception, SystemExit) as error:  # whatever a plugin may raise
            mistakes[f"{owner}: its config cannot be made: {in_words(error)}"] = None
    if mistakes:
        shown = list(mistakes)[:10]
        more = len(mistakes) - len(shown)
        raise UsageError("\n".join(shown + ([f"... and {more} more such grid points"] if more else [])))
    return list(dict.fromkeys(made))  # d_h=auto and d_h=10 may be the same point


def _values(one: Option, text: str) -> list[Any]:
    """The values that a text such as 3, 1:31:5 or 7,10,13 stands for; the ValueError holds the part at fault."""
    values: list[Any] = []
    for part in text.split(","):
        try:
            values += (
                _range(one, part.strip()) if ":" in part and one.kind in (int, float) else [one.parse(part.strip())]
            )
        except _EmptyRange:
            raise
        except ValueError:
            raise ValueError(part.strip()) from None
    return values


def _range(one: Option, text: str) -> list[Any]:
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise ValueError(text)
    start, stop = one.parse(parts[0]), one.parse(parts[1])
    step = one.kind(parts[2]) if len(parts) == 3 else one.kind(1)
    if not step > 0 or not math.isfinite(step):
        raise ValueError(text)
    if stop < start:
        raise _EmptyRange(text)
    count = math.floor((stop - start) / step + 1e-9) + 1
    if count > MAX_GRID:
        raise ValueError(text)
    return [one.kind(start + i * step) for i in range(count)]


def to_dict(config: Any) -> dict[str, Any]:
    """A config as its record and its identity hold it: without options that came later and are as if never set.

    A number has the type of its option: 1 and 1.0 would be two identities of one config.
    """
    known = options_of(type(config))
    values = {name: _of_kind(getattr(config, name), one.kind) for name, one in known.items()}
    return {name: values[name] for name, one in known.items() if not one.later or _differs(config, values, name)}


def _of_kind(value: Any, kind: type) -> Any:
    return float(value) if kind is float and type(value) is int and abs(value) <= MAX_INTEGER else value


def canonical(config: Any, owner: str) -> dict[str, Any]:
    """The only way to write a config down. UsageError for a value that its option does not allow."""
    validate(config, owner)
    return to_dict(config)


def shown_options(config: Any) -> list[str]:
    """The options that a label shows: all numbers, and whatever else is not as it would be anyway."""
    values = to_dict(config)
    return [
        name
        for name, value in values.items()
        if value is not None and (_is_number(value) or _differs(config, values, name))
    ]


def label(config: Any) -> str:
    """A config in a few words, as it would be typed."""
    return label_of(to_dict(config), shown_options(config))


def label_of(values: Mapping[str, Any], shown: Iterable[str]) -> str:
    """The same from plain data."""
    return " ".join(f"{name}={_typed(values[name])}" for name in shown)


def _differs(config: Any, values: Mapping[str, Any], name: str) -> bool:
    try:
        plain = type(config)(**{other: value for other, value in values.items() if other != name})
    except (TypeError, ValueError):  # it cannot be left out
        return True
    return bool(getattr(plain, name) != values[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def validate(config: Any, owner: str) -> None:
    """For a config made in Python, the same ranges that the command line keeps to."""
    mistakes = [
        f"{owner}: {name}={getattr(config, name)!r}: {one.valid()} is needed"
        for name, one in options_of(type(config)).items()
        if not one.allows(getattr(config, name))
    ]
    if mistakes:
        raise UsageError("\n".join(mistakes))
