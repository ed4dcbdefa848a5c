"""`membench.check`: what membench expects of an architecture, tested one by one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from membench.engine.execution import Execution, parse_memory
from membench.errors import UsageError
from membench.execute.limits import Limits
from membench.interface.declarations import Architecture
from membench.interface.options import assignments, expand, label
from membench.interface.registry import Selection
from membench.verbs.arguments import Model, Options, Paths, load, model_of, selection_of, texts_of

if TYPE_CHECKING:
    from membench.conformance.checks import Check, Result
    from membench.conformance.subject import Subject

TIMEOUT, MEMORY = 120.0, "4G"  # of a check, by default
EVERYTHING = Selection()


@dataclass(frozen=True)
class Conformance:
    """What became of every check of one architecture with one config."""

    architecture: str
    config: str  # in a few words
    results: Sequence[Result]

    @property
    def failed(self) -> list[Result]:
        return [one for one in self.results if one.outcome == "failed"]

    @property
    def advice(self) -> list[Result]:
        return [one for one in self.results if one.outcome == "advice"]


def check(
    model: Model,
    *,
    M: Options = None,
    timeout: float = TIMEOUT,
    memory: str | int = MEMORY,
    plugins: Paths = (),
    block: Sequence[str] = (),
) -> Conformance:
    """Test an architecture against all that membench expects of it, as `membench check` does.

    `model` is what `membench.run` takes, and M are its options, each with a single value. A model that cannot be found
    is a UsageError; whatever is wrong with one that was found is among `failed` of what comes back. The checks run in a
    process of their own, which may take `timeout` seconds and `memory` for each of them; those of a class or function
    run in this process, without limits.
    """
    from membench.conformance.checks import CHECKS

    return checked(model, M, limits_of(timeout, memory), selection_of(plugins, block), CHECKS)


def checked(
    model: Model, options: Options, limits: Limits, selection: Selection, checks: Sequence[Check]
) -> Conformance:
    """What becomes of these checks."""
    find = functools.partial(subject_of, model, tuple(texts_of(options)), selection)
    if isinstance(model, str):
        from membench.conformance.isolation import check_apart

        return Conformance(*check_apart(find, limits, checks))
    subject = find()
    return Conformance(subject.architecture.name, label(subject.config), [one(subject) for one in checks])


def limits_of(timeout: float, memory: str | int) -> Limits:
    """Those of a check. UsageError for what cannot be one."""
    held = Execution(timeout=timeout, memory=parse_memory(memory) if isinstance(memory, str) else memory)
    return Limits(held.timeout, held.memory)


def subject_of(model: Model, options: Sequence[str] = (), selection: Selection = EVERYTHING) -> Subject:
    """What is to be checked, found by its name. UsageError for a name or option that cannot be used."""
    registry = load(selection)
    name = model_of(model, registry)
    architecture = registry.architecture(name)  # before torch is imported, which takes seconds
    config = _only_config(architecture, options)

    from membench.conformance.subject import Subject

    return Subject.of(registry, name, architecture, config)


def _only_config(architecture: Architecture[Any], texts: Sequence[str]) -> Any:
    hint = f"see its options with: membench models {architecture.name}"
    configs = expand(architecture.config, assignments(texts), architecture.name, hint)
    if len(configs) != 1:
        raise UsageError(f"check takes single values, and {' '.join(texts)} makes {len(configs)} configs")
    return configs[0]
