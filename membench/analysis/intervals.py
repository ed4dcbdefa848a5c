"""Intervals of means over seeds, by bootstrap."""

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


def resampled_means(values: Numbers) -> Numbers:
    """Means over resampled seeds: [rows, seeds] to [rows, RESAMPLES].

    Rows of as many seeds are resampled alike: a seed stands for the same facts in all of them. And the same records
    always show the same interval.
    """
    seeds = values.shape[1]
    means: Numbers = values @ _times_picked(seeds)
    means /= seeds
    # Rounding must not make an interval of seeds that all agree.
    return np.clip(means, values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True), out=means)


@functools.cache
def _times_picked(seeds: int) -> Numbers:
    """How often each seed is picked in each resample: [seeds, RESAMPLES]."""
    picks = np.random.default_rng(0).integers(seeds, size=(RESAMPLES, seeds)) + np.arange(RESAMPLES)[:, None] * seeds
    return np.bincount(picks.ravel(), minlength=RESAMPLES * seeds).reshape(RESAMPLES, seeds).T.astype(np.float64)


def percentiles(means: Numbers) -> Numbers:
    """The ends of the percentile interval of resampled means: [..., RESAMPLES] to [2, ...]."""
    ends: Numbers = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=-1)
    return ends.round(DECIMALS)


def bootstrap_interval(values: Numbers) -> tuple[float, float]:
    """Percentile interval of the mean over resampled seeds; NaN for fewer than two seeds, which tell nothing of it."""
    low, high = intervals([values])
    return float(low[0]), float(high[0])


def intervals(values: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The intervals of many rows, those of as many seeds together."""
    ends = np.full((2, len(values)), math.nan)
    seeds = np.array([len(one) for one in values])
    for count in np.unique(seeds[seeds > 1]):
        rows = np.flatnonzero(seeds == count)
        for some in np.array_split(rows, math.ceil(len(rows) / _AT_ONCE)):
            ends[:, some] = percentiles(resampled_means(np.stack([values[row] for row in some])))
    return ends[0], ends[1]
