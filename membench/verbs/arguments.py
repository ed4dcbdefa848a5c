"""What a person writes in Python, in the words of the command line: models, options, seeds, budgets, plugins."""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from membench.engine.execution import Execution, parse_memory
from membench.errors import UsageError, unknown
from membench.execute.executor import check_executor
from membench.interface.registry import PROVIDED, Registry, Selection, split_target
from membench.measure.quantize import BITS
from membench.measure.size import COUNTS
from membench.plan.budget import Budget, parse_budget
from membench.printing import printable

Model = str | Callable[..., Any]  # a name, path.py:Class, or a class or function (vocab, length, answers, **options)
Options = Mapping[str, Any] | Iterable[str] | None  # {"H": [1, 6, 11]}, or texts as after -M: ["H=1:11:5"]
Seeds = int | Iterable[int]
Paths = Iterable[str | os.PathLike[str]]
EACH = "each"  # way to count parameters, one after the other
MAX_SEEDS = 10_000


def say(text: str) -> None:
    """A line for whoever watches; results go elsewhere."""
    print(f"membench: {printable(text)}", file=sys.stderr)


def selection_of(plugins: Paths = (), block: Sequence[str] = ()) -> Selection:
    files = [os.fspath(file) for file in ([plugins] if isinstance(plugins, (str, os.PathLike)) else plugins)]
    return Selection.from_environment(files, block)


def load_registry(plugins: Paths = (), block: Sequence[str] = ()) -> Registry:
    """The plugins that were asked for. One that does not load stops nobody, but whoever named its file is told."""
    return load(selection_of(plugins, block))


def load(selection: Selection) -> Registry:
    """The same for a selection."""
    registry = Registry(selection)
    named = {Path(file).stem for file in selection.files}
    for plugin in registry.plugins:
        if plugin.name in named and plugin.status == "failed":
            say(f"plugin '{plugin.name}' did not load: {plugin.reason}")
        elif plugin.name in named and not any(getattr(plugin, kind) for kind in PROVIDED):
            say(f"plugin '{plugin.name}' provides nothing; it implements no membench hook")
    return registry


def check_plugin_files(files: Sequence[str]) -> None:
    """UsageError for a plugin file that is not there, without importing any."""
    for file in files:
        if not Path(split_target(file)[0]).is_file():
            raise UsageError(f"plugin file '{file}' does not exist")


def several(given: Any) -> list[Any]:
    """One thing, or some: a text is one."""
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)


def quantizations(given: str | Sequence[str]) -> tuple[str, ...]:
    """The types that weights are to be rounded to, each once. UsageError for one that there is not."""
    names = [name.strip() for one in several(given) for name in one.split(",") if name.strip()]
    for name in names:
        if name not in BITS:
            raise unknown("type to round weights to", name, BITS, f"there are: {', '.join(BITS)}")
    return tuple(name for name in BITS if name in names)


def models_of(model: Model | Sequence[Model], registry: Registry) -> list[str]:
    """The names of models. A class or function becomes an architecture of this process, for this registry alone."""
    return [one if isinstance(one, str) else _added(one, registry) for one in several(model)]


def model_of(model: Model, registry: Registry) -> str:
    """The name of the only model. UsageError for several."""
    names = models_of(model, registry)
    if len(names) != 1:
        raise UsageError(f"give one model here, not {len(names)}")
    return names[0]


def _added(target: Any, registry: Registry) -> str:
    from membench.interface.adapt import architecture_of

    if not callable(target):
        raise UsageError(f"model {target!r} is neither a name nor a class or function that builds a module")
    return registry.add(architecture_of(target)).name


def execution_of(
    model: Model | Sequence[Model],
    *,
    device: str,
    kernel: str,
    compile: str,
    jobs: int | None,
    executor: str | None,
    timeout: float | None,
    memory: str | int | None,
    address: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
) -> Execution:
    """How to run; a class or function of this process can only run in it."""
    here = any(not isinstance(one, str) for one in several(model))
    name = check_executor(executor or ("inline" if here else "local"))
    limit = parse_memory(memory) if isinstance(memory, str) else memory
    execution = Execution(
        device, kernel, compile, jobs=jobs, executor=name, timeout=timeout, memory=limit,
        address=address, cpus=cpus, gpus=gpus,
    )  # fmt: skip
    if here and execution.executor != "inline":
        raise UsageError(
            f"executor '{execution.executor}': a class or function of this process needs the executor 'inline'; "
            "to use others, save it to a file and pass path.py:Class"
        )
    return execution


def texts_of(options: Options) -> list[str]:
    """Options as they would be typed: NAME=VALUE. UsageError for a value that is none."""
    if options is None:
        return []
    if not isinstance(options, Mapping):
        return several(options)
    flat: dict[str, Any] = {}
    for name, value in options.items():  # a mapping in it holds the options of one architecture or task
        own = {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, Mapping) else {name: value}
        flat.update(own)
    return [f"{name}={_text(name, value)}" for name, value in flat.items()]


def _text(name: str, value: Any) -> str:
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)) or not isinstance(value, Iterable):
        return str(value)
    parts = [_text(name, one) for one in value]
    if not parts:
        raise UsageError(f"{name}={value!r} is an empty grid; give values such as 10, [7, 10] or range(1, 32, 5)")
    return ",".join(parts)


def seeds_of(seeds: Seeds) -> tuple[int, ...]:
    """So many seeds, from 0 on, or these very seeds."""
    try:
        named = range(seeds) if isinstance(seeds, int) else map(operator.index, seeds)
        chosen = tuple(dict.fromkeys(named))
    except TypeError:
        chosen = ()
    if not chosen or min(chosen) < 0 or len(chosen) > MAX_SEEDS:
        raise UsageError(f"seeds={seeds!r}: give a number of seeds such as 5, or seeds such as [3, 7]")
    return chosen


def budgets_of(budget: str | int | Iterable[str | int] | None, count: str = "all") -> list[Budget]:
    """Numbers of parameters such as 3000, "3k" or "3k,10k", counted in one way or in each."""
    parts = [part for one in several(() if budget is None else budget) for part in str(one).split(",")]
    return [Budget(size, one) for one in (COUNTS if count == EACH else (count,)) for size in map(parse_budget, parts)]
