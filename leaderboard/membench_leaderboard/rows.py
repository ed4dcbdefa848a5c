"""Rows, one for each model: means over seeds with intervals, and ranks that respect them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from membench.analysis.intervals import DECIMALS, Numbers, intervals
from membench.engine.protocols.protocol import PROTOCOLS
from membench.measure.metrics import METRICS
from membench_leaderboard.columns import INTERVALS, MODELS

Row = dict[str, Any]

# Only like is compared with like.
TABLE = ["task", "task_version", "task_config", "protocol", "protocol_version", "protocol_config"]
POINT = [*TABLE, "architecture", "config", "id", "published"]
MEANS = [column.key for column in MODELS if column.averaged]
OF_THE_FIRST = ("kind", "contexts", "all_contexts", "lower_bound_name")  # columns that do not depend on the seed
BY_SEED = {"accuracy": "accuracies", "kl": "divergences"}  # columns that keep what each seed reached


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each point of the grid: means over its seeds, with intervals."""
    grouped = frame.groupby(POINT, sort=False, dropna=False)
    groups = _Groups(grouped.ngroup().to_numpy())
    rows = grouped[MEANS].mean().reset_index()
    rows["seeds"] = groups.seeds
    for name in OF_THE_FIRST:
        rows[name] = grouped[name].first().to_numpy()
    rows["membench"] = groups.joined(frame["membench"])
    rows["converged"] = _all_converged(frame["converged"], groups)
    foreign = ~groups.all(~frame["foreign_kernel"].astype(bool))
    rows["origin"] = [origin(protocol, kernel) for protocol, kernel in zip(rows["protocol"], foreign, strict=True)]
    rows["verified"] = groups.all(frame["verified"])
    rows["verifier"] = np.where(groups.all(frame["verifier"] != ""), groups.joined(frame["verifier"]), "")
    rows["not_retrained"] = ~groups.all(~frame["not_retrained"].astype(bool))
    checked = rows[["verified", "published", "verifier", "not_retrained"]].to_dict("records")
    rows["verification"] = [verification([cast("Row", row)]) for row in checked]
    rows["seed_numbers"] = groups.split(frame["seed"])
    for name, column in BY_SEED.items():
        rows[column] = groups.split(frame[name].astype(np.float64))
    rows["low"], rows["high"] = intervals(list(rows["accuracies"]), METRICS["accuracy"].ceiling)
    decided = _distributions(rows)  # elsewhere nobody asks for the interval of a divergence
    rows["kl_low"] = rows["kl_high"] = math.nan
    rows.loc[decided, "kl_low"], rows.loc[decided, "kl_high"] = intervals(list(rows.loc[decided, "divergences"]))
    return rows


class _Groups:
    """Which trials belong to which row. A board may have many thousands of rows, so that none is gone through alone."""

    def __init__(self, number: NDArray[np.integer[Any]]) -> None:
        self.seeds = np.bincount(number)
        self._order = np.argsort(number, kind="stable")
        self._ends = np.cumsum(self.seeds)

    def split(self, column: pd.Series[Any]) -> list[Any]:
        """The values of each row."""
        values = column.to_numpy()[self._order]
        return [values[start:end] for start, end in zip(self._ends - self.seeds, self._ends, strict=True)]

    def all(self, column: pd.Series[Any]) -> NDArray[np.bool_]:
        if not len(self.seeds):
            return np.zeros(0, bool)
        values = column.to_numpy(bool)[self._order]
        return np.logical_and.reduceat(values, self._ends - self.seeds)

    def joined(self, column: pd.Series[Any]) -> list[str]:
        """The distinct texts of each row."""
        if column.nunique() == 1:
            return [str(column.iloc[0])] * len(self.seeds)
        return [", ".join(sorted(set(some))) for some in self.split(column)]


def _all_converged(column: pd.Series[Any], groups: _Groups) -> list[bool | None]:
    """Whether every trial that knows it converged; None where no trial knows it."""
    known = pd.Series([isinstance(value, (bool, np.bool_)) for value in column])
    none_failed = groups.all(~known | column.eq(True).reset_index(drop=True))
    unknown = groups.all(~known)
    return [None if nothing else bool(yes) for nothing, yes in zip(unknown, none_failed, strict=True)]


def is_ranked(protocol: str) -> bool:
    return protocol not in PROTOCOLS or PROTOCOLS[protocol].ranked


def origin(protocol: str, foreign_kernel: bool = False) -> str:
    if protocol in PROTOCOLS and not PROTOCOLS[protocol].trains:
        return "constructed"
    return "trained by a plugin's kernel" if foreign_kernel else "trained"


def verification(rows: Sequence[Row]) -> str:
    """Of all these rows. Published ones were verified by whoever published them; others say who signed that.

    A plugin's code could draw the facts again; only training it on answers that no seed gives shows that it does not.
    """
    if not all(row["verified"] for row in rows):
        return "self-reported"
    if any(row["not_retrained"] for row in rows):
        return "verified, not retrained"
    if all(row["published"] for row in rows):
        return "verified"
    (verifier, *others) = {row["verifier"] for row in rows}
    return f"verified by {verifier}" if verifier and not others else "verified, unsigned"


def _distributions(rows: pd.DataFrame) -> pd.Series[bool]:
    """Rows whose facts are distributions."""
    return rows["kind"] == "distribution"


def sorted_by(rows: pd.DataFrame) -> str:
    """What the rows of one table are sorted by.

    Facts that are distributions have no accuracy of 1 to reach, and the likeliest answer says little of them:
    there the divergence decides. What kind they are is said by the verified rows, or else by most of them: a single
    record that nobody checked must not sort a table anew.
    """
    checked = rows[rows["verified"].astype(bool)]
    return "kl" if bool(_distributions(rows if checked.empty else checked).mean() > 0.5) else "accuracy"


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
    """The rows of one table, best first: by accuracy or divergence, then by fewer parameters; with ranks and front.

    Those of a protocol that is never ranked come in the same order, without ranks and front.
    """
    by = sorted_by(rows)
    sign = METRICS[by].sign
    rows = rows.sort_values([by, "parameters", "id"], ascending=[sign < 0, True, True], ignore_index=True)
    if not is_ranked(rows["protocol"].iloc[0]):
        return rows.assign(rank=None, tied=None, pareto=None)
    values, *ends = (rows[name].to_numpy(np.float64) for name in (by, *INTERVALS[by]))
    low, high = ends if sign > 0 else (-ends[1], -ends[0])
    ranks, tied = shared_ranks(sign * values, low, high)
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


@dataclass(frozen=True)
class Table:
    """The models of one task config and protocol, best first, and what they have in common."""

    common: Mapping[str, Any]
    frame: pd.DataFrame
    by: str  # the metric that they are sorted by

    @property
    def ranked(self) -> bool:
        return is_ranked(self.common["protocol"])

    @cached_property
    def models(self) -> list[Row]:
        return cast("list[Row]", self.frame.to_dict("records"))


def tables(rows: pd.DataFrame) -> Iterator[Table]:
    """The rows of a board, ranked; one table for each task config and protocol."""
    for key, group in rows.groupby(TABLE, sort=True):
        yield Table(dict(zip(TABLE, key, strict=True)), ranked(group), sorted_by(group))
