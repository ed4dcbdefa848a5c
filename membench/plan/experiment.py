"""Experiments: small TOML files that say which trials to run, and what figure, laws and claim they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from membench.errors import UsageError, unknown
from membench.interface.registry import Registry
from membench.plan.request import Request, plan
from membench.plan.toml_file import Table
from membench.plan.trial import Trial

Options = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What was claimed of the curves; what it is judged by is one of the other fields."""

    text: str
    law: str = ""  # holds unless another of the figure's laws describes the data clearly better
    exponent: float | None = None  # holds if the interval of the power law's exponent contains it
    equal: tuple[str, ...] = ()  # two names of series: holds if neither is better at the same x
    above: str = ""  # a column, such as proven_associations: holds if no point lies below it
    published: float | None = None  # holds if each published point is reached to within this part of it
    curve: str = ""  # that published points are compared with; by default the one of the same name
    best: bool = False  # the best seed counts, and not their mean: as published, where any of several starts did


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Columns to draw: options of models, tasks and protocols, sizes and metrics all have their own."""

    x: str
    y: str = "accuracy"
    by: tuple[str, ...] = ()
    slope_over: str = ""  # draw the slope of y over this column, instead of y
    facts_at: float | None = None  # draw the most facts T0 of which y reaches this, instead of y
    peak_over: str = ""  # draw the largest y over this column, instead of y
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
class Published:
    """What others have measured, to be drawn beside the curves."""

    name: str  # whose numbers they are
    points: Sequence[Mapping[str, Any]]  # with the columns of the figure: x, y and what curves are told apart by


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
    question: str = ""  # what it is to answer, and
    setting: str = ""  # how, in a few words, for a table of many experiments
    published: Published | None = None

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
    return resources.files(__package__) / "experiments"


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
    table = Table.parse(text, where)
    experiment = Experiment(
        name=name,
        title=table.text("title"),
        source=table.text("source", ""),
        seeds=table.count("seeds", 5),
        figure=_figure(table.table("figure")),
        claim=_claim(table.table("claim")) if "claim" in table.data else None,
        series=[_series(one) for one in table.tables("series")],
        protocols={key: _change(one) for key, one in table.named_tables("protocol").items()},
        question=table.text("question", ""),
        setting=table.text("setting", ""),
        published=_published(table.table("published")) if "published" in table.data else None,
    )
    table.finish()
    return experiment


def _published(table: Table) -> Published:
    found = Published(name=table.text("name"), points=[dict(one.data) for one in table.tables("points")])
    table.finish()
    return found


def _figure(table: Table) -> Figure:
    figure = Figure(
        x=table.text("x"),
        y=table.text("y", "accuracy"),
        by=table.texts("by"),
        slope_over=table.text("slope_over", ""),
        facts_at=table.number("facts_at"),
        peak_over=table.text("peak_over", ""),
        laws=table.texts("laws"),
        ceiling=table.number("ceiling"),
        bound=table.text("bound", ""),
        x_label=table.text("x_label", ""),
        y_label=table.text("y_label", ""),
        log_x=table.flag("log_x"),
    )
    table.finish()
    return figure


def _claim(table: Table) -> Claim:
    claim = Claim(
        text=table.text("text"),
        law=table.text("law", ""),
        exponent=table.number("exponent"),
        equal=table.texts("equal"),
        above=table.text("above", ""),
        published=table.number("published"),
        curve=table.text("curve", ""),
        best=table.flag("best"),
    )
    table.finish()
    return claim


def _series(table: Table) -> Series:
    series = Series(
        name=table.text("name"),
        model=table.text("model"),
        task=table.text("task"),
        model_options=table.options("M"),
        task_options=table.options("T"),
        protocols={key: _change(one) for key, one in table.named_tables("protocol").items()},
    )
    table.finish()
    return series


def _change(table: Table) -> Change:
    change = Change(
        model_options=table.options("M"),
        task_options=table.options("T"),
        protocol_options=table.options("P"),
        seeds=table.count("seeds", None),
        y=table.text("y", ""),
    )
    table.finish()
    return change
