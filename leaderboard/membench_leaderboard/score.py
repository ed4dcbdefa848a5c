"""Scores of single models: means over seeds with intervals, and ranks that respect them."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from membench_leaderboard.frame import METRICS, RATIOS, SIZES

Numbers = NDArray[np.float64]

# Only like is compared with like.
TABLE = ["task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config"]
POINT = [*TABLE, "architecture", "config", "id", "published"]
MEANS = [*SIZES, *METRICS, *RATIOS, "load", "lower_bound", "zero_head", "chance", "bayes"]
INTERVALS = {"accuracy": ("low", "high"), "kl": ("kl_low", "kl_high")}
BY_SEED = {"accuracy": "accuracies", "kl": "divergences"}  # columns that keep what each seed reached
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
    low, high = _intervals([values])
    return float(low[0]), float(high[0])


def _intervals(values: Sequence[Numbers]) -> tuple[Numbers, Numbers]:
    """The intervals of many rows, those of as many seeds together."""
    ends = np.full((2, len(values)), math.nan)
    seeds = np.array([len(one) for one in values])
    for count in np.unique(seeds[seeds > 1]):
        rows = np.flatnonzero(seeds == count)
        for some in np.array_split(rows, math.ceil(len(rows) / _AT_ONCE)):
            ends[:, some] = percentiles(resampled_means(np.stack([values[row] for row in some])))
    return ends[0], ends[1]


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each point of the grid: means over its seeds, with intervals."""
    grouped = frame.groupby(POINT, sort=False, dropna=False)
    number = grouped.ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    seeds = np.bincount(number)
    rows = grouped[MEANS].mean().reset_index()
    rows["seeds"] = seeds
    rows["lower_bound_name"] = grouped["lower_bound_name"].first().to_numpy()
    rows["membench"] = [", ".join(sorted(set(some))) for some in _split(frame["membench"], order, seeds)]
    rows["verified"] = [all(some) for some in _split(frame["verified"], order, seeds)]
    rows["converged"] = [_all_converged(some) for some in _split(frame["converged"], order, seeds)]
    for name, column in BY_SEED.items():
        rows[column] = _split(frame[name].astype(np.float64), order, seeds)
    rows["low"], rows["high"] = _intervals(list(rows["accuracies"]))
    decided = _distributions(rows)  # elsewhere nobody asks for the interval of a divergence
    rows["kl_low"] = rows["kl_high"] = math.nan
    rows.loc[decided, "kl_low"], rows.loc[decided, "kl_high"] = _intervals(list(rows.loc[decided, "divergences"]))
    return rows


def _distributions(rows: pd.DataFrame) -> pd.Series[bool]:
    """Rows whose facts are distributions: the best possible accuracy is below 1."""
    return rows["bayes"] < 1 - 1e-9


def _split(column: pd.Series[Any], order: NDArray[np.intp], seeds: NDArray[np.intp]) -> list[Any]:
    """The values of each group."""
    return np.split(column.to_numpy()[order], np.cumsum(seeds)[:-1]) if len(seeds) else []


def _all_converged(values: Sequence[Any]) -> bool | None:
    known = [bool(value) for value in values if isinstance(value, (bool, np.bool_))]
    return all(known) if known else None


def measure(rows: pd.DataFrame) -> str:
    """What the rows of one table are sorted by.

    Facts that are distributions have no accuracy of 1 to reach, and the likeliest answer says little of them:
    there the divergence decides.
    """
    return "kl" if bool(_distributions(rows).any()) else "accuracy"


def shared_ranks(values: Numbers, low: Numbers, high: Numbers) -> tuple[list[int], list[bool]]:
    """Ranks of values that fall from first to last, and which are shared; those whose intervals overlap share one.

    Sharing is with the first of the rank, so that a chain of overlaps cannot tie the best with the worst.
    """
    low, high = (np.where(np.isnan(end), values, end).round(DECIMALS) for end in (low, high))
    ranks: list[int] = []
    leader = 0
    for i in range(len(values)):
        if i and not high[i] >= low[leader]:
            leader = i
        ranks.append(leader + 1)
    sharing = Counter(ranks)
    return ranks, [sharing[rank] > 1 for rank in ranks]


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of one table, best first: by accuracy or divergence, then by fewer parameters; with ranks and front."""
    by = measure(rows)
    rows = rows.sort_values([by, "parameters", "id"], ascending=[by == "kl", True, True], ignore_index=True)
    low, high = (rows[end].to_numpy(np.float64) for end in INTERVALS[by])
    values = rows[by].to_numpy(np.float64)
    ranks, tied = shared_ranks(values, low, high) if by == "accuracy" else shared_ranks(-values, -high, -low)
    return rows.assign(rank=ranks, tied=tied, pareto=_front(rows["parameters"].to_numpy(np.float64), values))


def _front(parameters: Numbers, best_first: Numbers) -> list[bool]:
    """Whether nothing that is as small is better, and nothing that is as good is smaller."""
    front = []
    last = (math.inf, math.nan)  # the smallest so far, and how good it is
    for size, value in zip(parameters, best_first, strict=True):
        front.append(not math.isnan(value) and (size < last[0] or (size, value) == last))
        if front[-1]:
            last = (size, value)
    return front


def select(
    rows: pd.DataFrame,
    *,
    task: str | None = None,
    protocol: str | None = None,
    options: Sequence[str] = (),
    budget: int | None = None,
    count: str = "parameters",
) -> pd.DataFrame:
    """The rows of one task or protocol, of tasks with some options (such as N=50), or that fit a budget."""
    for column, value in (("task", task), ("protocol", protocol)):
        if value is not None:
            rows = rows[rows[column] == value]
    for option in options:
        rows = rows[[option in config.split() for config in rows["task_config"]]]
    if budget is not None:
        rows = rows[rows[count] <= budget]
    return rows.reset_index(drop=True)
