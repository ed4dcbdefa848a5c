"""The one bootstrap: how far a mean, a difference of means, or anything fitted may be off, over resampled seeds.

One number of resamples, one seed and one rounding, so that the same numbers show the same interval everywhere.
What these intervals are worth with few seeds is said in docs/records.md.
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
_AT_ONCE = 500  # rows resampled together, so that memory does not grow with their number


def bootstrap_interval(values: Numbers) -> tuple[float, float]:
    """Percentile interval of the mean over resampled seeds; NaN for fewer than two seeds, which tell nothing of it."""
    low, high = intervals([values])
    return float(low[0]), float(high[0])


def difference_interval(ours: Numbers, theirs: Numbers) -> tuple[float, float]:
    """Of the difference of two means whose seeds do not pair; NaN when either side has fewer than two.

    Seeds that pair have one interval, that of the mean of their differences.
    """
    if min(len(ours), len(theirs)) < 2:
        return math.nan, math.nan
    low, high = percentiles(resampled_means(ours[None])[0] - resampled_means(theirs[None], stream=1)[0])
    return float(low), float(high)


def intervals(values: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The intervals of many means, those of as many seeds together."""
    ends = np.full((2, len(values)), math.nan)
    seeds = np.array([len(one) for one in values])
    for count in np.unique(seeds[seeds > 1]):
        rows = np.flatnonzero(seeds == count)
        for some in np.array_split(rows, math.ceil(len(rows) / _AT_ONCE)):
            ends[:, some] = _interval_ends(np.stack([values[row] for row in some]))
    return ends[0], ends[1]


def _interval_ends(values: Numbers) -> Numbers:
    """The percentiles of the resampled means of rows of as many seeds: [rows, seeds] to [2, rows].

    Five seeds can be picked in 126 ways only, so that most resamples are the same few. It is enough to have each of
    these means once and to count it as often as it is there.
    """
    picks, times = _distinct_picks(values.shape[1])
    if 2 * len(times) > RESAMPLES:
        return percentiles(resampled_means(values))
    means = values @ picks / values.shape[1]
    order = np.argsort(means, axis=1)
    means, reached = np.take_along_axis(means, order, axis=1), times[order].cumsum(axis=1)
    ends = np.stack([_at_place(means, reached, (1 + side * LEVEL) / 2 * (RESAMPLES - 1)) for side in (-1, 1)])
    return np.clip(ends, values.min(axis=1), values.max(axis=1)).round(DECIMALS)


@functools.cache
def _distinct_picks(seeds: int) -> tuple[Numbers, NDArray[np.intp]]:
    """How often each resample picks each seed, and how many are alike: [seeds, distinct] and [distinct]."""
    picks, times = np.unique(_times_picked(seeds), axis=1, return_counts=True)
    return picks, times


def _at_place(means: Numbers, reached: NDArray[np.intp], place: float) -> Numbers:
    """The value at a place among all resampled means of each row, in order; between two places, on the line."""
    lower, upper = (
        np.take_along_axis(means, (reached <= whole).sum(axis=1, keepdims=True), axis=1)[:, 0]
        for whole in (math.floor(place), math.ceil(place))
    )
    value: Numbers = lower + (upper - lower) * (place - math.floor(place))
    return value


def percentiles(resampled: Numbers) -> Numbers:
    """The ends of the percentile interval of what was resampled: [..., RESAMPLES] to [2, ...]."""
    ends: Numbers = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return ends.round(DECIMALS)


def resampled_means(values: Numbers, stream: int = 0) -> Numbers:
    """Means over resampled seeds: [rows, seeds] to [rows, RESAMPLES].

    Rows of as many seeds are resampled alike: a seed stands for the same facts in all of them. Where it does not,
    another stream resamples independently of the first.
    """
    seeds = values.shape[1]
    means: Numbers = values @ _times_picked(seeds, stream)
    means /= seeds
    # Rounding must not make an interval of seeds that all agree.
    return np.clip(means, values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True), out=means)


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


@functools.cache
def _times_picked(seeds: int, stream: int = 0) -> Numbers:
    """How often each seed is picked in each resample: [seeds, RESAMPLES]."""
    picks = _generator(stream).integers(seeds, size=(RESAMPLES, seeds)) + np.arange(RESAMPLES)[:, None] * seeds
    return np.bincount(picks.ravel(), minlength=RESAMPLES * seeds).reshape(RESAMPLES, seeds).T.astype(np.float64)


def _generator(stream: int = 0) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(0, spawn_key=(stream,) if stream else ()))
