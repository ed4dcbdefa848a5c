"""What a plugin declares: architectures and tasks. Nothing here imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from membench.interface.facts import Facts, Shape
from membench.interface.origin import UNKNOWN, Origin

if TYPE_CHECKING:
    from torch import nn

    from membench.engine.trainer import Kernel

C = TypeVar("C")


def lazy(target: str) -> Callable[..., Any]:
    """The callable `package.module:name`, imported when it is first called: so that a declaration needs no torch."""
    module, _, name = target.partition(":")

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call


# Fills the weights of a freshly built float64 module for the given facts, in place, and returns
# what it can say of itself (rank, conditioning, ...) for the record. Raises NotApplicable.
Construction = Callable[["nn.Module", Facts], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Architecture(Generic[C]):
    """A family of models. `build` never sees the facts and owns the initialisation.

    The module that it returns maps tokens, int64[batch, S], to logits, float[batch, A]; all that
    it learned is in its `state_dict()`. `version` changes whenever the same config and seed would
    train to other numbers: finished trials of an older version are measured again.
    """

    name: str  # what --model takes
    version: int = 1
    summary: str  # one line for listings
    reference: str  # citation
    config: type[C]  # a frozen dataclass; its fields, made by `option`, are the -M options
    build: Callable[[Shape, C], nn.Module]  # with its initial weights, which nothing changes before training
    check: Callable[[Shape, C], None] | None = None  # raises ValueError when config and shape do not fit; no torch
    bottleneck: Callable[[C], int] | None = None  # the dimension that the logits are a linear function of
    identifiable: Callable[[Shape, C], int] | None = None  # directions of the parameters that change the function
    active: Callable[[Shape, C], int] | None = None  # parameters that a question uses, where `build` reads more
    state: Callable[[Shape, C], int] | None = None  # numbers carried from one position to the next
    embeddings: tuple[str, ...] = ()  # prefixes of parameters that are tables over tokens, positions or answers
    constructions: Mapping[str, Construction] = field(default_factory=dict)  # closed-form weights; the first is default
    kernel: Kernel | None = None  # fused training of many replicas; optional, never needed
    for_budget: Callable[[Shape, int], C] | None = None  # the config that best uses a number of parameters
    packages: Mapping[str, str] = field(default_factory=dict)  # `build` imports, beyond torch, and what pip calls them
    origin: Origin = UNKNOWN  # set by the registry

    @property
    def missing(self) -> str:
        """What to install before a model can be built, in words; empty when all is here. Imports nothing."""
        absent = {name: pip for name, pip in self.packages.items() if find_spec(name.partition(".")[0]) is None}
        lines = " ".join(f"'{pip}'" for pip in dict.fromkeys(absent.values()))
        return f"needs {' and '.join(absent)}: pip install {lines}" if absent else ""


class Names(NamedTuple):
    """What the numbers of a task stand for, so that a person can ask and read answers."""

    tokens: tuple[str, ...]  # N
    answers: tuple[str, ...]  # A


@dataclass(frozen=True, kw_only=True)
class Task(Generic[C]):
    """A family of facts. `version` changes whenever the same config and seed would give other facts."""

    name: str  # what --task takes
    version: int
    summary: str  # one line for listings
    config: type[C]  # a frozen dataclass; its fields, made by `option`, are the -T options
    shape: Callable[[C], Shape]  # known before any facts are drawn
    sample: Callable[[C, np.random.Generator], Facts]  # drawn from this generator and nothing else
    contexts: Callable[[C], int] | None = None  # how many it samples, so that what would not fit is refused at once
    names: Callable[[C], Names] | None = None  # of tokens and answers; without it they are numbers
    attribution: str = ""  # where data come from and their licence; in every record
    origin: Origin = UNKNOWN  # set by the registry
