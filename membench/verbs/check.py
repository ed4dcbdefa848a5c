"""`membench.check`: what membench expects of an architecture, tested one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from membench.errors import UsageError
from membench.interface.declarations import Architecture
from membench.interface.options import assignments, expand, label
from membench.verbs.arguments import Model, Options, Paths, load_registry, model_of, texts_of

if TYPE_CHECKING:
    from membench.conformance.checks import Result
    from membench.conformance.subject import Subject


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


def check(model: Model, *, M: Options = None, plugins: Paths = (), block: Sequence[str] = ()) -> Conformance:
    """Test an architecture against all that membench expects of it, as `membench check` does.

    `model` is what `membench.run` takes, and M are its options, each with a single value. A model that cannot be found
    is a UsageError; whatever is wrong with one that was found is among `failed` of what comes back.
    """
    from membench.conformance.checks import CHECKS

    subject = subject_of(model, M=M, plugins=plugins, block=block)
    return Conformance(subject.architecture.name, label(subject.config), [one(subject) for one in CHECKS])


def subject_of(model: Model, *, M: Options = None, plugins: Paths = (), block: Sequence[str] = ()) -> Subject:
    """What is to be checked, found by its name. UsageError for a name or option that cannot be used."""
    registry = load_registry(plugins, block)
    name = model_of(model, registry)
    architecture = registry.architecture(name)  # before torch is imported, which takes seconds
    config = _only_config(architecture, texts_of(M))

    from membench.conformance.subject import Subject

    return Subject.of(registry, name, architecture, config)


def _only_config(architecture: Architecture[Any], texts: Sequence[str]) -> Any:
    hint = f"see its options with: membench models {architecture.name}"
    configs = expand(architecture.config, assignments(texts), architecture.name, hint)
    if len(configs) != 1:
        raise UsageError(f"check takes single values, and {' '.join(texts)} makes {len(configs)} configs")
    return configs[0]
