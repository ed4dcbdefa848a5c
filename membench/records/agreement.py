"""Agreement: whether two records of one trial can both be true."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from membench.records.record import Record

TOLERANCE = 0.05  # of the larger one, between machines: a rule, wide enough for long trainings to drift apart
SMALL = 0.02  # difference that is always fine between machines: a divergence near 0 has no first digit to agree in


def same_numbers(first: Record, second: Record) -> bool:
    """A machine repeats its numbers to the last bit; another one rounds otherwise, and trains to other weights.

    Sizes have nothing to do with rounding.
    """
    if first.size != second.size:
        return False
    if first.metrics == second.metrics:
        return True
    return not _same_machine(first.environment, second.environment) and _alike(first.metrics, second.metrics)


def _same_machine(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """An environment that says nothing is nobody else's."""
    return not first or not second or first == second


def _alike(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> bool:
    return first.keys() == second.keys() and all(_close(value, second[name]) for name, value in first.items())


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= max(SMALL, TOLERANCE * max(abs(one), abs(other)))
