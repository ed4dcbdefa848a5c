"""Frames: A unit vectors in R^d, one for each answer, as far apart as can be had."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from membench.theory.descent import descend

Frame = NDArray[np.float64]  # [A, d], rows of length 1

_SHARPNESS = (10.0, 100.0, 1000.0)  # of the smooth maximum that stands for the largest overlap, one round each
_ITERATIONS = 150  # of each round; more changes the third digit
_WORK = 4e8  # A^2 d times iterations at which large frames are left as they are, after seconds


def circle(A: int) -> Frame:
    """As many points as answers, equally spaced on the unit circle: each is the unique nearest to itself."""
    angles = 2 * np.pi * np.arange(A) / A
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def simplex(A: int, d: int) -> Frame:
    """The corners of a regular simplex, whose overlaps are all -1/(A-1); needs d >= A-1."""
    if d < A - 1:
        raise ValueError(f"a simplex of A={A} corners needs d >= {A - 1}, not d={d}")
    centred = np.eye(A) - 1 / A
    corners = np.linalg.svd(centred)[0][:, : A - 1]  # an orthonormal basis of what is orthogonal to (1, ..., 1)
    return _padded(corners * math.sqrt(A / (A - 1)), d) if A > 1 else _padded(np.ones((1, 1)), max(d, 1))


def orthoplex(A: int, d: int) -> Frame:
    """The first A of e_1, -e_1, e_2, -e_2, ...: overlaps 0 and -1; needs A <= 2d."""
    if 2 * d < A:
        raise ValueError(f"an orthoplex in d={d} dimensions has {2 * d} corners, not A={A}")
    frame = np.zeros((A, d))
    frame[np.arange(A), np.arange(A) // 2] = np.where(np.arange(A) % 2, -1.0, 1.0)
    return frame


def orthogonal_simplices(A: int, d: int, *, equal: bool = True) -> Frame:
    """Simplices in A-d orthogonal subspaces; needs A/2 <= d <= A-1. One simplex at d = A-1, the orthoplex at d = A/2.

    No overlap is positive, which is the best for d < A-1 (Rankin 1955). Of nearly equal size, the simplices have no
    overlap below -1/(n-1) with n the size of the smallest. Otherwise all but one are pairs of opposites: that keeps
    a noisy look-up table's divergence lowest.
    """
    if not A / 2 <= d <= A - 1:
        raise ValueError(f"A={A} answers in orthogonal simplices need d from {math.ceil(A / 2)} to {A - 1}, not d={d}")
    blocks = A - d
    sizes = [len(part) for part in np.array_split(np.arange(A), blocks)]
    if not equal:
        sizes = [A - 2 * (blocks - 1)] + [2] * (blocks - 1)
    frame = np.zeros((A, d))
    answer = dimension = 0
    for size in sizes:
        frame[answer : answer + size, dimension : dimension + size - 1] = simplex(size, size - 1)
        answer, dimension = answer + size, dimension + size - 1
    return frame


def random_frame(A: int, d: int, rng: np.random.Generator) -> Frame:
    """Independent directions, uniform on the sphere."""
    return _normalised(rng.standard_normal((A, d)))


def coherence(frame: Frame) -> tuple[float, float]:
    """The largest overlap of two different rows, and the largest of its opposite: mu_+ and mu_-."""
    overlaps = (frame @ frame.T)[~np.eye(len(frame), dtype=bool)]
    return (float(overlaps.max()), float(-overlaps.min())) if len(overlaps) else (-1.0, -1.0)


def margin(frame: Frame) -> float:
    """By how much the logit of the right answer leads when the stream is that answer's row: 1 - mu_+."""
    return 1 - coherence(frame)[0]


@functools.lru_cache(maxsize=64)
def best_frame(A: int, d: int) -> Frame:
    """A frame of small largest overlap: optimal in closed form where one is known, else a local optimum. Read-only."""
    if d < 1:
        raise ValueError(f"a frame needs d >= 1, not d={d}")
    if d >= A - 1:
        frame = simplex(A, d)
    elif d == 2:
        frame = circle(A)
    elif 2 * d >= A:
        frame = orthogonal_simplices(A, d)
    elif d == 1:
        frame = np.where(np.arange(A) % 2, -1.0, 1.0)[:, None]  # two directions are all there is
    else:
        frame = optimised_frame(A, d, np.random.default_rng([A, d]))
    frame.setflags(write=False)
    return frame


def candidate_frames(A: int, d: int) -> list[Frame]:
    """The frames worth trying when the largest overlap is not all that counts: the best one, and others."""
    frames = [best_frame(A, d)]
    if A / 2 < d < A - 1:
        frames.append(orthogonal_simplices(A, d, equal=False))
    return frames


def optimised_frame(A: int, d: int, rng: np.random.Generator) -> Frame:
    """A local minimum of the largest overlap, from a random start. It is a frame whatever the optimiser did."""
    frame = random_frame(A, d, rng)
    iterations = max(10, min(_ITERATIONS, int(_WORK / (A * A * d))))
    for sharpness in _SHARPNESS:
        objective = functools.partial(_largest_overlap, A=A, sharpness=sharpness)
        frame = _normalised(descend(objective, frame.ravel(), iterations).point.reshape(A, d))
    return frame


def _largest_overlap(point: NDArray[np.float64], A: int, sharpness: float) -> tuple[float, NDArray[np.float64]]:
    """log sum exp of the overlaps, over the sharpness, and its gradient in the unnormalised rows."""
    rows = point.reshape(A, -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    frame = rows / lengths
    overlaps = frame @ frame.T
    np.fill_diagonal(overlaps, -np.inf)
    top = overlaps.max()
    weights = np.exp(sharpness * (overlaps - top))
    total = weights.sum()
    slope = 2 * (weights / total) @ frame  # [A, d]
    slope -= (slope * frame).sum(axis=1, keepdims=True) * frame
    return float(top + math.log(total) / sharpness), (slope / lengths).ravel()


def _normalised(rows: NDArray[np.float64]) -> Frame:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float64)


def _padded(rows: NDArray[np.float64], d: int) -> Frame:
    return np.pad(rows, ((0, 0), (0, d - rows.shape[1])))
