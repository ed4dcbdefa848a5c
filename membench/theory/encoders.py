"""Bounds on the divergence of models whose logits are a linear function of d numbers.

F(pi, d) is the best divergence of a sequence encoder: logits W E(t) with W in R^{A x d} and any table E. No model that
ends in a linear unembedding from R^d does better, and one that can give every context of the support any vector of
R^d does as well. An architecture says which of the two it is by taking its bounds from here.
"""

from __future__ import annotations

import math

import numpy as np

from membench.errors import NotApplicable
from membench.interface.bound import Vacuous
from membench.interface.facts import Facts
from membench.theory.facts_profile import (
    Array,
    Profile,
    per_facts,
    profile,
    spectrum,
)
from membench.theory.frames import Frame, coherence

_RANK = 1e-10  # of the largest singular value: below it a singular value counts as zero
_PAIRS = 10**8  # comparisons that the bound for d = 1 may take
_LARGEST_SCALE = 1e9


# Theorem 2: explicit encoders E(t) = scale(t) W_{g(t)} on a frame W, with g(t) the most likely answer.


def theorem_2_constant(A: int, d: int) -> float:
    """C = sqrt(32 log(A+1) / d), the coherence of a random frame that Theorem 2 reckons with."""
    return math.sqrt(32 * math.log(A + 1) / d)


def theorem_2_factor(C: float, distance: float = 2.0) -> float:
    """(1 + 2C + C distance) / (1 - 2C); the L1 distance of the noise from uniform is at most 2, and 0 is enough."""
    if 2 * C >= 1:
        raise Vacuous(f"C={C:.4g} is not below 1/2")
    return (1 + 2 * C + C * distance) / (1 - 2 * C)


def base_terms(found: Profile) -> Array:
    """(1 - pi_g) log((A-1) / (e^Hs - 1)) for each row: what equation (6) costs on a simplex. Zero without noise."""
    noise = 1 - found.rows.max(axis=1)
    noisy = found.entropies > 1e-12
    spread = np.expm1(np.where(noisy, found.entropies, 1.0))
    return np.asarray(np.where(noisy, noise * np.log((found.answers - 1) / spread), 0.0))


def coherence_divergence(found: Profile, frame: Frame) -> float:
    """The mean base term times (1 + mu_-) / (1 - mu_+)."""
    aligned, opposed = coherence(frame)
    if aligned >= 1:
        raise Vacuous("two answers share a direction")
    return float(found.mass @ base_terms(found)) * (1 + opposed) / (1 - aligned)


def refined_divergence(found: Profile, frame: Frame) -> float:
    """As above, with the overlaps that the noise really has instead of mu_-."""
    aligned, _ = coherence(frame)
    if aligned >= 1:
        raise Vacuous("two answers share a direction")
    noise = 1 - found.rows.max(axis=1)
    gap = (found.rows * (1 - _overlaps(found, frame))).sum(axis=1)  # noise times the mean of 1 - W_k.W_g over it
    factors = np.divide(gap, noise, out=np.zeros_like(gap), where=noise > 0)
    return float(found.mass @ (base_terms(found) * factors)) / (1 - aligned)


def entropy_scales(found: Profile, frame: Frame) -> Array:
    """Scales at which the entropy equals log sum_j exp(scale (W_j - W_g).W_g): the paper's equation (6), float64[R].

    Infinite for rows without entropy. Newton's method on a convex, falling function never overshoots from the left.
    """
    gaps = 1 - _overlaps(found, frame)  # [R, A], 0 at the label
    scales = np.zeros(len(gaps))
    for _ in range(200):
        weights = np.exp(-scales[:, None] * gaps)
        total = weights.sum(axis=1)
        step = (np.log(total) - found.entropies) / ((weights * gaps).sum(axis=1) / total + 1e-300)
        scales += np.where(found.entropies > 1e-12, np.maximum(step, 0.0), 0.0)
        if np.all(step <= 1e-14 * (1 + scales)):
            break
    return np.where(found.entropies > 1e-12, np.minimum(scales, _LARGEST_SCALE), np.inf)


def optimal_scales(found: Profile, frame: Frame) -> Array:
    """The scales of least divergence, float64[R]: the mean overlap under the model equals that under the facts."""
    overlaps = _overlaps(found, frame)
    wanted = (found.rows * overlaps).sum(axis=1)
    low, high = np.full(len(wanted), -1.0), np.ones(len(wanted))
    while np.any(short := (_mean_overlap(overlaps, high) < wanted) & (high < _LARGEST_SCALE)):
        high = np.where(short, 2 * high, high)
    while np.any(long := (_mean_overlap(overlaps, low) > wanted) & (low > -_LARGEST_SCALE)):
        low = np.where(long, 2 * low, low)
    for _ in range(100):
        middle = (low + high) / 2
        below = _mean_overlap(overlaps, middle) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(found.entropies > 1e-12, (low + high) / 2, np.inf)


def scaled_divergences(found: Profile, frame: Frame, scales: Array) -> Array:
    """KL of each row when its logits are scale W W_g, float64[R]. An infinite scale is the limit: a sure answer."""
    finite = np.isfinite(scales)
    safe = np.where(finite, scales, 0.0)[:, None]
    gaps = 1 - _overlaps(found, frame)
    shift = (safe * gaps).min(axis=1, keepdims=True)  # negative scales make the label the least likely answer
    normaliser = np.log(np.exp(shift - safe * gaps).sum(axis=1)) - shift[:, 0]
    return np.where(finite, safe[:, 0] * (found.rows * gaps).sum(axis=1) + normaliser - found.entropies, 0.0)


def _overlaps(found: Profile, frame: Frame) -> Array:
    return np.asarray(frame[found.labels] @ frame.T)  # [R, A]


def _mean_overlap(overlaps: Array, scales: Array) -> Array:
    scores = scales[:, None] * overlaps
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((weights * overlaps).sum(axis=1) / weights.sum(axis=1))


# The spectrum of the centred log-probabilities.


def spectral_divergence(facts: Facts, d: int) -> float:
    """A quarter of the squared singular values beyond the d-th, rows weighted: reached by cutting the spectrum off."""
    return float((spectrum(facts, True)[d:] ** 2).sum()) / 4


def self_concordance(squares: float) -> float:
    """eta(s) = (e^-r + r - 1) / 2 with r = sqrt(2 s): the least divergence of a log-probability error of that size."""
    r = math.sqrt(2 * squares)
    return (math.expm1(-r) + r) / 2


def rank_floor(facts: Facts, d: int) -> float:
    """A divergence that no rank-d logits go below: p_min pi_min eta(sum_{i>d} sigma_i^2) over the distinct rows."""
    found = profile(facts)
    rest = float((spectrum(facts, False)[d:] ** 2).sum())
    return float(found.mass.min() * found.rows.min()) * self_concordance(rest)


def log_rank(facts: Facts) -> int:
    """The rank of the centred log-probabilities: with full support, the least d at which F(pi, d) = 0."""
    values = spectrum(facts, False)
    return int((values > _RANK * max(values[0], 1e-300)).sum())


@per_facts
def best_two_answers(facts: Facts) -> float:
    """The best accuracy of a model that only ever gives one of two answers."""
    found = profile(facts)
    if found.rows.size * found.answers > _PAIRS:
        raise NotApplicable(f"{found.rows.size * found.answers:.1e} comparisons are needed, more than {_PAIRS:.0e}")
    pairs = (np.maximum(found.rows, found.rows[:, [k]]).T @ found.mass for k in range(found.answers))
    return max(float(best.max()) for best in pairs)
