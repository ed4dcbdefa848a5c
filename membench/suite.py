"""Suites: a few trials that together watch for lost capacity, as TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from membench.api import Architecture
from membench.compare import METRICS, Watch
from membench.engine.protocols import get_protocol
from membench.errors import MembenchError, UsageError, unknown
from membench.plan import ALL, Request, plan
from membench.registry import Registry
from membench.trial import Trial

SUITES = files("membench") / "suites"
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
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"suite '{source}' is not TOML: {error}") from None
    top = _Keys(f"suite '{source}'", data, {"name": str, "version": int, "summary": str, "seeds": int, "trial": list})
    trials = top.get("trial", [])
    if not trials:
        raise UsageError(f"suite '{source}' is empty; it needs at least one [[trial]]")
    return Suite(
        name=top.text("name"),
        version=top.positive("version"),
        seeds=top.positive("seeds"),
        summary=top.get("summary", ""),
        trials=tuple(_watched(f"suite '{source}', trial {n}", trial) for n, trial in enumerate(trials, start=1)),
        source=source,
    )


def _watched(where: str, data: Any) -> Watched:
    if not isinstance(data, dict):
        raise UsageError(f"{where}: a table is needed, written [[trial]]")
    kinds: dict[str, Any] = {"model": (str, list), "task": str, "protocol": str, "M": dict, "T": dict, "P": dict}
    keys = _Keys(where, data, {**kinds, "watch": dict})
    return Watched(
        models=keys.texts("model"),
        task=keys.text("task"),
        watch=_watch(keys),
        protocol=keys.get("protocol", "converged"),
        model_options=keys.options("M"),
        task_options=keys.options("T"),
        protocol_options=keys.options("P"),
    )


def _watch(keys: _Keys) -> Watch:
    found: dict[str, float] = {}
    for name, counts in keys.required("watch").items():
        if name not in METRICS:
            listing = f"there are: {', '.join(METRICS)}"
            raise UsageError(f"{keys.where}: watch: {unknown('metric', name, METRICS, listing)}")
        if not _is_number(counts) or not counts > 0:
            raise UsageError(
                f"{keys.where}: watch.{name}={counts!r}: the smallest loss that counts is a number above 0"
            )
        found[name] = float(counts)
    if not found:
        raise UsageError(f"{keys.where}: watch is empty; name a metric, such as watch = {{ accuracy = 0.01 }}")
    return found


class _Keys:
    """A TOML table whose keys are known, with errors that say where."""

    def __init__(self, where: str, data: Mapping[str, Any], kinds: Mapping[str, Any]) -> None:
        self.where, self.data = where, data
        for name, value in data.items():
            if name not in kinds:
                raise UsageError(f"{where}: {unknown('key', name, kinds, 'there are: ' + ', '.join(kinds))}")
            if not isinstance(value, kinds[name]) or isinstance(value, bool):
                raise UsageError(f"{where}: {name}={value!r}: {_kind(kinds[name])} is needed")

    def get(self, name: str, default: Any) -> Any:
        return self.data.get(name, default)

    def required(self, name: str) -> Any:
        if name not in self.data:
            raise UsageError(f"{self.where}: the key '{name}' is missing")
        return self.data[name]

    def text(self, name: str) -> str:
        return self.texts(name)[0]

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.required(name)
        found = (value,) if isinstance(value, str) else tuple(value)
        if not found or any(not isinstance(one, str) or not one.strip() for one in found):
            raise UsageError(f"{self.where}: {name}={value!r}: a name is needed")
        return found

    def positive(self, name: str) -> int:
        value: int = self.required(name)
        if value < 1:
            raise UsageError(f"{self.where}: {name}={value}: a whole number of at least 1 is needed")
        return value

    def options(self, name: str) -> Options:
        """A table as the texts that would follow -M; a table in it holds the options of one architecture."""
        found: list[str] = []
        for key, value in self.get(name, {}).items():
            inner = {f"{key}.{option}": one for option, one in value.items()} if isinstance(value, dict) else {}
            found += [f"{full}={self._written(name, full, one)}" for full, one in (inner or {key: value}).items()]
        return tuple(found)

    def _written(self, name: str, key: str, value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (int, float, str)) and str(value).strip():
            return str(value)
        raise UsageError(f"{self.where}: {name}.{key}={value!r}: a number, a text or true/false is needed")


def _kind(kind: Any) -> str:
    names = {str: "a text", int: "a whole number", list: "a list", dict: "a table"}
    return " or ".join(names[one] for one in (kind if isinstance(kind, tuple) else (kind,)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


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
    """The names of a trial's architectures; `all` are those that its protocol can be used on."""
    if one.models != (ALL,):
        return [registry.architecture(name).name for name in one.models]
    return [name for name, each in registry.architectures.items() if _usable(one.protocol, each)]


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
