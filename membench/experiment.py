"""Experiments: small TOML files that say which trials to run, and what figure, laws and claim they are for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from membench.errors import UsageError, unknown
from membench.plan import Request, plan
from membench.registry import Registry
from membench.trial import Trial

Options = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was claimed of the curves; what it is judged by is one of the other fields."""

    text: str
    law: str = ""  # holds unless another of the figure's laws describes the data clearly better
    exponent: float | None = None  # holds if the interval of the power law's exponent contains it
    equal: tuple[str, ...] = ()  # two names of series: holds if neither is better at the same x
    above: str = ""  # a column, such as proven_associations: holds if no point lies below it


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Columns to draw: options of models, tasks and protocols, sizes and metrics all have their own."""

    x: str
    y: str = "accuracy"
    by: tuple[str, ...] = ()
    slope_over: str = ""  # draw the slope of y over this column, instead of y
    laws: tuple[str, ...] = ()
    ceiling: float | None = None  # where y saturates: a law is only asked to be at least there
    bound: str = ""  # a column to draw as a line, such as proven_accuracy
    x_label: str = ""
    y_label: str = ""
    log_x: bool = False


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a protocol changes of an experiment: other grids, other seeds, its own options, its own metric."""

    model_options: Options
    task_options: Options
    protocol_options: Options
    seeds: int | None = None
    y: str = ""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A grid of one architecture on one task."""

    name: str
    model: str
    task: str
    model_options: Options
    task_options: Options
    protocols: Mapping[str, Change]

    def request(self, protocol: str, seeds: Sequence[int], common: Change) -> Request:
        own = self.protocols.get(protocol, NO_CHANGE)
        return Request(
            models=[self.model],
            tasks=[self.task],
            model_options=_texts({**self.model_options, **common.model_options, **own.model_options}),
            task_options=_texts({**self.task_options, **common.task_options, **own.task_options}),
            protocol=protocol,
            protocol_options=_texts({**common.protocol_options, **own.protocol_options}),
            seeds=seeds,
        )


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that a TOML file says."""

    name: str
    title: str
    source: str
    seeds: int
    figure: Figure
    claim: Claim | None
    series: Sequence[Series]
    protocols: Mapping[str, Change]

    @property
    def protocol(self) -> str:
        """The one that is used unless another is asked for: the first that the file names."""
        return next(iter(self.protocols), "converged")

    def change(self, protocol: str) -> Change:
        return self.protocols.get(protocol, NO_CHANGE)

    def y(self, protocol: str) -> str:
        return self.change(protocol).y or self.figure.y

    def trials(self, registry: Registry, protocol: str, seeds: int | None = None) -> list[tuple[Series, Trial]]:
        """Every trial with the series it belongs to. UsageError for names and options that do not exist."""
        common = self.change(protocol)
        chosen = range(seeds or common.seeds or self.seeds)
        found = []
        for series in self.series:
            try:
                found += [(series, trial) for trial in plan(registry, series.request(protocol, tuple(chosen), common))]
            except UsageError as error:
                raise UsageError(f"experiment '{self.name}', series '{series.name}': {error}") from None
        return found


NO_CHANGE = Change(model_options={}, task_options={}, protocol_options={})


def _texts(options: Options) -> list[str]:
    return [f"{name}={text}" for name, text in options.items()]


def names() -> list[str]:
    """The experiments that ship with membench: the main ones, then larger and deeper models."""
    found = [file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml")]
    return sorted(found, key=lambda name: (name.partition("-")[2] != "", name.partition("-")[2], name))


def _folder() -> Any:
    return resources.files("membench") / "experiments"


def load(name: str) -> Experiment:
    """An experiment by its name, or by the path of a file."""
    if name in names():
        return parse(name, (_folder() / f"{name}.toml").read_text("utf-8"), f"experiment '{name}'")
    path = Path(name)
    if path.suffix != ".toml" and not path.exists():
        raise unknown("experiment", name, [*names(), "all"], f"there are: {', '.join(names())}, all, or a .toml file")
    try:
        return parse(path.stem, path.read_text("utf-8"), f"'{name}'")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read experiment '{name}': {reason}") from None


def parse(name: str, text: str, where: str) -> Experiment:
    """The experiment that a TOML text describes; UsageError names the file, the key and the nearest valid key."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{where} is not TOML: {error}") from None
    reader = _Reader(data, where)
    experiment = Experiment(
        name=name,
        title=reader.text("title"),
        source=reader.text("source", ""),
        seeds=reader.count("seeds", 5),
        figure=_figure(reader.table("figure")),
        claim=_claim(reader.table("claim")) if "claim" in data else None,
        series=[_series(table) for table in reader.tables("series")],
        protocols={key: _change(table) for key, table in reader.named_tables("protocol").items()},
    )
    reader.finish()
    return experiment


def _figure(reader: _Reader) -> Figure:
    figure = Figure(
        x=reader.text("x"),
        y=reader.text("y", "accuracy"),
        by=reader.texts("by"),
        slope_over=reader.text("slope_over", ""),
        laws=reader.texts("laws"),
        ceiling=reader.number("ceiling"),
        bound=reader.text("bound", ""),
        x_label=reader.text("x_label", ""),
        y_label=reader.text("y_label", ""),
        log_x=reader.flag("log_x"),
    )
    reader.finish()
    return figure


def _claim(reader: _Reader) -> Claim:
    claim = Claim(
        text=reader.text("text"),
        law=reader.text("law", ""),
        exponent=reader.number("exponent"),
        equal=reader.texts("equal"),
        above=reader.text("above", ""),
    )
    reader.finish()
    return claim


def _series(reader: _Reader) -> Series:
    series = Series(
        name=reader.text("name"),
        model=reader.text("model"),
        task=reader.text("task"),
        model_options=reader.options("model_options"),
        task_options=reader.options("task_options"),
        protocols={key: _change(table) for key, table in reader.named_tables("protocol").items()},
    )
    reader.finish()
    return series


def _change(reader: _Reader) -> Change:
    change = Change(
        model_options=reader.options("model_options"),
        task_options=reader.options("task_options"),
        protocol_options=reader.options("protocol_options"),
        seeds=reader.count("seeds", None),
        y=reader.text("y", ""),
    )
    reader.finish()
    return change


_MISSING: Any = object()


class _Reader:
    """A TOML table that knows where it is, and which of its keys were asked for."""

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where, self.known = data, where, list[str]()

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any) -> Any:
        self.known.append(key)
        value = self.data.get(key, default)
        if value is _MISSING:
            raise UsageError(f"{self.where}: '{key}' is missing; it is {words}")
        if key in self.data and (not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool)):
            raise UsageError(f"{self.where}: '{key}' is {value!r}; it must be {words}")
        return value

    def text(self, key: str, default: Any = _MISSING) -> str:
        return str(self._get(key, str, "a text", default))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
        value = self._get(key, (str, list), "a text or a list of texts", ())
        found = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(one, str) for one in found):
            raise UsageError(f"{self.where}: '{key}' is {value!r}; it must be a text or a list of texts")
        return found

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool, "true or false", False))

    def number(self, key: str) -> float | None:
        value = self._get(key, (int, float), "a number", None)
        return None if value is None else float(value)

    def count(self, key: str, default: int | None) -> Any:
        value = self._get(key, int, "a whole number of at least 1", default)
        if value is not None and value < 1:
            raise UsageError(f"{self.where}: '{key}' is {value}; it must be a whole number of at least 1")
        return value

    def table(self, key: str) -> _Reader:
        return _Reader(self._get(key, dict, "a table", _MISSING), f"{self.where}, [{key}]")

    def tables(self, key: str) -> list[_Reader]:
        found = self._get(key, list, f"one or more [[{key}]] tables", _MISSING)
        if not found or not all(isinstance(one, dict) for one in found):
            raise UsageError(f"{self.where}: '{key}' is empty; one or more [[{key}]] tables are needed")
        return [_Reader(one, f"{self.where}, [[{key}]] {number}") for number, one in enumerate(found, 1)]

    def named_tables(self, key: str) -> dict[str, _Reader]:
        found = self._get(key, dict, "a table of tables", {})
        for name, one in found.items():
            if not isinstance(one, dict):
                raise UsageError(f"{self.where}: '{key}.{name}' is {one!r}; it must be a table")
        return {name: _Reader(one, f"{self.where}, [{key}.{name}]") for name, one in found.items()}

    def options(self, key: str) -> dict[str, str]:
        """Options as on the command line; numbers and truth values may be written as such."""
        found = self._get(key, dict, "a table of options", {})
        return {name: self._option(f"{key}.{name}", value) for name, value in found.items()}

    def _option(self, key: str, value: Any) -> str:
        if isinstance(value, list):
            parts = [self._option(key, one) for one in value]
            text = ",".join(parts)
        elif isinstance(value, bool):
            text = str(value).lower()
        else:
            text = str(value) if isinstance(value, (int, float, str)) else ""
        if not text.strip():
            raise UsageError(
                f"{self.where}: '{key}' is {value!r}, an empty grid; give values such as 10, [7, 10] or '1:31:5'"
            )
        return text

    def finish(self) -> None:
        """UsageError for a key that nobody asked for."""
        for key in self.data:
            if key not in self.known:
                raise unknown(f"key in {self.where}:", key, self.known, f"valid are: {', '.join(self.known)}")
