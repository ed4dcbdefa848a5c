"""Standings: one score for each architecture of a table, from all its sizes. docs/leaderboard.md has the formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from membench.analysis.intervals import Numbers, combined_interval, mean_interval
from membench.measure.metrics import METRICS
from membench.measure.size import COUNTS
from membench_leaderboard.budgets import AREA_FROM, AREA_TO, BUDGETS
from membench_leaderboard.columns import INTERVALS
from membench_leaderboard.rows import BY_SEED, Row, Table, shared_ranks, verification

MASTERED = 0.99  # the accuracy that the load is read at


def standings(table: Table) -> list[Row]:
    """The architectures of one table, best area first; what was published is apart from what was not."""
    entrants: dict[tuple[str, bool], list[Row]] = {}
    for row in table.models:
        entrants.setdefault((row["architecture"], row["published"]), []).append(row)
    sign = METRICS[table.by].sign
    found = [{"architecture": name, "published": published, **score(rows, table.by)}
             for (name, published), rows in sorted(entrants.items())]  # fmt: skip
    found.sort(key=lambda one: (-sign * one["area"], -_or_nothing(one["peak_bits_per_parameter"]), one["architecture"]))
    if not table.ranked:
        return [{"rank": None, "tied": None, **one} for one in found]
    area, low, high = (np.array([sign * one[key] for one in found]) for key in ("area", "area_low", "area_high"))
    ranks, tied = shared_ranks(area, np.minimum(low, high), np.maximum(low, high))
    return [{"rank": rank, "tied": tie, **one} for rank, tie, one in zip(ranks, tied, found, strict=True)]


def _or_nothing(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def score(rows: list[Row], by: str) -> Row:
    """The scores of one architecture: over all its models in a table that is sorted by a metric."""
    area, low, high = _area(pieces(rows, by), by, rows)
    return {
        "budgets": {
            str(budget): {word: _at_budget(rows, budget, count.field, by) for word, count in COUNTS.items()}
            for budget in BUDGETS
        },
        "area": area,
        "area_low": low,
        "area_high": high,
        "peak_bits_per_parameter": _over(rows, "bits_per_parameter", max),
        "load_at_99": _over([row for row in rows if row["accuracy"] >= MASTERED], "load", max),
        "ratio_to_bound": _over(rows, "ratio_to_bound", max),
        "ratio_to_oracle": _over(rows, "ratio_to_oracle", max),
        "excess_kl": _over(rows, "excess_kl", min),
        "origin": max((row["origin"] for row in rows), key=len),  # that of a plugin's kernel, if one has it
        "verification": verification(rows),
        "membench": ", ".join(sorted({row["membench"] for row in rows})),
        "models": len(rows),
    }


def _over(rows: Iterable[Row], name: str, choose: Callable[..., float]) -> float:
    return choose((row[name] for row in rows if not math.isnan(row[name])), default=math.nan)


def best(rows: Iterable[Row], by: str) -> Row | None:
    """The row with the best mean; of equals the smaller, then the first by id."""
    sign = METRICS[by].sign
    measured = [row for row in rows if not math.isnan(row[by])]
    return min(measured, key=lambda row: (-sign * row[by], row["parameters"], row["id"]), default=None)


def _at_budget(rows: Iterable[Row], budget: int, size: str, by: str) -> Row | None:
    found = best((row for row in rows if row[size] <= budget), by)
    if found is None:
        return None
    return {name: found[name] for name in ("accuracy", "low", "high", "kl", "kl_low", "kl_high", "id", "parameters")}


@dataclass(frozen=True)
class Piece:
    """A part of the area: the best row with at most so many parameters, and the share of the range where it is that."""

    row: Row | None  # None where nothing fits
    start: float
    end: float

    @property
    def weight(self) -> float:
        return math.log(self.end / self.start) / math.log(AREA_TO / AREA_FROM)


def pieces(rows: Sequence[Row], by: str) -> list[Piece]:
    """The step function 'best mean with at most p parameters' over the range of the area."""
    steps: list[tuple[float, Row | None]] = [(AREA_FROM, best((r for r in rows if r["parameters"] <= AREA_FROM), by))]
    for row in sorted(rows, key=lambda row: (row["parameters"], row["id"])):
        if AREA_FROM < row["parameters"] < AREA_TO:
            better = best([one for one in (steps[-1][1], row) if one], by)
            if better is row:
                steps.append((row["parameters"], row))
    ends = [start for start, _ in steps[1:]] + [AREA_TO]
    found = [Piece(row, start, end) for (start, row), end in zip(steps, ends, strict=True)]
    return [piece for piece in found if piece.end > piece.start]


def _area(found: Sequence[Piece], by: str, rows: Sequence[Row]) -> tuple[float, float, float]:
    """The mean of the step function over log p, and its interval over seeds.

    Where nothing fits, an accuracy counts as 0 and a divergence as ln A, the most that a uniform guess can have.
    """
    chance = next((row["chance"] for row in rows if row["chance"] > 0), math.nan)
    nothing = 0.0 if by == "accuracy" else -math.log(chance) if chance > 0 else math.nan
    constant = sum(piece.weight * nothing for piece in found if piece.row is None)
    counted = [(piece.weight, piece.row) for piece in found if piece.row is not None]
    area = constant + sum(weight * row[by] for weight, row in counted)
    if not counted or any(math.isnan(row[INTERVALS[by][0]]) for _, row in counted):
        return area, math.nan, math.nan
    low, high = _interval([weight for weight, _ in counted], [row[BY_SEED[by]] for _, row in counted])
    low, high, ceiling = constant + low, constant + high, METRICS[by].ceiling
    return (area, low, high) if ceiling is None else (area, max(low, 0.0), min(high, ceiling))


def _interval(weights: Sequence[float], samples: Sequence[Numbers]) -> tuple[float, float]:
    """A seed stands for the same facts in every model of a table: where all have as many, each has an area."""
    if len({len(one) for one in samples}) == 1:
        return mean_interval(np.array(weights) @ np.stack(samples))
    return combined_interval(weights, samples)
