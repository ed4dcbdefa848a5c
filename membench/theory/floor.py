"""The floor: the best divergence that logits of rank d reach, as an interval.

F(pi, d) = inf over W in R^{A x d} and tables E of KL(pi, softmax(W E)) is not convex in W and E together, so the best
that several descents found is an upper bound on it and no more. The lower end is proven.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from membench.errors import NotApplicable
from membench.interface.facts import Facts
from membench.theory.descent import descend
from membench.theory.encoders import optimal_scales, rank_floor
from membench.theory.facts_profile import Profile, per_facts, profile
from membench.theory.frames import candidate_frames

Array = NDArray[np.float64]

STARTS = 8
_ITERATIONS = 3000  # of each descent; a table with zero probabilities has no minimum and stops here
_SOLVED = 1e-13  # a divergence that counts as zero


@dataclass(frozen=True)
class FloorInterval:
    """What is known of F(pi, d): it lies from `lower`, which is proven, to `upper`, which was found."""

    d: int
    lower: float
    upper: float  # the best divergence found, in nats
    worst: float  # the worst end of a descent: how much local minima matter
    starts: int  # descents
    gradient_norm: float  # largest entry of the gradient at the best

    def including(self, divergence: float) -> FloorInterval:
        """The interval once some model is known to reach this divergence: one that beats the floor improves it."""
        return replace(self, upper=max(self.lower, min(self.upper, divergence)))


@dataclass(frozen=True, eq=False)
class Encoder:
    """A sequence encoder: the logits of row r of the profile are W E[r]."""

    W: Array  # [A, d]
    E: Array  # [R, d]
    divergence: float
    gradient_norm: float = 0.0


def floors(facts: Facts, dimensions: Sequence[int], starts: int = STARTS) -> Iterator[FloorInterval]:
    """For each d, from the smallest on, the interval in which F(pi, d) lies.

    Each d also starts from the best encoder of the next smaller one, so that the upper ends never rise with d.
    """
    wanted = sorted(set(dimensions))
    # One answer each lies on a circle, and d = A - 1 is enough for any logits: both come as close to zero as one likes.
    no_floor = min(2, facts.answers - 1) if facts.is_association else facts.answers - 1
    for d, ends in _descend_along(profile(facts), [d for d in wanted if d < no_floor], starts):
        yield _interval(facts, d, ends)
    for d in wanted:
        if d >= no_floor:
            yield FloorInterval(d, 0.0, 0.0, 0.0, 0, 0.0)


def floor(facts: Facts, dimensions: Sequence[int], starts: int = STARTS) -> list[FloorInterval]:
    """The same, in the order given."""
    found = {interval.d: interval for interval in floors(facts, dimensions, starts)}
    return [found[d] for d in dimensions]


@per_facts
def best_encoder(facts: Facts, d: int, starts: int = STARTS) -> Encoder:
    """The encoder of least divergence that was found."""
    _, ends = next(_descend_along(profile(facts), [d], starts))
    return _best(ends)


def lower_end(facts: Facts, d: int) -> float:
    """A divergence that is proven not to be undercut; 0 where some answer has probability zero."""
    try:
        return rank_floor(facts, d)
    except NotApplicable:
        return 0.0


def _interval(facts: Facts, d: int, ends: list[Encoder]) -> FloorInterval:
    best = _best(ends)
    worst = max(end.divergence for end in ends)
    return FloorInterval(d, lower_end(facts, d), best.divergence, worst, len(ends), best.gradient_norm)


def _best(ends: list[Encoder]) -> Encoder:
    return min(ends, key=lambda end: end.divergence)


def _descend_along(found: Profile, dimensions: list[int], starts: int) -> Iterator[tuple[int, list[Encoder]]]:
    if dimensions and dimensions[0] < 1:
        raise ValueError(f"the floor is for d >= 1, not d={dimensions[0]}")
    warm: Encoder | None = None
    for d in dimensions:
        rng = np.random.default_rng(d)
        ends: list[Encoder] = []
        for W, E in _starts(found, d, starts, warm, rng):
            ends.append(_descend(found, W, E))
            if ends[-1].divergence < _SOLVED:
                break
        warm = _best(ends)
        yield d, ends


def _starts(
    found: Profile, d: int, count: int, warm: Encoder | None, rng: np.random.Generator
) -> Iterator[tuple[Array, Array]]:
    """Points to descend from: cut spectrum, smaller encoder, frames, and then Gaussian ones up to the count."""
    yield _cut_spectrum(found, d)
    informed = 1
    if warm is not None:
        yield _widened(found, warm, d)
        informed += 1
    if d >= 2:
        for frame in candidate_frames(found.answers, d):
            scales = np.clip(optimal_scales(found, frame), -1e3, 1e3)
            yield np.array(frame), scales[:, None] * frame[found.labels]
            informed += 1
    for _ in range(max(0, count - informed)):
        yield rng.standard_normal((found.answers, d)), 0.1 * rng.standard_normal((len(found.rows), d))


def _cut_spectrum(found: Profile, d: int) -> tuple[Array, Array]:
    """The d leading directions of the centred log-probabilities; zero probabilities count as very small ones."""
    logs = np.log(np.maximum(found.rows, 1e-6))
    logs -= logs.mean(axis=1, keepdims=True)
    directions = np.linalg.svd(np.sqrt(found.mass)[:, None] * logs, full_matrices=False)[2][:d].T  # [A, at most d]
    directions = np.pad(directions, ((0, 0), (0, d - directions.shape[1])))
    return directions, logs @ directions


def _widened(found: Profile, encoder: Encoder, d: int) -> tuple[Array, Array]:
    """The same encoder in more dimensions, which start along the largest errors and have no effect yet."""
    extra = d - encoder.W.shape[1]
    errors = found.rows - _softmax(encoder.E @ encoder.W.T)
    directions = np.linalg.svd(np.sqrt(found.mass)[:, None] * errors, full_matrices=False)[2][:extra].T
    directions = np.pad(directions, ((0, 0), (0, extra - directions.shape[1])))
    return np.concatenate([encoder.W, directions], axis=1), np.pad(encoder.E, ((0, 0), (0, extra)))


def _descend(found: Profile, W: Array, E: Array) -> Encoder:
    """The end of a descent. Never worse than its start."""
    rows, start = len(W), np.concatenate([W, E])
    end = descend(lambda point: _divergence(point, found, rows), start.ravel(), _ITERATIONS)
    point = end.point.reshape(start.shape)
    return Encoder(point[:rows], point[rows:], max(0.0, end.value), end.gradient_norm)


def _divergence(point: Array, found: Profile, rows: int) -> tuple[float, Array]:
    """KL and its gradient in W and E, stacked."""
    both = point.reshape(rows + len(found.rows), -1)
    W, E = both[:rows], both[rows:]
    logits = E @ W.T
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    totals = weights.sum(axis=1, keepdims=True)
    losses = np.log(totals[:, 0]) - (found.rows * logits).sum(axis=1) - found.entropies
    slopes = found.mass[:, None] * (weights / totals - found.rows)  # [R, A]
    return float(found.mass @ losses), np.concatenate([slopes.T @ E, slopes @ W]).ravel()


def _softmax(logits: Array) -> Array:
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
