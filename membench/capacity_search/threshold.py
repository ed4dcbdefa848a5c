"""The threshold: at how many facts half of the seeds still memorise them, and how sure that number is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from membench.analysis.intervals import Numbers, mean_interval, percentiles, resampled_successes
from membench.capacity_search.measurement import Measurement, summarise


@dataclass(frozen=True)
class Threshold:
    """How many facts half of the seeds memorise at a level of accuracy.

    `status` is found, at least (the largest number that there is was still memorised) or below (the
    smallest was not); the interval is NaN unless found.
    """

    level: float
    status: str
    facts: float
    low: float
    high: float
    load: float
    load_low: float
    load_high: float


@dataclass(frozen=True)
class Peak:
    """The most bits for each parameter, as a mean over seeds, and where that was."""

    bits: float
    low: float
    high: float
    facts: int
    load: float


def crossing(reached: Sequence[float]) -> int:
    """How many values come before the success rate falls below a half.

    Where the rates are not in order, this is where their isotonic regression falls below it.
    """
    gains = np.concatenate([[0.0], np.cumsum(np.asarray(reached) - 0.5)])
    return int(len(gains) - 1 - np.argmax(gains[::-1]))


def threshold(done: Sequence[Measurement], levels: Sequence[float], level: float) -> Threshold:
    """The number of facts at which half of the seeds reach the level, by logistic regression on its logarithm."""
    rows = summarise(done, levels)
    reached = [row.reached[list(levels).index(level)] for row in rows]
    split = crossing(reached)
    if split in (0, len(rows)):
        edge, status = (rows[0], "below") if split == 0 else (rows[-1], "at least")
        return Threshold(level, status, edge.facts, math.nan, math.nan, edge.load, math.nan, math.nan)
    facts = np.log([row.facts for row in rows])
    middle, step = (facts[split] + facts[split - 1]) / 2, facts[split] - facts[split - 1]
    seeds = np.array([row.seeds for row in rows], dtype=float)
    curve = _Logistic((facts - middle) / step, seeds)
    found = middle + step * np.array([*curve.middle(np.array([reached]) * seeds), *curve.interval(reached)])
    if set(reached[:split]) == {1.0} and set(reached[split:]) == {0.0}:  # it may lie anywhere in between
        found[1:] = min(found[1], facts[split - 1]), max(found[2], facts[split])
    found = np.clip(found, facts[0], facts[-1])
    loads = np.interp(found, facts, np.log([row.load for row in rows]))
    return Threshold(level, "found", *map(float, np.exp(found)), *map(float, np.exp(loads)))


@dataclass(frozen=True)
class _Logistic:
    """Success against a scaled logarithm, with the penalty of Firth (1993).

    Without it, data that one cut separates, which is what a sharp transition gives, have no best curve.
    """

    x: Numbers
    trials: Numbers

    def middle(self, successes: Numbers) -> Numbers:
        """Where success is as likely as failure, for each row of successes."""
        offset, slope = self._fit(successes).T
        slope = np.minimum(slope, -1e-3)  # more facts are never easier
        return np.asarray(-offset / slope)

    def interval(self, reached: Sequence[float]) -> Numbers:
        """Percentiles over seeds that are drawn anew from the fitted curve."""
        offset, slope = self._fit((np.asarray(reached) * self.trials)[None])[0]
        chance = 1 / (1 + np.exp(-np.clip(offset + slope * self.x, -500, 500)))
        return percentiles(self.middle(resampled_successes(self.trials.astype(np.int64), chance)))

    def _fit(self, successes: Numbers) -> Numbers:
        """Offset and slope of each row, [rows, 2], by Newton's method on Firth's equations."""
        columns = np.column_stack([np.ones_like(self.x), self.x])
        found = np.zeros((len(successes), 2))
        for _ in range(200):
            chance = 1 / (1 + np.exp(-np.clip(found @ columns.T, -30, 30)))
            weight = self.trials * chance * (1 - chance)
            information = np.einsum("rv,vi,vj->rij", weight, columns, columns) + 1e-12 * np.eye(2)
            leverage = weight * np.einsum("vi,rij,vj->rv", columns, np.linalg.inv(information), columns)
            score = (successes - self.trials * chance + leverage * (0.5 - chance)) @ columns
            step = np.linalg.solve(information, score[:, :, None])[:, :, 0]
            length = np.abs(step).max(axis=1, keepdims=True)
            found = found + step * np.minimum(1.0, 1.0 / np.maximum(length, 1e-12))
            if length.max() < 1e-6:
                break
        return found


def peak(done: Sequence[Measurement], levels: Sequence[float] = ()) -> Peak | None:
    """The largest mean of memorised bits for each parameter; None for a model without parameters."""
    rows = [row for row in summarise(done, levels) if math.isfinite(row.bits)]
    if not rows:
        return None
    best = max(rows, key=lambda row: row.bits)
    low, high = mean_interval(np.array([one.bits for one in done if one.value == best.value]))
    return Peak(best.bits, low, high, best.facts, best.load)
