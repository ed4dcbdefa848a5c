"""Rows, one for each model: means over seeds with intervals, and ranks that respect them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from membench.analysis.intervals import DECIMALS, Numbers, intervals
from membench.measure.metrics import METRICS
from membench_leaderboard.frame import RATIOS, SIZES

# Only like is compared with like.
TABLE = ["task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config"]
POINT = [*TABLE, "architecture", "config", "id", "published"]
MEANS = [*SIZES, *METRICS, *RATIOS, "load", "lower_bound", "zero_head", "chance", "bayes"]
INTERVALS = {"accuracy": ("low", "high"), "kl": ("kl_low", "kl_high")}
BY_SEED = {"accuracy": "accuracies", "kl": "divergences"}  # columns that keep what each seed reached


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each point of the grid: means over its seeds, with intervals."""
    grouped = frame.groupby(POINT, sort=False, dropna=False)
    number = grouped.ngroup().to_numpy()
    order = np.argsort(number, kind="stable")
    seeds = np.bincount(number)
    rows = grouped[MEANS].mean().reset_index()
    rows["seeds"] = seeds
    rows["kind"] = grouped["kind"].first().to_numpy()
    rows["lower_bound_name"] = grouped["lower_bound_name"].first().to_numpy()
    rows["membench"] = [", ".join(sorted(set(some))) for some in _split(frame["membench"], order, seeds)]
    rows["verified"] = [all(some) for some in _split(frame["verified"], order, seeds)]
    rows["converged"] = [_all_converged(some) for some in _split(frame["converged"], order, seeds)]
    for name, column in BY_SEED.items():
        rows[column] = _split(frame[name].astype(np.float64), order, seeds)
    rows["low"], rows["high"] = intervals(list(rows["accuracies"]))
    decided = _distributions(rows)  # elsewhere nobody asks for the interval of a divergence
    rows["kl_low"] = rows["kl_high"] = math.nan
    rows.loc[decided, "kl_low"], rows.loc[decided, "kl_high"] = intervals(list(rows.loc[decided, "divergences"]))
    return rows


def _distributions(rows: pd.DataFrame) -> pd.Series[bool]:
    """Rows whose facts are distributions."""
    return rows["kind"] == "distribution"


def _split(column: pd.Series[Any], order: NDArray[np.intp], seeds: NDArray[np.intp]) -> list[Any]:
    """The values of each group."""
    return np.split(column.to_numpy()[order], np.cumsum(seeds)[:-1]) if len(seeds) else []


def _all_converged(values: Sequence[Any]) -> bool | None:
    known = [bool(value) for value in values if isinstance(value, (bool, np.bool_))]
    return all(known) if known else None


def sorted_by(rows: pd.DataFrame) -> str:
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
    by = sorted_by(rows)
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
