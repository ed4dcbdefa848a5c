"""The hooks of membench. Each returns what a plugin provides; docs/plugins.md shows one that uses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from membench.interface.bound import Bound
    from membench.interface.declarations import Architecture, Task
    from membench.interface.tracker import Tracker

hookspec = pluggy.HookspecMarker("membench")
# Marks a function of a plugin as its implementation of the hook of the same name.
hookimpl = pluggy.HookimplMarker("membench")


@hookspec
def membench_architectures() -> Iterable[Architecture[Any]]:  # type: ignore[empty-body]
    """The architectures that this plugin provides."""


@hookspec
def membench_tasks() -> Iterable[Task[Any]]:  # type: ignore[empty-body]
    """The tasks that this plugin provides."""


@hookspec
def membench_bounds() -> Iterable[Bound]:  # type: ignore[empty-body]
    """What is proven about an architecture, or about every model."""


@hookspec
def membench_events() -> Iterable[Tracker]:  # type: ignore[empty-body]
    """The trackers that this plugin provides: each is told, when asked for, what becomes of trials."""
