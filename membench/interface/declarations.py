"""What a plugin declares: architectures and tasks. Nothing here imports torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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

    name: str
    version: int = 1
    summary: str
    reference: str  # citation
    config: type[C]  # a frozen dataclass; its fields, made by `option`, are the -M options
    build: Callable[[Shape, C], nn.Module]
    check: Callable[[Shape, C], None] | None = None  # raises ValueError when config and shape do not fit; no torch
    bottleneck: Callable[[C], int] | None = None  # the dimension that the logits are a linear function of
    identifiable: Callable[[Shape, C], int] | None = None  # directions of the parameters that change the function
    embeddings: tuple[str, ...] = ()  # prefixes of parameters that are tables over tokens or positions
    constructions: Mapping[str, Construction] = field(default_factory=dict)  # closed-form weights; the first is default
    kernel: Kernel | None = None  # fused training of many replicas; optional, never needed
    for_budget: Callable[[Shape, int], C] | None = None  # the config that best uses a number of parameters
    origin: Origin = UNKNOWN  # set by the registry


@dataclass(frozen=True, kw_only=True)
class Task(Generic[C]):
    """A family of facts. `version` changes whenever the same config and seed would give other facts."""

    name: str
    version: int
    summary: str
    config: type[C]  # a frozen dataclass; its fields, made by `option`, are the -T options
    shape: Callable[[C], Shape]
    sample: Callable[[C, np.random.Generator], Facts]
    contexts: Callable[[C], int] | None = None  # how many it samples, so that what would not fit is refused at once
    origin: Origin = UNKNOWN  # set by the registry
