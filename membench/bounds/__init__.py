"""Bounds as objects, and those that hold for every model."""

from __future__ import annotations

from membench.bounds.objects import (
    Bound,
    BoundValue,
    Setting,
    Vacuous,
    accuracy_of,
    as_accuracy,
    associations_of,
    evaluate_bounds,
    require_uniform_labels,
)
from membench.hookspecs import hookimpl

__all__ = [
    "Bound",
    "BoundValue",
    "Setting",
    "Vacuous",
    "accuracy_of",
    "as_accuracy",
    "associations_of",
    "evaluate_bounds",
    "membench_bounds",
    "require_uniform_labels",
]


@hookimpl
def membench_bounds() -> list[Bound]:
    from membench.bounds.universal import universal_bounds

    return universal_bounds()
