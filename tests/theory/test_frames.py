"""Frames: unit vectors far apart."""

from __future__ import annotations

import numpy as np
import pytest

from membench.theory.frames import (
    best_frame,
    candidate_frames,
    circle,
    coherence,
    margin,
    optimised_frame,
    orthogonal_simplices,
    orthoplex,
    random_frame,
    simplex,
)


@pytest.mark.parametrize(("A", "expected"), [(3, 1.5), (10, 0.19098301), (50, 0.00788530)])
def test_margin_of_the_circle(A: int, expected: float) -> None:
    assert margin(circle(A)) == pytest.approx(expected, abs=5e-9)


@pytest.mark.parametrize(("A", "tolerance"), [(3, 0.86602540), (10, 0.30901699), (50, 0.06279052)])
def test_how_far_an_encoding_on_the_circle_may_move(A: int, tolerance: float) -> None:
    """Half the side of the polygon, sin(pi/A): just below it the answer stands, just beyond it can fall."""
    frame = circle(A)
    towards = (frame[1] - frame[0]) / np.linalg.norm(frame[1] - frame[0])
    assert np.linalg.norm(frame[1] - frame[0]) / 2 == pytest.approx(tolerance, abs=5e-9)
    assert (frame @ (frame[0] + 0.9999 * tolerance * towards)).argmax() == 0
    assert (frame @ (frame[0] + 1.0001 * tolerance * towards)).argmax() == 1


@pytest.mark.parametrize(("A", "factor"), [(10, 10.472136), (50, 253.636556), (51, 263.619748)])
def test_coherence_factor_of_the_circle(A: int, factor: float) -> None:
    aligned, opposed = coherence(circle(A))
    assert (1 + opposed) / (1 - aligned) == pytest.approx(factor, abs=5e-7)


@pytest.mark.parametrize(("A", "d"), [(2, 1), (3, 2), (10, 9), (10, 14)])
def test_simplex_has_equal_overlaps(A: int, d: int) -> None:
    overlaps = (frame := simplex(A, d)) @ frame.T
    assert np.allclose(overlaps, np.where(np.eye(A), 1, -1 / (A - 1)))
    aligned, opposed = coherence(frame)
    assert (1 + opposed) / (1 - aligned) == pytest.approx(1)


@pytest.mark.parametrize(("A", "d"), [(4, 2), (7, 4), (50, 25)])
def test_orthoplex_has_factor_two(A: int, d: int) -> None:
    assert coherence(orthoplex(A, d)) == (0, 1)


@pytest.mark.parametrize(("A", "d", "opposed"), [(50, 48, 1 / 24), (50, 40, 1 / 4), (10, 5, 1), (6, 5, 1 / 5)])
def test_orthogonal_simplices_are_never_aligned(A: int, d: int, opposed: float) -> None:
    frame = orthogonal_simplices(A, d)
    assert np.allclose(np.linalg.norm(frame, axis=1), 1)
    assert coherence(frame) == pytest.approx((0 if d < A - 1 else -1 / (A - 1), opposed), abs=1e-12)


@pytest.mark.parametrize(("A", "d", "aligned"), [(50, 5, 0.560), (50, 10, 0.234), (50, 20, 0.072), (10, 3, 0.405)])
def test_optimised_frames_are_nearly_as_good_as_the_best_known(A: int, d: int, aligned: float) -> None:
    random = coherence(random_frame(A, d, np.random.default_rng(0)))[0]
    found = coherence(best_frame(A, d))[0]
    assert aligned - 0.01 < found < aligned + 0.01 < random


@pytest.mark.parametrize("A", [2, 3, 5, 9])
def test_best_frame_has_unit_rows_in_every_dimension(A: int) -> None:
    for d in range(1, A + 2):
        for frame in candidate_frames(A, d):
            assert frame.shape == (A, d)
            assert np.allclose(np.linalg.norm(frame, axis=1), 1)
            assert margin(frame) > 0 or d == 1


def test_an_optimised_frame_is_a_frame_whatever_the_budget() -> None:
    frame = optimised_frame(120, 3, np.random.default_rng(0))
    assert np.allclose(np.linalg.norm(frame, axis=1), 1)


def test_frames_that_do_not_exist_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="needs d >= 9, not d=8"):
        simplex(10, 8)
    with pytest.raises(ValueError, match="has 8 corners, not A=9"):
        orthoplex(9, 4)
    with pytest.raises(ValueError, match="need d from 5 to 9, not d=4"):
        orthogonal_simplices(10, 4)
    with pytest.raises(ValueError, match="d=0"):
        best_frame(3, 0)
