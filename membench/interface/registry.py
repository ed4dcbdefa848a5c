"""Finds plugins, one by one: a broken one costs its own row and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, get_args

import pluggy

from membench.errors import PluginError, UsageError, in_words, place, unknown
from membench.interface import hookspecs
from membench.interface.bound import Bound, Direction, Quantity
from membench.interface.declarations import Architecture, Task
from membench.interface.options import options_of
from membench.interface.origin import (
    BUILT_IN,
    HERE,
    Origin,
    compressed_bytes,
    files_of,
    files_of_package,
    origin_of,
    origin_of_file,
)
from membench.interface.process_state import process_state_kept
from membench.interface.tracker import Tracker
from membench.printing import plugin_speaks

GROUP = "membench"
PROVIDED = ("architectures", "tasks", "bounds", "trackers")  # fields of Plugin, in the order of the hooks
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # what may be part of a path and of a command line
NAME_WORDS = "a name is at most 100 letters, digits, '.', '_' and '-'"
CALLED = {  # fields that are functions, and whether they may be missing
    Architecture: {"build": False, "check": True, "bottleneck": True, "identifiable": True, "active": True,
                   "state": True, "kernel": True, "for_budget": True},
    Task: {"shape": False, "sample": False, "contexts": True, "names": True},
    Bound: {"value": False},
    Tracker: {"open": False},
}  # fmt: skip


@dataclass(frozen=True)
class Plugin:
    """One plugin and what became of it: a row of `membench plugins`."""

    name: str
    origin: Origin
    status: str = "loaded"  # or failed, blocked
    reason: str = ""
    architectures: tuple[Architecture[Any], ...] = ()
    tasks: tuple[Task[Any], ...] = ()
    bounds: tuple[Bound, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    module: str = ""  # that its entry point names; a file has none

    @property
    def distribution(self) -> str:
        return self.origin.distribution


@dataclass(frozen=True)
class Selection:
    """Which plugins to load: plain data, so that a worker process can make the same registry."""

    files: tuple[str, ...] = ()  # plugin modules that are not installed, and classes in files as path.py:Class
    allowed: tuple[str, ...] | None = None  # names of plugins or distributions; None: all
    blocked: tuple[str, ...] = ()
    strict: bool = False  # raise instead of noting a failure
    built_in_only: bool = False  # import nothing of anybody else's: for a process that must not be tampered with
    needed: tuple[tuple[str, str], ...] | None = None  # names and distributions; None: all that is admitted

    @classmethod
    def from_environment(cls, files: Sequence[str] = (), blocked: Sequence[str] = ()) -> Selection:
        """MEMBENCH_PLUGINS=a,b allows only those; MEMBENCH_STRICT=1 raises what a plugin raises."""
        allowed = os.environ.get("MEMBENCH_PLUGINS")
        return cls(
            files=tuple(map(_resolved, files)),
            allowed=None if allowed is None else tuple(filter(None, map(str.strip, allowed.split(",")))),
            blocked=tuple(blocked),
            strict=os.environ.get("MEMBENCH_STRICT", "") not in ("", "0"),
        )

    def built_ins(self) -> Selection:
        """The same without plugins of anybody else's."""
        return replace(self, files=(), built_in_only=True)

    def admits(self, *names: str) -> bool:
        return self.allowed is None or any(name in self.allowed for name in names)


@dataclass
class Registry:
    """What can be run, and who provided it."""

    selection: Selection = field(default_factory=Selection)
    plugins: list[Plugin] = field(init=False)

    def __post_init__(self) -> None:
        # Built-ins first, the rest in an order that does not depend on the file system.
        found = sorted(
            entry_points(group=GROUP), key=lambda e: (_distribution(e) != BUILT_IN, _distribution(e), e.name)
        )
        self.plugins = [self._from_entry_point(entry) for entry in found]
        self.plugins += [self._from_file(file) for file in self.selection.files]
        known = {word for plugin in self.plugins for word in (plugin.name, plugin.distribution)}
        for name in self.selection.blocked:
            if name not in known and not self.selection.built_in_only:
                raise unknown("plugin to block", name, known, "list them with: membench plugins")
        self._settle_duplicates()

    @property
    def architectures(self) -> dict[str, Architecture[Any]]:
        return {item.name: item for plugin in self.plugins for item in plugin.architectures}

    @property
    def tasks(self) -> dict[str, Task[Any]]:
        return {item.name: item for plugin in self.plugins for item in plugin.tasks}

    @property
    def bounds(self) -> list[Bound]:
        return [item for plugin in self.plugins for item in plugin.bounds]

    def needed_for(self, architecture: str, task: str) -> Selection:
        """The plugins of one architecture and task, and those with a bound on it: what a worker has to import.

        What others patch or set when they are imported is then no part of its trial.
        """
        rows = [
            (plugin.name, plugin.distribution)
            for plugin in self.plugins
            if any(item.name == architecture for item in plugin.architectures)
            or any(item.name == task for item in plugin.tasks)
            or any(bound.architecture in (None, architecture) for bound in plugin.bounds)
        ]
        return replace(self.selection, needed=tuple(sorted(rows)))

    def architecture(self, name: str) -> Architecture[Any]:
        """By its name, or a class in a file as path.py:Class. UsageError when a package that it wraps is missing."""
        found = self.declared(name)
        if found.missing:
            raise UsageError(f"architecture '{name}' {found.missing}")
        return found

    def declared(self, name: str) -> Architecture[Any]:
        """The same, whether its models can be built here or not."""
        if is_target(name):
            return self._from_target(_resolved(name))
        known = self.architectures
        if name not in known and name.endswith(".py"):
            raise UsageError(_without_class(name))
        in_file = "a class in a file is path.py:Class; " if ":" in name or os.sep in name else ""
        self._require("architecture", name, known, f"{in_file}list them with: membench models")
        return known[name]

    @property
    def installed(self) -> dict[str, Architecture[Any]]:
        """The architectures whose models can be built here: all that `all` stands for."""
        return {name: one for name, one in self.architectures.items() if not one.missing}

    def code_bytes(self, name: str) -> int | None:
        """Of the compressed source of the plugin that has an architecture; None of a class that no file holds."""
        files = self.files_of(name)
        return compressed_bytes(files) if files else None

    def files_of(self, name: str) -> list[Path]:
        """Those of the plugin that has an architecture; none of a class that no file holds."""
        return _files(next(one for one in self.plugins if any(item.name == name for item in one.architectures)))

    def task(self, name: str) -> Task[Any]:
        known = self.tasks
        self._require("task", name, known, "list them with: membench tasks")
        return known[name]

    def tracker(self, name: str) -> Tracker:
        known = {item.name: item for plugin in self.plugins for item in plugin.trackers}
        self._require("tracker", name, known, "list them with: membench plugins")
        return known[name]

    def add(self, architecture: Architecture[Any]) -> Architecture[Any]:
        """One of this process, which no other could load: for the executor `inline` alone. UsageError for a name taken.

        A class that was defined again takes the place of what it was.
        """
        self.plugins = [p for p in self.plugins if (p.name, p.origin.distribution) != (architecture.name, HERE)]
        if architecture.name in self.architectures:
            taken = self.architectures[architecture.name].origin
            raise UsageError(f"the name '{architecture.name}' is taken by {taken}; rename the class")
        self.plugins.append(Plugin(architecture.name, architecture.origin, architectures=(architecture,)))
        return architecture

    def _from_target(self, target: str) -> Architecture[Any]:
        """A class in a file joins the selection, so that workers find it too."""
        row = next((plugin for plugin in self.plugins if plugin.origin.distribution == target), None)
        if row is None:
            row = self._from_file(target)
            if row.status == "loaded" and row.architectures[0].name in self.architectures:
                name, taken = row.architectures[0].name, self.architectures[row.architectures[0].name].origin
                raise UsageError(f"'{target}': the name '{name}' is taken by {taken}; rename the class")
            self.plugins.append(row)
            self.selection = replace(self.selection, files=(*self.selection.files, target))
        if row.status != "loaded":
            raise PluginError(f"'{target}' is not available: {row.reason}")
        return row.architectures[0]

    def _require(self, kind: str, name: str, known: Iterable[str], listing: str) -> None:
        if name in known:
            return
        for plugin in self.plugins:
            if plugin.status != "loaded" and (name == plugin.name or f"'{name}'" in plugin.reason):
                raise PluginError(
                    f"{kind} '{name}' is not available: plugin {plugin.name} ({plugin.origin}) "
                    f"is {plugin.status}: {plugin.reason}"
                )
        broken = sum(plugin.status == "failed" for plugin in self.plugins)
        note = f" ({broken} plugin{'s' * (broken > 1)} did not load, see: membench plugins)" if broken else ""
        raise unknown(kind, name, known, listing + note)

    def _from_entry_point(self, entry: EntryPoint) -> Plugin:
        return self._load(Plugin(entry.name, origin_of(entry.dist, entry.module), module=entry.module), entry.load)

    def _from_file(self, target: str) -> Plugin:
        """A plugin module, or with path.py:Class an architecture made of a class or function in any module."""
        file, name = split_target(target)
        path = Path(file)
        if not path.is_file():
            raise UsageError(f"plugin file '{path}' does not exist")
        row = Plugin(name or path.stem, origin_of_file(path, name))
        return self._load(row, lambda: _import_file(path, row.origin), name)

    def _load(self, row: Plugin, load: Callable[[], object], target: str | None = None) -> Plugin:
        for name in (row.name, row.distribution):
            if name in self.selection.blocked:
                return replace(row, status="blocked", reason=f"--block {name}")
        if not self.selection.admits(row.name, row.distribution):
            return replace(row, status="blocked", reason="not among MEMBENCH_PLUGINS")
        if self.selection.built_in_only and row.distribution != BUILT_IN:
            return replace(row, status="blocked", reason="only built-ins are imported here")
        if self.selection.needed is not None and (row.name, row.distribution) not in self.selection.needed:
            return replace(row, status="blocked", reason="no trial here needs it")
        try:
            with process_state_kept(), plugin_speaks():  # a plugin that changes folders must not move everybody
                module = load()
                found = ((_adapted(module, target),), (), (), ()) if target else _contributions(module)
            provided: list[Any] = [tuple(replace(one, origin=row.origin) for one in some) for some in found]
            return replace(row, **dict(zip(PROVIDED, provided, strict=True)))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may even call sys.exit
            if self.selection.strict or (target and isinstance(error, UsageError)):
                raise
            where = "" if isinstance(error, SyntaxError) else place(error, _files(row))  # which says it itself
            return replace(row, status="failed", reason=in_words(error) + where)

    def _settle_duplicates(self) -> None:
        """The same name from two plugins: a built-in keeps it, otherwise nobody has it until one is blocked."""
        for kind in PROVIDED:
            owners: dict[str, list[Plugin]] = {}
            for plugin in self.plugins:
                for item in getattr(plugin, kind):
                    owners.setdefault(item.name, []).append(plugin)
            for name, sharing in owners.items():
                if len(sharing) > 1:
                    losing = [p for p in sharing if p.distribution != BUILT_IN] or sharing[1:]
                    self._reject(
                        losing, f"{kind[:-1]} '{name}' is provided by {_both(sharing)}; block one with --block"
                    )

    def _reject(self, losing: Sequence[Plugin], reason: str) -> None:
        if self.selection.strict:
            raise PluginError(reason)
        self.plugins = [
            Plugin(p.name, p.origin, status="failed", reason=reason) if p in losing else p for p in self.plugins
        ]


def _contributions(module: object) -> tuple[tuple[Any, ...], ...]:
    """What one plugin provides, asked through a manager of its own so that no other plugin is involved."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(module)
    manager.check_pending()  # a hook whose name is mistyped
    if not manager.get_hookcallers(module):
        raise TypeError("no function is marked with @hookimpl")
    return (
        _checked(manager.hook.membench_architectures(), Architecture, "membench_architectures"),
        _checked(manager.hook.membench_tasks(), Task, "membench_tasks"),
        _checked(manager.hook.membench_bounds(), Bound, "membench_bounds"),
        _checked(manager.hook.membench_events(), Tracker, "membench_events"),
    )


def _checked(answers: Iterable[Iterable[Any]], kind: type, hook: str) -> tuple[Any, ...]:
    items: tuple[Any, ...] = tuple(item for answer in answers for item in answer)
    names: set[str] = set()
    for item in items:
        if kind not in type(item).__mro__:
            raise TypeError(f"{hook} returned {item!r}, not a membench.api.{kind.__name__}")
        _check_item(item, hook)
        if item.name in names:
            raise ValueError(f"{hook} returned '{item.name}' twice")
        names.add(item.name)
    return items


def _check_item(item: Any, hook: str) -> None:
    """ValueError or TypeError for a declaration that would fail later, or be misunderstood."""
    if not isinstance(item.name, str) or not NAME.fullmatch(item.name):
        raise ValueError(f"{hook} returned the name {_shown(item.name)}; {NAME_WORDS}")
    kind = next(kind for kind in CALLED if isinstance(item, kind))
    for name, optional in CALLED[kind].items():
        value = getattr(item, name)
        if not callable(value) and not (optional and value is None):
            raise TypeError(f"{name} of '{item.name}' is {_shown(value)}, not a function")
    if isinstance(item, Bound):
        _check_choice(item, "quantity", get_args(Quantity))
        _check_choice(item, "direction", get_args(Direction))
    if isinstance(item, (Bound, Tracker)):
        return
    config: Any = item.config
    if not is_dataclass(config) or not vars(config)["__dataclass_params__"].frozen:
        raise TypeError(f"the config of '{item.name}' must be a frozen dataclass")
    options_of(item.config)  # its fields have types that options can have
    if type(item.version) is not int or item.version < 1:
        raise ValueError(f"the version of '{item.name}' is {_shown(item.version)}; it is a whole number of at least 1")
    if isinstance(item, Architecture):
        _check_embeddings(item)


def _check_choice(item: Any, field: str, valid: Sequence[str]) -> None:
    value = getattr(item, field)
    if value not in valid:
        raise ValueError(f"the {field} of bound '{item.name}' is {_shown(value)}; it is one of {', '.join(valid)}")


def _check_embeddings(item: Architecture[Any]) -> None:
    given: Any = item.embeddings
    if not isinstance(given, (tuple, list)) or not all(isinstance(one, str) and one for one in given):
        raise TypeError(
            f"embeddings of '{item.name}' are {_shown(given)}; they are a tuple of names, such as ('embed',)"
        )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}.."


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "unknown"


def is_target(name: str) -> bool:
    """Whether a name is of the form path.py:Class."""
    return bool(split_target(name)[1])


def split_target(name: str) -> tuple[str, str | None]:
    """`path.py:Class` as path and class; a plain path has no class."""
    path, separator, target = name.rpartition(":")
    return (path, target) if separator and path.endswith(".py") else (name, None)


def _without_class(file: str) -> str:
    """What to write instead of a file alone; found by reading, not by running."""
    try:
        body = ast.parse(Path(file).read_bytes()).body
    except OSError:
        return f"file '{file}' does not exist; a class in a file is {file}:Class"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"file '{file}' cannot be read as Python: {in_words(error)}"
    named = [one for one in body if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and not one.name.startswith("_")]
    if any("hookimpl" in ast.dump(decorator) for one in named for decorator in one.decorator_list):
        return f"'{file}' is a plugin: give it as --plugin {file}, and the name of its architecture as the model"
    classes = [one for one in named if isinstance(one, ast.ClassDef)] or named
    if not classes:
        return f"file '{file}' has no class; a model is a class or function in it, {file}:Class"
    return f"'{file}' is a file; say which class in it: {', '.join(f'{file}:{one.name}' for one in classes)}"


def _resolved(name: str) -> str:
    path, target = split_target(name)
    return f"{Path(path).resolve()}:{target}" if target else str(Path(path).resolve())


def _adapted(module: object, name: str) -> Architecture[Any]:
    from membench.interface.adapt import architecture_of

    target = getattr(module, name, None)
    if target is None:
        known = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise unknown("class", name, known, f"the file has: {', '.join(known) or 'none'}")
    architecture = architecture_of(target)
    if not NAME.fullmatch(architecture.name):
        raise UsageError(f"the class is called {_shown(architecture.name)}; {NAME_WORDS}")
    return architecture


def _import_file(path: Path, origin: Origin) -> object:
    digest = (origin.code_sha256 or "")[:8]  # two files of one name are two modules
    spec = importlib.util.spec_from_file_location(f"membench_file_{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up there
    folder = str(path.resolve().parent)
    if folder not in sys.path:  # last, so that modules beside the file are found and hide nobody's
        sys.path.append(folder)
    spec.loader.exec_module(module)
    return module


def _files(plugin: Plugin) -> list[Path]:
    """All that a plugin's code is in, as far as it can be found without importing it."""
    file = Path(split_target(plugin.distribution)[0])
    return files_of_package(plugin.module) if plugin.module else files_of(file) if file.is_file() else []


def _both(plugins: Sequence[Plugin]) -> str:
    return " and ".join(f"{plugin.name} ({plugin.origin})" for plugin in plugins)
