"""How far a mean, a difference of means, or anything fitted may be off: every interval over seeds comes from here.

Means have t intervals: with the five seeds that people run, a percentile bootstrap covers the mean in 84 of 100 cases
and not in 95, and t in 95 (tests/analysis/test_intervals.py simulates both). What has no formula, a threshold or the
parameters of a law, is resampled, with one number of resamples, one seed and one rounding.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
RESAMPLES = 4000
LEVEL = 0.95
DECIMALS = 12  # processors differ in the last digits of a sum; neither a tie nor a document may depend on them


def mean_interval(values: Numbers, ceiling: float | None = None) -> tuple[float, float]:
    """t interval of the mean over seeds; NaN for fewer than two seeds, which tell nothing of it."""
    low, high = intervals([values], ceiling)
    return float(low[0]), float(high[0])


def intervals(values: Sequence[Numbers], ceiling: float | None = None) -> tuple[Numbers, Numbers]:
    """The t intervals of many means; with a ceiling, of shares, which are neither above it nor below zero."""
    count = np.array([len(one) for one in values], dtype=np.int64)
    flat = np.concatenate([*values, np.empty(0)])
    row = np.repeat(np.arange(len(values)), count)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(row, flat, len(values)) / count
        square = np.bincount(row, (flat - mean[row]) ** 2, len(values)) / (count - 1) / count
        first = flat[np.minimum(np.cumsum(count) - count, len(flat) - 1)] if len(flat) else mean
        same = np.bincount(row, flat == first[row], len(values)) == count
    square[same] = 0.0  # rounding must not make an interval of seeds that all agree
    half = _t(count - 1) * np.sqrt(square)
    half[count < 2] = math.nan
    return _ends(mean, half, ceiling)


def difference_interval(ours: Numbers, theirs: Numbers) -> tuple[float, float]:
    """Welch's t interval of the difference of two means whose seeds do not pair; NaN when either has fewer than two.

    Seeds that pair have one interval, that of the mean of their differences.
    """
    return combined_interval([1.0, -1.0], [ours, theirs])


def combined_interval(weights: Sequence[float], samples: Sequence[Numbers]) -> tuple[float, float]:
    """Of a weighted sum of means of independent samples, with the degrees of freedom of Welch and Satterthwaite."""
    if not samples or min(map(len, samples)) < 2:
        return math.nan, math.nan
    parts = np.array([w * w * one.var(ddof=1) / len(one) for w, one in zip(weights, samples, strict=True)])
    total = float(parts.sum())
    freedom = total**2 / float((parts**2 / [len(one) - 1 for one in samples]).sum()) if total > 0 else 1.0
    middle = float(sum(w * one.mean() for w, one in zip(weights, samples, strict=True)))
    low, high = _ends(np.array([middle]), _t(np.array([freedom])) * math.sqrt(total))
    return float(low[0]), float(high[0])


def _ends(mean: Numbers, half: Numbers, ceiling: float | None = None) -> tuple[Numbers, Numbers]:
    low, high = (mean - half).round(DECIMALS), (mean + half).round(DECIMALS)
    return (low, high) if ceiling is None else (np.maximum(low, 0.0), np.minimum(high, ceiling))


def _t(freedom: NDArray[np.number]) -> Numbers:
    """The quantile of Student's distribution that leaves out as much on each side as the level allows."""
    return np.array([_quantile(float(one)) for one in freedom])


@functools.cache
def _quantile(freedom: float) -> float:
    from scipy.special import stdtrit  # a third of the time that importing scipy.stats takes

    return float(stdtrit(freedom, (1 + LEVEL) / 2)) if freedom > 0 else math.nan


def percentiles(resampled: Numbers) -> Numbers:
    """The ends of the percentile interval of what was resampled: [..., RESAMPLES] to [2, ...]."""
    ends: Numbers = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return ends.round(DECIMALS)


def resampled_weights(x: Numbers) -> Numbers:
    """How much each point counts in each resample of a fit: [RESAMPLES, points]; no rows when seeds are too few.

    Seeds are the points at one x. Of m of them m - 1 are drawn and count m / (m - 1) each: drawing all m would make
    the intervals too narrow by the root of (m - 1) / m, which is a tenth for five seeds (Rao and Wu 1988).
    """
    groups = [np.flatnonzero(x == value) for value in np.unique(x)]
    repeated = [group for group in groups if len(group) > 1]
    if 2 * sum(map(len, repeated)) < len(x):
        return np.empty((0, len(x)))
    random = _generator()
    weights = np.ones((RESAMPLES, len(x)))
    for group in repeated:
        seeds = len(group)
        weights[:, group] = random.multinomial(seeds - 1, [1 / seeds] * seeds, size=RESAMPLES) * (seeds / (seeds - 1))
    return weights


def resampled_successes(trials: NDArray[np.int64], chance: Numbers) -> Numbers:
    """How many of some trials succeed in each resample when each has this chance: [values] to [RESAMPLES, values].

    For successes that are all of one kind: resampled themselves, five of five would stay five of five.
    """
    return _generator().binomial(trials, chance, (RESAMPLES, len(trials))).astype(np.float64)


def _generator() -> np.random.Generator:
    return np.random.default_rng(0)
