"""Descent: the limited-memory BFGS method, in plain numpy.

Library implementations call LAPACK on tiny matrices at every step, whose threads wait for each other longer than they
work; the problems here are small and many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objective = Callable[[Array], tuple[float, Array]]  # a point to the value and gradient there

_DECREASE, _CURVATURE = 1e-4, 0.9  # of the Wolfe conditions
_ROUNDING = 1e-14  # relative change of the value that is only rounding
_HALVINGS = 40
_ALONE = 8000  # entries up to which BLAS does not wake its threads for a scalar product


@dataclass(frozen=True, eq=False)
class Descent:
    """Where a descent ended. The value is never above that of the start."""

    point: Array
    value: float
    gradient: Array
    converged: bool  # the gradient is small, or no step along it gets any lower

    @property
    def gradient_norm(self) -> float:
        """The largest entry of the gradient."""
        return float(np.abs(self.gradient).max(initial=0.0))


def descend(
    objective: Objective, start: Array, iterations: int, gradient_norm: float = 1e-9, memory: int = 10
) -> Descent:
    """Go down from a point until the gradient's largest entry is small, at most so many steps."""
    steps: deque[tuple[Array, Array, float]] = deque(maxlen=memory)
    value, gradient = objective(start)
    here = Descent(start, value, gradient, False)
    for _ in range(iterations):
        if here.gradient_norm <= gradient_norm:
            return Descent(here.point, here.value, here.gradient, True)
        there = _step(objective, here, _direction(here.gradient, steps), first=not steps)
        if there is None and steps:  # the memory misleads: start again along the gradient
            steps.clear()
            continue
        if there is None:
            return Descent(here.point, here.value, here.gradient, True)
        moved, turned = there.point - here.point, there.gradient - here.gradient
        if (curvature := _dot(moved, turned)) > 0:
            steps.append((moved, turned, curvature))
        here = there
    return here


def _step(objective: Objective, here: Descent, direction: Array, first: bool) -> Descent | None:
    """A point along the direction that satisfies the weak Wolfe conditions, by bisection; None if there is none.

    Close to a minimum the value only shows rounding, and the slope decides (Hager and Zhang 2005).
    """
    slope = _dot(here.gradient, direction)
    if not slope < 0:
        return None
    low, high, length = 0.0, math.inf, min(1.0, 1 / here.gradient_norm) if first else 1.0
    for _ in range(_HALVINGS):
        point = here.point + length * direction
        value, gradient = objective(point)
        new_slope = _dot(gradient, direction)
        lower = value <= here.value + _DECREASE * length * slope
        level = value <= here.value + _ROUNDING * abs(here.value) and new_slope <= (2 * _DECREASE - 1) * slope
        if not (lower or level):
            high = length
        elif new_slope < _CURVATURE * slope:
            low = length
        else:
            return Descent(point, value, gradient, False)
        length = 2 * length if math.isinf(high) else (low + high) / 2
    return None


def _direction(gradient: Array, steps: deque[tuple[Array, Array, float]]) -> Array:
    """Minus the gradient, times the inverse Hessian as the last steps suggest it."""
    direction = -gradient
    weights = []
    for moved, turned, curvature in reversed(steps):
        weights.append(_dot(moved, direction) / curvature)
        direction -= weights[-1] * turned
    if steps:
        _, turned, curvature = steps[-1]
        direction *= curvature / _dot(turned, turned)
    for (moved, turned, curvature), weight in zip(steps, reversed(weights), strict=True):
        direction += (weight - _dot(turned, direction) / curvature) * moved
    return direction


def _dot(left: Array, right: Array) -> float:
    if len(left) < _ALONE:
        return float(left @ right)
    return float(np.einsum("i,i->", left, right))
