"""Descent by limited-memory BFGS."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from membench.theory.descent import descend

Array = NDArray[np.float64]


def rosenbrock(point: Array) -> tuple[float, Array]:
    x, y = point
    value = (1 - x) ** 2 + 100 * (y - x * x) ** 2
    return float(value), np.array([-2 * (1 - x) - 400 * x * (y - x * x), 200 * (y - x * x)])


def test_the_bent_valley() -> None:
    end = descend(rosenbrock, np.array([-1.2, 1.0]), 200)
    assert end.converged
    assert end.point == pytest.approx([1, 1], abs=1e-7)
    assert end.gradient_norm <= 1e-9


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 30), st.integers(0, 2**32), st.floats(0, 3))
def test_quadratics_are_solved(size: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    matrix = basis @ np.diag(np.logspace(0, spread, size)) @ basis.T
    wanted = rng.standard_normal(size)

    def quadratic(point: Array) -> tuple[float, Array]:
        return float((point - wanted) @ matrix @ (point - wanted) / 2), matrix @ (point - wanted)

    end = descend(quadratic, np.zeros(size), 2000, gradient_norm=1e-7)
    assert end.converged
    assert end.point == pytest.approx(wanted, abs=1e-5)


def test_a_descent_never_rises_and_stops_when_told() -> None:
    start = np.array([-1.2, 1.0])
    values = [descend(rosenbrock, start, iterations).value for iterations in range(30)]
    assert values[0] == rosenbrock(start)[0]
    assert values == sorted(values, reverse=True)
    assert not descend(rosenbrock, start, 3).converged


def test_a_minimum_at_infinity_is_approached() -> None:
    end = descend(lambda point: (float(np.exp(-point).sum()), -np.exp(-point)), np.zeros(2), 100, gradient_norm=1e-6)
    assert end.point.min() > 13


def test_a_start_without_slope_stays_where_it_is() -> None:
    end = descend(lambda point: (1.0, np.zeros_like(point)), np.ones(3), 10)
    assert end.converged
    assert end.point.tolist() == [1, 1, 1]


def test_long_vectors() -> None:
    """Beyond the length at which scalar products are taken another way."""
    wanted = np.linspace(-1, 1, 9000)
    end = descend(lambda point: (float(((point - wanted) ** 2).sum()), 2 * (point - wanted)), np.zeros(9000), 50)
    assert end.point == pytest.approx(wanted, abs=1e-8)
