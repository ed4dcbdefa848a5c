"""Suites: a few trials that together watch for lost capacity, as TOML files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from membench.engine.protocols.protocol import get_protocol
from membench.errors import MembenchError, UsageError, unknown
from membench.interface.declarations import Architecture
from membench.interface.registry import Registry
from membench.plan.request import ALL, Request, plan
from membench.plan.toml_file import Table
from membench.plan.trial import Trial
from membench.regress.watch import Watch, check_loss, check_metric

SUITES = files(__package__) / "suites"
Options = tuple[str, ...]  # as they would follow -M, -T or -P


@dataclass(frozen=True, kw_only=True)
class Watched:
    """One [[trial]] of a suite: what to run, and which of its metrics to watch."""

    models: tuple[str, ...]
    task: str
    watch: Watch
    protocol: str = "converged"
    model_options: Options = ()
    task_options: Options = ()
    protocol_options: Options = ()


@dataclass(frozen=True, kw_only=True)
class Suite:
    """What a suite file says. Its version changes whenever its baselines no longer fit."""

    name: str
    version: int
    seeds: int
    trials: tuple[Watched, ...]
    summary: str = ""
    source: str = ""  # the file, for messages


def shipped() -> list[str]:
    return sorted(one.name.removesuffix(".toml") for one in SUITES.iterdir() if one.name.endswith(".toml"))


def load_suite(name: str) -> Suite:
    """A suite that membench ships, by its name, or anybody's, by its path."""
    if name in shipped():
        return parse_suite((SUITES / f"{name}.toml").read_text("utf-8"), name)
    if not (name.endswith(".toml") or "/" in name):
        raise unknown("suite", name, shipped(), f"there are {', '.join(shipped())}; your own is given as PATH.toml")
    try:
        return parse_suite(Path(name).read_text("utf-8"), name)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read suite '{name}': {getattr(error, 'strerror', None) or error}") from None


def parse_suite(text: str, source: str) -> Suite:
    """UsageError, with the file and the key, for everything that a suite cannot be."""
    table = Table.parse(text, f"suite '{source}'")
    suite = Suite(
        name=table.text("name"),
        version=table.count("version"),
        seeds=table.count("seeds"),
        summary=table.text("summary", ""),
        trials=tuple(_watched(trial) for trial in table.tables("trial")),
        source=source,
    )
    table.finish()
    return suite


def _watched(table: Table) -> Watched:
    models = table.texts("model")
    if not models:
        raise UsageError(f"{table.where}: 'model' is missing; give a name, several, or 'all'")
    watched = Watched(
        models=models,
        task=table.text("task"),
        watch=_watch(table),
        protocol=table.text("protocol", "converged"),
        model_options=_texts(table.options("M")),
        task_options=_texts(table.options("T")),
        protocol_options=_texts(table.options("P")),
    )
    table.finish()
    return watched


def _texts(options: Mapping[str, str]) -> Options:
    return tuple(f"{name}={text}" for name, text in options.items())


def _watch(table: Table) -> Watch:
    found = table.numbers("watch")
    for name, loss in found.items():
        try:
            check_metric(name)
        except UsageError as error:
            raise UsageError(f"{table.where}: watch: {error}") from None
        check_loss(loss, f"{table.where}: watch.{name}={loss}")
    if not found:
        raise UsageError(f"{table.where}: watch is empty; name a metric, such as watch = {{ accuracy = 0.01 }}")
    return found


@dataclass(frozen=True)
class Plan:
    """The trials of a suite, and what to watch of each id."""

    trials: tuple[Trial, ...]
    watch: Mapping[str, Watch]

    @property
    def comparisons(self) -> int:
        return sum(len(metrics) for metrics in self.watch.values())


def plan_suite(
    registry: Registry, suite: Suite, models: Sequence[str] = (), seeds: Sequence[int] | None = None
) -> Plan:
    """All trials of the suite, or those of some architectures; mistakes name the trial of the suite."""
    for name in models:
        registry.architecture(name)
    trials: dict[tuple[str, int], Trial] = {}
    watch: dict[str, Watch] = {}
    for number, one in enumerate(suite.trials, start=1):
        where = f"suite '{suite.source}', trial {number}"
        for trial in _trials(registry, one, models, seeds or range(suite.seeds), where):
            trials.setdefault((trial.id, trial.seed), trial)
            watch[trial.id] = {**watch.get(trial.id, {}), **one.watch}
    if not trials:
        raise UsageError(f"suite '{suite.source}' has no trial for {', '.join(models)}")
    return Plan(tuple(trials.values()), watch)


def _trials(registry: Registry, one: Watched, models: Sequence[str], seeds: Sequence[int], where: str) -> list[Trial]:
    try:
        chosen = [name for name in _chosen(registry, one) if not models or name in models]
        options = [text for text in one.model_options if not _is_for_another(text, chosen, registry.architectures)]
        request = Request(chosen, [one.task], options, one.task_options, one.protocol, one.protocol_options, seeds)
        return plan(registry, request) if chosen else []
    except MembenchError as error:
        raise type(error)("\n".join(f"{where}: {line}" for line in str(error).splitlines())) from None


def _chosen(registry: Registry, one: Watched) -> list[str]:
    """The names of a trial's architectures.

    `all` are those that its protocol can be used on, without bridges: what those compute changes with the release of a
    package that is not ours, and a gate would compare that.
    """
    if one.models != (ALL,):
        return [registry.architecture(name).name for name in one.models]
    return [name for name, each in registry.architectures.items() if not each.packages and _usable(one.protocol, each)]


def _usable(name: str, architecture: Architecture[Any]) -> bool:
    protocol = get_protocol(name)
    try:
        if protocol.check:
            protocol.check(architecture, protocol.config())
    except UsageError:
        return False
    return True


def _is_for_another(text: str, chosen: Sequence[str], known: Mapping[str, Any]) -> bool:
    """Whether an option such as aot.H=2 is for an architecture that is there, but not among the chosen."""
    owner = max((name for name in known if text.startswith(f"{name}.")), key=len, default="")
    return bool(owner) and owner not in chosen
