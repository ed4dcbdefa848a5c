"""Scores: means over seeds with intervals, and ranks that respect them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from membench_leaderboard.frame import METRICS, RATIOS, SIZES

# Only like is compared with like.
TABLE = ["task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config"]
POINT = [*TABLE, "architecture", "config", "id"]
RESAMPLES = 4000


def bootstrap_interval(values: NDArray[np.float64], level: float = 0.95) -> tuple[float, float]:
    """Percentile interval of the mean over resampled seeds; NaN for fewer than two seeds, which tell nothing of it."""
    if len(values) < 2:
        return math.nan, math.nan
    generator = np.random.default_rng(0)  # the same records always show the same interval
    picks = generator.integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[picks].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each point of the grid: means over its seeds, and the interval of the accuracy."""
    rows = []
    for key, group in frame.groupby(POINT, sort=False, dropna=False):
        row = dict(zip(POINT, key, strict=True))
        row["seeds"] = len(group)
        for name in (*SIZES, *METRICS, *RATIOS, "lower_bound", "zero_head", "chance"):
            row[name] = group[name].mean()
        row["lower_bound_name"] = group["lower_bound_name"].iloc[0]
        row["low"], row["high"] = bootstrap_interval(group["accuracy"].to_numpy(dtype=np.float64))
        row["converged"] = None if group["converged"].isna().all() else bool(group["converged"].eq(True).all())
        rows.append(row)
    numbers = [*SIZES, *METRICS, *RATIOS, "lower_bound", "lower_bound_name", "zero_head", "chance", "low", "high"]
    return pd.DataFrame(rows, columns=[*POINT, "seeds", *numbers, "converged"])


def select(rows: pd.DataFrame, task: str | None = None, protocol: str | None = None) -> pd.DataFrame:
    for column, value in (("task", task), ("protocol", protocol)):
        if value is not None:
            rows = rows[rows[column] == value]
    return rows.reset_index(drop=True)


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """Sorted by accuracy, then by fewer parameters; rows whose intervals overlap share a rank.

    Sharing is with the first row of the rank, so that a chain of overlaps cannot tie the best with the worst.
    """
    rows = rows.sort_values(["accuracy", "parameters", "id"], ascending=[False, True, True], ignore_index=True)
    low, high = rows["low"].fillna(rows["accuracy"]), rows["high"].fillna(rows["accuracy"])
    ranks: list[int] = []
    leader = 0
    for i in range(len(rows)):
        if i and high[i] < low[leader]:
            leader = i
        ranks.append(leader + 1)
    return rows.assign(rank=ranks, tied=[ranks.count(rank) > 1 for rank in ranks])
